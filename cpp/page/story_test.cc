// What is told of events, and that nobody makes it grow.
#include "page/story.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "page/reply.h"

namespace jccl::page {
namespace {

namespace json = boost::json;

Event line(double t, std::string kind, std::vector<std::pair<std::string, std::string>> fields) {
  return {t, std::move(kind), std::move(fields)};
}
Event call(double t, std::string tag) { return {t, "ready", {{"tag", std::move(tag)}}, true}; }
Event done(double t, std::string attempt) {
  return {t, "done", {{"attempt", std::move(attempt)}}, true};
}
Event start(double t, std::string tag, std::string attempt) {
  return line(t, "start",
              {{"tag", tag}, {"n", "4"}, {"attempt", attempt}, {"contributors", "a b"}});
}

TEST(StoryTest, a_round_has_its_phases) {
  Story story;
  story.add(call(1, "g"));
  story.add(call(3, "g"));
  story.add(start(4, "g", "1.1"));
  EXPECT_EQ(story.rounds().at(0).at("end").as_string(), "running");
  EXPECT_TRUE(story.rounds().at(0).at("done").is_null());
  story.add(done(6, "1.1"));
  story.add(done(9, "1.1"));
  story.add(line(9.5, "commit", {{"tag", "g"}, {"n", "4"}, {"attempt", "1.1"}, {"world", "2"}}));
  const json::object round = story.rounds().at(0).as_object();
  EXPECT_EQ(round.at("formed").as_double(), 1);
  EXPECT_EQ(round.at("started").as_double(), 4);
  EXPECT_EQ(round.at("done").as_double(), 9) << "of the last peer";
  EXPECT_EQ(round.at("ended").as_double(), 9.5);
  EXPECT_EQ(round.at("end").as_string(), "commit");
  EXPECT_EQ(round.at("world").as_string(), "2");
  EXPECT_EQ(story.phase_sums(Phase::kForming).at("g").seconds, 3);
  EXPECT_EQ(story.phase_sums(Phase::kMoving).at("g").seconds, 5);
  EXPECT_EQ(story.phase_sums(Phase::kDeciding).at("g").seconds, 0.5);
  EXPECT_EQ(story.phase_sums(Phase::kMoving).at("g").count, 1U);
}

TEST(StoryTest, an_aborted_attempt_says_why_and_counts_in_no_sum_of_commits) {
  Story story;
  story.add(start(4, "g", "1.1"));
  story.add(done(5, "1.1"));
  story.add(line(6, "abort", {{"tag", "g"}, {"attempt", "1.1"}, {"text", "b is gone"}}));
  story.add(line(7, "commit", {{"tag", "g"}, {"attempt", "1.1"}}));  // it has ended
  story.add(done(8, "9.9"));                                         // of an attempt that is none
  const json::object round = story.rounds().at(0).as_object();
  EXPECT_EQ(round.at("end").as_string(), "abort");
  EXPECT_EQ(round.at("why").as_string(), "b is gone");
  EXPECT_TRUE(round.at("formed").is_null());
  EXPECT_TRUE(story.phase_sums(Phase::kMoving).empty());
}

TEST(StoryTest, sites_have_joined_until_they_go) {
  Story story;
  story.add(line(2, "admit", {{"site", "a"}}));
  story.add(line(3, "admit", {{"site", "b"}}));
  story.add(line(4, "evict", {{"site", "a"}, {"reason", "gone"}}));
  story.add(line(5, "leave", {{"site", "c"}}));
  EXPECT_EQ(json::serialize(story.joined()), R"({"b":3E0})");
  EXPECT_EQ(story.counts().at("admit"), 2U);
}

TEST(StoryTest, events_are_numbered_and_the_oldest_go) {
  Story story;
  for (std::size_t n = 1; n <= Story::kEventsMax + 10; ++n) {
    story.add(line(static_cast<double>(n), "reject", {{"site", "x"}}));
  }
  story.add(call(1, "no event"));
  EXPECT_EQ(story.last(), Story::kEventsMax + 10);
  EXPECT_EQ(story.after(0).size(), Story::kEventsMax);
  EXPECT_EQ(story.after(0).front()->id, 11U);
  ASSERT_EQ(story.after(story.last() - 1).size(), 1U);
  EXPECT_EQ(story.after(story.last() - 1)[0]->text,
            R"({"id":1034,"t":1.034E3,"kind":"reject","site":"x"})");
  EXPECT_TRUE(story.after(story.last()).empty());
}

TEST(StoryTest, no_event_becomes_two_or_ends_its_line) {
  Story story;
  story.add(line(1, "fault",
                 {{"text", "a\n\ndata: {\"kind\":\"commit\"}\r\n\"</script>\x1b[2J"},
                  {"site", "\xff\xe2\x80\xae"}}));
  const std::string text = event_text(*story.after(0)[0]);
  EXPECT_EQ(text.substr(text.size() - 2), "\n\n");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 0);
  const auto read = json::parse(story.after(0)[0]->text);
  EXPECT_EQ(read.at("text").as_string(), "a\n\ndata: {\"kind\":\"commit\"}\r\n\"</script>\x1b[2J");
  EXPECT_EQ(read.at("site").as_string(), "?\xe2\x80\xae");
}

TEST(StoryTest, whoever_makes_events_makes_nothing_grow) {
  Story story;
  const std::string large(100'000, 'x');
  for (int n = 0; n < 3000; ++n) {
    const std::string one = std::to_string(n);
    story.add(call(n, one));
    story.add(start(n, one, one));
    story.add(done(n, one));
    story.add(line(n, "commit", {{"tag", one}, {"attempt", one}, {"text", large}}));
    story.add(line(n, "admit", {{"site", one}}));
    story.add(line(n, "kind " + one, {{"text", large}}));
  }
  EXPECT_EQ(story.rounds().size(), Story::kRoundsMax);
  EXPECT_EQ(story.joined().size(), Story::kSitesMax);
  EXPECT_LE(story.counts().size(), Story::kKindsMax);
  for (const Phase phase : {Phase::kForming, Phase::kMoving, Phase::kDeciding}) {
    EXPECT_LE(story.phase_sums(phase).size(), Story::kTagsMax);
  }
  for (const auto* event : story.after(0)) EXPECT_LT(event->text.size(), 1000U);
  EXPECT_LT(json::serialize(story.rounds()).size(), 200'000U);
}

}  // namespace
}  // namespace jccl::page
