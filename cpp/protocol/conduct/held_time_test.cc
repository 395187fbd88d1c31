// The account of time that others waited for one.
#include <gtest/gtest.h>

#include "protocol/conduct/blame.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

TEST(HeldTimeTest, some_is_free_and_the_rest_is_paid_back_several_times) {
  Held held;
  const base::Time now = 1000 * kSecond;
  EXPECT_EQ(held.add(now - Held::kFree, Held::kFree, 600 * kSecond, now), now);
  EXPECT_EQ(held.add(now - kSecond, Held::kFree, 600 * kSecond, now), now) << "counted once";
  const base::Time later = now + kSecond;
  const base::Time until = held.add(now, Held::kFree, 600 * kSecond, later);
  EXPECT_GE(until - later, 4 * kSecond);
  EXPECT_LE(held.add(now, Held::kFree, 600 * kSecond, now + 10'000 * kSecond),
            now + 10'600 * kSecond);
}

// Else deadlines of five minutes would leave one that holds each call to its end a third of them.
TEST(HeldTimeTest, what_one_time_was_is_paid_in_full_however_long_it_was) {
  Held held;
  const base::Time now = 10'000 * kSecond;
  const base::Time since = now - 300 * kSecond;
  const base::Duration out = held.add(since, Held::kFree, 60 * kSecond, now, true) - now;
  EXPECT_EQ(out, Held::kBack * (300 * kSecond - Held::kFree));
  Held token;  // by which others come, too
  EXPECT_EQ(token.add(since, Held::kFree, 60 * kSecond, now) - now, 60 * kSecond);
  Blame blame;
  const wire::PublicKey key{1};
  blame.held(key, since, Held::kFree, 60 * kSecond, now);
  EXPECT_EQ(blame.out_until(key), now + out) << "so it is with the time that a key owes";
}

// Rounds of several tags overlap, and each ends when it ends.
TEST(HeldTimeTest, what_ended_first_hides_nothing_that_began_before) {
  Held held;
  const base::Time now = 1000 * kSecond;
  for (const base::Duration ago : {kSecond / 100, 20 * kSecond, 10 * kSecond})
    (void)held.add(now - ago, Held::kFree, 600 * kSecond, now);
  EXPECT_EQ(held.total(), 20 * kSecond);
  (void)held.add(now - 30 * kSecond, Held::kFree, 600 * kSecond, now - 15 * kSecond);
  EXPECT_EQ(held.total(), 30 * kSecond) << "what is told late counts once as well";
}

TEST(HeldTimeTest, of_many_spans_the_long_ones_stay_counted) {
  Held held;
  base::Time now = 1000 * kSecond;
  (void)held.add(now - 20 * kSecond, Held::kFree, 600 * kSecond, now);
  for (int i = 0; i < 100; ++i) {
    now += 2 * kMillisecond;
    (void)held.add(now - kMillisecond, Held::kFree, 600 * kSecond, now);
  }
  (void)held.add(now - 20 * kSecond, Held::kFree, 600 * kSecond, now);
  EXPECT_GE(held.total(), 20'200 * kMillisecond);
  EXPECT_LE(held.total(), 20'300 * kMillisecond);
}

TEST(HeldTimeTest, a_longer_free_time_is_free) {
  Held held;
  const base::Time now = 1000 * kSecond;
  EXPECT_EQ(held.add(now - 100 * kSecond, 100 * kSecond, 600 * kSecond, now), now);
}

}  // namespace
}  // namespace jccl::protocol
