// Links that no plan goes round: one of the two ends has to go, and nobody can tell which is to
// blame. Whoever breaks them again and again does not stay for that, and keys that are free do not
// drive out who has served for longer.
#include "protocol/conduct/broken_links_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

TEST_F(BrokenLinks, one_that_breaks_them_with_several_goes_itself) {
  EXPECT_EQ(out_by_link("a", "d"), "d") << "one of the two";
  conns_.erase("d");
  (void)round();
  EXPECT_EQ(out_by_link("a", "c"), "a");
  EXPECT_TRUE(is_member("b"));
}

TEST_F(BrokenLinks, at_first_the_one_that_is_named_goes) {
  EXPECT_EQ(out_by_link("d", "a"), "a") << "mostly it is that one that hangs";
}

TEST_F(BrokenLinks, of_the_same_two_they_go_by_turns) {
  EXPECT_EQ(out_by_link("a", "d"), "d");
  come_back("d");
  EXPECT_EQ(out_by_link("a", "d"), "a");
  come_back("a");
  EXPECT_EQ(out_by_link("a", "d"), "d");
}

TEST_F(BrokenLinks, a_fresh_key_drives_nobody_out_that_has_served) {
  serve(10 * kSecond);
  for (int time = 0; time < 4; ++time) {
    come("e");
    EXPECT_EQ(out_by_link("e", "a"), "e");
    conns_.erase("e");
    (void)round();
  }
}

TEST_F(BrokenLinks, nor_do_two_of_them) {
  serve(10 * kSecond);
  come("e"), come("f");
  const wire::Attempt attempt = calls();
  (void)say(conn_of("e"), wire::Fail{attempt, Code::kLinkLost, id_of("a"), "broken"});
  (void)say(conn_of("f"), wire::Fail{attempt, Code::kLinkLost, id_of("a"), "broken"});
  EXPECT_NE(out_by_link("e", "a"), "a");
}

// Each such token is somebody's; and one that lies drives out one newcomer at most.
TEST_F(BrokenLinks, the_second_token_of_one_use_is_as_good_as_who_has_served) {
  serve(10 * kSecond);
  come("e", "first", 1);
  EXPECT_EQ(out_by_link("a", "e"), "e");
  conns_.erase("e");
  (void)round();
  come("f", "second", 1);
  EXPECT_EQ(out_by_link("a", "f"), "a");
}

TEST_F(BrokenLinks, who_came_with_one_does_not_go_twice_in_turn) {
  serve(10 * kSecond);
  come("e", "first", 1, 77);
  EXPECT_EQ(out_by_link("a", "e"), "e");
  conns_.erase("e");
  (void)round();
  come("e", "first", 1, 77);
  EXPECT_EQ(out_by_link("a", "e"), "a");
}

// It has served for less since it was out for that.
TEST_F(BrokenLinks, who_went_for_a_link_does_not_go_for_it_again) {
  serve(20 * kSecond);
  EXPECT_EQ(out_by_link("a", "d"), "d");
  conns_.erase("d");
  serve(400 * kSecond);
  come_back("d");
  EXPECT_EQ(out_by_link("a", "d"), "a");
}

TEST_F(BrokenLinks, fresh_keys_that_break_them_come_back_ever_more_rarely) {
  serve(10 * kSecond);
  const double lost = lost_to("e", true, 99);
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 0.2);
}

TEST_F(BrokenLinks, nor_is_one_a_round_better) {
  serve(10 * kSecond);
  const double lost = lost_to("e", true, 1);
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 0.3);
}

TEST_F(BrokenLinks, who_breaks_one_after_the_other_in_each_round_has_held_the_others) {
  begin_with_plans_around({"a", "b", "c", "d", "f", "g", "h", "i", "j", "k", "l", "m"});
  serve(10 * kSecond);
  int lost = 0;
  const base::Time begun = now_;
  const std::string others = "abcdfghijklm";
  for (std::size_t done = 0; now_ < begun + 300 * kSecond;) {
    if (conns_.count("e") == 0) come("e", "its own", 1, 9999);
    const wire::Attempt attempt = calls();
    if (!is_member("e")) conns_.erase("e");
    const bool breaks = is_member("e") && done < 2 * others.size();  // each of them twice
    if (breaks) {
      pass(5 * kSecond);
      const wire::PeerId other = id_of(others.substr(done++ % others.size(), 1));
      (void)say(conn_of("e"), wire::Fail{attempt, Code::kLinkLost, other, "broken"});
      ++lost;
    } else {
      for (const auto& [one, conn] : conns_) (void)say(conn, wire::Done{attempt, {7, 7}});
      n_ = committed("grads") + 1;
      done = 0;
    }
    pass(kSecond / 2);
  }
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 20);  // of 5 s each
}

// It has another id each time.
TEST_F(BrokenLinks, who_leaves_after_each_round_is_remembered) {
  begin_with_plans_around();
  serve(10 * kSecond);
  int ended = 0;
  for (int time = 0; time < 20; ++time) {
    come("e", {}, 0, 9999);
    const wire::Attempt attempt = calls();
    const auto failed =
        say(conn_of("e"), wire::Fail{attempt, Code::kLinkLost, id_of("a"), "broken"});
    ended += std::any_of(failed.history.begin(), failed.history.end(),
                         [](const HistoryLine& line) { return line.kind == "abort"; });
    (void)round();
    leave("e");
    pass(kSecond);
  }
  EXPECT_LE(ended, 6);
}

// With one that breaks its link again and again, and lets the rounds commit.
TEST_F(BrokenLinks, an_accident_with_a_third_makes_nobody_the_common_end) {
  begin_with_plans_around();
  for (int time = 0; time < 6; ++time) {
    const wire::Attempt attempt = calls();
    pass(4 * kSecond);
    const char* by = time == 0 ? "b" : "d";
    (void)say(conn_of(by), wire::Fail{attempt, Code::kLinkLost, id_of("a"), "broken"});
    (void)round();
    pass((5 + (1 << time)) * kSecond);  // links are avoided for longer each time
    ASSERT_TRUE(is_member("a")) << time;
  }
}

// Nor does a newcomer pay for what one that has lied says of their link.
TEST_F(BrokenLinks, those_of_a_liar_hold_nobody_else) {
  for (const bool lied : {false, true}) {
    begin_with_plans_around();
    serve(10 * kSecond);
    come("e");
    (void)round();
    wire::Ready lie = ready("grads", n_);
    lie.weight = -1;
    for (int time = 0; lied && time < 4; ++time) (void)say(conn_of("d"), lie);
    const wire::Attempt attempt = calls();
    (void)say(conn_of("d"), wire::Fail{attempt, Code::kPeerLost, id_of("e"), "silent"});
    pass(5 * kSecond);
    const auto failed =
        say(conn_of("a"), wire::Fail{calls(), Code::kLinkLost, id_of("e"), "broken"});
    const bool held = std::any_of(failed.history.begin(), failed.history.end(),
                                  [](const HistoryLine& line) { return line.kind == "held"; });
    EXPECT_EQ(held, !lied);
  }
}

TEST_F(BrokenLinks, one_that_breaks_once_in_each_of_two_rounds_is_avoided) {
  for (const bool again : {false, true}) {
    const wire::Attempt attempt = calls();
    EXPECT_EQ(cuts(say(1, wire::Fail{attempt, Code::kLinkLost, id_of("b"), "broken"})), again);
    (void)round();
  }
}

TEST_F(BrokenLinks, where_it_cannot_be_avoided_one_of_its_ends_goes_in_the_third_such_round) {
  for (int time = 0; time < 3; ++time) {
    const wire::Attempt attempt = calls();
    (void)say(1, wire::Fail{attempt, Code::kLinkLost, id_of("d"), "broken"});
    (void)calls();
    EXPECT_EQ(is_member("d"), time < 2);
    if (!is_member("d")) conns_.erase("d");
    (void)round();
  }
}

TEST_F(BrokenLinks, of_two_of_whom_one_went_for_it_the_other_goes_at_the_next_failure) {
  EXPECT_EQ(out_by_link("a", "d"), "d");
  come_back("d");
  const wire::Attempt attempt = calls();
  (void)say(conn_of("a"), wire::Fail{attempt, Code::kLinkLost, id_of("d"), "broken"});
  (void)calls();
  EXPECT_FALSE(is_member("a"));
  EXPECT_TRUE(is_member("d"));
}

// By silences that it makes up: then a link is out at once.
TEST_F(BrokenLinks, who_breaks_its_links_with_three_goes_itself) {
  come("e");
  int out = 0;
  wire::Attempt attempt = calls();
  for (const char* other : {"a", "b", "c"}) {
    (void)say(conn_of("d"), wire::Fail{attempt, Code::kPeerLost, id_of(other), "silent"});
    pass(kSecond);
    attempt = calls();
    out += !is_member(other);
    if (!is_member(other)) conns_.erase(other);
  }
  EXPECT_LE(out, 2);
  EXPECT_FALSE(is_member("d"));
}

// Nobody can tell them from a third whose line is bad.
TEST_F(BrokenLinks, two_that_work_together_can_have_a_third_put_out) {
  come("e");
  for (int time = 0; time < 2; ++time) {
    const wire::Attempt attempt = calls();
    for (const char* liar : {"d", "e"}) {
      (void)say(conn_of(liar), wire::Fail{attempt, Code::kLinkLost, id_of("a"), "broken"});
    }
  }
  (void)calls();
  EXPECT_FALSE(is_member("a"));
  for (const char* other : {"b", "c", "d", "e"}) EXPECT_TRUE(is_member(other)) << other;
}

// What it sent may have become something else on the way between others.
TEST_F(BrokenLinks, when_one_has_gone_for_them_those_of_others_begin_anew) {
  serve(10 * kSecond);
  come("e");
  for (int time = 0; time < 2; ++time) {
    const wire::Attempt attempt = calls();
    for (const char* other : {"a", "b"}) {
      (void)say(conn_of("e"), wire::Fail{attempt, Code::kLinkLost, id_of(other), "broken"});
    }
    (void)say(conn_of("a"), wire::Fail{attempt, Code::kLinkLost, id_of("b"), "broken"});
  }
  (void)calls();
  EXPECT_FALSE(is_member("e"));
  conns_.erase("e");
  (void)calls();
  for (const char* site : {"a", "b", "c", "d"}) EXPECT_TRUE(is_member(site)) << site;
}

// Of those that came as it does it has its own account, until others have waited for it as well,
// and for longer than for one that crashes at times.
TEST_F(BrokenLinks, who_is_known_is_let_in_unless_it_has_held_the_others_too) {
  come("e"), come("f");
  serve(70 * kSecond);
  (void)calls();
  pass(20 * kSecond);
  leave("e");
  (void)round();
  leave("f");
  (void)round();
  come("f", {}, 0, 2);
  (void)calls();
  EXPECT_TRUE(is_member("f")) << "it is known";
  for (const int held : {1, 8}) {  // seconds
    (void)round();
    (void)calls();
    pass(held * kSecond);
    leave("f");
    (void)round();
    come("f", {}, 0, 2);
    (void)calls();
    EXPECT_EQ(is_member("f"), held == 1) << "a crash is no debt";
  }
}

// There more of its time is free, for its own account, than one that crashes takes.
TEST_F(BrokenLinks, who_is_known_and_has_held_others_is_not_let_in_where_rounds_take_long) {
  const auto long_round = [&] {
    const wire::Attempt attempt = calls();
    pass(8 * kSecond);
    for (const auto& [site, conn] : conns_) (void)say(conn, wire::Done{attempt, {7, 7}});
    ASSERT_EQ(committed("grads"), n_++);
  };
  come("e"), come("f");
  for (int i = 0; i < 10; ++i) long_round();
  (void)calls();
  pass(100 * kSecond);
  leave("e");
  long_round();
  for (const int held : {1, 8}) {  // seconds
    (void)calls();
    pass(held * kSecond);
    leave("f");
    long_round();
    come("f", {}, 0, 2);
    long_round();
    EXPECT_EQ(is_member("f"), held == 1);
  }
}

TEST_F(BrokenLinks, where_nobody_is_left_anybody_may_begin) {
  come("e");
  (void)round();
  (void)calls();
  pass(20 * kSecond);
  leave("e");
  come("f");
  (void)round();
  EXPECT_FALSE(is_member("f"));
  for (const char* site : {"a", "b", "c", "d"}) leave(site);
  (void)calls();
  EXPECT_TRUE(is_member("f"));
}

// The same one says each time that a link broke: that of another that died, or left.
TEST_F(BrokenLinks, those_with_peers_that_went_say_nothing_of_who_stays) {
  for (int i = 0; i < 12; ++i) {
    come("x", base::cat("token-", i), 1);
    const wire::Attempt attempt = calls();
    ASSERT_TRUE(is_member("x"));
    pass(10 * kSecond);
    const ConnId x = conn_of("x");
    const bool dies = i % 2 == 0, first = i % 4 < 2;
    const wire::PeerId id = id_of("x");
    conns_.erase("x");
    const auto goes = [&] { (void)(dies ? on(ConnClosed{x}) : say(x, wire::Leave{})); };
    if (first) goes();
    (void)say(conn_of("a"), wire::Fail{attempt, Code::kLinkLost, id, "broken"});
    if (!first) goes();
    pass(options().reset_grace + kSecond);
    for (const char* one : {"a", "b", "c", "d"}) ASSERT_TRUE(is_member(one)) << one << " " << i;
  }
}

}  // namespace
}  // namespace jccl::protocol
