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

constexpr double kDayBytes = 1e9;
constexpr base::Duration kDay = 24 * 3600 * kSecond;

// What leaves in so long if there is always more; with coarse steps, as days are long.
std::uint64_t sent_in(Throttle* throttle, base::Time* now, base::Duration time) {
  std::uint64_t sent = 0;
  for (const base::Time end = *now + time; *now < end; *now += kSecond) {
    while (throttle->wait(throttle, *now) == 0)
      throttle->sent(throttle, kBatch, *now), sent += kBatch;
  }
  return sent;
}

TEST(ThrottleTest, a_day_has_so_many_bytes_and_a_part_of_them_at_once) {
  Throttle throttle(0, kDayBytes);
  EXPECT_TRUE(throttle.bounds());
  base::Time now = kSecond;
  EXPECT_NEAR(static_cast<double>(sent_in(&throttle, &now, kSecond)), kDayBytes / 25, 2 * kBatch);
  now = kSecond;
  Throttle fresh(0, kDayBytes);
  for (int day = 0; day < 3; ++day) {
    const auto sent = static_cast<double>(sent_in(&fresh, &now, kDay));
    EXPECT_LE(sent, kDayBytes + 2 * kBatch) << day;
    EXPECT_GE(sent, 0.95 * kDayBytes) << day;
  }
}

TEST(ThrottleTest, no_day_saves_up_for_another) {
  Throttle throttle(0, kDayBytes);
  base::Time now = kSecond;
  (void)sent_in(&throttle, &now, kSecond);
  now += 5 * kDay;
  EXPECT_LE(static_cast<double>(sent_in(&throttle, &now, kDay)), kDayBytes + 2 * kBatch);
}

TEST(ThrottleTest, of_a_rate_and_a_day_the_slower_one_holds) {
  Throttle brief(kRate, kDayBytes), longer(kRate, kDayBytes);
  EXPECT_NEAR(static_cast<double>(busy<1>(&brief, 2 * kSecond)[0].sent), 2 * kRate, kRate / 20);
  EXPECT_NEAR(static_cast<double>(busy<1>(&longer, 10 * kSecond)[0].sent),
              kDayBytes / 25 + kDayBytes * 10 / 90'000, kRate / 20);
  Throttle other(kRate, kDayBytes);
  other.set(0);
  EXPECT_TRUE(other.bounds()) << "the day does";
  base::Time now = kSecond;
  EXPECT_NEAR(static_cast<double>(sent_in(&other, &now, kSecond)), kDayBytes / 25, 2 * kBatch);
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
