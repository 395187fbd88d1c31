#include "exchange/survey.h"

#include <gtest/gtest.h>

namespace jccl::exchange {
namespace {

constexpr base::Time kBeat = 100 * base::kMillisecond;

// Ten beats at a rate, with data waiting or not.
base::Time run(Survey& survey, base::Time now, std::uint64_t* sent, std::uint64_t bytes_per_s,
               bool waiting) {
  for (int i = 0; i < 10; ++i) {
    survey.sample(now += kBeat, *sent += bytes_per_s / 10, waiting);
  }
  return now;
}

TEST(SurveyTest, the_uplink_is_what_went_while_more_waited) {
  Survey survey;
  std::uint64_t sent = 0;
  base::Time now = run(survey, base::kSecond, &sent, 1'000'000, false);
  EXPECT_FALSE(survey.due(now, {}).has_value());
  survey.sample(now += kBeat, sent += 9'000'000, true);
  survey.sample(now += kBeat, sent += 9'000'000, true);
  EXPECT_FALSE(survey.due(now, {}).has_value()) << "a stretch may be an accident";
  now = run(survey, now, &sent, 50'000'000, true);
  const auto told = survey.due(now, {});
  ASSERT_TRUE(told.has_value());
  EXPECT_NEAR(static_cast<double>(told->up_bytes_per_s), 89e6, 1e6);
}

TEST(SurveyTest, what_a_peer_has_of_a_core_is_told_when_it_changes) {
  Survey survey;
  base::Time now = base::kSecond;
  const auto told = survey.due(now, {}, 1000);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->core, 1000U);
  EXPECT_FALSE(survey.due(now += 3 * base::kSecond, {}, 1000).has_value());
  EXPECT_EQ(survey.due(now += 3 * base::kSecond, {}, 500).value().core, 500U);
}

TEST(SurveyTest, a_line_that_was_not_full_says_nothing) {
  Survey survey;
  std::uint64_t sent = 0;
  base::Time now = run(survey, base::kSecond, &sent, 50'000'000, true);
  const auto told = survey.due(now, {});
  ASSERT_TRUE(told.has_value());
  now = run(survey, now, &sent, 1'000'000, false);
  now = run(survey, now, &sent, 1'000'000, false);
  EXPECT_FALSE(survey.due(now + 20 * base::kSecond, {}).has_value());
}

TEST(SurveyTest, a_stretch_counts_if_more_waited_at_both_its_ends) {
  Survey survey;
  std::uint64_t sent = 0;
  base::Time now = base::kSecond;
  for (int i = 0; i < 40; ++i) survey.sample(now += kBeat, sent += 5'000'000, i % 2 == 0);
  EXPECT_FALSE(survey.due(now, {}).has_value());
}

TEST(SurveyTest, what_a_line_once_gave_is_forgotten_in_minutes) {
  Survey survey;
  std::uint64_t sent = 0;
  base::Time now = run(survey, base::kSecond, &sent, 90'000'000, true);
  ASSERT_TRUE(survey.due(now, {}).has_value());
  for (int i = 0; i < 300; ++i) now = run(survey, now, &sent, 40'000'000, true);
  const auto told = survey.due(now, {});
  ASSERT_TRUE(told.has_value());
  EXPECT_NEAR(static_cast<double>(told->up_bytes_per_s), 40e6, 1e6);
}

TEST(SurveyTest, it_tells_at_once_what_changed_much_and_later_what_changed_little) {
  Survey survey;
  const base::Time now = 100 * base::kSecond;
  ASSERT_TRUE(survey.due(now, {{2, 80'000, 1'000'000}}).has_value());
  EXPECT_FALSE(survey.due(now + base::kSecond, {{2, 80'000, 9'000'000}}).has_value());
  EXPECT_TRUE(survey.due(now + 3 * base::kSecond, {{2, 80'000, 9'000'000}}).has_value());
  EXPECT_FALSE(survey.due(now + 6 * base::kSecond, {{2, 85'000, 8'000'000}}).has_value());
  EXPECT_TRUE(survey.due(now + 14 * base::kSecond, {{2, 85'000, 8'000'000}}).has_value());
  EXPECT_FALSE(survey.due(now + 60 * base::kSecond, {{2, 85'000, 8'000'000}}).has_value());
  EXPECT_TRUE(survey.due(now + 63 * base::kSecond, {{3, 85'000, 8'000'000}}).has_value());
}

TEST(SurveyTest, links_are_looked_at_every_other_second) {
  Survey survey;
  EXPECT_TRUE(survey.time_to_look(base::kSecond));
  EXPECT_FALSE(survey.time_to_look(2 * base::kSecond));
  EXPECT_TRUE(survey.time_to_look(3 * base::kSecond));
}

TEST(SurveyTest, delays_of_a_local_network_are_all_alike) {
  Survey survey;
  const base::Time now = 100 * base::kSecond;
  ASSERT_TRUE(survey.due(now, {{2, 30, 0}}).has_value());
  EXPECT_FALSE(survey.due(now + 30 * base::kSecond, {{2, 900, 0}}).has_value());
}

}  // namespace
}  // namespace jccl::exchange
