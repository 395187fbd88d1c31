// Contributions that do not come, as members say in their heartbeats: who pays for that, and who
// does not.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kSecond;

class Withheld : public HostileMember {
 protected:
  // An attempt of so many, of whom nobody is done.
  void run_of(std::uint32_t members, Straggler straggler = Straggler::kEvict) {
    MasterOptions all = options();
    all.start_peers = members, all.straggler = straggler;
    all.straggler_after = 4 * kSecond;
    begin(all);
    last_ = 0, lacks_.clear();
    constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};
    for (std::uint32_t i = 0; i < members; ++i) join({kNames[i]});
    deadlines_.assign(members, 60 * kSecond);
  }
  void call(std::uint64_t n = 1) {
    std::vector<wire::Start> starts;
    for (ConnId conn = 1; conn <= last_; ++conn) {
      wire::Ready one = ready("grads", n);
      one.deadline = deadlines_[conn - 1];
      starts = sent<wire::Start>(say(conn, one));
    }
    ASSERT_FALSE(starts.empty());
    attempt_ = starts[0].attempt;
  }
  struct Said {
    wire::PeerId of = 0;
    std::uint32_t lacking = 1;
    std::uint64_t left = 500;
  };
  // With heartbeats that say so, by connection; the others move what they have. What was noted.
  std::vector<HistoryLine> pass(base::Duration time) {
    std::vector<HistoryLine> noted;
    const auto note = [&noted](const MasterEffects& effects) {
      noted.insert(noted.end(), effects.history.begin(), effects.history.end());
    };
    for (const base::Time end = now_ + time; now_ < end;) {
      for (ConnId conn = 1; conn <= last_; ++conn) {
        const auto lack = lacks_.find(conn);
        const Said said = lack == lacks_.end() ? Said{0, 0, 0} : lack->second;
        wire::Heartbeat beat;
        if (conn != quiet_)
          beat.moving.push_back({attempt_, said.left, 1000, said.of, said.lacking});
        note(say(conn, beat));
      }
      now_ += options().heartbeat / 2;
      note(on(Tick{}));
    }
    return noted;
  }
  static std::string first(const std::vector<HistoryLine>& lines, const std::string& kind,
                           const std::string& field = "site") {
    for (const HistoryLine& line : lines) {
      if (line.kind != kind) continue;
      for (const auto& [name, value] : line.fields) {
        if (name == field) return value;
      }
    }
    return "";
  }
  std::map<ConnId, Said> lacks_;
  std::vector<base::Duration> deadlines_;
  ConnId quiet_ = 0;  // whose heartbeats say nothing of the attempt
  wire::Attempt attempt_;
};

TEST_F(Withheld, whom_most_others_lack_is_put_out_whatever_it_says) {
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

TEST_F(Withheld, who_may_not_have_heard_of_the_attempt_has_a_silence_more) {
  run_of(4);
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}};
  quiet_ = 4;
  EXPECT_EQ(first(pass(6 * kSecond), "evict"), "");
  EXPECT_EQ(first(pass(3 * kSecond), "evict"), "d");
}

TEST_F(Withheld, two_of_four_say_nothing_of_a_third) {
  run_of(5);
  call();
  lacks_ = {{4, {1}}, {5, {1}}};
  const auto lines = pass(30 * kSecond);
  EXPECT_EQ(first(lines, "evict"), "") << "not a, whom two liars name";
}

TEST_F(Withheld, nor_do_those_that_have_it_by_now) {
  run_of(4);
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}};
  EXPECT_EQ(first(pass(3 * kSecond), "evict"), "");
  lacks_ = {{3, {4, 1, 100}}};
  EXPECT_EQ(first(pass(2 * kSecond), "evict"), "");
}

// On lines that are slow for all each lacks most others, and names whom it lacks most.
TEST_F(Withheld, nobody_is_put_out_where_most_are_lacked) {
  run_of(5);
  call();
  for (ConnId conn = 2; conn <= 5; ++conn) lacks_[conn] = {1, 3};
  lacks_[1] = {2, 3};
  EXPECT_EQ(first(pass(30 * kSecond), "evict"), "");
  EXPECT_EQ(committed("grads"), 0U);
}

TEST_F(Withheld, a_link_over_which_nothing_comes_is_cut_and_nobody_pays) {
  run_of(4);
  call();
  lacks_ = {{1, {4, 1, 900}}};  // a alone; that it has most left is for that
  const auto lines = pass(6 * kSecond);
  EXPECT_EQ(first(lines, "cut", "link"), "a d");
  EXPECT_EQ(first(lines, "evict"), "");
  EXPECT_NE(first(lines, "abort", "text").find("a got nothing of what d contributes"),
            std::string::npos);
}

TEST_F(Withheld, nor_is_one_cut_for_a_receiver_which_holds_nobody) {
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

TEST_F(Withheld, nor_is_one_cut_over_which_something_comes) {
  run_of(4);
  call();
  for (std::uint64_t left = 500; left > 400; left -= 10) {
    lacks_ = {{1, {4, 1, left}}};
    EXPECT_EQ(first(pass(2 * kSecond), "cut", "link"), "") << left;
  }
}

// It pays when it leaves nobody anything to wait for but the deadline; who calls with little time
// is left out of the next attempt, and pays nothing.
TEST_F(Withheld, at_a_deadline_it_pays_and_not_the_one_whose_deadline_it_is) {
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

// Everybody else has what it still lacks.
TEST_F(Withheld, nor_does_the_last_one_whom_somebody_starves) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kEvict}) {
    run_of(4, straggler);
    call();
    for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    lacks_ = {{1, {4}}};
    const auto lines = pass(61 * kSecond);
    EXPECT_EQ(first(lines, "cut", "link"), "a d");
    EXPECT_EQ(first(lines, "held"), "");
    EXPECT_EQ(first(lines, "evict"), "");
  }
}

// It may lack a sum as well, of one that has made it and is done.
TEST_F(Withheld, nor_where_it_is_a_sum_that_is_kept_from_it) {
  run_of(4, Straggler::kWait);
  call();
  for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
  lacks_ = {{1, {4, 0, 100}}};
  const auto lines = pass(61 * kSecond);
  EXPECT_EQ(first(lines, "cut", "link"), "a d");
  EXPECT_EQ(first(lines, "held"), "");
}

// The third has short calls, and waits for the next round.
TEST_F(Withheld, of_two_that_are_left_the_last_pays_unless_it_lacks_what_the_other_has) {
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
TEST_F(Withheld, whoever_holds_an_attempt_does_not_say_how_long_calls_are) {
  run_of(4, Straggler::kWait);
  deadlines_ = {20 * kSecond, 20 * kSecond, 60 * kSecond, 1000 * kSecond};
  call();
  lacks_ = {{1, {4}}, {2, {4}}, {3, {4}}, {4, {0, 0, 500}}};
  EXPECT_EQ(first(pass(21 * kSecond), "held"), "d");
}

// Rounds in which another one is slow it would end each time.
TEST_F(Withheld, whose_short_calls_end_attempts_again_and_again_pays_as_well) {
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
TEST_F(Withheld, who_went_long_before_pays_nothing_for_who_holds_it) {
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
