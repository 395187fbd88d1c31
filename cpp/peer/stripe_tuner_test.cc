#include "peer/stripe_tuner.h"

#include <gtest/gtest.h>

#include <functional>

namespace jccl::peer {
namespace {

using base::kMillisecond;

// A link whose rate (bytes per ms) depends on how many stripes it has, and which gets the stripes
// it asks for. Returns how many it has after so many windows of one round trip.
struct Path {
  std::function<double(std::uint32_t)> rate;
  base::Duration rtt = 80 * kMillisecond;
  std::uint32_t pinned = 0;
  bool loopback = false;
  StripeTuner tuner{pinned};
  std::uint32_t stripes = 0;
  std::uint32_t most = 0;

  Path(base::Duration rtt, std::function<double(std::uint32_t)> rate, std::uint32_t pinned = 0)
      : rate(std::move(rate)), rtt(rtt), pinned(pinned), tuner(pinned) {}

  std::uint32_t run(int windows) {
    if (stripes == 0) {
      EXPECT_EQ(tuner.wanted(), std::max(1u, pinned));
    }
    tuner.connected(loopback, rtt);
    for (int i = 0; i < windows; ++i) {
      stripes = std::max(stripes, tuner.wanted());  // never closed
      most = std::max(most, stripes);
      const base::Duration busy = std::max(rtt, 20 * kMillisecond);
      const double ms = static_cast<double>(busy) / kMillisecond;
      tuner.measured({static_cast<std::uint64_t>(rate(stripes) * ms), busy}, stripes, rtt);
    }
    return tuner.wanted();
  }
};

double line_of_1_gbit(std::uint32_t) { return 120e3; }

TEST(StripeTunerTest, one_connection_finds_the_path_out_and_the_round_trip_says_how_many_follow) {
  const auto start = [](bool loopback, base::Duration rtt) {
    StripeTuner tuner;
    EXPECT_EQ(tuner.wanted(), 1u);
    tuner.connected(loopback, rtt);
    return tuner.wanted();
  };
  EXPECT_EQ(start(true, 30'000), 1u);
  EXPECT_EQ(start(false, 200'000), 2u);
  EXPECT_EQ(start(false, 2 * kMillisecond), 4u);
  EXPECT_EQ(start(false, 80 * kMillisecond), 8u);
}

TEST(StripeTunerTest, a_full_line_gets_one_trial_and_then_keeps_what_filled_it) {
  Path path(80 * kMillisecond, line_of_1_gbit);
  EXPECT_EQ(path.run(200), 8u);
  EXPECT_EQ(path.most, 12u);
}

TEST(StripeTunerTest, a_cap_per_connection_is_overcome_within_a_few_seconds) {
  Path path(40 * kMillisecond,
            [](std::uint32_t stripes) { return std::min(120e3, stripes * 12.5e3); });
  EXPECT_GE(path.run(40), 12u);  // 1.6 s of busy time
  EXPECT_EQ(path.run(400), 12u);
  EXPECT_LE(path.most, 20u);
}

TEST(StripeTunerTest, growth_ends_at_a_bound) {
  Path path(150 * kMillisecond, [](std::uint32_t stripes) { return stripes * 1e3; });
  EXPECT_EQ(path.run(1000), 48u);
}

TEST(StripeTunerTest, what_did_not_pay_is_tried_again_much_later) {
  double per_stripe = 1e6;
  Path path(80 * kMillisecond, [&](std::uint32_t stripes) {
    return std::min(120e3, per_stripe * static_cast<double>(stripes));
  });
  EXPECT_EQ(path.run(100), 8u);
  per_stripe = 5e3;  // the path has changed
  (void)path.run(2000);
  EXPECT_GE(path.tuner.wanted(), 24u);
}

TEST(StripeTunerTest, loopback_and_pinned_links_stay_as_they_are) {
  const auto grows = [](std::uint32_t stripes) { return stripes * 1e5; };
  Path loopback(30'000, grows);
  loopback.loopback = true;
  EXPECT_EQ(loopback.run(500), 1u);
  Path pinned(80 * kMillisecond, grows, 3);
  EXPECT_EQ(pinned.run(500), 3u);
  EXPECT_EQ(pinned.most, 3u);
}

TEST(StripeTunerTest, nothing_is_concluded_before_the_stripes_of_a_trial_stand) {
  StripeTuner tuner;
  tuner.connected(false, 80 * kMillisecond);
  for (int i = 0; i < 100; ++i) {
    tuner.measured({1'000'000, 80 * kMillisecond}, 3, 80 * kMillisecond);
  }
  EXPECT_EQ(tuner.wanted(), 8u);
}

}  // namespace
}  // namespace jccl::peer
