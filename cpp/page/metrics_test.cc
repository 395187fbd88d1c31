// Names, values and labels as Prometheus reads them.
#include "page/metrics.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <regex>
#include <set>
#include <sstream>

namespace jccl::page {
namespace {

constexpr char kStatus[] = R"({"run":"ab","version":20,"epoch":7,"uptime_s":12.5,"failure":"",
  "journal":{"store":"memory:","sequence":31},"memory":{"held":5,"max":40},"min_peers":2,
  "groups":[{"group":"west","sites":2}],"connections":3,"pending":1,"strangers_closed":4,"peers_left_out":0,
  "peers":[{"id":1,"site":"a","shard":0,"incarnation":"01","connected":true,"admitted":true,
            "silent_s":0.25,"progress_bytes":900,"trouble":"","faults":"","waiting_for":"b"},
           {"id":2,"site":"b","shard":0,"incarnation":"02","connected":false,"admitted":true,
            "silent_s":2,"progress_bytes":0,"trouble":"lost","faults":"x","waiting_for":""}],
  "links":[{"from":1,"to":2,"rtt_ms":20,"bytes_per_s":1e6}],
  "tags":[{"tag":"g","committed":5,"phase":"forming","commits":4,"aborts":1,"holders":2,
           "audited_cells":0}]})";

std::string text_of(const std::string& status, const Story& story = {}, const Served& served = {}) {
  return metrics_text(boost::json::parse(status).as_object(), 0.5, story, served);
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(MetricsTest, a_run_is_told_by_names_that_are_documented) {
  Story story;
  story.add({1, "ready", {{"tag", "g"}}, true});
  story.add({3, "start", {{"tag", "g"}, {"attempt", "1.1"}}});
  story.add({4, "admit", {{"site", "a"}}});
  const std::string text = text_of(kStatus, story);
  for (const char* line :
       {R"(jccl_master_info{run="ab",version="20"} 1)",
        "jccl_master_failed 0",
        "jccl_master_uptime_seconds 12.5",
        "jccl_master_snapshot_age_seconds 0.5",
        "jccl_master_journal_records_total 31",
        "jccl_epoch 7",
        R"(jccl_group_sites{group="west"} 2)",
        R"(jccl_peers{state="member"} 1)",
        R"(jccl_peers{state="lost"} 1)",
        R"(jccl_peer_silent_seconds{site="a",shard="0",incarnation="01"} 0.25)",
        R"(jccl_peer_moved_bytes_total{site="a",shard="0",incarnation="01"} 900)",
        R"(jccl_peer_waiting{site="a",shard="0",incarnation="01"} 1)",
        R"(jccl_peer_trouble{site="b",shard="0",incarnation="02"} 1)",
        R"(jccl_tag_commits_total{tag="g"} 4)",
        R"(jccl_tag_aborts_total{tag="g"} 1)",
        R"(jccl_tag_waiting{tag="g"} 1)",
        R"(jccl_round_phase_seconds_sum{tag="g",phase="forming"} 2)",
        R"(jccl_round_phase_seconds_count{tag="g",phase="forming"} 1)",
        R"(jccl_link_round_trip_seconds{from="1",to="2"} 0.02)",
        R"(jccl_link_bytes_per_second{from="1",to="2"} 1e+06)",
        R"(jccl_peer_id{site="b",shard="0"} 2)",
        R"(jccl_events_total{kind="admit"} 1)",
        R"(jccl_events_total{kind="evict"} 0)"}) {
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  }
}

TEST(MetricsTest, every_line_is_a_sample_or_a_comment_and_no_sample_comes_twice) {
  const std::regex sample(
      R"(jccl_[a-z_]+(\{([a-z]+="([^"\\]|\\["\\n])*",?)+\})? (NaN|-?[0-9.]+(e[+-]?[0-9]+)?))");
  std::set<std::string> seen;
  std::istringstream lines(text_of(kStatus));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP jccl_") || line.starts_with("# TYPE jccl_")) continue;
    EXPECT_TRUE(std::regex_match(line, sample)) << line;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_GT(seen.size(), 30U);
}

TEST(MetricsTest, a_name_stays_within_its_label) {
  EXPECT_EQ(label(R"(a"} 1)"), R"(a\"} 1)");
  EXPECT_EQ(label("a\nb"), R"(a\\nb)");
  EXPECT_EQ(label(R"(\)"), R"(\\)");
  EXPECT_EQ(label("\x1b[2J\xff"), R"(\\u001b[2J?)");
  std::string hostile = kStatus;
  hostile.replace(hostile.find(R"("site":"a")"), 10, R"("site":"\"} 1\njccl_master_failed 1\n")");
  std::istringstream lines(text_of(hostile));
  for (std::string line; std::getline(lines, line);) EXPECT_NE(line, "jccl_master_failed 1");
}

TEST(MetricsTest, what_a_status_lacks_is_no_end_of_anything) {
  EXPECT_TRUE(has_line(text_of("{}"), "jccl_epoch 0"));
  EXPECT_TRUE(has_line(text_of(R"({"failure":"the disk is full"})"), "jccl_master_failed 1"));
}

}  // namespace
}  // namespace jccl::page
