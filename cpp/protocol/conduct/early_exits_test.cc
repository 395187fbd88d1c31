// Members that end attempts shortly before their own calls end: by leaving, by a new call, or by
// the deadline itself. In virtual time, beside three honest ones whose calls have room for one
// round, and hardly for two.
#include <array>
#include <cstdint>

#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

enum class Exit { kWithdraws, kFails, kCallsAnew, kByDeadline, kLeaves };

struct Lie {
  Exit exit = Exit::kWithdraws;
  base::Duration call = 0;   // of the one that lies
  base::Duration after = 0;  // START
  base::Duration watched = 120 * kSecond;
};

class EarlyExits : public HostileMember {
 protected:
  // The share of the rounds that the honest commit without the fourth which they still do with it,
  // after half a minute.
  double kept(Straggler straggler, base::Duration round, base::Duration call, const Lie& lie) {
    const int usual = commits(straggler, round, call, nullptr, lie.watched);
    return static_cast<double>(commits(straggler, round, call, &lie, lie.watched)) / usual;
  }

  // How many rounds all four commit in 20 s, two of which first call so much later.
  int in_turns(base::Duration round, base::Duration call, base::Duration apart) {
    const Lie honest{Exit::kByDeadline, call};
    gather(Straggler::kWait, round, call, &honest, kHonest + 1);
    for (std::size_t i = 2; i < members_.size(); ++i) members_[i].next += apart;
    pass(20 * kSecond);
    return commits_;
  }

 private:
  struct Member {
    ConnId conn = 0;
    wire::PublicKey key{};
    std::string site;
    std::uint64_t call = 0;
    bool open = false;
    base::Time ends = 0, next = 0;  // of the call, and when the next one is
    wire::Attempt attempt{};
    base::Time begun = 0;
    bool done = false;
  };

  int commits(Straggler straggler, base::Duration round, base::Duration call, const Lie* lie,
              base::Duration watched) {
    gather(straggler, round, call, lie, kHonest);
    pass(10 * kSecond);  // it is in commits first
    lies_ = lie != nullptr;
    pass(30 * kSecond);
    commits_ = 0;
    pass(watched);
    return commits_;
  }
  void gather(Straggler straggler, base::Duration round, base::Duration call, const Lie* lie,
              std::uint32_t start_peers) {
    MasterOptions all = options();
    all.start_peers = start_peers, all.straggler = straggler;
    recorded_ = false;  // minutes, of many rounds each
    begin(all);
    round_ = round, call_ = call, lie_ = lie, lies_ = false, commits_ = 0, conns_ = 0, keys_ = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      members_[i] = {};
      if (i < kHonest || lie != nullptr) come_in(members_[i], base::cat("s", i));
    }
  }
  void pass(base::Duration time) {
    for (const base::Time end = now_ + time; now_ < end; now_ += kStep) {
      while (wake_ <= now_) {
        const base::Time woke = wake_;
        see(on(Tick{}));
        if (wake_ <= woke) break;
      }
      const bool beats = now_ / (500 * kMillisecond) != (now_ - kStep) / (500 * kMillisecond);
      for (Member& one : members_) {
        if (one.conn == 0) {
          if (!one.site.empty() && beats) come_in(one, one.site);
          continue;
        }
        if (beats) tell(one, beat(one));
        if (!one.open && now_ >= one.next) begin_call(one);
        if (one.open && now_ >= one.ends) end_call(one);
        if (one.attempt == wire::Attempt{} || one.done) continue;
        if (!is_honest(one) && lies_ && lie_->exit != Exit::kByDeadline) {
          if (now_ >= one.begun + lie_->after) leave(one);
        } else if (now_ >= one.begun + round_) {
          one.done = true;
          tell(one, wire::Done{one.attempt, {7, 7}});
        }
      }
    }
  }
  bool is_honest(const Member& one) const { return &one < &members_[kHonest]; }
  void come_in(Member& one, std::string site) {  // by value: it may be the member's own
    const bool same = one.key != wire::PublicKey{};
    const wire::PublicKey key = same ? one.key : wire::PublicKey{++keys_, 1};
    one = {};
    one.conn = ++conns_, one.key = key, one.site = site;
    see(say(one.conn, hello(1000 + conns_, site), key));
    if (one.conn != 0) see(say(one.conn, wire::Resume{}, key));
    one.next = now_;
  }
  wire::Heartbeat beat(const Member& one) const {
    wire::Heartbeat beat;
    if (one.attempt == wire::Attempt{}) return beat;
    const auto past = static_cast<std::uint64_t>(now_ - one.begun);
    const auto all = static_cast<std::uint64_t>(round_);
    beat.moving.push_back({one.attempt, past < all ? all - past : 0, all, 0, 0});
    return beat;
  }
  void begin_call(Member& one) {
    ++one.call, one.open = true;
    one.ends = now_ + (is_honest(one) || !lies_ ? call_ : lie_->call);
    say_ready(one);
  }
  void say_ready(Member& one) {
    wire::Ready call = ready("grads", committed("grads") + 1);
    call.call = one.call, call.deadline = one.ends - now_;
    if (call.deadline > 0) tell(one, call);
  }
  void end_call(Member& one) {
    one.open = false, one.next = now_ + kGap;
    const wire::Attempt attempt = std::exchange(one.attempt, {});
    if (std::exchange(one.done, false)) return;
    if (attempt == wire::Attempt{})
      tell(one, wire::Withdraw{{"grads", committed("grads") + 1}});
    else
      tell(one, wire::Fail{attempt, base::Code::kDeadline, 0, "over"});
  }
  void leave(Member& one) {
    const wire::Attempt attempt = std::exchange(one.attempt, {});
    one.open = false, one.next = now_ + kStep;
    if (lie_->exit == Exit::kLeaves)
      tell(one, wire::Leave{});
    else if (lie_->exit == Exit::kWithdraws)
      tell(one, wire::Withdraw{{"grads", committed("grads") + 1}});
    else if (lie_->exit == Exit::kFails)
      tell(one, wire::Fail{attempt, base::Code::kDeadline, 0, "over"});
    else
      begin_call(one);
  }
  void tell(Member& one, const wire::Message& message) {
    if (one.conn != 0) see(say(one.conn, message, one.key));
  }
  void see(const MasterEffects& effects) {
    for (const HistoryLine& line : effects.history) {
      if (line.kind != "evict" && line.kind != "ban") continue;
      for (const auto& [field, value] : line.fields)
        EXPECT_FALSE(field == "site" && value != "s3") << line.kind << " " << value;
    }
    for (const ConnId conn : effects.close) {
      for (Member& one : members_) {
        if (one.conn == conn) one.conn = 0, one.attempt = {}, one.open = false;
      }
      see(on(ConnClosed{conn}));
    }
    for (const MasterSend& sent : effects.send) {
      for (Member& one : members_) {
        if (one.conn != 0 && one.conn == sent.conn) hears(one, sent.message);
      }
    }
  }
  void hears(Member& one, const wire::Message& message) {
    if (const auto* start = std::get_if<wire::Start>(&message)) {
      if (!one.open || start->call != one.call) {
        return tell(one, wire::Fail{start->attempt, base::Code::kAborted, 0, "no such call"});
      }
      one.attempt = start->attempt, one.begun = now_, one.done = false;
    } else if (const auto* told = std::get_if<wire::Outcome>(&message)) {
      if (one.attempt != told->attempt) return;
      one.attempt = {}, one.done = false;
      const bool committed = told->verdict == wire::Verdict::kCommitted;
      commits_ += committed && &one == members_.data();
      if (!committed && told->retry && now_ < one.ends) return say_ready(one);
      one.open = false, one.next = now_ + kGap;
    } else if (const auto* no = std::get_if<wire::Reject>(&message)) {
      if (no->call == one.call) one.open = false, one.next = now_ + kGap;
    } else if (std::holds_alternative<wire::Moved>(message)) {
      if (one.open) say_ready(one);
    } else if (std::holds_alternative<wire::Evicted>(message) ||
               std::holds_alternative<wire::Refuse>(message)) {
      one.conn = 0, one.attempt = {}, one.open = false;
    }
  }

  static constexpr base::Duration kStep = 10 * kMillisecond, kGap = 20 * kMillisecond;
  static constexpr std::size_t kHonest = 3;
  std::array<Member, kHonest + 1> members_;
  base::Duration round_ = 0, call_ = 0;
  const Lie* lie_ = nullptr;
  bool lies_ = false;
  int commits_ = 0;
  ConnId conns_ = 0;
  std::uint8_t keys_ = 0;
};

constexpr Straggler kPolicies[] = {Straggler::kWait, Straggler::kEvict, Straggler::kSkip};
constexpr Exit kExits[] = {Exit::kWithdraws, Exit::kFails, Exit::kCallsAnew};

// Its calls have three quarters of a second: each moment of them is near their end.
TEST_F(EarlyExits, near_the_own_deadline_cost_the_others_little) {
  for (const Straggler policy : kPolicies) {
    for (const Exit exit : kExits) {
      const Lie lie{exit, 728 * kMillisecond, 60 * kMillisecond};
      EXPECT_GE(kept(policy, 100 * kMillisecond, 1400 * kMillisecond, lie), 0.85);
    }
  }
  const Lie at_once{Exit::kWithdraws, 520 * kMillisecond, 0};
  EXPECT_GE(kept(Straggler::kWait, 100 * kMillisecond, kSecond, at_once), 0.85);
}

TEST_F(EarlyExits, just_before_a_round_is_over_cost_no_more) {
  for (const Exit exit : kExits) {
    for (const base::Duration call : {1200, 1500, 2100}) {  // its own is as long
      const Lie lie{exit, call * kMillisecond, 960 * kMillisecond};
      EXPECT_GE(kept(Straggler::kWait, kSecond, call * kMillisecond, lie), 0.8) << call;
    }
    const Lie shorter{exit, 1820 * kMillisecond, 960 * kMillisecond};
    EXPECT_GE(kept(Straggler::kEvict, kSecond, 3500 * kMillisecond, shorter), 0.8);
  }
}

// The others' next attempt has less time than a round takes.
TEST_F(EarlyExits, nor_does_who_goes_each_time) {
  for (const base::Duration call : {1700, 1900, 2100}) {
    const Lie lie{Exit::kLeaves, call * kMillisecond, 960 * kMillisecond, 600 * kSecond};
    EXPECT_GE(kept(Straggler::kWait, kSecond, call * kMillisecond, lie), 0.8) << call;
  }
}

// It may even be honest.
TEST_F(EarlyExits, nor_do_calls_that_have_no_room_for_a_round) {
  for (const Straggler policy : kPolicies) {
    for (const base::Duration own : {800, 950, 1050, 1100}) {
      const Lie lie{Exit::kByDeadline, own * kMillisecond, 0};
      EXPECT_GE(kept(policy, kSecond, 1200 * kMillisecond, lie), 0.8) << own;
    }
    const Lie half{Exit::kByDeadline, 865 * kMillisecond, 0};
    EXPECT_GE(kept(policy, kSecond, 1710 * kMillisecond, half), 0.8);
  }
}

TEST_F(EarlyExits, nor_do_calls_that_are_over_when_the_others_are_ready) {
  const Lie lie{Exit::kFails, 47 * kMillisecond, 30 * kMillisecond};
  EXPECT_GE(kept(Straggler::kWait, 100 * kMillisecond, 262 * kMillisecond, lie), 0.8);
}

// Attempts that hung have taught the master that a round takes long. Members that compute between
// two calls would then end each other's calls in turns.
TEST_F(EarlyExits, that_hung_do_not_part_who_computes_between_calls) {
  run_of_three();
  alive_ = {1, 2, 3};
  wire::Ready call = ready("grads", 2);
  call.deadline = 12 * kSecond;
  for (call.call = 1; call.call <= 3; ++call.call) {
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, call);
    wait(14 * kSecond);
  }
  std::size_t starts = 0;
  for (int turn = 0; turn < 8 && starts == 0; ++turn) {
    ++call.call;
    const ConnId alone = turn % 2 == 0 ? 1 : 2;  // the one that waits now, or the others
    MasterEffects last;
    for (ConnId conn = 1; conn <= 3; ++conn) {
      if ((conn == 1) == (alone == 1)) last = say(conn, call);
    }
    starts = sent<wire::Start>(last).size();
    if (starts == 0) wait(10 * kSecond);
  }
  EXPECT_EQ(starts, 3U);
}

// As many begin at another time as not, and a round takes longer than what lies between.
TEST_F(EarlyExits, of_two_halves_in_turns_end_when_more_time_is_asked_for) {
  EXPECT_GT(in_turns(1300 * kMillisecond, 2 * kSecond, 600 * kMillisecond), 10);
  // Each has more than half of its call left each time.
  for (const base::Duration call : {1200, 1500, 1800}) {
    EXPECT_GT(in_turns(kSecond, call * kMillisecond, call * kMillisecond * 2 / 5), 10) << call;
  }
}

// Its READYs take so long to get here that each of its calls ends before the master expects it.
TEST_F(EarlyExits, by_a_deadline_that_came_late_are_no_fault) {
  run_of_three();
  alive_ = {1, 2, 3};
  for (std::uint64_t n = 2; n < 60; ++n) {
    wire::Ready call = ready("grads", n);
    call.deadline = 8 * kSecond, call.call = n;
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, call);
    call.deadline = 4 * kSecond;
    const auto starts = sent<wire::Start>(say(3, call));
    ASSERT_EQ(starts.size(), 3U) << n;
    wait(3 * kSecond);
    (void)say(3, wire::Fail{starts[0].attempt, base::Code::kDeadline, 0, "over"});
    commit("grads", n);
    wait(60 * kSecond);
  }
  for (const PeerView& one : master_->view(now_).peers) {
    EXPECT_EQ(one.faults.find("deadline"), std::string::npos) << one.faults;
  }
}

// The others were late: that little of its call was left for a round is not its doing.
TEST_F(EarlyExits, of_who_waited_for_the_others_are_free) {
  run_of_three();
  alive_ = {1, 2, 3};
  for (std::uint64_t n = 2; n < 20; ++n) {
    for (int call = 1; call <= 2; ++call) {
      wire::Ready early = ready("grads", n);
      early.deadline = 8 * kSecond, early.call = 2 * n + static_cast<std::uint64_t>(call);
      (void)say(3, early);
      wait(4 * kSecond);
      for (ConnId conn = 1; conn <= 2; ++conn) {
        wire::Ready other = ready("grads", n);
        other.deadline = 10 * kSecond, other.call = early.call;
        (void)say(conn, other);
      }
      wait(5 * kSecond);  // its deadline ends the attempt
      for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Withdraw{{"grads", n}});
    }
    commit("grads", n);  // with it
  }
  for (const PeerView& one : master_->view(now_).peers) EXPECT_EQ(one.faults, "");
}

// The attempt after it hangs, for whatever reason: it had nearly as much time as the one before.
TEST_F(EarlyExits, cost_no_more_than_the_time_that_was_lost) {
  run_of_three();
  alive_ = {1, 2, 3};
  for (std::uint64_t n = 2; n < 12; ++n) {
    wire::Ready call = ready("grads", n);
    call.deadline = 10 * kSecond, call.call = n;
    std::vector<wire::Start> starts;
    for (const bool leaves : {true, false}) {
      for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, call);
      starts = sent<wire::Start>(say(3, call));
      ASSERT_EQ(starts.size(), 3U) << n << leaves;
      if (!leaves) break;
      wait(300 * kMillisecond);
      (void)say(3, wire::Withdraw{{"grads", n}});
      call.deadline -= 300 * kMillisecond;
    }
    std::vector<HistoryLine> noted = wait(9600 * kMillisecond);
    for (ConnId conn = 1; conn <= 2; ++conn) {
      const wire::Fail over{starts[0].attempt, base::Code::kDeadline, 0, "over"};
      for (const HistoryLine& line : say(conn, over).history) noted.push_back(line);
    }
    for (const HistoryLine& line : noted) EXPECT_NE(line.kind, "held") << n;
    commit("grads", n);
    wait(20 * kSecond);
  }
}

}  // namespace
}  // namespace jccl::protocol
