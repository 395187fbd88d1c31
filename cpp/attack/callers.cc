// Connections to the master of nobody in particular: hellos that say who they are not, crowds that
// stay, names that drive terminals, single bytes.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "attack/crowd.h"
#include "attack/visits.h"
#include "base/text.h"
#include "wire/serialize.h"

namespace jccl::attack {
namespace {

using base::cat;
using base::kMillisecond;

constexpr std::size_t kOneByteEach = 256;

Visit visit_of(const CrowdOptions& options, const net::Credentials& credentials,
               const wire::Hello& hello) {
  Visit visit;
  visit.to = net::parse_address(options.master).value();
  visit.credentials = credentials;
  visit.hello = wire::encode(hello);
  return visit;
}

wire::Hello hello_of(const net::Credentials& credentials, std::string site) {
  wire::Hello hello;
  hello.run = credentials.run;
  hello.incarnation = fresh_life();
  hello.site = std::move(site);
  return hello;
}

wire::Ready ready_on(std::string tag) {
  wire::Ready ready;
  ready.round = {std::move(tag), 1};
  ready.deadline = 600 * base::kSecond;
  ready.call = 1;
  return ready;
}

// Half of them by one key.
void observe_so_many(std::size_t observers, const CrowdOptions& options,
                     const std::atomic<bool>& stop, std::atomic<std::uint64_t>& count) {
  const net::Credentials one = fresh_credentials(options.secret);
  Pool pool;
  pool.places = observers;
  pool.breath = kMillisecond;
  pool.next = [&](std::size_t place) -> std::optional<Visit> {
    const net::Credentials own = place % 2 == 0 ? one : fresh_credentials(options.secret);
    wire::Hello hello = hello_of(own, cat("hostile-observer-", place));
    hello.start_peers = UINT32_MAX;
    Visit visit = visit_of(options, own, hello);
    if (place != 0) return visit;
    for (std::size_t tag = 0; tag < base::kTagsMax; ++tag) {
      visit.words.push_back(wire::encode(ready_on(cat("tag-", tag))));
    }
    return visit;
  };
  keep_visiting(pool, stop, count);
}

int connect_to(const net::Address& address) {
  const auto found = net::resolve_now(address);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (found.ok() && fd >= 0) {
    for (const net::Endpoint& at : found.value()) {
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0) return fd;
    }
  }
  if (fd >= 0) ::close(fd);
  return -1;
}

}  // namespace

void take_lives(const CrowdOptions& options, const std::atomic<bool>& stop,
                std::atomic<std::uint64_t>& count) {
  const net::Credentials own = fresh_credentials(options.secret);
  std::uint64_t turn = 0;
  Pool pool;
  pool.places = 8;
  pool.breath = 5 * kMillisecond;
  pool.next = [&](std::size_t) -> std::optional<Visit> {
    const auto honest = options.known().honest();
    if (honest.empty()) return std::nullopt;
    const wire::Member& victim = honest[++turn / 3 % honest.size()];
    wire::Hello hello = hello_of(own, turn % 3 == 0 ? "hostile-life" : victim.site);
    if (turn % 3 != 1) hello.incarnation = victim.incarnation;
    Visit visit = visit_of(options, own, hello);
    visit.words = {wire::encode(ready_on("grads")), wire::encode(wire::Leave{})};
    return visit;
  };
  keep_visiting(pool, stop, count);
}

void observe(const CrowdOptions& options, const std::atomic<bool>& stop,
             std::atomic<std::uint64_t>& count) {
  observe_so_many(1023, options, stop, count);
}

void observe_less(const CrowdOptions& options, const std::atomic<bool>& stop,
                  std::atomic<std::uint64_t>& count) {
  observe_so_many(900, options, stop, count);
}

void drive_terminals(const CrowdOptions& options, const std::atomic<bool>& stop,
                     std::atomic<std::uint64_t>& count) {
  const std::vector<std::string> names = {"[/red]", "hostile\nevict site=honest-1",
                                          "hostile\r\x1b[2J\x1b[31m", "hostile\u202e\u0085",
                                          "hostile\u2068"};
  std::uint64_t turn = 0;
  Pool pool;
  pool.places = 4;
  pool.breath = 20 * kMillisecond;
  pool.next = [&](std::size_t) -> std::optional<Visit> {
    const std::string& name = names[++turn % names.size()];
    const bool in_words = turn / names.size() % 2 == 0;  // of one who may come in
    const std::string site = in_words ? base::cat("[/red]-", turn) : name;
    const net::Credentials own = fresh_credentials(options.secret);
    Visit visit = visit_of(options, own, hello_of(own, site));
    wire::Sync sync;
    sync.tag = name, sync.summary = name, sync.deadline = base::kSecond;
    wire::Ready other = ready_on("grads");  // another call than most: what it says is told
    other.descriptor = {turn, turn}, other.summary = name;
    other.round.n = options.known().starts["grads"].round.n + 1;
    visit.words = {wire::encode(other), wire::encode(sync), wire::encode(ready_on(name)),
                   wire::encode(wire::Fail{{1, 1}, base::Code::kGuard, 0, name}),
                   wire::encode(wire::Leave{})};
    return visit;
  };
  keep_visiting(pool, stop, count);
}

void say_one_byte(const CrowdOptions& options, const std::atomic<bool>& stop,
                  std::atomic<std::uint64_t>& count) {
  std::vector<net::Address> to = {net::parse_address(options.master).value()};
  const auto honest = options.known().honest();
  if (!honest.empty() && !honest[0].addresses.empty()) {
    const auto peer = net::parse_address(honest[0].addresses[0]);
    if (peer.ok()) to.push_back(peer.value());
  }
  std::vector<int> all(kOneByteEach * to.size(), -1);
  while (!stop) {
    for (std::size_t i = 0; i < all.size() && !stop; ++i) {
      std::uint8_t ignored = 0;
      const bool open = all[i] >= 0 && ::recv(all[i], &ignored, 1, MSG_DONTWAIT) != 0 &&
                        (errno == EAGAIN || errno == EWOULDBLOCK);
      if (open) continue;
      if (all[i] >= 0) ::close(all[i]);
      all[i] = connect_to(to[i % to.size()]);
      if (all[i] >= 0) count += ::send(all[i], "x", 1, MSG_NOSIGNAL) == 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const int fd : all) {
    if (fd >= 0) ::close(fd);
  }
}

}  // namespace jccl::attack
