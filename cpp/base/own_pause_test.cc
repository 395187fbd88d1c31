#include "base/own_pause.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

constexpr Duration kSilence = 3 * kSecond;

TEST(OwnPauseTest, who_is_woken_a_third_of_the_silence_late_was_not_there) {
  EXPECT_FALSE(OwnPause(5 * kSecond, 4 * kSecond, kSilence).counts());
  EXPECT_FALSE(OwnPause(5 * kSecond, 6 * kSecond, kSilence).counts());
  const OwnPause pause(5 * kSecond, 6 * kSecond + 1, kSilence);
  EXPECT_TRUE(pause.counts());
  EXPECT_EQ(pause.length(), kSecond + 1);
  EXPECT_FALSE(OwnPause(kNever, 6 * kSecond, kSilence).counts());
}

TEST(OwnPauseTest, what_is_waited_for_is_waited_for_so_much_longer_but_never_from_a_later_time) {
  const OwnPause pause(10 * kSecond, 14 * kSecond, kSilence);
  Time old = 7 * kSecond, fresh = 13 * kSecond, never = kNever;
  pause.pass_over(&old);
  pause.pass_over(&fresh);
  pause.pass_over(&never);
  EXPECT_EQ(old, 11 * kSecond);
  EXPECT_EQ(fresh, 14 * kSecond);
  EXPECT_EQ(never, kNever);
}

}  // namespace
}  // namespace jccl::base
