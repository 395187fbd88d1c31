#include "net/throttle.h"

#include <gtest/gtest.h>

#include <array>

namespace jccl::net {
namespace {

using base::kMillisecond;
using base::kSecond;

constexpr double kRate = 10e6;
constexpr std::uint64_t kBatch = 100'000;  // 10 ms of it

struct Sender {
  base::Time at = 0;  // of its timer
  std::uint64_t sent = 0;
};

// What each of them has sent after so long, if it always has more.
template <std::size_t n>
std::array<Sender, n> busy(Throttle* throttle, base::Duration time, base::Duration late = 0) {
  std::array<Sender, n> all{};
  for (base::Time now = kSecond; now < kSecond + time; now += kMillisecond / 4) {
    for (Sender& one : all) {
      if (now < one.at) continue;
      const base::Duration wait = throttle->wait(&one, now);
      one.at = now + wait + late;
      if (wait > 0) continue;
      throttle->sent(&one, kBatch, now);
      one.sent += kBatch;
    }
  }
  return all;
}

TEST(ThrottleTest, a_second_has_so_many_bytes) {
  Throttle throttle(kRate);
  EXPECT_TRUE(throttle.bounds());
  const auto one = busy<1>(&throttle, 10 * kSecond);
  EXPECT_NEAR(static_cast<double>(one[0].sent), 10 * kRate, kRate / 20);
}

TEST(ThrottleTest, late_timers_are_made_up_for) {
  Throttle throttle(kRate);
  const auto one = busy<1>(&throttle, 10 * kSecond, 8 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(one[0].sent), 10 * kRate, kRate / 20);
}

TEST(ThrottleTest, those_that_send_share_it) {
  Throttle throttle(kRate);
  const auto all = busy<3>(&throttle, 9 * kSecond);
  for (const Sender& one : all) {
    EXPECT_NEAR(static_cast<double>(one.sent), 3 * kRate, kRate / 20);
  }
}

TEST(ThrottleTest, an_idle_minute_is_not_saved_up) {
  Throttle throttle(kRate);
  (void)busy<1>(&throttle, kSecond);
  int at_once = 0;
  const base::Time now = 60 * kSecond;
  while (throttle.wait(&throttle, now) == 0) {
    throttle.sent(&throttle, kBatch, now);
    ++at_once;
  }
  EXPECT_LE(at_once, 3);
}

// It has waited for its turn, and has nothing to send any more.
TEST(ThrottleTest, who_leaves_holds_nobody) {
  Throttle throttle(kRate);
  const int one = 0, two = 0;
  EXPECT_EQ(throttle.wait(&one, kSecond), 0);
  EXPECT_GT(throttle.wait(&two, kSecond), 0);
  throttle.leave(&one);
  EXPECT_EQ(throttle.wait(&two, kSecond), 0);
}

}  // namespace
}  // namespace jccl::net
