// What one that comes, holds a round and goes may cost the others: three that commit as fast as
// they can, beside somebody who takes part in silence, goes and comes again in all ways.
#include <functional>

#include "base/text.h"
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

constexpr base::Duration kCutAfter = 2500 * kMillisecond;  // honest peers report a silent one
constexpr base::Duration kHold = 2200 * kMillisecond;
constexpr base::Duration kRedo = 200 * kMillisecond;  // from an attempt to the next calls

enum class End {
  kShortCalls,
  kLeave,
  kClose,
  kReplaced,
  kWithdraw,
  kEvicted,
  kNoDone,
  kIdle,
  kAtStart,  // and is back before the others call again
  kBreaksALink,
  kGuard,
  kIsDone
};
constexpr bool at_once(End end) {
  return end == End::kAtStart || end == End::kBreaksALink || end == End::kIsDone ||
         end == End::kGuard;
}
using Key = std::function<std::uint64_t(int)>;  // of its how-manieth life

std::uint64_t one_key(int) { return 1000; }
std::uint64_t fresh_key(int process) { return 1000 + process; }
std::uint64_t many_keys(int process) { return 1000 + process % 200; }

class HeldTest : public HostileMember {
 protected:
  void start_run(Straggler straggler = Straggler::kWait, base::Duration after = kSecond) {
    MasterOptions three = options();
    three.start_peers = 3;
    three.straggler = straggler;
    three.straggler_after = after;
    recorded_ = false;  // hours
    begin(three, plan_around);
    join({"a", "b", "c"});
    alive_ = {1, 2, 3};
    for (ConnId conn = 1; conn <= 3; ++conn) ready_[conn] = false;
  }
  void start_anew() {
    last_ = 0, conns_ = 100, processes_ = 0;
    start_run();
  }
  // There is none for who has no link to three others.
  static base::Result<base::Bytes> plan_around(const PlanRequest& request) {
    std::map<wire::PeerId, int> bad;
    for (const auto& [a, b] : request.bad_links) {
      if (++bad[a] == 3 || ++bad[b] == 3) return base::Status{base::Code::kPeerLost, "no plan"};
    }
    return base::Bytes{};
  }

  void see(const MasterEffects& effects) {
    for (const auto& row : effects.history) {
      if (row.kind == "held") ++held_rows_;
      if (row.kind == "ban") ++bans_;
    }
    for (const auto& sent : effects.send) {
      if (const auto* start = std::get_if<wire::Start>(&sent.message)) started(sent.conn, *start);
      if (const auto* outcome = std::get_if<wire::Outcome>(&sent.message)) ended(*outcome);
      const bool over = std::holds_alternative<wire::Reject>(sent.message);
      if (over && sent.conn == hostile_) hostile_ready_ = false;  // its next call
      if (over && sent.conn <= 3) ready_[sent.conn] = false;
      const bool out = std::holds_alternative<wire::Evicted>(sent.message) ||
                       std::holds_alternative<wire::Refuse>(sent.message);
      ASSERT_FALSE(out && sent.conn <= 3) << "an honest member is out: " << words_of(sent.message);
      if (out && sent.conn == hostile_) gone();
    }
  }
  static std::string words_of(const wire::Message& message) {
    if (const auto* evicted = std::get_if<wire::Evicted>(&message)) return evicted->text;
    const auto* refuse = std::get_if<wire::Refuse>(&message);
    return refuse == nullptr ? "" : refuse->text;
  }
  void tell(ConnId conn, const wire::Message& message) { see(say(conn, message)); }
  void started(ConnId conn, const wire::Start& start) {
    if (conn == hostile_) started_at_ = now_;
    if (attempt_ == start.attempt) return;
    attempt_ = start.attempt, attempt_at_ = now_, reported_ = false;
    with_hostile_ = start.contributors.size() > 3;
  }
  void ended(const wire::Outcome& outcome) {
    if (outcome.attempt != attempt_) return;
    commits_ += outcome.verdict == wire::Verdict::kCommitted;
    if (end_ == End::kIdle && with_hostile_ && hostile_ != 0) idle_since_ = now_;
    attempt_ = {};
    if (outcome.verdict == wire::Verdict::kAborted && at_once(end_)) calls_at_ = now_ + kRedo;
    for (auto& [conn, ready] : ready_) ready = false;
    hostile_ready_ = false;
  }
  void gone() {
    hostile_ = 0, back_at_ = now_ + (at_once(end_) ? 0 : 100 * kMillisecond);
    idle_since_ = base::kNever, with_hostile_ = false;
    started_at_ = base::kNever;
  }

  // What the honest do, at once: data never take time here.
  void work() {
    for (auto& [conn, ready] : ready_) {
      if (now_ < calls_at_) break;
      if (attempt_ == wire::Attempt{} && !std::exchange(ready, true)) {
        wire::Ready own = HostileMember::ready("grads", committed("grads") + 1);
        own.deadline = honest_time_;
        tell(conn, own);
      }
    }
    if (attempt_ == wire::Attempt{} || reported_) return;
    const wire::Attempt attempt = attempt_;
    if (const wire::PeerId from = std::exchange(undelivered_, 0)) {
      return tell(1, wire::Fail{attempt, base::Code::kLinkLost, from, "it went"});
    }
    const bool moves = !with_hostile_ || end_ == End::kNoDone || honest_rounds_ > 0;
    if (!moves && now_ < attempt_at_ + kCutAfter) return;
    reported_ = true;
    for (ConnId conn = 1; conn <= 3; ++conn) {
      if (moves) tell(conn, wire::Done{attempt, {7, 7}});
      if (!moves) tell(conn, wire::Fail{attempt, base::Code::kPeerLost, id_of(hostile_), "silent"});
    }
    if (with_hostile_ && honest_rounds_ > 0) {
      --honest_rounds_;
      tell(hostile_, wire::Done{attempt, {7, 7}});
    }
  }
  wire::PeerId id_of(ConnId conn) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.incarnation == 100 * conn) return peer.member.id;
    }
    return 0;
  }

  void come(const Key& key) {
    const std::uint64_t number = key(processes_++);
    hostile_key_ = {static_cast<std::uint8_t>(number), static_cast<std::uint8_t>(number >> 8), 1};
    hostile_ = ++conns_, started_at_ = base::kNever;
    honest_rounds_ = rounds_first_;
    const ConnId conn = hostile_;
    see(say(conn, hello(100 * conn, base::cat("mal-", number)), hostile_key_));
    if (hostile_ == conn) tell(conn, wire::Resume{});
    hostile_ready_ = false;
  }
  void misbehave(const Key& key) {
    if (hostile_ == 0) {
      if (now_ >= back_at_) come(key);
      return;
    }
    if (idle_since_ != base::kNever) {  // in a round, and never READY again
      if (now_ >= idle_since_ + kHold) tell(hostile_, wire::Leave{});
      return;
    }
    if (attempt_ == wire::Attempt{} && !std::exchange(hostile_ready_, true)) {
      wire::Ready own = HostileMember::ready("grads", committed("grads") + 1);
      if (end_ == End::kShortCalls) own.deadline = kHold;
      tell(hostile_, own);
    }
    const bool holds = attempt_ != wire::Attempt{} && with_hostile_ && started_at_ != base::kNever;
    if (!holds || now_ < started_at_ + (at_once(end_) ? 0 : kHold)) return;
    const End end = by_turns_ && processes_ % 2 == 0 ? End::kEvicted : end_;
    const ConnId conn = hostile_;
    if (end == End::kBreaksALink)
      tell(conn, wire::Fail{attempt_, base::Code::kLinkLost, id_of(1), "broken"});
    if (end == End::kIsDone) {
      undelivered_ = id_of(conn);
      tell(conn, wire::Done{attempt_, {7, 7}});
    }
    if (end == End::kGuard) return tell(conn, wire::Fail{attempt_, base::Code::kGuard, 0, "NaN"});
    if (end == End::kLeave || at_once(end)) tell(conn, wire::Leave{});
    if (end == End::kClose) see(on(ConnClosed{conn})), gone();
    if (end == End::kReplaced) see(on(ConnClosed{conn})), come(key);
    if (end == End::kWithdraw) tell(conn, wire::Withdraw{{"grads", committed("grads") + 1}});
  }

  // Its keys take part in a round each, and leave between two.
  void be_honest_first(int keys, const Key& key) {
    rounds_first_ = 1;
    for (int i = 0; i < keys; ++i) {
      while (hostile_ == 0 || honest_rounds_ > 0 || !with_hostile_) {
        now_ += step_;
        misbehave(key), work();
      }
      tell(hostile_, wire::Leave{});
      with_hostile_ = false;
    }
  }

  // The share of the time from ten seconds to two minutes in which rounds are committed.
  double free_time(const Key& key) {
    int steps = 0, free = 0;
    for (const base::Time end = now_ + 120 * kSecond, begun = now_; now_ < end;) {
      now_ += step_;
      for (const ConnId conn : alive_) see(say(conn, wire::Heartbeat{}));
      if (hostile_ != 0) see(say(hostile_, wire::Heartbeat{}));
      see(on(Tick{}));
      misbehave(key);
      const std::uint64_t before = commits_;
      work();
      if (now_ < begun + 10 * kSecond) continue;
      ++steps, free += commits_ > before;
    }
    return static_cast<double>(free) / steps;
  }
  void expect_mostly_free(End end, const Key& key, double least = 0.8) {
    end_ = end;
    const double share = free_time(key);
    EXPECT_GE(share, least) << processes_ << " lives";
    EXPECT_LT(share, 1) << "it never held";
    EXPECT_GT(held_rows_, 0) << "the log says nothing";
  }

  // Of ten rounds of four that end by deadlines, those until one is out, and who. The first one's
  // calls have `time`, the others' 9 s; `waits`: who says for whom it waits, 0 for nobody. The
  // first may say DONE at once.
  std::pair<int, ConnId> rounds_until_out(base::Duration time,
                                          const std::map<ConnId, ConnId>& waits,
                                          bool first_is_done = false) {
    MasterOptions four = options();
    four.start_peers = 4;
    begin(four);
    last_ = 0;
    join({"a", "b", "c", "d"});
    for (int i = 0; i < 10; ++i) {
      std::vector<wire::Start> starts;
      for (ConnId conn = 1; conn <= 4; ++conn) {
        wire::Ready own = HostileMember::ready("grads");
        own.call = i + 1;
        own.deadline = conn == 1 ? time : 9 * kSecond;
        starts = sent<wire::Start>(say(conn, own));
      }
      if (starts.size() != 4) break;
      if (first_is_done) (void)say(1, wire::Done{starts[0].attempt, {5, 5}});
      for (const base::Time end = now_ + time + kSecond; now_ < end; now_ += 100 * kMillisecond) {
        for (ConnId conn = 1; conn <= 4; ++conn) {
          wire::Heartbeat beat;
          const auto awaited = waits.find(conn);
          if (awaited != waits.end()) {
            beat.moving.push_back({starts[0].attempt, 6000, 10000, id_of(awaited->second)});
          }
          (void)say(conn, beat);
        }
        (void)on(Tick{});
      }
      for (ConnId conn = 1; conn <= 4; ++conn) {
        if (id_of(conn) == 0) return {i, conn};
      }
    }
    return {10, 0};
  }

  std::map<ConnId, bool> ready_;
  wire::Attempt attempt_;
  base::Time idle_since_ = base::kNever;
  base::Time calls_at_ = 0;
  wire::PeerId undelivered_ = 0;  // who went with what it had not sent
  base::Time attempt_at_ = 0, started_at_ = base::kNever, back_at_ = 0;
  bool with_hostile_ = false, reported_ = false, hostile_ready_ = false, by_turns_ = false;
  End end_ = End::kLeave;
  base::Duration honest_time_ = 1000 * kSecond;
  int processes_ = 0, held_rows_ = 0, bans_ = 0, rounds_first_ = 0, honest_rounds_ = 0;
  ConnId hostile_ = 0, conns_ = 100;
  base::Duration step_ = 25 * kMillisecond;
  wire::PublicKey hostile_key_{};
  std::uint64_t commits_ = 0;
};

TEST_F(HeldTest, who_leaves_before_it_is_cut_comes_back_ever_more_rarely) {
  start_run();
  expect_mostly_free(End::kLeave, one_key);
  const auto peers = master_->view(now_).peers;
  const auto named = std::any_of(peers.begin(), peers.end(), [](const PeerView& peer) {
    return peer.faults.find("others waited for it for") != std::string::npos;
  });
  EXPECT_TRUE(named || hostile_ == 0);
}

TEST_F(HeldTest, under_fresh_keys_it_is_no_better) {
  start_run();
  expect_mostly_free(End::kLeave, fresh_key);
}

TEST_F(HeldTest, who_is_evicted_does_not_come_back_under_a_fresh_key) {
  start_run();
  expect_mostly_free(End::kEvicted, fresh_key);
}

TEST_F(HeldTest, nor_by_turns_with_leaving) {
  start_run();
  by_turns_ = true;
  expect_mostly_free(End::kLeave, fresh_key);
}

TEST_F(HeldTest, nor_by_turns_under_one_key) {
  start_run();
  by_turns_ = true;
  expect_mostly_free(End::kLeave, one_key);
}

TEST_F(HeldTest, keys_that_were_in_a_round_are_no_better) {
  step_ = 10 * kMillisecond;
  start_run();
  be_honest_first(200, many_keys);
  expect_mostly_free(End::kLeave, many_keys);
}

TEST_F(HeldTest, nor_who_loses_its_connection) {
  start_run();
  expect_mostly_free(End::kClose, fresh_key);
}

// Where slow ones are waited for, too: it is not known.
TEST_F(HeldTest, nor_who_is_in_a_round_and_then_not_ready) {
  for (const Key& key : {Key(one_key), Key(fresh_key)}) {
    start_anew();
    rounds_first_ = 1;
    expect_mostly_free(End::kIdle, key);
  }
}

TEST_F(HeldTest, nor_whose_next_life_replaces_it) {
  start_run();
  expect_mostly_free(End::kReplaced, one_key);
}

TEST_F(HeldTest, nor_who_ends_an_attempt_and_is_back_before_the_others_call) {
  start_run();
  expect_mostly_free(End::kAtStart, one_key);
}

TEST_F(HeldTest, nor_who_breaks_a_link_first) {
  for (const int step : {10, 25}) {  // with the longer one it is in the first round, too
    step_ = step * kMillisecond;
    start_anew();
    expect_mostly_free(End::kBreaksALink, fresh_key);
  }
}

// The attempts that follow at once are fewer and fewer, so those that it ends cost more.
TEST_F(HeldTest, nor_who_is_left_out_of_each_round) {
  start_run();
  expect_mostly_free(End::kGuard, fresh_key);
}

// They never get its data, and say so.
TEST_F(HeldTest, nor_who_says_that_it_is_done_and_goes) {
  start_run();
  expect_mostly_free(End::kIsDone, fresh_key);
}

TEST_F(HeldTest, nor_who_takes_its_call_back) {
  start_run();
  expect_mostly_free(End::kWithdraw, one_key);
}

TEST_F(HeldTest, nor_whose_calls_are_shorter_than_others) {
  start_run();
  honest_time_ = 10 * kSecond;
  // Each call of its own that ends before an attempt begins costs more, and that is nobody's.
  expect_mostly_free(End::kShortCalls, one_key, 0.7);
  EXPECT_EQ(bans_, 0) << "that is no fault";
}

TEST_F(HeldTest, whose_short_calls_wait_themselves_for_another_is_not_put_out) {
  const auto sends = rounds_until_out(3 * kSecond, {{1, 4}, {2, 1}, {3, 1}, {4, 0}});
  EXPECT_EQ(sends.second, 0U) << "the last one says that it sends";
  EXPECT_EQ(rounds_until_out(3 * kSecond, {{1, 2}, {2, 3}, {3, 1}}).second, 1U) << "a circle";
}

TEST_F(HeldTest, nor_whose_calls_are_shorter_than_others_and_say_done_at_once) {
  EXPECT_EQ(rounds_until_out(3 * kSecond, {{2, 3}, {3, 4}, {4, 2}}, true).second, 1U);
  EXPECT_EQ(rounds_until_out(9 * kSecond, {{2, 3}, {3, 4}, {4, 2}}, true).second, 0U)
      << "as long as others'";
}

TEST_F(HeldTest, who_has_nothing_to_move_and_is_not_done_holds_the_attempt) {
  EXPECT_EQ(rounds_until_out(9 * kSecond, {{1, 4}, {2, 1}, {3, 1}}).second, 4U);
  EXPECT_EQ(rounds_until_out(3 * kSecond, {{1, 4}, {2, 1}, {3, 1}}).second, 4U) << "not the first";
  EXPECT_EQ(rounds_until_out(3 * kSecond, {{2, 4}, {3, 4}}, true).second, 4U)
      << "nor if it is DONE";
  const auto slow = rounds_until_out(9 * kSecond, {{1, 4}, {2, 1}, {3, 1}, {4, 0}});
  EXPECT_EQ(slow.second, 0U) << "who is slow is waited for";
}

TEST_F(HeldTest, where_stragglers_are_evicted_they_do_not_come_back_under_fresh_keys) {
  start_run(Straggler::kEvict);
  expect_mostly_free(End::kNoDone, fresh_key);
}

TEST_F(HeldTest, where_stragglers_are_skipped_they_are_passed_over_until_it_is_paid) {
  start_run(Straggler::kSkip);
  expect_mostly_free(End::kNoDone, one_key);
}

TEST_F(HeldTest, leaving_is_no_better_where_stragglers_are_evicted_or_skipped) {
  start_run(Straggler::kEvict, 3 * kSecond);
  expect_mostly_free(End::kLeave, one_key);
}

TEST_F(HeldTest, one_member_that_hangs_costs_nobody_his_place) {
  start_run();
  rounds_first_ = 1;
  for (int process = 0; process < 2; ++process) {
    const base::Time until = now_ + kHold + kSecond;
    end_ = End::kClose;
    while (now_ < until) {
      now_ += step_;
      for (const ConnId conn : alive_) see(say(conn, wire::Heartbeat{}));
      see(on(Tick{}));
      misbehave(fresh_key);
      work();
    }
  }
  EXPECT_GE(processes_, 2);
  const int before = processes_;
  if (hostile_ == 0) come(fresh_key);
  tell(hostile_, HostileMember::ready("grads", committed("grads") + 1));
  EXPECT_NE(id_of(hostile_), 0U) << before;
  EXPECT_EQ(bans_, 0);
}

// They had as much time as the others', and the master that comes after hears of what is left.
TEST_F(HostileMember, calls_of_before_a_restart_are_not_short_after_it) {
  for (const bool restarted : {false, true}) {
    MasterOptions three = options();
    three.start_peers = 3;
    std::vector<wire::Record> records;
    const auto tell = [&](ConnId conn, const wire::Message& message) {
      const MasterEffects effects = say(conn, message);
      records.insert(records.end(), effects.journal.begin(), effects.journal.end());
      return effects;
    };
    const auto all_join = [&] {
      for (ConnId conn = 1; conn <= 3; ++conn) {
        (void)tell(conn, hello(100 * conn, std::string(1, static_cast<char>('a' + conn - 1))));
        (void)tell(conn, wire::Resume{});
      }
    };
    begin(three);
    all_join();
    std::vector<wire::Start> starts;
    for (ConnId conn = 1; conn <= 3; ++conn) starts = sent<wire::Start>(tell(conn, ready("grads")));
    ASSERT_EQ(starts.size(), 3U);
    for (ConnId conn = 1; conn <= 3; ++conn) {
      (void)tell(conn, wire::Done{starts[0].attempt, {7, 7}});
    }
    if (restarted) begin(three, plan, records), all_join();
    alive_ = {1, 2, 3};
    for (ConnId conn = 1; conn <= 3; ++conn) {
      wire::Ready own = ready("grads", 2);
      own.deadline = (conn == 1 ? 3 : 60) * kSecond;
      starts = sent<wire::Start>(tell(conn, own));
    }
    ASSERT_EQ(starts.size(), 3U);
    const auto lines = wait(4 * kSecond);
    const bool held = std::any_of(lines.begin(), lines.end(),
                                  [](const HistoryLine& line) { return line.kind == "held"; });
    EXPECT_NE(held, restarted);
  }
}

}  // namespace
}  // namespace jccl::protocol
