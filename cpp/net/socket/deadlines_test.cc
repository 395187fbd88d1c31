// Whether what has a time ends at it. Timers of a loop run in the order of their deadlines, however
// slow the machine: what is late is late by another timer of the same loop, never by a clock.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/link/frames.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

constexpr Duration kTime = 30 * base::kMillisecond;

class DeadlinesTest : public NetTest {
 protected:
  // Runs `look` when twice kTime has gone by from now on.
  void at_twice(const std::function<void()>& look) {
    on([&] {
      loop.run_after(2 * kTime, [&] {
        look();
        looked = true;
      });
    });
    ASSERT_TRUE(eventually([&] { return looked; }));
  }
  bool looked = false;
};

int listening(int backlog, Address* address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Endpoint any = resolve_now(Address{"127.0.0.1", 0}).value().at(0);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&any.storage), any.size), 0);
  EXPECT_EQ(::listen(fd, backlog), 0);
  *address = {"127.0.0.1", port_of(local_endpoint(fd))};
  return fd;
}

TEST_F(DeadlinesTest, who_says_nothing_has_its_place_no_longer_than_it_may) {
  std::unique_ptr<Server> server;
  std::unique_ptr<ByteStream> silent;
  on([&] {
    server = std::make_unique<Server>(loop, plain(), ListenerOptions{.handshake_max = kTime});
    silent = bare_connection(loop, server->address);
  });
  ASSERT_TRUE(eventually(
      [&] { return server->listener->stats().pending + server->listener->stats().late == 1; }));
  at_twice([&] { EXPECT_EQ(server->listener->stats().late, 1u); });
  on([&] {
    silent.reset();
    server.reset();
  });
}

TEST_F(DeadlinesTest, a_tls_handshake_ends_at_its_time) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  std::unique_ptr<Handshake> handshake;
  Status status;
  on([&] {
    handshake = tls_handshake(
        loop, std::move(pairs[0].first), Role::kDialling, tls(), kTime,
        [&](Result<std::unique_ptr<ByteStream>> result) { status = result.status(); });
  });
  at_twice([&] { EXPECT_EQ(status.code, Code::kDeadline) << status.text; });
  on([&] {
    handshake.reset();
    pairs.clear();
  });
}

TEST_F(DeadlinesTest, a_dial_gives_up_at_its_time) {
  Address silent;
  const int fd = listening(4, &silent);
  Dialled dialled;
  on([&] { dialled.start(loop, {silent}, tls(), {.time_max = kTime}); });
  at_twice([&] { EXPECT_EQ(dialled.status.code, Code::kDeadline) << dialled.status.text; });
  on([&] { dialled = {}; });
  ::close(fd);
}

// A listener whose queue is full leaves whoever dials it without an answer.
TEST_F(DeadlinesTest, an_address_that_does_not_answer_is_waited_for_no_longer_than_it_may_be) {
  Address full;
  const int fd = listening(0, &full);
  std::vector<int> queue;
  for (int i = 0; i < 4; ++i) {
    queue.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const Endpoint to = resolve_now(full).value().at(0);
    (void)::connect(queue.back(), reinterpret_cast<const sockaddr*>(&to.storage), to.size);
  }
  Dialled dialled;
  bool begun = false;
  on([&] {
    DialOptions options{.connect_max = kTime};
    options.allow = [&](const Endpoint&) {
      loop.post([&] { begun = true; });  // and the attempt has its timer then
      return Status{};
    };
    dialled.start(loop, {full}, plain(), options);
  });
  ASSERT_TRUE(eventually([&] { return begun; }));
  at_twice([&] { EXPECT_EQ(dialled.status.code, Code::kLinkLost) << dialled.status.text; });
  on([&] { dialled = {}; });
  for (const int one : queue) ::close(one);
  ::close(fd);
}

TEST_F(DeadlinesTest, a_listener_that_had_no_file_left_accepts_when_there_are_some_again) {
  std::unique_ptr<Server> server;
  on([&] { server = std::make_unique<Server>(loop, plain()); });
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 1;  // those that are open stay
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(server->address.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected = ::connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  for (int turn = 0; turn < 200; ++turn) on([] {});
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(connected, 0);
  EXPECT_TRUE(eventually([&] { return server->listener->stats().pending == 1; }));
  on([&] { server.reset(); });
  ::close(client);
}

TEST_F(DeadlinesTest, a_timer_that_sets_itself_anew_leaves_others_their_turn) {
  bool posted = false;
  int runs = 0;
  std::function<void()> again = [&] {
    if (++runs < 1'000'000 && !posted) loop.run_after(0, again);
  };
  on([&] {
    loop.run_after(0, again);
    loop.post([&] { posted = true; });
  });
  ASSERT_TRUE(eventually([&] { return posted; }));
  on([&] { EXPECT_LT(runs, 1'000'000); });
}

}  // namespace
}  // namespace jccl::net::test
