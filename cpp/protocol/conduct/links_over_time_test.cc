// Links that fail over hours, with members that come again under their own keys; and who does not
// pay for them.
#include "protocol/conduct/blame.h"
#include "protocol/conduct/broken_links_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

class LinksOverTime : public BrokenLinks {};

TEST_F(LinksOverTime, two_failures_in_one_round_count_as_one_round) {
  MasterOptions four = options();
  four.start_peers = 4;
  bool around = true;
  begin(four, [&around](const PlanRequest& request) -> base::Result<base::Bytes> {
    if (!around && !request.bad_links.empty()) return base::Status(Code::kLinkLost, "no plan");
    return base::Bytes{};
  });
  last_ = 0, n_ = 1;
  join({"a", "b", "c", "d"});
  (void)round();
  for (int i = 0; i < 2; ++i) {
    const wire::Attempt attempt = calls();
    (void)say(1, wire::Fail{attempt, Code::kLinkLost, id_of("d"), "broken"});
  }
  (void)round();
  pass(15 * kSecond);
  around = false;
  const wire::Attempt attempt = calls();
  (void)say(1, wire::Fail{attempt, Code::kLinkLost, id_of("d"), "broken"});
  (void)calls();
  EXPECT_TRUE(is_member("a") && is_member("d"));
}

TEST_F(LinksOverTime, a_master_that_runs_for_long_remembers_links_as_well) {
  serve(700 * kSecond);
  for (const bool again : {false, true}) {
    const wire::Attempt attempt = calls();
    EXPECT_EQ(cuts(say(1, wire::Fail{attempt, Code::kLinkLost, id_of("b"), "broken"})), again);
    (void)round();
  }
}

TEST_F(LinksOverTime, a_link_is_the_same_whichever_end_came_first) {
  begin_with_plans_around();
  come("x", {}, 0, 7001), come("y", {}, 0, 7002);
  (void)round();
  ASSERT_LT(id_of("y"), id_of("x"));
  for (const bool again : {false, true}) {
    const wire::Attempt attempt = calls();
    ASSERT_NE(attempt, wire::Attempt{});
    const wire::Fail broken{attempt, Code::kLinkLost, id_of("x"), "broken"};
    EXPECT_EQ(cuts(say(conn_of("y"), broken)), again);
    (void)round();
    if (again) break;
    leave("y");
    (void)round();
    come("y", {}, 0, 7002);
    (void)round();
    ASSERT_TRUE(is_member("y"));
    ASSERT_GT(id_of("y"), id_of("x"));
  }
}

TEST_F(LinksOverTime, a_free_key_that_comes_again_drives_nobody_out) {
  serve(100 * kSecond);
  for (int time = 0; time < 3; ++time) {
    come("e", {}, 0, 9999);
    (void)round();
    ASSERT_TRUE(is_member("e")) << time;
    EXPECT_EQ(out_by_link("e", "a"), "e") << time;
    conns_.erase("e");
    (void)round();
    pass(60 * kSecond);
  }
}

TEST_F(LinksOverTime, who_went_for_a_link_is_remembered_when_the_other_end_came_again) {
  EXPECT_EQ(out_by_link("a", "d"), "d");
  come_back("d");
  leave("a");
  come_back("a");
  const wire::Attempt attempt = calls();
  (void)say(conn_of("a"), wire::Fail{attempt, Code::kLinkLost, id_of("d"), "broken"});
  (void)calls();
  EXPECT_FALSE(is_member("a") && is_member("d"));
}

TEST(LinksOverTimeBlame, time_outside_counts_for_nothing) {
  Blame blame;
  const wire::PublicKey key{1};
  base::Time now = 1000 * kSecond;
  for (int i = 0; i < 4; ++i) blame.departed(key, 400 * kSecond, 4000 * kSecond, now);
  ASSERT_EQ(blame.out_until(key), now + 1600 * kSecond);
  now = blame.out_until(key);
  blame.departed(key, 400 * kSecond, 4000 * kSecond, now);
  EXPECT_EQ(blame.out_until(key), now + 3200 * kSecond);
}

TEST(LinksOverTimeBlame, who_yielded_is_known_for_a_half_life_after_it_was_out) {
  Blame blame;
  const wire::PublicKey key{1}, other{2};
  const base::Time now = 1000 * kSecond;
  blame.yield(key, other, now);
  for (int i = 0; i < 3; ++i) blame.departed(key, 700 * kSecond, 4000 * kSecond, now);
  EXPECT_TRUE(blame.yielded(key, other, blame.out_until(key) + 1));
  EXPECT_FALSE(blame.yielded(key, other, blame.out_until(key) + kFaultHalfLife));
}

TEST_F(LinksOverTime, what_ended_with_one_that_went_is_not_the_first_time) {
  wire::Attempt attempt = calls();
  (void)say(4, wire::Done{attempt, {7, 7}});
  leave("d");
  const auto result = [](ConnId conn) {
    return conn == 3 ? wire::Digest{6, 6} : wire::Digest{7, 7};
  };
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{attempt, result(conn)});
  pass(kSecond);
  attempt = calls();
  ASSERT_NE(attempt, wire::Attempt{});
  std::vector<wire::Outcome> told;
  for (ConnId conn = 1; conn <= 3; ++conn) {
    const auto more = sent<wire::Outcome>(say(conn, wire::Done{attempt, result(conn)}));
    told.insert(told.end(), more.begin(), more.end());
  }
  EXPECT_EQ(told.size(), 3U);
  for (const auto& one : told) EXPECT_TRUE(one.retry) << one.text;
}

TEST_F(LinksOverTime, two_that_break_their_own_link_pay_both) {
  begin_with_plans_around();
  come("x", "one", 1), come("y", "two", 1);
  (void)round();
  const wire::Attempt attempt = calls();
  pass(4 * kSecond);
  (void)say(conn_of("x"), wire::Fail{attempt, Code::kLinkLost, id_of("y"), "broken"});
  std::set<std::string> held;
  const auto see = [&](const MasterEffects& effects) {
    for (const auto& line : effects.history) {
      if (line.kind == "held") held.insert(line.fields[0].second);
    }
  };
  for (const char* one : {"y", "x"}) {
    const ConnId conn = conn_of(one);
    conns_.erase(one);
    see(say(conn, wire::Leave{}));
  }
  for (const auto& [site, conn] : conns_) see(say(conn, ready("grads", n_)));
  EXPECT_EQ(held, (std::set<std::string>{"x", "y"}));
}

TEST_F(LinksOverTime, the_masters_own_pause_is_nobodys) {
  (void)calls();
  now_ += 30 * kSecond;
  (void)on(Tick{});
  const auto said = say(conn_of("d"), wire::Leave{});
  for (const auto& line : said.history) EXPECT_NE(line.kind, "held") << line.fields[2].second;
  conns_.erase("d");
  const wire::Attempt again = calls();
  for (const auto& [site, conn] : conns_) (void)say(conn, wire::Done{again, {7, 7}});
  n_ = committed("grads") + 1;
  come("d", {}, 0, 8888);
  (void)calls();
  EXPECT_TRUE(is_member("d"));
}

TEST_F(LinksOverTime, a_link_with_one_that_went_holds_nobody) {
  begin_with_plans_around();
  come("x", "one", 1);
  (void)round();
  const wire::Attempt attempt = calls();
  pass(10 * kSecond);
  (void)say(conn_of("a"), wire::Fail{attempt, Code::kLinkLost, id_of("x"), "broken"});
  leave("x");
  const wire::Attempt again = calls();
  ASSERT_NE(again, wire::Attempt{});
  (void)say(conn_of("a"), wire::Done{again, {7, 7}});
  pass(10 * kSecond);
  for (const auto& line : say(conn_of("a"), wire::Leave{}).history) {
    EXPECT_NE(line.kind, "held") << line.fields[2].second;
  }
}

TEST_F(LinksOverTime, what_is_more_than_an_hour_says_nothing) {
  serve(kSecond);
  now_ += 7200 * kSecond;
  (void)on(Tick{});
  (void)round();
  come("e");
  (void)round();
  now_ += 5400 * kSecond;
  (void)on(Tick{});
  (void)round();
  EXPECT_EQ(out_by_link("e", "a"), "a");
}

// A fleet has restarted without its keys, and the one that did not breaks a link in each round,
// with another of them each time.
TEST_F(LinksOverTime, who_has_served_longest_pays_for_its_links_with_most_newcomers) {
  begin_with_plans_around();
  come("e", "its own", 1, 9999);
  serve(100 * kSecond);
  for (const char* old : {"a", "b", "c", "d"}) leave(old);
  const std::string fleet = "wxyz";
  for (const char one : fleet) come(std::string(1, one));
  (void)round();
  std::size_t broken = 0;
  std::map<std::string, int> held;
  const base::Time begun = now_;
  for (bool breaks = true; now_ < begun + 300 * kSecond; breaks = !breaks) {
    if (conns_.count("e") == 0) come("e", "its own", 1, 9999);
    const wire::Attempt attempt = calls();
    pass(5 * kSecond);
    if (!is_member("e")) conns_.erase("e");
    if (breaks && is_member("e")) {
      const wire::PeerId other = id_of(fleet.substr(broken++ % fleet.size(), 1));
      const wire::Fail said{attempt, Code::kLinkLost, other, "broken"};
      for (const HistoryLine& line : say(conn_of("e"), said).history) {
        if (line.kind == "held") ++held[line.fields[0].second];
      }
    } else {
      for (const auto& [one, conn] : conns_) (void)say(conn, wire::Done{attempt, {7, 7}});
      n_ = committed("grads") + 1;
    }
    for (const char one : fleet) EXPECT_TRUE(is_member(std::string(1, one))) << one;
  }
  EXPECT_GE(held["e"], 8);
  EXPECT_LE(held["w"] + held["x"] + held["y"] + held["z"], 2) << "until half of them have one";
}

// Anybody can say that it has no address; and beside one for which that is true some plans have
// none.
TEST_F(LinksOverTime, of_two_that_only_dial_the_newer_one_goes_where_a_plan_wants_it) {
  MasterOptions three = options();
  three.start_peers = 3;
  last_ = 0, n_ = 1;
  conns_.clear();
  begin(three, [](const PlanRequest& request) -> base::Result<base::Bytes> {
    if (request.dial_only.size() >= 2) return base::Status(Code::kInvalid, "two only dial out");
    return base::Bytes{};
  });
  for (const char* site : {"a", "b", "c", "d"}) {
    wire::Hello one = hello(100 * ++last_, site);
    if (last_ <= 2) one.addresses = {"127.0.0.1:1"};
    (void)join(last_, one);
    conns_[site] = last_;
    if (last_ == 3) (void)round();
  }
  std::string gone;
  for (const char* site : {"d", "c", "b", "a"}) {
    for (const HistoryLine& line : say(conn_of(site), ready("grads", n_)).history) {
      if (line.kind == "evict") gone += line.fields[0].second;
    }
  }
  EXPECT_EQ(gone, "d");
  conns_.erase("d");
  for (const auto& [site, conn] : conns_) EXPECT_TRUE(is_member(site)) << site;
  (void)round();
}

// Neither end of the link counts: the one is new, the other has lied.
TEST_F(LinksOverTime, a_newcomer_does_not_go_for_one_that_has_lied) {
  serve(100 * kSecond);
  come("new");
  (void)round();
  wire::Ready lie = ready("grads", n_);
  lie.weight = -1;
  for (int time = 0; time < 4; ++time) (void)say(conn_of("d"), lie);
  ASSERT_TRUE(is_member("d"));
  EXPECT_EQ(out_by_link("d", "new"), "d");
}

}  // namespace
}  // namespace jccl::protocol
