#include "exchange/redial.h"

#include <gtest/gtest.h>

namespace jccl::exchange {
namespace {

using base::kMillisecond;
using base::kSecond;

// When the next dial is due, in ms.
base::Duration wait_ms(const Redial& redial, base::Time now) {
  base::Duration wait = 0;
  while (!redial.due(now + wait)) wait += kMillisecond;
  return wait / kMillisecond;
}

TEST(RedialTest, a_link_that_broke_is_dialled_at_once_and_a_lost_stripe_soon) {
  Redial redial;
  redial.broke(kSecond, true);
  EXPECT_EQ(wait_ms(redial, kSecond), 0);
  redial.broke(kSecond, false);
  EXPECT_EQ(wait_ms(redial, kSecond), 20);
}

TEST(RedialTest, waits_double_up_to_a_second_and_begin_anew_with_a_link) {
  Redial redial;
  base::Time now = kSecond;
  for (const int ms : {20, 40, 80, 160, 320, 640, 1000, 1000}) {
    redial.failed(now);
    EXPECT_EQ(wait_ms(redial, now), ms);
    EXPECT_EQ(redial.failing(), ms > 20);
    now += ms * kMillisecond;
  }
  redial.broke(now, true);
  redial.failed(now);
  EXPECT_EQ(wait_ms(redial, now), 20);
}

TEST(RedialTest, stripes_that_are_lost_together_count_once) {
  Redial redial;
  base::Time now = kSecond;
  for (const int ms : {40, 80, 160, 320, 640, 1000}) {
    for (int stripe = 0; stripe < 4; ++stripe) redial.closed_unheard(now);
    EXPECT_EQ(wait_ms(redial, now), ms);
    now += ms * kMillisecond;
  }
}

TEST(RedialTest, dials_that_fail_together_count_once) {
  Redial redial;
  for (int dial = 0; dial < 4; ++dial) redial.failed(kSecond);
  EXPECT_EQ(wait_ms(redial, kSecond), 20);
  EXPECT_FALSE(redial.failing());
}

}  // namespace
}  // namespace jccl::exchange
