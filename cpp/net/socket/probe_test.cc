#include "net/socket/probe.h"

#include <gtest/gtest.h>

#include <future>

#include "net/socket/listener.h"

namespace jccl::net {
namespace {

bool ask(Loop& loop, std::vector<Address> addresses, Duration time_max = 2 * base::kSecond,
         const DialPolicy& policy = {endpoint_of("127.0.0.1:1"), {}}) {
  std::promise<bool> answer;
  auto future = answer.get_future();
  std::unique_ptr<Probe> probing;
  loop.call([&] {
    probing = probe(loop, std::move(addresses), policy, time_max,
                    [&answer](bool refused) { answer.set_value(refused); });
  });
  const bool refused = future.get();
  loop.call([&] { probing.reset(); });
  return refused;
}

struct ProbeTest : testing::Test {
  Loop loop;
  std::unique_ptr<Listener> listener;
  std::uint16_t port = 0;

  void SetUp() override {
    loop.start();
    loop.call([&] {
      auto opened =
          Listener::open(loop, {"127.0.0.1", 0}, Credentials::plain({}), {}, [](Accepted) {});
      ASSERT_TRUE(opened.ok()) << opened.status().text;
      listener = std::move(opened.value());
      port = listener->port();
    });
  }
  void TearDown() override {
    loop.call([&] { listener.reset(); });
    loop.stop();
  }
};

TEST_F(ProbeTest, an_open_listener_does_not_refuse) {
  EXPECT_FALSE(ask(loop, {{"127.0.0.1", port}}));
}

TEST_F(ProbeTest, a_closed_port_refuses) {
  loop.call([&] { listener.reset(); });
  EXPECT_TRUE(ask(loop, {{"127.0.0.1", port}}));
}

TEST_F(ProbeTest, one_address_that_accepts_is_enough) {
  EXPECT_FALSE(ask(loop, {{"127.0.0.1", 1}, {"127.0.0.1", port}}));
}

TEST_F(ProbeTest, where_no_peer_may_be_nobody_is_asked) {
  loop.call([&] { listener.reset(); });
  const Duration patience = 2 * base::kSecond;
  EXPECT_FALSE(ask(loop, {{"127.0.0.1", port}}, patience, {endpoint_of("8.8.8.8:1"), {}}));
  EXPECT_FALSE(ask(loop, {{"localhost", port}}, patience, {endpoint_of("8.8.8.8:1"), {}}));
  EXPECT_TRUE(ask(loop, {{"127.0.0.1", port}}, patience,
                  DialPolicy(parse_networks("127.0.0.0/8").value())));
}

TEST_F(ProbeTest, no_address_says_nothing) { EXPECT_FALSE(ask(loop, {})); }

TEST_F(ProbeTest, a_probe_destroyed_at_once_never_answers) {
  loop.call([&] {
    auto probing = probe(loop, {{"127.0.0.1", port}}, DialPolicy(endpoint_of("127.0.0.1:1"), {}),
                         base::kSecond, [](bool) { FAIL(); });
    probing.reset();
  });
  EXPECT_FALSE(ask(loop, {{"127.0.0.1", port}}));
}

}  // namespace
}  // namespace jccl::net
