// How peers find and keep each other: addresses of every kind, peers that can only dial out, and
// connections that break in the middle of a round.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "capi/cluster_support.h"

namespace jccl::capi::test {
namespace {

// ---- addresses ---------------------------------------------------------------------------------

TEST(AddressTest, a_run_over_ipv6) {
  ClusterOptions options;
  options.master.bind = "[::1]:0";
  Cluster cluster(3, options);
  EXPECT_TRUE(contains(cluster[0].attributes().listen, "[::1]"));
  expect_rounds(cluster);
}

TEST(AddressTest, a_master_known_by_name) {
  ClusterOptions options;
  options.start_together = false;
  options.master.start_peers = 2;
  Cluster cluster(0, options);
  const std::string port = cluster.address().substr(cluster.address().rfind(':'));
  for (int i = 0; i < 2; ++i) {
    ConnectOptions o = cluster.peer_options();
    o.master = cat("localhost", port);
    o.bind = "localhost:0";
    ASSERT_NE(cluster.add(o), nullptr);
  }
  expect_rounds(cluster);
}

TEST(AddressTest, the_first_master_address_may_be_dead) {
  Cluster cluster(0);
  ConnectOptions o = cluster.peer_options();
  o.master = cat("127.0.0.1:1,", cluster.address());
  ASSERT_NE(cluster.add(o), nullptr);
  expect_rounds(cluster);
}

TEST(AddressTest, the_first_advertised_address_may_be_dead) {
  ClusterOptions options;
  options.peer.advertise = {"127.0.0.1:1", "[::1]:1", "127.0.0.1:0"};
  Cluster cluster(3, options);
  expect_rounds(cluster);
}

TEST(AddressTest, peers_that_only_dial_out_reduce_with_one_that_listens) {
  for (const bool first : {true, false}) {  // whoever has the lower id
    Cluster cluster(0, [] {
      ClusterOptions options;
      options.start_together = false;
      options.master.start_peers = 2;
      return options;
    }());
    ConnectOptions quiet = cluster.peer_options();
    quiet.bind = "none";
    cluster.add(first ? quiet : cluster.peer_options());
    cluster.add(first ? cluster.peer_options() : quiet);
    expect_rounds(cluster);
    EXPECT_EQ(cluster[first ? 0 : 1].attributes().listen, "");
  }
}

TEST(AddressTest, peers_that_only_dial_out_reduce_through_those_that_listen) {
  for (const std::size_t listening : {0U, 1U, 2U}) {  // the place of the first that listens
    Cluster cluster(0, [] {
      ClusterOptions options;
      options.start_together = false;
      options.master.start_peers = 4;
      options.peer.chunk_bytes = 4096;
      return options;
    }());
    ConnectOptions quiet = cluster.peer_options();
    quiet.bind = "none";
    for (std::size_t p = 0; p < 4; ++p) {
      const bool listens = p == listening || (listening == 1 && p == 3);
      cluster.add(listens ? cluster.peer_options() : quiet);
    }
    expect_rounds(cluster);
    cluster.on_all([&](std::size_t p, Communicator& comm) {
      for (const char* plan : {"", "direct"}) {
        for (const CodecId codec : {CodecId::kNone, CodecId::kInt8}) {
          RoundOptions o = sum_of("lossy");
          o.plan = plan;
          o.codec = codec;
          const SmallRound r = small_round(comm, o, 2, 30000);
          EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
          EXPECT_EQ(r.result.attempts, 1U);
          EXPECT_NEAR(r.value, 8, codec == CodecId::kNone ? 0 : 0.1);
        }
      }
      std::vector<float> state(30000, static_cast<float>(p));
      SyncOptions s;
      s.tag = "model";
      const SyncResult synced = comm.sync_state({leaf_of(state, state)}, s);
      EXPECT_TRUE(synced.status.ok()) << synced.status.text;
      EXPECT_EQ(state.front(), state.back());
    });
  }
}

TEST(AddressTest, two_peers_that_only_dial_out_are_told_so) {
  Cluster cluster(0, [] {
    ClusterOptions options;
    options.start_together = false;
    options.master.start_peers = 2;
    options.peer.bind = "none";
    return options;
  }());
  cluster.add();
  cluster.add();
  cluster.on_all([](std::size_t, Communicator& comm) {
    RoundOptions o = sum_of("x");
    o.deadline = 2 * kSecond;
    const SmallRound r = small_round(comm, o, 1);
    EXPECT_EQ(r.result.status.code, Code::kLinkLost);
    EXPECT_TRUE(contains(r.result.status.text, "peers 1 and 2 can both only dial out"))
        << r.result.status.text;
    EXPECT_TRUE(contains(r.result.status.text, "let one listen (bind, advertise)"));
    EXPECT_EQ(r.value, 1);
  });
}

// ---- broken connections ------------------------------------------------------------------------

// Passes connections on to a port, and can cut them.
class Proxy {
 public:
  Proxy() {
    listen_ = bound(&port_);
    ::listen(listen_, 64);
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    for (Pipe& pipe : pipes_) close(pipe);
    ::close(listen_);
  }
  std::uint16_t port() const { return port_; }
  void target(std::uint16_t port) { target_ = port; }
  std::size_t connections() const { return open_; }
  std::uint64_t bytes() const { return bytes_; }
  // Ends the `count` oldest connections, both ways at once.
  void cut(int count) { cut_ = count; }
  bool done_cutting() const { return cut_ == 0; }
  // The `count` oldest carry nothing any more, and nobody is told.
  void freeze(std::size_t count) { frozen_ = count; }

  static int bound(std::uint16_t* port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
    *port = ntohs(at.sin_port);
    return fd;
  }

 private:
  struct Pipe {
    int a = -1, b = -1;
    std::vector<std::uint8_t> to_b, to_a;
    bool open() const { return a >= 0; }
  };
  static void close(Pipe& pipe) {
    for (int* fd : {&pipe.a, &pipe.b}) {
      if (*fd >= 0) ::close(*fd);
      *fd = -1;
    }
  }
  void accept_one() {
    Pipe pipe;
    pipe.a = ::accept4(listen_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (pipe.a < 0) return;
    pipe.b = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(target_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(pipe.b, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return close(pipe);
    pipes_.push_back(std::move(pipe));
  }
  // False if the connection ended.
  bool move(int from, int to, std::vector<std::uint8_t>& held) {
    if (held.empty()) {
      held.resize(64 * 1024);
      const ssize_t n = ::recv(from, held.data(), held.size(), MSG_DONTWAIT);
      held.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
    }
    const ssize_t n =
        held.empty() ? 0 : ::send(to, held.data(), held.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN;
    bytes_ += static_cast<std::uint64_t>(n);
    held.erase(held.begin(), held.begin() + n);
    return true;
  }
  void run() {
    while (!stop_) {
      std::vector<pollfd> wait = {{listen_, POLLIN, 0}};
      for (std::size_t i = frozen_; i < pipes_.size(); ++i) {
        const Pipe& pipe = pipes_[i];
        const auto events = [](bool in, bool out) {
          return static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0));
        };
        wait.push_back({pipe.a, events(pipe.to_b.empty(), !pipe.to_a.empty()), 0});
        wait.push_back({pipe.b, events(pipe.to_a.empty(), !pipe.to_b.empty()), 0});
      }
      ::poll(wait.data(), wait.size(), 5);
      if (wait[0].revents != 0) accept_one();
      for (std::size_t i = 0; i < pipes_.size(); ++i) {
        Pipe& pipe = pipes_[i];
        if (i < frozen_ && cut_ == 0) continue;
        const bool goes_on = move(pipe.a, pipe.b, pipe.to_b) && move(pipe.b, pipe.a, pipe.to_a);
        if (!goes_on || cut_ > 0) {
          if (cut_ > 0) --cut_;
          close(pipe);
        }
      }
      std::erase_if(pipes_, [](const Pipe& pipe) { return !pipe.open(); });
      open_ = pipes_.size();
    }
  }

  int listen_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> target_{0};
  std::vector<Pipe> pipes_;
  std::atomic<std::size_t> open_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<int> cut_{0};
  std::atomic<std::size_t> frozen_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Two peers whose link leads through a proxy, with four stripes.
struct ProxiedPair {
  Proxy proxy;
  Cluster cluster{0, [] {
                    ClusterOptions options;
                    options.start_together = false;
                    options.master.start_peers = 2;
                    options.peer.stripes = 4;
                    options.peer.chunk_bytes = 64 * 1024;
                    return options;
                  }()};
  ProxiedPair() {
    // Only the one behind the proxy can be dialled, whoever has the lower id.
    ConnectOptions behind = cluster.peer_options();
    std::uint16_t port = 0;
    const int held = Proxy::bound(&port);
    ::close(held);
    proxy.target(port);
    behind.bind = cat("127.0.0.1:", port);
    behind.advertise = {cat("127.0.0.1:", proxy.port())};
    cluster.add(behind);
    ConnectOptions quiet = cluster.peer_options();
    quiet.bind = "none";
    cluster.add(quiet);
    expect_rounds(cluster);
    EXPECT_TRUE(eventually([&] { return proxy.connections() == 4; }));
  }
};

constexpr std::size_t kLarge = 6'000'000;  // elements: many chunks on every stripe

TEST(StripesTest, a_round_outlives_the_loss_of_stripes_without_a_new_attempt) {
  ProxiedPair pair;
  const std::uint64_t before = pair.proxy.bytes();
  std::thread cutter([&] {
    EXPECT_TRUE(eventually([&] { return pair.proxy.bytes() > before + 2'000'000; }));
    pair.proxy.cut(2);
    EXPECT_TRUE(eventually([&] { return pair.proxy.done_cutting(); }));
  });
  pair.cluster.on_all([](std::size_t, Communicator& comm) {
    const SmallRound r = small_round(comm, sum_of("large"), 3, kLarge);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_EQ(r.value, 6);
    EXPECT_EQ(r.result.attempts, 1u);
  });
  cutter.join();
  EXPECT_TRUE(eventually([&] { return pair.proxy.connections() == 4; })) << "repaired";
  expect_rounds(pair.cluster);
}

TEST(StripesTest, a_round_outlives_a_stripe_that_freezes_without_a_new_attempt) {
  ProxiedPair pair;
  const std::uint64_t before = pair.proxy.bytes();
  std::thread freezer([&] {
    EXPECT_TRUE(eventually([&] { return pair.proxy.bytes() > before + 2'000'000; }));
    pair.proxy.freeze(1);
  });
  for (int i = 0; i < 3; ++i) {
    pair.cluster.on_all([](std::size_t, Communicator& comm) {
      const SmallRound r = small_round(comm, sum_of("large"), 3, kLarge);
      EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, 6);
      EXPECT_EQ(r.result.attempts, 1u);
    });
  }
  freezer.join();
}

TEST(StripesTest, a_round_outlives_the_loss_of_all_stripes) {
  ProxiedPair pair;
  std::atomic<bool> stop{false};
  std::thread cutter([&] {
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t before = pair.proxy.bytes();
      EXPECT_TRUE(eventually([&] { return pair.proxy.bytes() > before + 3'000'000; }));
      pair.proxy.cut(4);
      EXPECT_TRUE(eventually([&] { return pair.proxy.done_cutting(); }));
    }
    stop = true;
  });
  std::atomic<std::uint64_t> last{UINT64_MAX};
  pair.cluster.on_all([&](std::size_t, Communicator& comm) {
    for (std::uint64_t n = 0; n < last;) {
      const SmallRound r = small_round(comm, sum_of("large"), 3, kLarge / 4);
      ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, 6);
      EXPECT_EQ(r.result.world, 2u) << "a broken link evicts nobody";
      n = r.result.n;
      std::uint64_t open = UINT64_MAX;
      if (stop) last.compare_exchange_strong(open, n + 2);
    }
  });
  cutter.join();
}

TEST(StripesTest, a_joiner_fetches_on_over_new_stripes_when_all_break) {
  ProxiedPair pair;
  constexpr std::size_t kCount = 8'000'000;
  std::vector<float> state(kCount);
  for (std::size_t i = 0; i < kCount; ++i) state[i] = static_cast<float>(i % 1000);
  const std::uint64_t before = pair.proxy.bytes();
  std::thread cutter([&] {
    EXPECT_TRUE(eventually([&] { return pair.proxy.bytes() > before + 6'000'000; }));
    pair.proxy.cut(4);
    EXPECT_TRUE(eventually([&] { return pair.proxy.done_cutting(); }));
  });
  pair.cluster.on_all([&](std::size_t p, Communicator& comm) {
    const auto asked = [&] {
      return pair.cluster.master().status_json().find("model") != std::string::npos;
    };
    EXPECT_TRUE(p == 0 || eventually(asked)) << "the source asks first";
    std::vector<float> mine = p == 0 ? state : std::vector<float>(kCount, 0.0F);
    SyncOptions o;
    o.tag = "model";
    o.source = p == 0;
    const SyncResult s = comm.sync_state({leaf_of(mine, mine)}, o);
    EXPECT_TRUE(s.status.ok()) << s.status.text;
    EXPECT_TRUE(mine == state);
  });
  cutter.join();
}

}  // namespace
}  // namespace jccl::capi::test
