#include "net/rate.h"

#include <gtest/gtest.h>

namespace jccl::net {
namespace {

using base::kMillisecond;
using base::Time;

// A path of `rate` bytes per ms whose other side acknowledges one round trip later.
struct Line {
  std::uint64_t rate = 1000;
  base::Duration rtt = 0;
  RateMeter meter = {};
  Time now = kMillisecond;
  std::uint64_t delivered = 0;
  int windows = 0;

  void busy_for(int ms, int step = 5) {
    const Time begun = now;
    for (int at = 0; at <= ms; at += step) {
      now = begun + at * kMillisecond;
      if (at > 0 && now - begun > rtt) delivered += rate * static_cast<std::uint64_t>(step);
      if (meter.sample(now, delivered, true, rtt)) ++windows;
    }
  }
  void idle_for(int ms) {
    (void)meter.sample(now, delivered, false, rtt);
    now += ms * kMillisecond;
  }
};

TEST(RateTest, a_steady_path_is_measured_exactly) {
  Line path;
  path.busy_for(500);
  EXPECT_DOUBLE_EQ(path.meter.bytes_per_second(), 1e6);
  EXPECT_GE(path.windows, 20);
}

TEST(RateTest, idle_time_and_the_first_round_trip_do_not_count) {
  Line path{.rtt = 80 * kMillisecond};
  for (int i = 0; i < 3; ++i) {
    path.busy_for(400);
    path.idle_for(5000);
  }
  EXPECT_DOUBLE_EQ(path.meter.bytes_per_second(), 1e6);
  EXPECT_EQ(path.meter.busy_ns(), 3 * 240 * kMillisecond);
}

TEST(RateTest, bursts_shorter_than_a_round_trip_say_nothing) {
  Line path{.rtt = 80 * kMillisecond};
  for (int i = 0; i < 20; ++i) {
    path.busy_for(70);
    path.idle_for(100);
  }
  EXPECT_EQ(path.windows, 0);
  EXPECT_EQ(path.meter.bytes_per_second(), 0);
}

TEST(RateTest, a_few_odd_windows_change_nothing_and_old_ones_are_forgotten) {
  Line path;
  path.busy_for(400);
  path.rate = 9000;
  path.busy_for(40);
  path.rate = 250;
  path.busy_for(60);
  EXPECT_DOUBLE_EQ(path.meter.bytes_per_second(), 1e6);
  path.busy_for(2000);
  EXPECT_DOUBLE_EQ(path.meter.bytes_per_second(), 250e3);
}

TEST(RateTest, samples_are_due_at_the_start_of_a_busy_period_and_then_now_and_again) {
  Line path{.rtt = 80 * kMillisecond};
  EXPECT_TRUE(path.meter.due(path.now, path.rtt));
  path.busy_for(100);
  EXPECT_FALSE(path.meter.due(path.now + 10 * kMillisecond, path.rtt));
  EXPECT_TRUE(path.meter.due(path.now + 20 * kMillisecond, path.rtt));
}

}  // namespace
}  // namespace jccl::net
