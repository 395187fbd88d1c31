#include "master_load_crowd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/crc32c.h"
#include "base/text.h"
#include "net/security/blocking_introduction.h"

namespace jccl::bench {

using base::cat;
using base::Code;
using base::Duration;
using base::Status;
using base::Time;

namespace {

constexpr std::size_t kJoiningMax = 64;  // at a time: below the master's bound on strangers
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr Duration kPatience = 300 * base::kSecond;  // for anything at all

}  // namespace

Time steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Crowd::Crowd(CrowdOptions options) : options_(std::move(options)) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  peers_.resize(options_.peers);
}

Crowd::~Crowd() {
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) ::close(peer.fd);
  }
  ::close(epoll_);
}

Status Crowd::lost(std::size_t index, const std::string& why) const {
  return {Code::kLinkLost, cat("simulated peer ", index, ": ", why)};
}

Status Crowd::open_one(std::size_t index) {
  Peer& peer = peers_[index];
  peer = {};
  peer.incarnation = ++last_incarnation_;
  peer.site = cat("site-", peer.incarnation);
  peer.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::size_t colon = options_.address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(options_.address.substr(colon + 1))));
  if (::inet_pton(AF_INET, options_.address.substr(0, colon).c_str(), &to.sin_addr) != 1) {
    return {Code::kInvalid, cat("address ", options_.address, " is not numeric")};
  }
  if (::connect(peer.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    return lost(index, std::strerror(errno));
  }
  const int on = 1;
  (void)::setsockopt(peer.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto identity = net::Identity::make();
  if (!identity.ok()) return identity.status();
  if (!net::introduce_blocking(peer.fd, identity.value(), net::Purpose::kControl)) {
    return lost(index, "the master did not say who it is");
  }
  epoll_event event{EPOLLIN, {.u64 = index}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, peer.fd, &event) != 0) {
    return lost(index, std::strerror(errno));
  }
  wire::Hello hello;
  hello.incarnation = peer.incarnation;
  hello.site = peer.site;
  hello.addresses = {"127.0.0.1:" + std::to_string(20000 + index)};  // of the size of a real one
  return say(index, hello);
}

Status Crowd::connect() {
  const Time end = steady_now() + kPatience;
  std::size_t opened = 0;
  while (resumed_ < peers_.size()) {
    if (opened < peers_.size() && opened - resumed_ < kJoiningMax) {
      if (Status status = open_one(opened++); !status.ok()) return status;
      if (Status status = poll(0); !status.ok()) return status;
      continue;
    }
    if (Status status = poll(steady_now() + 10 * base::kMillisecond); !status.ok()) return status;
    if (steady_now() > end) return {Code::kDeadline, "not all simulated peers were welcomed"};
  }
  next_beat_ = steady_now();
  return {};
}

Status Crowd::replace_one() {
  const std::size_t index = last_incarnation_ % peers_.size();
  if (Status status = say(index, wire::Leave{}); !status.ok()) return status;
  ::close(peers_[index].fd);
  --resumed_;
  if (Status status = open_one(index); !status.ok()) return status;
  while (resumed_ < peers_.size()) {
    if (Status status = poll(steady_now() + base::kMillisecond); !status.ok()) return status;
  }
  return {};
}

Status Crowd::idle(Duration span) {
  const Time end = steady_now() + span;
  while (steady_now() < end) {
    if (Status status = poll(end); !status.ok()) return status;
  }
  return {};
}

Status Crowd::run(std::size_t tags, std::size_t rounds, Duration pace,
                  std::map<wire::Tag, std::vector<Duration>>* times) {
  pace_ = pace;
  for (std::size_t i = 0; i < tags; ++i) {
    TagRun& run = runs_[cat("tag-", i)];
    run.times.clear();
    run.left = rounds;
    run.next = steady_now();
  }
  Time end = steady_now() + kPatience + pace * static_cast<Duration>(rounds);
  for (;;) {
    std::size_t open = 0;
    Time next = end;
    const Time now = steady_now();
    for (auto& [tag, run] : runs_) {
      if (run.next != base::kNever && run.left > 0 && now >= run.next) {
        if (Status status = begin_round(tag, &run, now); !status.ok()) return status;
      }
      if (run.next != base::kNever && run.left > 0) next = std::min(next, run.next);
      open += run.left;
    }
    if (open == 0) break;
    if (now > end) return {Code::kDeadline, "the rounds did not end"};
    if (Status status = poll(next); !status.ok()) return status;
  }
  for (auto& [tag, run] : runs_) {
    if (!run.times.empty()) (*times)[tag] = run.times;
  }
  return {};
}

Status Crowd::begin_round(const wire::Tag& tag, TagRun* run, Time now) {
  run->n += 1;
  run->started = run->ended = 0;
  run->attempt = {};
  run->began = now;
  run->next = base::kNever;
  wire::Ready ready;
  ready.round = {tag, run->n};
  ready.descriptor = {1, 2};
  ready.summary = "sum of f32[1048576], codec none";
  ready.hint.assign(26, 0);  // collective/hint.h: the master chooses
  ready.deadline = 300 * base::kSecond;
  ready.call = ++calls_;
  std::vector<std::size_t> fresh, members;
  for (std::size_t i = 0; i < peers_.size(); ++i) (peers_[i].fresh ? fresh : members).push_back(i);
  if (Status status = say_ready(ready, fresh); !status.ok()) return status;
  if (!fresh.empty() && !members.empty()) {  // these would complete the round without the others
    if (Status status = idle(100 * base::kMillisecond); !status.ok()) return status;
  }
  return say_ready(ready, members);
}

Status Crowd::say_ready(const wire::Ready& ready, const std::vector<std::size_t>& peers) {
  for (const std::size_t i : peers) {
    peers_[i].fresh = false;
    wire::Ready own = ready;
    if (options_.unequal_weights) own.weight = 1.0 + static_cast<double>(i);
    if (Status status = say(i, own); !status.ok()) return status;
  }
  return {};
}

// Peers send a heartbeat each, spread evenly over the interval that the master asked for.
Status Crowd::beat(Time now) {
  const Duration gap = std::max<Duration>(1, heartbeat_ / static_cast<Duration>(peers_.size()));
  for (std::size_t sent = 0; now >= next_beat_ && sent < peers_.size(); ++sent) {
    next_beat_ = std::max(next_beat_ + gap, now - heartbeat_);
    const std::size_t index = beat_index_++ % peers_.size();
    if (!peers_[index].resumed) continue;
    if (Status status = say(index, wire::Heartbeat{++beats_, 0}); !status.ok()) return status;
  }
  return {};
}

Status Crowd::poll(Time until) {
  Time now = steady_now();
  if (Status status = beat(now); !status.ok()) return status;
  const Duration left = std::max<Duration>(0, std::min(until, next_beat_) - now);
  std::array<epoll_event, 256> events;
  const int wait_ms = static_cast<int>(
      std::min<Duration>(1000, (left + base::kMillisecond - 1) / base::kMillisecond));
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait_ms);
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64);
    const std::uint32_t what = events[static_cast<std::size_t>(i)].events;
    if ((what & EPOLLOUT) != 0) {
      if (Status status = flush(index); !status.ok()) return status;
    }
    if ((what & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
      if (Status status = read(index); !status.ok()) return status;
    }
  }
  return {};
}

Status Crowd::read(std::size_t index) {
  Peer& peer = peers_[index];
  static std::array<std::uint8_t, kReadBytes> room;
  const ssize_t n = ::recv(peer.fd, room.data(), room.size(), MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return {};
  if (n <= 0) return lost(index, n == 0 ? "the master hung up" : std::strerror(errno));
  peer.in.insert(peer.in.end(), room.data(), room.data() + n);
  return parse(index);
}

Status Crowd::parse(std::size_t index) {
  Peer& peer = peers_[index];
  while (peer.in.size() - peer.in_at >= 8) {
    std::uint32_t head[2];
    std::memcpy(head, peer.in.data() + peer.in_at, sizeof head);
    if (peer.in.size() - peer.in_at < sizeof head + head[0]) break;
    const base::ByteView payload =
        base::ByteView(peer.in).subspan(peer.in_at + sizeof head, head[0]);
    if (base::crc32c(payload) != head[1]) return lost(index, "checksum of a frame");
    const auto message = wire::decode(payload);
    if (!message.ok()) return message.status();
    ++traffic_.received;
    traffic_.received_bytes += sizeof head + head[0];
    peer.in_at += sizeof head + head[0];
    if (Status status = hear(index, message.value()); !status.ok()) return status;
  }
  if (peer.in_at == peer.in.size()) {
    peer.in.clear();
    peer.in_at = 0;
  }
  return {};
}

Status Crowd::hear(std::size_t index, const wire::Message& message) {
  Peer& peer = peers_[index];
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    heartbeat_ = welcome->heartbeat;
    return say(index, wire::Resume{});
  }
  if (const auto* start = std::get_if<wire::Start>(&message)) {
    TagRun& run = runs_[start->round.tag];
    if (start->round.n != run.n) return {};
    if (start->contributors.size() != peers_.size()) ++wrong_;
    run.attempt = start->attempt;
    ++run.started;
    return say(index, wire::Done{start->attempt, {3, 4}});
  }
  if (const auto* outcome = std::get_if<wire::Outcome>(&message)) {
    hear_outcome(*outcome);
    return {};
  }
  const bool listed = std::holds_alternative<wire::Roster>(message);
  if (listed && !peer.resumed) {
    peer.resumed = true;
    ++resumed_;
  }
  if (listed || std::holds_alternative<wire::HeartbeatAck>(message) ||
      std::holds_alternative<wire::Waiting>(message)) {
    return {};
  }
  if (const auto* refused = std::get_if<wire::Refuse>(&message)) return lost(index, refused->text);
  if (const auto* evicted = std::get_if<wire::Evicted>(&message)) return lost(index, evicted->text);
  if (const auto* reject = std::get_if<wire::Reject>(&message)) return lost(index, reject->text);
  return lost(index, cat("did not expect ", wire::name_of(message)));
}

void Crowd::hear_outcome(const wire::Outcome& outcome) {
  TagRun& run = runs_[outcome.round.tag];
  const bool right = outcome.verdict == wire::Verdict::kCommitted && outcome.round.n == run.n &&
                     outcome.attempt == run.attempt && outcome.world == peers_.size() &&
                     outcome.contributors.size() == peers_.size() &&
                     outcome.result == wire::Digest{3, 4};
  if (!right) ++wrong_;
  if (++run.ended < peers_.size()) return;
  const Time now = steady_now();
  run.times.push_back(now - run.began);
  --run.left;
  run.next = std::max(now, run.began + pace_);
}

Status Crowd::say(std::size_t index, const wire::Message& message) {
  Peer& peer = peers_[index];
  const base::Bytes payload = wire::encode(message);
  const std::uint32_t head[2] = {static_cast<std::uint32_t>(payload.size()), base::crc32c(payload)};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(head);
  peer.out.insert(peer.out.end(), bytes, bytes + sizeof head);
  peer.out.insert(peer.out.end(), payload.begin(), payload.end());
  ++traffic_.sent;
  traffic_.sent_bytes += sizeof head + payload.size();
  return peer.writing ? Status{} : flush(index);
}

Status Crowd::flush(std::size_t index) {
  Peer& peer = peers_[index];
  const ssize_t n = ::send(peer.fd, peer.out.data(), peer.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN) return lost(index, std::strerror(errno));
  if (n > 0) peer.out.erase(peer.out.begin(), peer.out.begin() + n);
  const bool full = !peer.out.empty();
  if (full == peer.writing) return {};
  peer.writing = full;
  epoll_event event{full ? EPOLLIN | EPOLLOUT : EPOLLIN, {.u64 = index}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, peer.fd, &event) != 0) {
    return lost(index, std::strerror(errno));
  }
  return {};
}

}  // namespace jccl::bench
