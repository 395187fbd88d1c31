#include "net/probe.h"

#include <gtest/gtest.h>

#include <future>

#include "net/listener.h"

namespace jccl::net {
namespace {

bool ask(Loop& loop, std::vector<Address> addresses, Duration time_max = 2 * base::kSecond) {
  std::promise<bool> answer;
  auto future = answer.get_future();
  std::unique_ptr<Probe> probing;
  loop.call([&] {
    probing = probe(loop, std::move(addresses), time_max,
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

TEST_F(ProbeTest, no_address_says_nothing) { EXPECT_FALSE(ask(loop, {})); }

TEST_F(ProbeTest, a_probe_destroyed_at_once_never_answers) {
  loop.call([&] {
    auto probing = probe(loop, {{"127.0.0.1", port}}, base::kSecond, [](bool) { FAIL(); });
    probing.reset();
  });
  EXPECT_FALSE(ask(loop, {{"127.0.0.1", port}}));
}

}  // namespace
}  // namespace jccl::net
