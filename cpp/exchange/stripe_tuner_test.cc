#include "exchange/stripe_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace jccl::exchange {
namespace {

using base::kMillisecond;
using base::kSecond;

// A link whose rate (bytes per ms) depends on how many stripes are used, and which gets those that
// it asks for, up to `most`. Nothing is random: see the model test for that.
struct Path {
  std::function<double(std::uint32_t)> rate;
  base::Duration rtt;
  StripeTuner tuner;
  std::uint32_t most = 64;
  bool loopback = false;
  double busy_s = 0;
  std::uint32_t standing = 0;
  std::uint32_t most_used = 0;
  std::uint32_t least_used = 64;

  Path(base::Duration rtt, std::function<double(std::uint32_t)> rate, std::uint32_t pinned = 0)
      : rate(std::move(rate)), rtt(rtt), tuner(pinned) {}

  // For so many seconds in which it is busy all the time. Returns what is chosen.
  std::uint32_t run(double seconds) {
    tuner.connected(loopback, rtt);
    for (const double until = busy_s + seconds; busy_s < until;) {
      standing = std::min(tuner.wanted(), most);
      const std::uint32_t used = std::min(tuner.used(), standing);
      most_used = std::max(most_used, used);
      least_used = std::min(least_used, used);
      const base::Duration busy = std::max(3 * rtt, 20 * kMillisecond);
      busy_s += static_cast<double>(busy) / kSecond;
      const double ms = static_cast<double>(busy) / kMillisecond;
      tuner.measured(static_cast<std::uint64_t>(rate(used) * ms), busy, standing, rtt);
    }
    return tuner.chosen();
  }
};

double line_of_1_gbit(std::uint32_t) { return 120e3; }

std::function<double(std::uint32_t)> capped(double each) {
  return [each](std::uint32_t stripes) { return std::min(120e3, stripes * each); };
}

std::function<double(std::uint32_t)> worn_out_by(double each) {
  return [each](std::uint32_t stripes) { return 140e3 / (1 + each * (stripes - 1)); };
}

TEST(StripeTunerTest, one_connection_finds_the_path_out_and_the_round_trip_says_how_many_follow) {
  const auto start = [](bool loopback, base::Duration rtt) {
    StripeTuner tuner;
    EXPECT_EQ(tuner.wanted(), 1u);
    tuner.connected(loopback, rtt);
    return tuner.wanted();
  };
  EXPECT_EQ(start(true, 30'000), 1u);
  StripeTuner handed;
  handed.connected(true, 30'000, true);
  EXPECT_EQ(handed.wanted(), 4u);  // a connection is moved by one thread at a time
  EXPECT_EQ(start(false, 200'000), 2u);
  EXPECT_EQ(start(false, 2 * kMillisecond), 4u);
  EXPECT_EQ(start(false, 80 * kMillisecond), 8u);
}

TEST(StripeTunerTest, a_full_line_keeps_what_fills_it_and_connections_that_did_not_pay_go) {
  Path path(80 * kMillisecond, line_of_1_gbit);
  EXPECT_EQ(path.run(150), 8u);
  EXPECT_EQ(path.most_used, 16u);
  EXPECT_EQ(path.least_used, 4u);
  EXPECT_EQ(path.tuner.wanted(), 8u);
}

TEST(StripeTunerTest, a_cap_per_connection_is_overcome_within_a_few_seconds) {
  Path path(40 * kMillisecond, capped(10e3));
  EXPECT_EQ(path.run(5), 16u);
  EXPECT_GE(path.run(100), 12u);
}

TEST(StripeTunerTest, growth_ends_at_a_bound) {
  Path path(150 * kMillisecond, capped(1e3));
  EXPECT_EQ(path.run(200), 48u);
  EXPECT_EQ(path.most_used, 48u);
}

TEST(StripeTunerTest, it_goes_down_where_fewer_carry_more) {
  Path path(80 * kMillisecond, worn_out_by(0.1));
  EXPECT_EQ(path.run(100), 2u);
  EXPECT_EQ(path.tuner.wanted(), 8u) << "the other direction may need them";
}

TEST(StripeTunerTest, what_was_built_up_is_given_back_when_the_path_changes) {
  Path path(80 * kMillisecond, capped(3e3));
  EXPECT_GE(path.run(100), 32u);
  path.rate = worn_out_by(0.05);
  EXPECT_LE(path.run(100), 6u);
  EXPECT_EQ(path.tuner.wanted(), 8u);
}

TEST(StripeTunerTest, another_level_of_the_rate_starts_the_search_anew) {
  Path path(80 * kMillisecond, line_of_1_gbit);
  EXPECT_EQ(path.run(300), 8u) << "it rests for minutes by now";
  path.rate = capped(5e3);
  EXPECT_GE(path.run(30), 16u);
}

TEST(StripeTunerTest, a_rate_that_halves_between_turns_is_taken_for_no_gain) {
  int call = 0;
  Path path(80 * kMillisecond, [&](std::uint32_t) { return ++call / 40 % 2 == 0 ? 120e3 : 60e3; });
  EXPECT_EQ(path.run(300), 8u);
}

TEST(StripeTunerTest, loopback_and_pinned_links_stay_as_they_are) {
  Path loopback(30'000, capped(1e5));
  loopback.loopback = true;
  EXPECT_EQ(loopback.run(500), 1u);
  Path pinned(80 * kMillisecond, capped(1e3), 3);
  EXPECT_EQ(pinned.run(500), 3u);
  EXPECT_EQ(pinned.most_used, 3u);
}

TEST(StripeTunerTest, a_trial_whose_connections_cannot_be_had_is_given_up) {
  Path path(80 * kMillisecond, capped(1e3));
  path.most = 8;
  EXPECT_EQ(path.run(40), 8u);
  EXPECT_EQ(path.most_used, 8u);
  EXPECT_EQ(path.least_used, 4u) << "others are tried then";
}

// Of the other side, which does not dial: it uses what stands.
TEST(StripeTunerTest, more_that_stand_anyway_are_tried) {
  StripeTuner tuner;
  tuner.connected(false, 80 * kMillisecond);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t rate = 10'000 * tuner.used();
    tuner.measured(rate * 240, 240 * kMillisecond, 16, 80 * kMillisecond);
  }
  EXPECT_EQ(tuner.chosen(), 16u);
}

TEST(PairedTurnsTest, a_large_difference_is_believed_soon_and_a_small_one_later) {
  using Verdict = PairedTurns::Verdict;
  PairedTurns large;
  large.add(0.4);
  EXPECT_EQ(large.verdict(0.02), Verdict::kGoOn) << "one pair may be an accident";
  large.add(0.4);
  EXPECT_EQ(large.verdict(0.02), Verdict::kPays);
  PairedTurns worse;
  worse.add(-0.2);
  EXPECT_EQ(worse.verdict(0.02), Verdict::kDoesNot);
  PairedTurns small;
  while (small.verdict(0.02) == Verdict::kGoOn) small.add(0.06);
  EXPECT_EQ(small.verdict(0.02), Verdict::kPays);
  EXPECT_GT(small.pairs(), 2);
}

TEST(PairedTurnsTest, one_pair_that_is_off_by_far_decides_nothing) {
  PairedTurns turns;
  turns.add(-20.0);  // the path stood still
  while (turns.pairs() < 6) turns.add(0.25);
  EXPECT_EQ(turns.verdict(0.02), PairedTurns::Verdict::kGoOn);
  while (turns.verdict(0.02) == PairedTurns::Verdict::kGoOn) turns.add(0.25);
  EXPECT_EQ(turns.verdict(0.02), PairedTurns::Verdict::kPays);
}

}  // namespace
}  // namespace jccl::exchange
