// Several masters of which one serves: what stands at the other addresses must cost little.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "capi/cluster_support.h"
#include "net/socket/listener.h"
#include "net/socket/loop.h"

namespace jccl::capi::test {
namespace {

// As a process that was stopped: its kernel takes connections, and nobody says a word.
class Silent {
 public:
  Silent() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(fd_, 64), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address = cat("127.0.0.1:", ntohs(at.sin_port));
  }
  ~Silent() { ::close(fd_); }
  std::string address;

 private:
  int fd_;
};

// As one whose own thread hangs: it introduces itself, and answers no message.
class Mute {
 public:
  Mute() {
    loop_.start();
    loop_.call([this] {
      auto opened = net::Listener::open(loop_, {"127.0.0.1", 0}, net::Credentials::plain({}), {},
                                        [this](net::Accepted a) { kept_.push_back(std::move(a)); });
      ASSERT_TRUE(opened.ok()) << opened.status().text;
      listener_ = std::move(opened.value());
      address = cat("127.0.0.1:", listener_->port());
    });
  }
  ~Mute() { loop_.stop(); }
  std::string address;

 private:
  net::Loop loop_;
  std::vector<net::Accepted> kept_;
  std::unique_ptr<net::Listener> listener_;
};

// Two, since a dial goes on to the next address by itself where an introduction takes long.
TEST(MastersTest, those_that_introduce_themselves_and_answer_nothing_are_passed_over) {
  const Mute one, other;
  Cluster cluster(0);
  ConnectOptions o = cluster.peer_options();
  o.master = cat(one.address, ",", other.address, ",", cluster.address());
  o.connect_timeout = 30 * kSecond;
  Communicator* comm = cluster.add(o);
  ASSERT_NE(comm, nullptr);
  const SmallRound r = small_round(*comm, sum_of("t"), 3);
  EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
}

TEST(MastersTest, one_that_takes_connections_and_says_nothing_is_passed_over) {
  const Silent stopped;
  Cluster cluster(0);
  ConnectOptions o = cluster.peer_options();
  o.master = cat(stopped.address, ",", cluster.address());
  o.connect_timeout = 60 * kSecond;
  Communicator* comm = cluster.add(o);
  ASSERT_NE(comm, nullptr);
  const SmallRound r = small_round(*comm, sum_of("t"), 3);
  EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
}

TEST(MastersTest, what_is_open_ends_when_another_run_is_at_the_address) {
  Cluster cluster(2);
  std::vector<float> x(4, 1.0F);
  RoundOptions o = sum_of("x");
  o.deadline = 30 * kSecond;
  const auto open = cluster[0].start({leaf_of(x, x)}, o, true);
  ASSERT_TRUE(open.ok()) << open.status().text;
  cluster.stop_master();
  cluster.start_master();
  const RoundResult r = cluster[0].wait(open.value());
  EXPECT_EQ(r.status.code, Code::kWrongRun) << r.status.text;
}

}  // namespace
}  // namespace jccl::capi::test
