#include "net/socket/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/planted.h"
#include "base/text.h"
#include "net/socket/linger.h"
#include "net/socket/reach.h"
#include "net/socket/watch.h"

namespace jccl::net {
namespace {

constexpr int kBacklog = 1024;
constexpr int kAcceptsPerTurn = 16;
constexpr Duration kPauseWithoutFiles = 50 * base::kMillisecond;
constexpr int kPortTries = 8;

Result<int> open_socket(const Endpoint& endpoint, bool dual_stack, bool listening) {
  const int family = endpoint.storage.ss_family;
  const int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = fd < 0 ? errno : 0;
  if (error == 0) {
    const int on = 1;
    const int v6_only = dual_stack ? 0 : 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) {
      (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
    }
    const auto* address = reinterpret_cast<const sockaddr*>(&endpoint.storage);
    if (::bind(fd, address, endpoint.size) != 0) error = errno;
    if (error == 0 && listening && ::listen(fd, kBacklog) != 0) error = errno;
  }
  if (error == 0) return fd;
  if (fd >= 0) ::close(fd);
  if (error == EADDRINUSE) {
    return Status{Code::kIo,
                  base::cat("port ", port_of(endpoint), " is already in use (", to_text(endpoint),
                            "); choose another, or 0 for a free one")};
  }
  const bool missing = error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
  return Status{missing ? Code::kInvalid : Code::kIo,  // kInvalid: no such family or address here
                base::cat("cannot listen on ", to_text(endpoint), ": ", std::strerror(error))};
}

void set_port(Endpoint* endpoint, std::uint16_t port) {
  reinterpret_cast<sockaddr_in*>(&endpoint->storage)->sin_port = htons(port);
}

// One socket per endpoint, all on one port. Endpoints this machine lacks are left out, as long
// as one is left.
Result<std::vector<int>> open_all(const Address& bind, std::vector<Endpoint> endpoints,
                                  bool listening) {
  std::vector<int> out;
  Status status{Code::kIo, "no address to listen on"};
  std::uint16_t port = bind.port;
  for (Endpoint& endpoint : endpoints) {
    set_port(&endpoint, port);
    Result<int> fd = open_socket(endpoint, bind.host.empty(), listening);
    if (fd.ok()) {
      out.push_back(fd.value());
      port = port_of(local_endpoint(fd.value()));
      if (bind.host.empty()) break;  // [::] takes IPv4 too
      continue;
    }
    status = fd.status();
    if (status.code == Code::kInvalid) continue;
    for (const int other : out) ::close(other);
    return status;
  }
  if (!out.empty()) return out;
  return Status{Code::kIo, status.text};
}

Result<std::vector<int>> open_sockets(const Address& bind, bool listening) {
  Result<std::vector<Endpoint>> endpoints = resolve_now(bind);
  if (!endpoints.ok()) return endpoints.status();
  // A free port of one family may be taken in the other: try again with another.
  Result<std::vector<int>> out = open_all(bind, endpoints.value(), listening);
  for (int i = 1; i < kPortTries && !out.ok() && bind.port == 0; ++i) {
    out = open_all(bind, endpoints.value(), listening);
  }
  return out;
}

using PendingId = std::uint64_t;

// What tells TLS from frames of ours, whose third byte is 0 in a hello.
struct FirstBytes {
  std::array<std::uint8_t, 3> bytes{};
  std::size_t got = 0;
  bool ended = false;  // nothing more will come

  void read(int fd) {
    ssize_t n;
    do {
      n = ::recv(fd, bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) got += static_cast<std::size_t>(n);
    ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  }
  bool may_be_tls() const { return got > 0 && bytes[0] == 0x16 && (got < 2 || bytes[1] == 0x03); }
  bool enough() const { return got > 0 && (!may_be_tls() || got == bytes.size()); }
  bool is_tls() const { return may_be_tls() && bytes[2] != 0; }
};

struct Pending {
  std::unique_ptr<Watch> socket;  // until its first bytes are seen
  FirstBytes first;
  std::unique_ptr<Handshake> handshake;  // from then on
  Time deadline = 0;
  TimerId timer = 0;
  std::string network;
  std::shared_ptr<PendingPlace> place;
};

class OpenListener final : public Listener {
 public:
  OpenListener(Loop& loop, std::vector<int> sockets, const Credentials& credentials,
               ListenerOptions options, std::function<void(Accepted)> on_accepted)
      : loop_(loop),
        credentials_(credentials),
        options_(options),
        on_accepted_(std::move(on_accepted)),
        places_(std::make_shared<PendingPlaces>(options.pending_max)) {
    if (options.quotas.has_value()) quotas_.emplace(*options.quotas);
    port_ = port_of(local_endpoint(sockets.front()));
    for (const int fd : sockets) {
      sockets_.push_back(std::make_unique<Watch>(loop, fd));
      wait(sockets_.back().get());
    }
  }

  ~OpenListener() override {
    loop_.cancel(pause_);
    for (auto& [id, pending] : pending_) loop_.cancel(pending.timer);
  }

  std::uint16_t port() const override { return port_; }
  ListenerStats stats() const override {
    ListenerStats out = stats_;
    out.pending = places_->taken();
    return out;
  }
  void renew(const Credentials& credentials) override {
    credentials_ = credentials;
    if (!std::exchange(held_, false)) return;
    std::vector<PendingId> waiting;
    for (const auto& [id, pending] : pending_) {
      if (pending.socket != nullptr) waiting.push_back(id);
    }
    for (const PendingId id : waiting) {
      pending_.at(id).socket->readable(nullptr);  // it may be on its way
      sniff(id);
    }
  }
  void hold() override { held_ = true; }

 private:
  void wait(Watch* socket) {
    socket->readable([this, socket] { accept(socket); });
  }

  void accept(Watch* socket) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      Endpoint from;
      from.size = sizeof(from.storage);
      const int fd = ::accept4(socket->fd(), reinterpret_cast<sockaddr*>(&from.storage), &from.size,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        admit(fd, network_of(from));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // Readiness would come back at once; wait until files are free again.
        pause_ = loop_.run_after(kPauseWithoutFiles, [this] {
          if (JCCL_PLANTED("no-file-ends-accepting")) return;
          for (const auto& each : sockets_) wait(each.get());
        });
        return;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      }
    }
    wait(socket);
  }

  void admit(int fd, std::string network) {
    if (quotas_.has_value() && !quotas_->admit(network, loop_.now())) {
      ++stats_.over_quota;
      ::close(fd);
      return;
    }
    // Most have spoken, or gone, by now. Who is gone costs no more than this, and who spoke need
    // not be watched before it is known what speaks.
    FirstBytes first;
    if (!held_) first.read(fd);
    if (first.ended && first.got == 0 && !JCCL_PLANTED("gone-takes-a-place")) {
      ++stats_.refused;
      ::close(fd);
      return;
    }
    if (places_->full()) {
      ++stats_.excess;
      if (!places_->make_room()) {
        ::close(fd);
        return;
      }
    }
    const PendingId id = ++last_id_;
    Pending& pending = pending_[id];
    pending.first = first;
    pending.deadline = loop_.now() + options_.handshake_max;
    pending.place = places_->take(network);
    pending.place->give_way = [this, id] {
      loop_.cancel(pending_.at(id).timer);
      pending_.erase(id);
    };
    pending.network = std::move(network);
    pending.timer = loop_.run_after(
        options_.handshake_max * (JCCL_PLANTED("hello-time-four-times") ? 4 : 1), [this, id] {
          if (!JCCL_PLANTED("late-not-counted")) ++stats_.late;
          failed(pending_.at(id));
          pending_.erase(id);
        });
    if (first.enough()) return greet(id, fd);
    pending.socket = std::make_unique<Watch>(loop_, fd);
    pending.socket->readable([this, id] { sniff(id); });
  }

  void sniff(PendingId id) {
    const auto found = pending_.find(id);
    if (held_ || found == pending_.end() || found->second.socket == nullptr) return;
    Pending& pending = found->second;
    pending.first.read(pending.socket->fd());
    if (pending.first.enough()) return greet(id, std::exchange(pending.socket, {})->release());
    if (pending.first.ended) return drop(id);
    pending.socket->readable([this, id] { sniff(id); });
  }

  // Its first bytes are read: a handshake of their kind, or a refusal of that kind.
  void greet(PendingId id, int fd) {
    Pending& pending = pending_.at(id);
    std::unique_ptr<ByteStream> stream = plain_stream(loop_, fd);
    const auto first = pending.first.bytes.begin();
    stream->unread({first, first + static_cast<std::ptrdiff_t>(pending.first.got)});
    const bool is_tls = pending.first.is_tls();
    if (is_tls && !credentials_.tls) return refuse(id, std::move(stream));
    if (!is_tls && credentials_.tls && !JCCL_PLANTED("plain-taken-for-tls-listener"))
      return refuse(id, std::move(stream));
    if (!is_tls) return introduce(id, std::move(stream));
    pending.handshake = tls_handshake(loop_, std::move(stream), Role::kAccepting, credentials_,
                                      options_.handshake_max,
                                      [this, id](Result<std::unique_ptr<ByteStream>> result) {
                                        if (!result.ok()) return drop(id);
                                        introduce(id, std::move(result.value()));
                                      });
  }

  void introduce(PendingId id, std::unique_ptr<ByteStream> stream) {
    IntroductionOptions options;
    options.purpose = options_.purpose;
    options.time_max = options_.handshake_max;  // and the deadline of all
    pending_.at(id).handshake =
        net::introduce(loop_, std::move(stream), Role::kAccepting, credentials_, options,
                       [this, id](Result<std::unique_ptr<ByteStream>> result) {
                         if (!result.ok()) return drop(id);
                         hand_over(id, std::move(result.value()));
                       });
  }

  void drop(PendingId id) {
    const auto entry = pending_.extract(id);
    loop_.cancel(entry.mapped().timer);
    failed(entry.mapped());
    ++stats_.refused;
  }

  // Who said nothing has cost a place, and no handshake.
  void failed(const Pending& pending) {
    const bool silent = pending.handshake == nullptr && pending.first.got == 0;
    if (quotas_.has_value() && !silent) quotas_->failed(pending.network, loop_.now());
  }

  void refuse(PendingId id, std::unique_ptr<ByteStream> stream) {
    auto entry = pending_.extract(id);
    Pending& pending = entry.mapped();
    loop_.cancel(pending.timer);
    failed(pending);
    if (!JCCL_PLANTED("refused-not-counted")) ++stats_.refused;
    stream->write_ahead(alert_record());
    pending.place->give_way = nullptr;
    linger(loop_, std::move(stream), std::move(pending.place));
  }

  void hand_over(PendingId id, std::unique_ptr<ByteStream> stream) {
    auto entry = pending_.extract(id);
    Pending& pending = entry.mapped();
    loop_.cancel(pending.timer);
    ++stats_.accepted;
    pending.place->give_way = nullptr;      // the new owner's to say
    const auto on_accepted = on_accepted_;  // it may destroy this listener
    on_accepted({std::move(stream), pending.deadline, std::move(pending.network),
                 std::move(pending.place)});
  }

  Loop& loop_;
  Credentials credentials_;
  ListenerOptions options_;
  std::function<void(Accepted)> on_accepted_;
  bool held_ = false;
  std::uint16_t port_ = 0;
  ListenerStats stats_;
  std::optional<Quotas> quotas_;
  std::shared_ptr<PendingPlaces> places_;  // outlives the listener with the last place
  std::map<PendingId, Pending> pending_;
  PendingId last_id_ = 0;
  TimerId pause_ = 0;
  std::vector<std::unique_ptr<Watch>> sockets_;
};

class HeldPort final : public Reservation {
 public:
  explicit HeldPort(std::vector<int> sockets) : sockets_(std::move(sockets)) {}
  ~HeldPort() override {
    for (const int fd : sockets_) ::close(fd);
  }
  std::uint16_t port() const override { return port_of(local_endpoint(sockets_.front())); }

 private:
  const std::vector<int> sockets_;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(Loop& loop, const Address& bind,
                                                 const Credentials& credentials,
                                                 ListenerOptions options,
                                                 std::function<void(Accepted)> on_accepted) {
  JCCL_CHECK(loop.confined());
  Result<std::vector<int>> sockets = open_sockets(bind, true);
  if (!sockets.ok()) return sockets.status();
  return std::unique_ptr<Listener>(std::make_unique<OpenListener>(
      loop, std::move(sockets.value()), credentials, options, std::move(on_accepted)));
}

Result<std::unique_ptr<Reservation>> Reservation::open(const Address& bind) {
  Result<std::vector<int>> sockets = open_sockets(bind, false);
  if (!sockets.ok()) return sockets.status();
  return std::unique_ptr<Reservation>(std::make_unique<HeldPort>(std::move(sockets.value())));
}

}  // namespace jccl::net
