#include "net/link/pacing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace jccl::net {
namespace {

using base::kMillisecond;

constexpr base::Duration kPathRtt = 80 * kMillisecond;

// A path that delivers `rate` bytes per ms to a busy sender, or what the sender is bound to.
struct Path {
  double rate = 1000;
  Pacing pacing = {};
  base::Time now = kMillisecond;
  double delivered = 0;

  void busy_for(int ms) {
    for (int at = 0; at < ms; at += 20) {
      (void)pacing.sample(now, static_cast<std::uint64_t>(delivered), true, kPathRtt);
      const double bound = 1.3 * pacing.bytes_per_second() / 1000;
      delivered += 20 * (bound > 0 ? std::min(bound, rate) : rate);
      now += 20 * kMillisecond;
    }
  }
  void idle_for(int ms) {
    (void)pacing.sample(now, static_cast<std::uint64_t>(delivered), false, kPathRtt);
    now += ms * kMillisecond;
  }
};

TEST(PacingTest, a_full_line_is_known_exactly) {
  Path path;
  path.busy_for(2000);
  EXPECT_DOUBLE_EQ(path.pacing.bytes_per_second(), 1e6);
}

TEST(PacingTest, a_start_that_still_grows_is_not_bound) {
  Path path{.rate = 10};
  for (int i = 0; i < 6; ++i) {
    path.busy_for(80);
    EXPECT_EQ(path.pacing.bytes_per_second(), 0);
    path.rate *= 2;
  }
}

TEST(PacingTest, short_calls_are_enough_and_pauses_are_not_counted) {
  Path path;
  for (int i = 0; i < 3; ++i) {
    path.busy_for(400);
    path.idle_for(30'000);
  }
  EXPECT_DOUBLE_EQ(path.pacing.bytes_per_second(), 1e6);
}

TEST(PacingTest, a_line_that_got_faster_is_found_and_a_slower_one_too) {
  Path path;
  path.busy_for(2000);
  path.rate = 3000;
  path.busy_for(10'000);
  EXPECT_GT(path.pacing.bytes_per_second(), 2.9e6);
  path.rate = 500;
  path.busy_for(3000);
  EXPECT_LT(path.pacing.bytes_per_second(), 0.6e6);
}

TEST(PacingTest, a_busy_period_begins_with_the_best_of_the_one_before) {
  Path path;
  path.busy_for(2000);
  path.rate = 200;  // a bad moment at its end
  path.busy_for(2000);
  EXPECT_LT(path.pacing.bytes_per_second(), 0.3e6);
  path.idle_for(1000);
  path.rate = 1000;
  path.busy_for(20);
  EXPECT_DOUBLE_EQ(path.pacing.bytes_per_second(), 1e6);
}

TEST(PacingTest, a_path_that_stays_slower_is_believed_though_calls_are_short) {
  Path path;
  path.busy_for(2000);
  path.rate = 200;
  for (int i = 0; i < 20; ++i) {
    path.idle_for(1000);
    path.busy_for(400);
  }
  path.idle_for(1000);
  path.busy_for(20);
  EXPECT_LT(path.pacing.bytes_per_second(), 0.25e6);
}

}  // namespace
}  // namespace jccl::net
