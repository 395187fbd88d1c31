// Calls with little time, in rounds of which one member is never DONE: it pays for what the others
// waited, however short that was and whatever it says.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

class ShortCalls : public HostileMember {
 protected:
  struct Member {
    ConnId conn = 0;
    wire::PublicKey key{};
    bool calls = false;
    wire::Attempt attempt{};
    base::Time begun = 0;
  };

  // The share of the calls of the honest that get a result, when the fourth member has been never
  // DONE for a minute; rounds take a third of the time that calls have.
  double kept(Straggler straggler, base::Duration after, base::Duration deadline,
              std::uint64_t left, bool calls = true, std::uint64_t others_left = 0) {
    MasterOptions four = options();
    four.start_peers = 4, four.straggler = straggler, four.straggler_after = after;
    recorded_ = false;  // minutes, of many rounds each
    begin(four);
    last_ = 0;
    join({"a", "b", "c", "d"});
    for (ConnId conn = 1; conn <= 4; ++conn) {
      members_[conn - 1] = {conn, key_of(wire::Message(hello(100 * conn, ""))), false, {}, 0};
    }
    deadline_ = deadline, left_ = left, conns_ = 4, fourth_calls_ = true, others_left_ = 0;
    pass(10 * kSecond, true);
    fourth_calls_ = calls, others_left_ = others_left;
    pass(60 * kSecond, false);
    commits_ = calls_ = 0;
    pass(120 * kSecond, false);
    return calls_ == 0 ? 0 : static_cast<double>(commits_) / calls_;
  }

 protected:
  bool flashes_ = false, sums_ = false;

 private:
  void pass(base::Duration time, bool honest) {
    for (const base::Time end = now_ + time; now_ < end; now_ += kStep) {
      const bool beats = now_ / (500 * kMillisecond) != (now_ - kStep) / (500 * kMillisecond);
      for (Member& one : members_) {
        if (one.conn == 0) come_back(one);
        if (beats) tell(one, beat(one));
        if (!is_honest(one) && beats && one.attempt == wire::Attempt{}) one.calls = !fourth_calls_;
        if (!std::exchange(one.calls, true)) {
          wire::Ready call = ready("grads", committed("grads") + 1);
          call.deadline = deadline_;
          calls_ += is_honest(one);
          if (is_honest(one)) called_at_ = now_;
          tell(one, call);
        }
        const bool over = one.attempt != wire::Attempt{} && now_ >= one.begun + deadline_ / 3;
        const bool starves = with_fourth_ && others_left_ > 0;
        if (over && (honest || (is_honest(one) && !starves)))
          tell(one, wire::Done{one.attempt, {7, 7}});
      }
      see(on(Tick{}));
      if (flashes_ && !fourth_calls_) flash();
    }
  }
  // The master's own deadline comes before the call's, for its reason to arrive in time.
  void flash() {
    const base::Time ends = called_at_ + deadline_ - std::min(deadline_ / 8, 500 * kMillisecond);
    const base::Time at = ends - 20 * kMillisecond;
    if (called_at_ == 0 || at >= now_ + kStep) return;
    called_at_ = 0;
    if (at < now_) return;
    now_ = at;
    wire::Ready call = ready("grads", committed("grads") + 1);
    tell(members_[3], call);
    tell(members_[3], wire::Withdraw{call.round});
  }
  bool is_honest(const Member& one) const { return &one != &members_[3]; }
  wire::Heartbeat beat(const Member& one) const {
    wire::Heartbeat beat;
    if (one.attempt != wire::Attempt{}) {
      const std::uint64_t others = with_fourth_ ? others_left_ : 0;
      const bool lacks = is_honest(one) && others > 0;  // the fourth's contribution, or its sum
      beat.moving.push_back({one.attempt, is_honest(one) ? others : left_, 1000,
                             lacks ? fourth_ : 0, lacks && !sums_ ? 1U : 0U});
    }
    return beat;
  }
  void come_back(Member& one) {
    one = {++conns_, one.key, false, {}, 0};
    const wire::PublicKey key = one.key;
    see(say(one.conn, hello(1000 + conns_, "d"), key));
    if (one.conn != 0) see(say(one.conn, wire::Resume{}, key));
  }
  void tell(const Member& one, const wire::Message& message) {
    if (one.conn != 0) see(say(one.conn, message, one.key));
  }
  void see(const MasterEffects& effects) {
    for (const MasterSend& sent : effects.send) {
      for (Member& one : members_) {
        if (one.conn == sent.conn) hears(one, sent.message);
      }
    }
  }
  void hears(Member& one, const wire::Message& message) {
    if (const auto* start = std::get_if<wire::Start>(&message)) {
      one.attempt = start->attempt, one.begun = now_;
      with_fourth_ = start->contributors.size() == 4;
      if (with_fourth_) fourth_ = start->contributors.back().id;  // who came last
    } else if (const auto* told = std::get_if<wire::Outcome>(&message)) {
      one.attempt = {};
      commits_ += is_honest(one) && told->verdict == wire::Verdict::kCommitted;
      one.calls = told->verdict != wire::Verdict::kCommitted && told->retry;
      if (one.calls) one.calls = false, calls_ -= is_honest(one);  // the same call once more
    } else if (std::holds_alternative<wire::Reject>(message)) {
      one.calls = false;
    } else if (std::holds_alternative<wire::Evicted>(message) ||
               std::holds_alternative<wire::Refuse>(message)) {
      ASSERT_FALSE(is_honest(one)) << "an honest member is out";
      one.conn = 0;
    }
  }

  static constexpr base::Duration kStep = 50 * kMillisecond;
  std::array<Member, 4> members_;
  base::Duration deadline_ = 0;
  std::uint64_t left_ = 0, others_left_ = 0;
  bool fourth_calls_ = true, with_fourth_ = true;
  wire::PeerId fourth_ = 0;
  base::Time called_at_ = 0;  // by an honest one
  ConnId conns_ = 4;
  int commits_ = 0, calls_ = 0;
};

TEST_F(ShortCalls, are_not_ended_for_good_by_who_has_nothing_to_move_and_is_never_done) {
  for (const base::Duration deadline : {kSecond, 1400 * kMillisecond, 3 * kSecond}) {
    EXPECT_GE(kept(Straggler::kWait, 10 * kSecond, deadline, 0), 0.8) << deadline;
  }
}

TEST_F(ShortCalls, nor_when_they_end_before_a_heartbeat) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kEvict, Straggler::kSkip}) {
    EXPECT_GE(kept(straggler, 10 * kSecond, 450 * kMillisecond, 0), 0.8);
  }
}

TEST_F(ShortCalls, nor_by_who_says_that_it_is_slow_where_stragglers_are_not_waited_for) {
  for (const base::Duration deadline : {2 * kSecond, 5 * kSecond, 9 * kSecond}) {
    EXPECT_GE(kept(Straggler::kEvict, 10 * kSecond, deadline, 600), 0.8) << deadline;
    EXPECT_GE(kept(Straggler::kEvict, 10 * kSecond, deadline, 600, true, 200), 0.8) << deadline;
    EXPECT_GE(kept(Straggler::kSkip, 10 * kSecond, deadline, 600), 0.8) << deadline;
  }
}

// It has still to be sent what it is to add up, as it says, so nobody says that it keeps that back.
TEST_F(ShortCalls, nor_by_who_says_that_it_is_slow_and_owes_the_others_sums) {
  sums_ = true;
  for (const base::Duration deadline : {2 * kSecond, 5 * kSecond, 9 * kSecond}) {
    for (const Straggler straggler : {Straggler::kEvict, Straggler::kSkip})
      EXPECT_GE(kept(straggler, 10 * kSecond, deadline, 600, true, 200), 0.8) << deadline;
  }
}

// Where they are waited for, a slow one may have all of the time, but not take each call to its
// end.
TEST_F(ShortCalls, nor_where_stragglers_are_waited_for_when_the_others_are_long_done) {
  for (const base::Duration deadline : {5 * kSecond, 9 * kSecond, 20 * kSecond})
    EXPECT_GE(kept(Straggler::kWait, 10 * kSecond, deadline, 600), 0.8) << deadline;
}

// It moves nothing, and says that it has no more left than those that wait for it.
TEST_F(ShortCalls, nor_by_who_keeps_back_its_contribution_whatever_it_says) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kEvict, Straggler::kSkip}) {
    for (const std::uint64_t left : {0, 125, 200, 401}) {
      for (const base::Duration deadline : {2 * kSecond, 9 * kSecond, 30 * kSecond})
        EXPECT_GE(kept(straggler, 10 * kSecond, deadline, left, true, 200), 0.8)
            << left << " " << deadline;
    }
  }
}

// All are READY then, and no time is left.
TEST_F(ShortCalls, nor_by_who_is_ready_for_a_moment_before_they_end) {
  flashes_ = true;
  for (const base::Duration deadline : {2 * kSecond, 5 * kSecond, 9 * kSecond}) {
    EXPECT_GE(kept(Straggler::kEvict, 10 * kSecond, deadline, 0, false), 0.8) << deadline;
    EXPECT_GE(kept(Straggler::kSkip, 10 * kSecond, deadline, 0, false), 0.8) << deadline;
  }
}

// Calls that poll end again and again, and who is busy meanwhile is no straggler for that.
TEST_F(ShortCalls, are_not_waited_for_less_long_than_others) {
  for (const Straggler straggler : {Straggler::kEvict, Straggler::kSkip}) {
    MasterOptions three = options();
    three.start_peers = 3, three.straggler = straggler, three.straggler_after = 10 * kSecond;
    begin(three);
    last_ = 0;
    join({"a", "b", "c"});
    commit("grads", 1);
    alive_ = {1, 2, 3};
    for (int busy = 0; busy < 3; ++busy) {
      const std::uint64_t n = committed("grads") + 1;
      wire::Ready poll = ready("grads", n);
      poll.deadline = 500 * kMillisecond;
      std::vector<HistoryLine> lines;
      for (int k = 0; k < 16; ++k) {  // for 8 s, less what lies between two calls
        for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, poll);
        for (const HistoryLine& line : wait(500 * kMillisecond)) lines.push_back(line);
      }
      for (const HistoryLine& line : lines)
        EXPECT_TRUE(line.kind != "evict" && line.kind != "skip");
      commit("grads", n);
    }
  }
}

TEST_F(ShortCalls, without_time_for_a_round_end_alone_and_are_no_fault) {
  run_of_three();
  alive_ = {1, 2, 3};
  wire::Ready late = ready("grads");
  late.deadline = 30 * kMillisecond;  // what is left when the others are READY
  for (std::uint64_t n = 2; n <= 30; ++n) {
    late.round.n = n;
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", n));
    auto said = say(3, late);
    ASSERT_EQ(sent<wire::Reject>(said).size(), 1U) << n;
    EXPECT_EQ(sent<wire::Reject>(said)[0].code, base::Code::kDeadline);
    if (n == 2) {  // once in a while is a mistake: its next call is waited for
      EXPECT_TRUE(sent<wire::Start>(said).empty());
      said = say(3, late);
    }
    const auto starts = sent<wire::Start>(said);
    ASSERT_EQ(starts.size(), 2U) << n << ": the others have waited";
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    ASSERT_EQ(committed("grads"), n);
    wait(100 * kMillisecond);
  }
  EXPECT_TRUE(master_->view(now_).bans.empty());
  for (const PeerView& one : master_->view(now_).peers)
    EXPECT_TRUE(one.faults.empty()) << one.faults;
  commit("grads", 31);  // with time it is in again
}

// One that is READY just then, and takes it back, would else have it left out of each round.
TEST_F(ShortCalls, that_waited_until_no_time_was_left_are_waited_for) {
  run_of_three();
  alive_ = {1, 2, 3};
  for (std::uint64_t n = 2; n <= 10; ++n) {
    (void)say(1, ready("grads", n));
    for (int call = 1; call <= 3; ++call) {
      wire::Ready poll = ready("grads", n);
      poll.deadline = kSecond;
      (void)say(2, poll);
      wait(840 * kMillisecond);
      const auto said = say(3, ready("grads", n));
      ASSERT_EQ(sent<wire::Reject>(said).size(), 1U) << n;
      EXPECT_TRUE(sent<wire::Start>(said).empty()) << n << " without it, call " << call;
      (void)say(3, wire::Withdraw{{"grads", n}});
    }
    commit("grads", n);
  }
}

TEST_F(ShortCalls, of_a_site_of_two_shards_count_once) {
  MasterOptions three = options();
  three.start_peers = 3;
  begin(three);
  for (ConnId conn = 1; conn <= 6; ++conn) {
    wire::Hello half = hello(100 * conn, conn <= 2 ? "a" : conn <= 4 ? "b" : "c");
    half.shard = (conn - 1) % 2, half.shards = 2;
    (void)join(conn, half);
  }
  for (ConnId conn = 1; conn <= 5; ++conn) (void)say(conn, ready("grads"));
  const auto first = sent<wire::Start>(say(6, ready("grads")));
  ASSERT_EQ(first.size(), 6U);
  for (const auto& start : first) {
    for (ConnId conn = 1; conn <= 6; ++conn) (void)say(conn, wire::Done{start.attempt, {7, 7}});
  }
  ASSERT_EQ(committed("grads"), 1U);
  for (ConnId conn = 1; conn <= 4; ++conn) (void)say(conn, ready("grads", 2));
  wire::Ready late = ready("grads", 2);
  late.deadline = 30 * kMillisecond;
  for (int call = 1; call <= 2; ++call) {
    (void)say(5, late);
    const auto said = say(6, late);
    EXPECT_EQ(sent<wire::Reject>(said).size(), 2U) << "both shards, call " << call;
    EXPECT_EQ(sent<wire::Start>(said).size(), call == 1 ? 0U : 4U) << "call " << call;
  }
}

TEST_F(ShortCalls, all_that_waited_for_one_are_held_against_it) {
  MasterOptions three = options();
  three.start_peers = 3, three.straggler = Straggler::kEvict;
  begin(three);
  last_ = 0;
  join({"a", "b", "c"});
  commit("grads", 1);
  alive_ = {1, 2, 3};
  std::string held;
  for (int k = 0; k < 6; ++k) {
    wire::Ready call = ready("grads", 2);
    call.deadline = 2500 * kMillisecond;
    std::vector<HistoryLine> lines;
    for (ConnId conn = 1; conn <= 2; ++conn) {
      for (const HistoryLine& line : say(conn, call).history) lines.push_back(line);
    }
    for (const HistoryLine& line : wait(2500 * kMillisecond)) lines.push_back(line);
    for (const HistoryLine& line : lines) {
      if (line.kind == "held") held += line.fields.back().second;
    }
  }
  EXPECT_EQ(held.substr(0, 27), "others waited for it for 10") << "seconds";
}

TEST_F(ShortCalls, nor_by_who_is_never_ready_where_stragglers_are_not_waited_for) {
  for (const base::Duration deadline : {2 * kSecond, 5 * kSecond, 9 * kSecond}) {
    EXPECT_GE(kept(Straggler::kEvict, 10 * kSecond, deadline, 0, false), 0.8) << deadline;
    EXPECT_GE(kept(Straggler::kSkip, 10 * kSecond, deadline, 0, false), 0.8) << deadline;
  }
}

}  // namespace
}  // namespace jccl::protocol
