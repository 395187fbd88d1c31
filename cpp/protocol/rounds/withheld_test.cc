// Contributions that do not come, as members say in their heartbeats: who pays for that, and who
// does not.
#include "protocol/rounds/withheld_rig.h"

namespace jccl::protocol {
namespace {

using base::kSecond;

TEST_F(WithheldTest, whom_most_others_lack_is_put_out_whatever_it_says) {
  for (const wire::PeerId says : {0U, 1U, 4U}) {  // for whom the fourth says that it waits
    run_of(4);
    call();
    lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}, {4, {says, says == 0 ? 0U : 1U, 100}}};
    EXPECT_EQ(first(pass(3 * kSecond), "evict"), "");
    const auto lines = pass(3 * kSecond);
    EXPECT_EQ(first(lines, "evict"), "d") << says;
    EXPECT_NE(
        first(lines, "evict", "reason").find("d is slow: most others have lacked its contribution"),
        std::string::npos);
  }
}

TEST_F(WithheldTest, who_may_not_have_heard_of_the_attempt_has_a_silence_more) {
  run_of(4);
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}};
  quiet_ = 4;
  EXPECT_EQ(first(pass(6 * kSecond), "evict"), "");
  EXPECT_EQ(first(pass(3 * kSecond), "evict"), "d");
}

TEST_F(WithheldTest, two_of_four_say_nothing_of_a_third) {
  run_of(5);
  call();
  lacks_ = {{4, {1}}, {5, {1}}};
  const auto lines = pass(30 * kSecond);
  EXPECT_EQ(first(lines, "evict"), "") << "not a, whom two liars name";
}

TEST_F(WithheldTest, nor_do_those_that_have_it_by_now) {
  run_of(4);
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}};
  EXPECT_EQ(first(pass(3 * kSecond), "evict"), "");
  lacks_ = {{3, {4, 1, 100}}};
  EXPECT_EQ(first(pass(2 * kSecond), "evict"), "");
}

// On lines that are slow for all each lacks most others, and names whom it lacks most.
TEST_F(WithheldTest, nobody_is_put_out_where_most_are_lacked) {
  run_of(5);
  call();
  for (ConnId conn = 2; conn <= 5; ++conn) lacks_[conn] = {1, 3};
  lacks_[1] = {2, 3};
  EXPECT_EQ(first(pass(30 * kSecond), "evict"), "");
  EXPECT_EQ(committed("grads"), 0U);
}

TEST_F(WithheldTest, a_link_over_which_nothing_comes_is_cut_and_nobody_pays) {
  run_of(4);
  call();
  lacks_ = {{1, {4, 1, 900}}};  // a alone; that it has most left is for that
  const auto lines = pass(6 * kSecond);
  EXPECT_EQ(first(lines, "cut", "link"), "a d");
  EXPECT_EQ(first(lines, "evict"), "");
  EXPECT_NE(first(lines, "abort", "text").find("a has not got what d contributes, 4"),
            std::string::npos);
}

// Slow ones are waited for, but a link over which nothing comes is not slow. Whoever of the two
// lies could hold as many attempts again.
TEST_F(WithheldTest, nor_do_those_that_wait_for_stragglers_wait_for_such_a_link) {
  run_of(4, Straggler::kWait);
  call();
  lacks_ = {{1, {4, 1, 900}}};
  const auto lines = pass(6 * kSecond);
  EXPECT_EQ(first(lines, "cut", "link"), "a d");
  EXPECT_EQ(first(lines, "held"), "");
  const int avoided = std::stoi(first(lines, "cut", "avoided_s"));
  EXPECT_GE(avoided, 8 * 4) << "times as long as it held them";
  EXPECT_LE(avoided, 8 * 5);
}

TEST_F(WithheldTest, nor_is_one_cut_for_a_receiver_which_holds_nobody) {
  run_of(4);
  std::vector<wire::Start> starts;
  for (ConnId conn = 1; conn <= 4; ++conn) {
    wire::Ready one = ready("grads");
    one.weight = conn != 1;
    starts = sent<wire::Start>(say(conn, one));
  }
  ASSERT_EQ(starts.size(), 4U);
  attempt_ = starts[0].attempt;
  lacks_ = {{1, {4}}};
  const auto lines = pass(6 * kSecond);
  EXPECT_EQ(first(lines, "cut", "link"), "");
  EXPECT_EQ(first(lines, "abort", "code"), "");
}

// As a slow line does, or one that lies and sends a frame at times.
TEST_F(WithheldTest, a_link_over_which_too_little_comes_is_cut_as_well) {
  for (const Straggler straggler : {Straggler::kEvict, Straggler::kSkip, Straggler::kWait}) {
    run_of(4, straggler);
    call();
    std::vector<HistoryLine> lines;
    for (std::uint64_t left = 900; left > 800 && first(lines, "cut", "link").empty(); left -= 10) {
      lacks_ = {{1, {4, 1, left}}};
      lines = pass(kSecond);
    }
    EXPECT_EQ(first(lines, "cut", "link"), "a d");
    EXPECT_EQ(first(lines, "evict") + first(lines, "skip"), "") << "nor is the starved one slow";
  }
}

// It lacked several at first, and has most left by now.
TEST_F(WithheldTest, who_comes_to_lack_one_alone_is_not_slow) {
  run_of(4);
  call();
  lacks_ = {{1, {4, 3, 900}}};
  EXPECT_EQ(first(pass(3 * kSecond), "evict"), "");
  lacks_ = {{1, {4, 1, 900}}};
  const auto lines = pass(6 * kSecond);
  EXPECT_EQ(first(lines, "evict"), "");
  EXPECT_EQ(first(lines, "cut", "link"), "a d");
}

// The others are served first, one by one, and each time it counts from there: but once of each.
TEST_F(WithheldTest, it_is_late_from_when_the_others_have_it) {
  run_of(5);
  call();
  lacks_ = {{1, {5}}, {2, {5}}, {3, {5}}};
  EXPECT_EQ(first(pass(3 * kSecond), "cut", "link"), "");
  lacks_ = {{1, {5}}};
  EXPECT_EQ(first(pass(3 * kSecond), "cut", "link"), "");
  lacks_[2] = {5};
  EXPECT_EQ(first(pass(kSecond / 2), "cut", "link"), "");
  lacks_.erase(2);
  EXPECT_EQ(first(pass(kSecond), "cut", "link"), "a e");
}

// Where slow ones are waited for, links that are some times slower than others are, too.
TEST_F(WithheldTest, a_slower_link_is_waited_for_in_proportion) {
  run_of(4, Straggler::kWait);
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}};
  EXPECT_EQ(first(pass(10 * kSecond), "cut", "link"), "");
  lacks_ = {{1, {4, 1, 400}}};
  EXPECT_EQ(first(pass(35 * kSecond), "cut", "link"), "");
  EXPECT_EQ(first(pass(10 * kSecond), "cut", "link"), "a d");
}

TEST_F(WithheldTest, of_several_links_all_are_cut_and_their_common_end_pays) {
  run_of(5);
  call();
  lacks_ = {{1, {5}}, {2, {5}}};  // two of four are not most
  std::vector<HistoryLine> lines = pass(6 * kSecond);
  std::size_t cuts = 0;
  for (const HistoryLine& line : lines) cuts += line.kind == "cut";
  EXPECT_EQ(cuts, 2U);
  EXPECT_EQ(first(lines, "evict"), "");
  for (int k = 0; k < 3 && first(lines, "held").empty(); ++k) {
    for (ConnId conn = 1; conn <= 5; ++conn) {
      const auto starts = sent<wire::Start>(say(conn, ready("grads")));
      if (!starts.empty()) attempt_ = starts[0].attempt;
    }
    lacks_ = {{3, {5}}, {4, {5}}};
    lines = pass(6 * kSecond);
  }
  EXPECT_EQ(first(lines, "held"), "e");
}

// One member is starved under one fresh key after the other.
TEST_F(WithheldTest, new_keys_wait_when_links_with_new_ones_hold_others) {
  run_of(3, Straggler::kWait);
  const auto commit_all = [&](std::uint64_t n) {
    call(n);
    for (ConnId conn = 1; conn <= last_; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    ASSERT_EQ(committed("grads"), n);
  };
  commit_all(1);
  (void)pass(10 * kSecond);
  commit_all(2);
  std::set<std::size_t> members;
  for (std::uint64_t n = 3; n <= 6; ++n) {
    ++last_;
    (void)join(last_, hello(1000 + n, "new"));  // a fresh key
    deadlines_.assign(last_, 60 * kSecond);
    (void)say(last_, ready("grads", n));  // or the others do not wait for it
    const auto peers = master_->view(now_).peers;
    members.insert(
        std::count_if(peers.begin(), peers.end(), [](auto& one) { return one.admitted; }));
    if (members.count(3) > 0) break;
    call(n);
    lacks_ = {{1, {static_cast<wire::PeerId>(n + 1)}}};
    EXPECT_EQ(first(pass(6 * kSecond), "cut", "link"), "a new");
    lacks_.clear();
    commit_all(n);
    (void)say(last_, wire::Leave{});
    (void)on(ConnClosed{last_--});
  }
  EXPECT_EQ(members.size(), 2U) << "the first ones are let in, the others are not";
}

// It pays when it leaves nobody anything to wait for but the deadline; who calls with little time
// is left out of the next attempt, and pays nothing.
TEST_F(WithheldTest, at_a_deadline_it_pays_and_not_the_one_whose_deadline_it_is) {
  for (const bool done : {false, true}) {
    run_of(4, Straggler::kWait);
    deadlines_[0] = 12 * kSecond;
    call();
    if (done) (void)say(1, wire::Done{attempt_, {7, 7}});
    lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}, {4, {0, 0, 500}}};
    auto lines = pass(13 * kSecond);
    EXPECT_EQ(first(lines, "abort", "code"), "Deadline");
    EXPECT_EQ(first(lines, "held"), "");
    const auto view = master_->view(now_);
    for (const PeerView& peer : view.peers) EXPECT_EQ(peer.faults, "");
    for (ConnId conn = 2; conn <= 4; ++conn) {  // as they do when they hear of the end
      wire::Ready again = ready("grads");
      again.deadline = 47 * kSecond;
      const auto starts = sent<wire::Start>(say(conn, again));
      if (!starts.empty()) attempt_ = starts[0].attempt;
      EXPECT_EQ(starts.size(), conn == 4 ? 3U : 0U) << "without the one that had little time";
    }
    lines = pass(50 * kSecond);
    EXPECT_EQ(first(lines, "held"), "d");
  }
}

// Attempts are short where calls are, and begin late in them.
TEST_F(WithheldTest, at_a_deadline_it_pays_if_it_was_lacked_for_a_third_of_the_attempt) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kEvict}) {
    for (const bool third : {false, true}) {
      run_of(4, straggler);
      deadlines_.assign(4, 2400 * base::kMillisecond);
      call();
      (void)pass((third ? 1500 : 1750) * base::kMillisecond);
      lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}, {4, {1, 2, 800}}};
      const auto lines = pass(kSecond);
      EXPECT_EQ(first(lines, "abort", "code"), "Deadline");
      EXPECT_EQ(first(lines, "held"), third ? "d" : "");
    }
  }
}

// Everybody else has what it still lacks.
TEST_F(WithheldTest, nor_does_the_last_one_whom_somebody_starves) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kEvict}) {
    run_of(4, straggler);
    deadlines_.assign(4, 3 * kSecond);  // or their link would be cut before
    call();
    for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    lacks_ = {{1, {4}}};
    const auto lines = pass(4 * kSecond);
    EXPECT_EQ(first(lines, "cut", "link"), "a d");
    EXPECT_EQ(first(lines, "held"), "");
    EXPECT_EQ(first(lines, "evict"), "");
  }
}

// It may lack a sum as well, of one that has made it and is done.
TEST_F(WithheldTest, nor_where_it_is_a_sum_that_is_kept_from_it) {
  run_of(4, Straggler::kWait);
  call();
  for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
  lacks_ = {{1, {4, 0, 100}}};
  const auto lines = pass(61 * kSecond);
  EXPECT_EQ(first(lines, "cut", "link"), "a d");
  EXPECT_EQ(first(lines, "held"), "");
}

// The third has short calls, and waits for the next round.
TEST_F(WithheldTest, of_two_that_are_left_the_last_pays_unless_it_lacks_what_the_other_has) {
  for (const bool lacks : {false, true}) {
    run_of(3, Straggler::kWait);
    deadlines_[0] = 10 * kSecond;
    call();
    lacks_ = {{1, {3}}, {2, {3}}, {3, {0, 0, 500}}};
    EXPECT_EQ(first(pass(11 * kSecond), "held"), "");
    for (ConnId conn = 2; conn <= 3; ++conn) {
      wire::Ready again = ready("grads");
      again.deadline = 50 * kSecond;
      const auto starts = sent<wire::Start>(say(conn, again));
      EXPECT_EQ(starts.size(), conn == 3 ? 2U : 0U);
      if (!starts.empty()) attempt_ = starts[0].attempt;
    }
    (void)say(2, wire::Done{attempt_, {7, 7}});
    lacks_ = {{3, {lacks ? 2U : 0U, lacks ? 1U : 0U, 500}}};
    const auto lines = pass(51 * kSecond);
    EXPECT_EQ(first(lines, "held"), lacks ? "" : "c");
    EXPECT_EQ(first(lines, "cut", "link"), lacks ? "b c" : "");
  }
}

// By a long call of its own it would make theirs short ones.
TEST_F(WithheldTest, whoever_holds_an_attempt_does_not_say_how_long_calls_are) {
  run_of(4, Straggler::kWait);
  deadlines_ = {20 * kSecond, 20 * kSecond, 60 * kSecond, 1000 * kSecond};
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}, {4, {0, 0, 500}}};
  EXPECT_EQ(first(pass(21 * kSecond), "held"), "d");
}

// Rounds in which another one is slow it would end each time.
TEST_F(WithheldTest, whose_short_calls_end_attempts_again_and_again_pays_as_well) {
  run_of(4, Straggler::kWait);
  deadlines_[0] = 12 * kSecond;
  std::string held;
  for (int k = 0; k < 3; ++k) {
    call(committed("grads") + 1);
    lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}, {4, {0, 0, 500}}};
    held += first(pass(13 * kSecond), "held");
    for (ConnId conn = 2; conn <= 4; ++conn) {
      const auto starts = sent<wire::Start>(say(conn, ready("grads", committed("grads") + 1)));
      if (!starts.empty()) attempt_ = starts[0].attempt;
    }
    lacks_.clear();
    for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    if (master_->view(now_).peers.size() < 4) break;
  }
  EXPECT_EQ(held.substr(0, 1), "a");
}

// It was done, and goes on its own account. Whatever ended the attempt later was not that.
TEST_F(WithheldTest, who_went_long_before_pays_nothing_for_who_holds_it) {
  run_of(4, Straggler::kWait);
  call();
  (void)say(1, wire::Done{attempt_, {7, 7}});
  lacks_ = {{2, {4}}, {3, {4}}, {4, {0, 0, 500}}};
  (void)pass(kSecond);
  (void)say(1, wire::Leave{});
  auto lines = pass(62 * kSecond);
  EXPECT_EQ(first(lines, "abort", "code"), "Deadline");
  std::size_t starts = 0;
  for (ConnId conn = 2; conn <= 3; ++conn) {
    const auto effects = say(conn, ready("grads"));
    starts += sent<wire::Start>(effects).size();
    lines.insert(lines.end(), effects.history.begin(), effects.history.end());
  }
  EXPECT_EQ(starts, 2U) << "then they pay that went";
  for (const HistoryLine& line : lines) {
    EXPECT_TRUE(line.kind != "held" || line.fields.at(0).second == "d");
  }
}

}  // namespace
}  // namespace jccl::protocol
