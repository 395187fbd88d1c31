// For tests: a peer as bare as can be, one blocking socket that speaks frames, well formed or not.
// Reads end at a deadline, never later.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "collective/hint.h"
#include "net/security/blocking_introduction.h"
#include "wire/serialize.h"

namespace jccl::master {

inline constexpr int kPatienceMs = 20'000;  // for what must come; never waited for in full

inline std::uint16_t port_of(const std::string& address) {
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

// The key pair of whoever has this incarnation; the same for every life with that number.
inline net::Identity identity_of(std::uint64_t incarnation) {
  std::array<std::uint8_t, 32> seed{};
  std::memcpy(seed.data(), &incarnation, sizeof incarnation);
  return net::Identity::from_seed(seed).value();
}

class RawPeer {
 public:
  // Proves that it has the key of `incarnation`, as every peer does. With `receive_bytes` its
  // window is so small that little is under way to it.
  explicit RawPeer(const std::string& address, int receive_bytes = 0, std::uint64_t incarnation = 1,
                   net::Purpose purpose = net::Purpose::kControl, const std::string& group = {})
      : RawPeer(address, receive_bytes, Stranger{}) {
    connected_ = connected_ && net::introduce_blocking(fd_, identity_of(incarnation), purpose,
                                                       kPatienceMs, group);
  }
  // One that connects and says nothing by itself.
  static RawPeer stranger(const std::string& address, int receive_bytes = 0) {
    return RawPeer(address, receive_bytes, Stranger{});
  }
  RawPeer(RawPeer&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        held_(std::move(other.held_)) {}
  ~RawPeer() { hang_up(); }

  bool connected() const { return connected_; }
  void hang_up() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send_bytes(const base::Bytes& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<std::size_t>(n);
    }
    return true;
  }
  bool send_frame(const base::Bytes& payload) {
    base::Writer w;
    w.u32(static_cast<std::uint32_t>(payload.size()));
    w.u32(base::crc32c(payload));
    w.raw(payload.data(), payload.size());
    return send_bytes(w.take());
  }
  bool send(const wire::Message& message) { return send_frame(wire::encode(message)); }

  // The next message; nothing if the connection ended or the time did.
  std::optional<wire::Message> next(int patience_ms = kPatienceMs) {
    const auto frame = next_frame(patience_ms);
    if (!frame) return std::nullopt;
    auto message = wire::decode(*frame);
    if (!message.ok()) return std::nullopt;
    return message.value();
  }
  // The next message of this kind; others are skipped.
  template <typename T>
  std::optional<T> await(int patience_ms = kPatienceMs) {
    const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
    while (auto message = next(left(end))) {
      if (auto* wanted = std::get_if<T>(&*message)) return *wanted;
    }
    return std::nullopt;
  }
  // Whether the other side ends the connection within the time.
  bool ended(int patience_ms = kPatienceMs) {
    const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
    while (read_more(end)) held_.clear();
    return ended_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Stranger {};

  RawPeer(const std::string& address, int receive_bytes, Stranger) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_of(address));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }

  static int left(Clock::time_point end) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    return ms.count() > 0 ? static_cast<int>(ms.count()) : 0;
  }
  bool read_more(Clock::time_point end) {
    pollfd wait{fd_, POLLIN, 0};
    if (fd_ < 0 || ::poll(&wait, 1, left(end)) <= 0) return false;
    std::uint8_t room[4096];
    const ssize_t n = ::recv(fd_, room, sizeof room, 0);
    ended_ = n <= 0;
    if (ended_) return false;
    held_.insert(held_.end(), room, room + n);
    return true;
  }
  std::optional<base::Bytes> next_frame(int patience_ms) {
    const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
    for (;;) {
      std::uint32_t size = 0;
      if (held_.size() >= 8) std::memcpy(&size, held_.data(), 4);
      if (held_.size() >= 8 + size && held_.size() >= 8) {
        base::Bytes frame(held_.begin() + 8, held_.begin() + 8 + size);
        held_.erase(held_.begin(), held_.begin() + 8 + size);
        return frame;
      }
      if (!read_more(end)) return std::nullopt;
    }
  }

  int fd_ = -1;
  bool connected_ = false, ended_ = false;
  base::Bytes held_;
};

inline wire::Hello hello_of(wire::Incarnation incarnation, const wire::RunId& run = {},
                            bool listens = false) {
  wire::Hello hello;
  hello.run = run;
  hello.incarnation = incarnation;
  hello.site = "site-" + std::to_string(incarnation);
  if (listens) hello.addresses = {"127.0.0.1:1"};  // said, not meant: no data moves
  return hello;
}

// A peer that says hello and takes part in rounds, without moving any data.
struct Member {
  RawPeer socket;
  wire::Incarnation incarnation;
  std::optional<wire::Welcome> welcome;

  Member(const std::string& address, wire::Incarnation id, std::vector<wire::Unresolved> open = {},
         bool listens = false, int receive_bytes = 0, const std::string& group = {},
         std::uint32_t start_peers = 0)
      : socket(address, receive_bytes, id, net::Purpose::kControl, group), incarnation(id) {
    wire::Hello hello = hello_of(id, {}, listens);
    hello.start_peers = start_peers;
    socket.send(hello);
    welcome = socket.await<wire::Welcome>();
    socket.send(wire::Resume{std::move(open), {}});
  }
  bool ready(const std::string& tag, std::uint64_t n) {
    wire::Ready message;
    message.round = {tag, n};
    message.descriptor = {1, 2};
    message.summary = "f32[4]";
    message.hint = collective::encode_hint({});
    message.deadline = 60 * base::kSecond;
    return socket.send(message);
  }
};

// One committed round of all members; the attempt, or nothing if any of them got something else.
inline std::optional<base::Attempt> commit_round(std::vector<Member*> members,
                                                 const std::string& tag, std::uint64_t n) {
  base::Attempt attempt;
  for (Member* member : members) member->ready(tag, n);
  for (Member* member : members) {
    const auto start = member->socket.await<wire::Start>();
    if (!start || start->round != wire::RoundName{tag, n}) return std::nullopt;
    attempt = start->attempt;
    member->socket.send(wire::Done{attempt, {3, 4}});
  }
  for (Member* member : members) {
    const auto outcome = member->socket.await<wire::Outcome>();
    if (!outcome || outcome->verdict != wire::Verdict::kCommitted) return std::nullopt;
    if (outcome->attempt != attempt || outcome->contributors.size() != members.size()) {
      return std::nullopt;
    }
  }
  return attempt;
}

}  // namespace jccl::master
