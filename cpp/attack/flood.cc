#include "attack/flood.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

#include "attack/loopback.h"
#include "master/master.h"
#include "net/security/credentials.h"
#include "net/socket/dial.h"
#include "net/socket/loop.h"
#include "peer/communicator.h"

namespace jccl::attack {
namespace {

using base::Bytes;

constexpr int kBacklog = 1024;
constexpr std::uint64_t kSlice = 500;  // to one server, then to the other
constexpr int kPatienceMs = 200;       // for the end of a connection that is not closed at once
constexpr int kJoins = 20;
constexpr std::uint64_t kBeforeJoins = 10'000;  // then the quotas of that address are used up

struct Server {
  pid_t pid = 0;
  std::uint16_t port = 0;
  double seconds = 0;  // of processor time, for the connections that count
  std::uint64_t connections = 0;
};

// Says its port on the pipe and serves until it is killed.
void accept_and_close(int out) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (!bind_to(fd, loopback(1, 0)) || ::listen(fd, kBacklog) != 0) ::_exit(1);
  const std::uint16_t port = port_of(fd);
  if (::write(out, &port, sizeof port) != sizeof port) ::_exit(1);
  for (;;) {
    const int one = ::accept(fd, nullptr, nullptr);
    if (one >= 0) ::close(one);
  }
}

void serve_master(int out, const std::string& secret) {
  master::MasterConfig config;
  config.token = secret;
  config.log = [](const std::string&) {};
  const auto master = master::Master::start(config);
  if (!master.ok()) ::_exit(1);
  const auto address = net::parse_address(master.value()->address());
  const std::uint16_t port = address.value().port;
  if (::write(out, &port, sizeof port) != sizeof port) ::_exit(1);
  for (;;) ::pause();
}

template <typename Serve>
Server child(Serve serve) {
  int ends[2];
  Server server;
  if (::pipe(ends) != 0) return server;
  server.pid = ::fork();
  if (server.pid == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve(ends[1]);
    ::_exit(1);
  }
  ::close(ends[1]);
  if (::read(ends[0], &server.port, sizeof server.port) != sizeof server.port) server.port = 0;
  ::close(ends[0]);
  return server;
}

double processor_seconds(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Connects from 127.0.0.`host`, says it and waits for the end.
void knock(std::uint32_t host, std::uint16_t port, const Bytes& said) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  if (bind_to(fd, loopback(host, 0)) && connect_fd(fd, loopback(1, port))) {
    if (!said.empty()) (void)::send(fd, said.data(), said.size(), MSG_NOSIGNAL);
    if (said.empty()) (void)::shutdown(fd, SHUT_WR);
    pollfd until{fd, POLLIN, 0};
    std::uint8_t ignored[4096];
    while (::poll(&until, 1, kPatienceMs) == 1 && ::recv(fd, ignored, sizeof ignored, 0) > 0) {
    }
    const linger reset{1, 0};  // no TIME_WAIT: ports are few
    (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  ::close(fd);
}

// What a holder of another secret, under a name that the run may have given, says first.
Bytes wrong_hello(const net::RunSecret& run) {
  net::RunSecret other = run;
  other.root[0] ^= 1;
  const auto rights = net::new_rights();
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (!rights.ok() || !bind_to(fd, loopback(1, 0)) || ::listen(fd, 1) != 0) return {};
  const auto credentials = net::Credentials::from(net::make_token(other, rights.value()));
  net::Loop loop;
  loop.start();
  std::unique_ptr<net::Dial> dial;
  loop.call([&] {
    dial = net::dial(loop, {net::Address{"127.0.0.1", port_of(fd)}}, credentials, {},
                     [](base::Result<std::unique_ptr<net::ByteStream>>) {});
  });
  const int one = ::accept(fd, nullptr, nullptr);
  Bytes said(4096);
  const ssize_t n = ::recv(one, said.data(), said.size(), 0);
  said.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  loop.call([&] { dial.reset(); });
  ::close(one);
  ::close(fd);
  return said;
}

struct Joins {
  int joined = 0;
  double longest_ms = 0;
};

Joins join_meanwhile(std::uint16_t port, const std::string& token) {
  Joins joins;
  for (int i = 0; i < kJoins; ++i) {
    peer::ConnectOptions options;
    options.master = "127.0.0.1:" + std::to_string(port);
    options.token = token;
    const auto begun = std::chrono::steady_clock::now();
    const auto comm = peer::Communicator::connect(options);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
    joins.joined += comm.ok();
    joins.longest_ms = std::max(joins.longest_ms, took.count());
  }
  return joins;
}

struct Kind {
  const char* name;
  Bytes said;
};

// Turn by turn, each kind from an address of its own. The first ones are within that address's
// quotas at the master, and do not count for the ratio.
void measure(const Kind& kind, std::uint32_t host, std::uint64_t connections, Server* master,
             Server* bare) {
  double within = 0;
  for (const bool counts : {false, true}) {
    master->seconds = bare->seconds = 0;
    for (std::uint64_t done = 0; done < connections; done += kSlice) {
      for (Server* server : {bare, master}) {
        const double before = processor_seconds(server->pid);
        for (std::uint64_t i = 0; i < kSlice; ++i) knock(host, server->port, kind.said);
        server->seconds += processor_seconds(server->pid) - before;
      }
    }
    if (!counts) within = master->seconds;
  }
  const double each = 1e6 / static_cast<double>(connections);
  std::printf(
      "{\"kind\":\"%s\",\"connections\":%llu,\"bare_us\":%.1f,\"master_us\":%.1f,"
      "\"ratio\":%.2f,\"first_us\":%.1f}\n",
      kind.name, static_cast<unsigned long long>(connections), bare->seconds * each,
      master->seconds * each, master->seconds / bare->seconds, within * each);
  std::fflush(stdout);
}

void joins_beside(const Kind& kind, std::uint32_t host, const char* where, std::uint16_t port,
                  const std::string& secret) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> knocks{0};
  std::thread crowd([&] {
    for (; !stop; ++knocks) knock(host, port, kind.said);
  });
  while (knocks < kBeforeJoins) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Joins joins = join_meanwhile(port, secret);
  stop = true;
  crowd.join();
  std::printf(
      "{\"kind\":\"joins during %s from %s\",\"joined\":%d,\"of\":%d,\"longest_ms\":%.0f,"
      "\"knocks\":%llu}\n",
      kind.name, where, joins.joined, kJoins, joins.longest_ms,
      static_cast<unsigned long long>(knocks.load()));
  std::fflush(stdout);
}

}  // namespace

int flood(std::string secret, std::uint64_t connections) {
  if (secret.empty()) secret = net::to_text(net::new_run_secret().value());
  const auto run = net::parse_run_secret(secret);
  if (!run.ok()) return std::fprintf(stderr, "%s\n", run.status().text.c_str()), 2;
  connections = (connections + kSlice - 1) / kSlice * kSlice;
  Server bare = child(accept_and_close);
  Server master = child([&](int out) { serve_master(out, secret); });
  if (bare.port == 0 || master.port == 0) return 1;
  const std::vector<Kind> kinds = {{"nothing said", {}},
                                   {"garbage", Bytes(64, 'G')},
                                   {"a wrong handshake", wrong_hello(run.value())}};
  std::uint32_t host = 10;
  for (const Kind& kind : kinds) measure(kind, host++, connections, &master, &bare);
  joins_beside(kinds.back(), host++, "elsewhere", master.port, secret);
  joins_beside(kinds.back(), 1, "their address", master.port, secret);
  for (const Server& server : {bare, master}) {
    (void)::kill(server.pid, SIGKILL);
    (void)::waitpid(server.pid, nullptr, 0);
  }
  return 0;
}

}  // namespace jccl::attack
