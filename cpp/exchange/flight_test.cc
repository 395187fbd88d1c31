#include "exchange/flight.h"

#include <gtest/gtest.h>

namespace jccl::exchange {
namespace {

using base::kMillisecond;
using base::kSecond;
using base::Time;
using Keys = std::vector<std::uint64_t>;

constexpr base::Duration kRtt = 40 * kMillisecond;

// Two stripes that deliver a frame each per 100 ms; the second one may stop doing so.
struct Two {
  Flight flight{1000};
  Time now = kSecond;
  std::uint64_t key = 0;
  std::uint64_t delivered[3] = {0, 0, 0};

  Two() {
    flight.add_stripe(1, now);
    flight.add_stripe(2, now);
  }
  void round(bool second = true) {
    flight.took(1, key++, now);
    if (second) flight.took(2, key++, now);
    now += 100 * kMillisecond;
    EXPECT_TRUE(flight.arrived(1, ++delivered[1], now));
    if (second) {
      EXPECT_TRUE(flight.arrived(2, ++delivered[2], now));
    }
  }
};

TEST(FlightTest, stripes_that_deliver_alike_are_never_late) {
  Two two;
  for (int i = 0; i < 50; ++i) {
    two.round();
    EXPECT_TRUE(two.flight.check(two.now, kRtt).empty());
  }
  EXPECT_EQ(two.flight.typical(), 100 * kMillisecond);
}

TEST(FlightTest, what_a_stuck_stripe_holds_is_named_once) {
  Two two;
  for (int i = 0; i < 5; ++i) two.round();
  two.flight.took(2, 100, two.now);
  two.flight.took(2, 101, two.now);
  std::vector<Keys> named;
  for (int i = 0; i < 10; ++i) {
    two.round(false);
    for (const auto& late : two.flight.check(two.now, kRtt)) {
      EXPECT_EQ(late.stripe, 2u);
      EXPECT_FALSE(late.replace);
      named.push_back(late.again);
      EXPECT_EQ(i, 4);  // four times what frames take, and one more
    }
  }
  EXPECT_EQ(named, (std::vector<Keys>{{100, 101}}));
  EXPECT_TRUE(two.flight.late(2));
  EXPECT_FALSE(two.flight.late(1));
}

TEST(FlightTest, a_stripe_that_stays_late_is_to_be_replaced_and_one_that_catches_up_is_not) {
  for (const bool catches_up : {false, true}) {
    Two two;
    for (int i = 0; i < 5; ++i) two.round();
    two.flight.took(2, 100, two.now);
    bool replaced = false;
    for (int i = 0; i < 60; ++i) {
      two.round(false);
      if (catches_up && i == 10) {
        EXPECT_TRUE(two.flight.arrived(2, 6, two.now));
      }
      for (const auto& late : two.flight.check(two.now, kRtt)) replaced |= late.replace;
    }
    EXPECT_EQ(replaced, !catches_up);
    EXPECT_EQ(two.flight.late(2), !catches_up);
  }
}

TEST(FlightTest, what_a_late_stripe_takes_is_not_typical) {
  Two two;
  for (int i = 0; i < 5; ++i) two.round();
  two.flight.took(2, 100, two.now);
  for (int i = 0; i < 40; ++i) {
    two.round(false);
    (void)two.flight.check(two.now, kRtt);
  }
  EXPECT_TRUE(two.flight.late(2));
  EXPECT_TRUE(two.flight.arrived(2, 6, two.now));
  EXPECT_EQ(two.flight.typical(), 100 * kMillisecond);
}

TEST(FlightTest, when_nothing_arrives_anywhere_no_stripe_is_blamed) {
  Two two;
  for (int i = 0; i < 5; ++i) two.round();
  two.flight.took(1, 100, two.now);
  two.flight.took(2, 101, two.now);
  for (int i = 0; i < 100; ++i) {
    two.now += 100 * kMillisecond;
    EXPECT_TRUE(two.flight.check(two.now, kRtt).empty());
  }
}

TEST(FlightTest, the_only_stripe_is_never_late) {
  Flight flight{1000};
  flight.add_stripe(1, 0);
  flight.took(1, 1, kSecond);
  EXPECT_TRUE(flight.check(100 * kSecond, kRtt).empty());
}

TEST(FlightTest, long_paths_are_given_round_trips) {
  Two two;
  two.round();
  two.flight.took(2, 100, two.now);
  for (int i = 0; i < 11; ++i) {
    two.round(false);
    EXPECT_TRUE(two.flight.check(two.now, 300 * kMillisecond).empty());
  }
}

TEST(FlightTest, a_lost_stripe_names_what_is_not_known_to_be_there) {
  Flight flight{1000};
  flight.add_stripe(7, 0);
  for (std::uint64_t key = 0; key < 6; ++key) flight.took(7, key, kSecond);
  EXPECT_TRUE(flight.arrived(7, 2, kSecond));
  flight.forget([](std::uint64_t key) { return key == 3; });
  const Flight::Rest rest = flight.remove_stripe(7);
  EXPECT_EQ(rest.keys, (Keys{2, 4, 5}));
  EXPECT_TRUE(rest.complete);
  EXPECT_TRUE(flight.remove_stripe(7).keys.empty());
}

TEST(FlightTest, forgotten_frames_count_but_are_not_waited_for) {
  Two two;
  for (int i = 0; i < 5; ++i) two.round();
  for (std::uint64_t key = 100; key < 104; ++key) two.flight.took(2, key, two.now);
  two.flight.forget([](std::uint64_t key) { return key != 102; });
  EXPECT_TRUE(two.flight.arrived(2, 7, two.now));  // 100 and 101
  EXPECT_TRUE(two.flight.arrived(2, 9, two.now));
  for (int i = 0; i < 10; ++i) {
    two.round(false);
    EXPECT_TRUE(two.flight.check(two.now, kRtt).empty());
  }
}

TEST(FlightTest, a_stripe_that_stands_is_late_until_what_it_held_arrives_wanted_or_not) {
  Two two;
  for (int i = 0; i < 5; ++i) two.round();
  two.flight.took(2, 100, two.now);
  for (int i = 0; i < 6; ++i) {
    two.round(false);
    two.flight.check(two.now, kRtt);
  }
  EXPECT_TRUE(two.flight.late(2));
  two.flight.forget([](std::uint64_t key) { return key == 100; });
  two.flight.check(two.now, kRtt);
  EXPECT_TRUE(two.flight.late(2));
  two.now += 10 * kMillisecond;
  EXPECT_TRUE(two.flight.arrived(2, two.delivered[2] + 1, two.now));
  two.flight.check(two.now, kRtt);
  EXPECT_FALSE(two.flight.late(2));
}

TEST(FlightTest, a_frame_alone_on_a_stripe_that_stands_goes_again_once_an_idle_one_speaks) {
  Flight flight{50};
  for (const StripeId stripe : {1U, 2U}) flight.add_stripe(stripe, 0);
  flight.took(1, 7, kMillisecond);
  EXPECT_TRUE(flight.check(900 * kMillisecond, 0).empty());  // the other side may stand still
  EXPECT_TRUE(flight.arrived(2, 0, 200 * kMillisecond));     // so soon it says nothing
  EXPECT_TRUE(flight.check(900 * kMillisecond, 0).empty());
  EXPECT_TRUE(flight.arrived(2, 0, 910 * kMillisecond));
  const std::vector<Flight::Late> late = flight.check(911 * kMillisecond, 0);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].again, (std::vector<std::uint64_t>{7}));
  EXPECT_TRUE(flight.check(912 * kMillisecond, 0).empty());  // named once
  EXPECT_TRUE(flight.late(1));
}

TEST(FlightTest, memory_for_keys_is_bounded_and_more_arrivals_than_frames_are_refused) {
  Flight flight{50};
  flight.add_stripe(1, 0);
  for (std::uint64_t key = 0; key < 100; ++key) flight.took(1, key, 0);
  EXPECT_TRUE(flight.arrived(1, 40, 1));
  EXPECT_FALSE(flight.arrived(1, 101, 1));
  const Flight::Rest rest = flight.remove_stripe(1);
  EXPECT_EQ(rest.keys.size(), 50u);
  EXPECT_FALSE(rest.complete);
}

TEST(FlightTest, frames_without_a_name_are_missing_until_they_are_told_to_have_arrived) {
  for (const std::uint64_t told : {0U, 5U, 6U}) {
    Flight flight{4};
    flight.add_stripe(1, 0);
    for (std::uint64_t key = 0; key < 10; ++key) flight.took(1, key, 0);  // 0 to 5 have none
    EXPECT_TRUE(flight.arrived(1, told, 1));
    flight.forget([](std::uint64_t) { return true; });
    EXPECT_EQ(flight.all_arrived(1), told == 6) << told;
    const Flight::Rest rest = flight.remove_stripe(1);
    EXPECT_TRUE(rest.keys.empty());
    EXPECT_EQ(rest.complete, told == 6) << told;
  }
}

}  // namespace
}  // namespace jccl::exchange
