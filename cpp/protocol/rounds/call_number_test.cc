// A START or Reject is for one call of one peer, not for whatever call has the same (tag, n) when
// it arrives. Found by the simulator (seeds 281, 1459): the new call's input was counted with the
// weight of the call before.
#include <gtest/gtest.h>

#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"
#include "protocol/test_effects.h"

namespace jccl::protocol {
namespace {

struct PeerRig {
  PeerRig() : peer(PeerOptions{}, 5, kNow) {
    (void)peer.start(kNow);
    (void)peer.on(Connected{}, kNow);
    hear(wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond});
    hear(wire::Roster{1, 0, {{1, 5, "a", 0, 1, {}, {}}}, {}, {}, {}, {}});
  }
  PeerEffects hear(wire::Message message) { return peer.on(FromMaster{std::move(message)}, kNow); }
  wire::Ready call(double weight) {
    Call call;
    call.tag = "t";
    call.weight = weight;
    call.deadline = kNow + 60 * base::kSecond;
    return sent<wire::Ready>(peer.on(call, kNow)).at(0);
  }
  static wire::Start start(std::uint64_t counter, double weight, std::uint64_t call) {
    return {{1, counter}, {"t", 1}, {{1, weight}}, {}, {}, call};
  }
  PeerMachine peer;
};

TEST(CallNumberTest, a_call_that_did_not_commit_never_ends_ok_whatever_the_master_says) {
  PeerRig rig;
  const wire::Ready rejected = rig.call(1);
  const PeerEffects reject =
      rig.hear(wire::Reject{rejected.round, base::Code::kOk, "", rejected.call});
  ASSERT_EQ(reject.complete.size(), 1U);
  EXPECT_EQ(reject.complete[0].status.code, base::Code::kInternal);

  const wire::Ready started = rig.call(1);
  (void)rig.hear(PeerRig::start(1, 1, started.call));
  wire::Outcome outcome;
  outcome.attempt = {1, 1};
  outcome.round = started.round;
  outcome.verdict = wire::Verdict::kAborted;
  const PeerEffects aborted = rig.hear(outcome);
  ASSERT_EQ(aborted.complete.size(), 1U);
  EXPECT_EQ(aborted.complete[0].status.code, base::Code::kInternal);
  EXPECT_TRUE(aborted.commit.empty());
}

// Who hears RESYNC puts its input into the next round.
TEST(CallNumberTest, only_a_call_that_nobody_counted_ends_resync) {
  using base::Code;
  PeerRig rig;
  const wire::Ready left_out = rig.call(1);
  const PeerEffects reject =
      rig.hear(wire::Reject{left_out.round, Code::kResync, "too late", left_out.call});
  EXPECT_EQ(reject.complete.at(0).status.code, Code::kResync);

  wire::Ready ready = rig.call(1);
  (void)rig.hear(PeerRig::start(1, 1, ready.call));
  wire::Outcome outcome;
  outcome.attempt = {1, 1};
  outcome.round = ready.round;
  outcome.verdict = wire::Verdict::kExpired;
  EXPECT_EQ(rig.hear(outcome).complete.at(0).status.code, Code::kEvicted);

  ready = rig.call(1);
  wire::Start start = PeerRig::start(2, 1, ready.call);
  start.round = ready.round;
  (void)rig.hear(start);
  (void)rig.peer.on(AttemptDone{start.attempt, {1, 1}}, kNow);
  outcome.attempt = start.attempt;
  outcome.round = ready.round;
  outcome.verdict = wire::Verdict::kCommitted;
  outcome.contributors = start.contributors;
  outcome.world = 1;
  outcome.result = {2, 2};
  EXPECT_EQ(rig.hear(outcome).complete.at(0).status.code, Code::kEvicted);
}

// Its READY was read before the outcome that left the input out (simulator, seed 888000026046).
TEST(CallNumberTest, a_start_that_counts_an_input_that_was_left_out_is_not_run) {
  using base::Code;
  for (const Code why : {Code::kGuard, Code::kSkipped}) {
    PeerRig rig;
    const wire::Ready ready = rig.call(1);
    (void)rig.hear(PeerRig::start(1, 1, ready.call));
    if (why == Code::kGuard) {
      (void)rig.peer.on(AttemptFailed{{1, 1}, Code::kGuard, 0, "not a number"}, kNow);
    }
    wire::Outcome outcome;
    outcome.attempt = {1, 1};
    outcome.round = ready.round;
    outcome.verdict = wire::Verdict::kAborted;
    outcome.retry = true;
    outcome.code = why == Code::kGuard ? Code::kPeerLost : why;
    const auto again = sent<wire::Ready>(rig.hear(outcome));
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].weight, 0);

    const PeerEffects crossed = rig.hear(PeerRig::start(2, 1, ready.call));
    EXPECT_TRUE(crossed.run.empty());
    const auto fails = sent<wire::Fail>(crossed);
    ASSERT_EQ(fails.size(), 1U);
    EXPECT_EQ(fails[0].cause, why == Code::kGuard ? Code::kGuard : Code::kAborted);
    outcome.attempt = {1, 2};
    outcome.code = fails[0].cause;
    EXPECT_EQ(sent<wire::Ready>(rig.hear(outcome)).size(), 1U);

    wire::Start receives = PeerRig::start(3, 1, ready.call);
    receives.contributors[0].id = 2, receives.receivers = {1};
    const PeerEffects third = rig.hear(receives);
    ASSERT_EQ(third.run.size(), 1U);
    EXPECT_TRUE(third.run[0].receiver);
  }
}

TEST(CallNumberTest, a_start_for_a_call_that_has_ended_does_not_take_the_next_one) {
  PeerRig rig;
  const wire::Ready first = rig.call(1);
  EXPECT_EQ(rig.peer.on(CancelCall{"t"}, kNow).complete.size(), 1U);
  const wire::Ready second = rig.call(4);
  ASSERT_EQ(first.round, second.round);
  const PeerEffects late = rig.hear(PeerRig::start(1, 1, first.call));
  EXPECT_TRUE(late.run.empty());
  EXPECT_EQ(sent<wire::Fail>(late).size(), 1U);
  EXPECT_EQ(rig.hear(PeerRig::start(2, 4, second.call)).run.size(), 1U);
}

TEST(CallNumberTest, a_reject_of_a_call_that_has_ended_does_not_end_the_next_one) {
  PeerRig rig;
  const wire::Ready first = rig.call(1);
  (void)rig.peer.on(CancelCall{"t"}, kNow);
  const wire::Ready second = rig.call(1);
  using base::Code;
  EXPECT_TRUE(
      rig.hear(wire::Reject{first.round, Code::kDeadline, "late", first.call}).complete.empty());
  EXPECT_EQ(
      rig.hear(wire::Reject{second.round, Code::kDeadline, "late", second.call}).complete.size(),
      1U);
}

TEST(CallNumberTest, a_ready_of_a_new_call_ends_the_attempt_that_ran_for_the_one_before) {
  MasterOptions options;
  options.run.fill(9);
  MasterMachine master(options, [](const PlanRequest&) { return base::Bytes{}; }, {}, kNow);
  (void)master.start(kNow);
  const auto say = [&](ConnId conn, wire::Message message) {
    return master.on(ConnMessage{conn, std::move(message)}, kNow);
  };
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = 60 * base::kSecond;
  for (ConnId conn = 1; conn <= 2; ++conn) {
    wire::Hello hello;
    hello.incarnation = conn;
    hello.site = conn == 1 ? "a" : "b";
    hello.start_peers = 2;
    (void)say(conn, hello);
    (void)say(conn, wire::Resume{});
  }
  ready.call = 7;
  (void)say(1, ready);
  const auto starts = sent<wire::Start>(say(2, ready));
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].call, 7U);
  EXPECT_EQ(sent<wire::Start>(say(1, ready)).size(), 1U);  // the same call again: said again
  ready.call = 8;
  ready.weight = 4;
  const MasterEffects anew = say(1, ready);
  EXPECT_TRUE(sent<wire::Start>(anew).empty());
  ASSERT_EQ(sent<wire::Outcome>(anew).size(), 2U);
  EXPECT_TRUE(sent<wire::Outcome>(anew)[1].retry);
  const auto again = sent<wire::Start>(say(2, ready));
  ASSERT_EQ(again.size(), 2U);
  EXPECT_GT(again[0].attempt, starts[0].attempt);
  EXPECT_EQ(again[0].contributors[0].weight, 4);
}

// The others send data of it all the same, and what they ask for next stands behind that.
TEST(CallNumberTest, an_attempt_that_does_not_begin_here_is_let_go) {
  PeerRig rig;
  const wire::Ready ended = rig.call(1);
  (void)rig.peer.on(CancelCall{"t"}, kNow);
  EXPECT_EQ(rig.hear(PeerRig::start(1, 1, ended.call)).discard,
            (std::vector<wire::Attempt>{{1, 1}}));
  const wire::Ready open = rig.call(1);
  EXPECT_EQ(rig.hear(PeerRig::start(2, 1, ended.call)).discard,
            (std::vector<wire::Attempt>{{1, 2}}));
  EXPECT_EQ(rig.hear(PeerRig::start(3, 1, open.call)).run.size(), 1U);
  wire::Outcome outcome;  // its START was lost with a connection
  outcome.attempt = {1, 4};
  outcome.verdict = wire::Verdict::kAborted;
  EXPECT_EQ(rig.hear(outcome).discard, (std::vector<wire::Attempt>{{1, 4}}));
}

// The word that a holder has left may cross another question, and begin a fetch of the old
// revision.
TEST(CallNumberTest, what_is_fetched_is_what_the_master_said_last) {
  PeerRig rig;
  SyncCall sync;
  sync.tag = "t", sync.digest = {9, 9}, sync.deadline = kNow + 60 * base::kSecond;
  (void)rig.peer.on(sync, kNow);
  wire::SyncReply fetch;
  fetch.tag = "t", fetch.verdict = wire::SyncVerdict::kFetch;
  for (const std::uint64_t revision : {4, 4, 5}) {
    fetch.revision = revision, fetch.digest = {revision, 7};
    const PeerEffects effects = rig.hear(fetch);
    ASSERT_EQ(effects.fetch.size(), 1U) << revision;
    EXPECT_EQ(effects.fetch[0].want.revision, revision);
  }
  EXPECT_TRUE(sent<wire::Sync>(rig.peer.on(FetchDone{{"t", 4, {4, 7}}}, kNow)).empty());
  ASSERT_EQ(sent<wire::Sync>(rig.peer.on(FetchDone{{"t", 5, {5, 7}}}, kNow)).size(), 1U);
  EXPECT_TRUE(rig.hear(fetch).fetch.empty()) << "it crossed the word that all is here";
}

// What the others sum is made from another state.
TEST(CallNumberTest, a_start_from_another_state_than_the_own_moves_nothing) {
  using base::Code;
  for (const wire::Held& named :
       {wire::Held{"t", 3, {4, 4}}, wire::Held{"t", 4, {3, 3}}, wire::Held{"t", 3, {3, 3}}}) {
    PeerRig rig;
    const wire::Held own{"t", 3, {3, 3}};
    (void)rig.peer.on(PublishState{own}, kNow);
    Call call;
    call.tag = "t", call.weight = 1, call.is_state = true, call.deadline = kNow + base::kSecond;
    const wire::Ready ready = sent<wire::Ready>(rig.peer.on(call, kNow)).at(0);
    wire::Start start{{1, 1}, ready.round, {{1, 1.0}}, {}, {}, ready.call};
    start.has_state = true, start.revision = named.revision, start.state = named.digest;
    const PeerEffects effects = rig.hear(start);
    const bool same = named == own;
    EXPECT_EQ(effects.run.size(), same ? 1U : 0U);
    EXPECT_EQ(sent<wire::Fail>(effects).size(), same ? 0U : 1U);
    ASSERT_EQ(effects.complete.size(), same ? 0U : 1U);
    if (!same) {
      EXPECT_EQ(effects.complete[0].status.code, Code::kResync);
    }
  }
}

// From two threads. Nobody else may have it, and the run would go back to the one before.
TEST(CallNumberTest, who_publishes_while_it_synchronises_says_so_in_its_sync) {
  PeerRig rig;
  SyncCall sync;
  sync.tag = "t", sync.revision = 3, sync.digest = {3, 3}, sync.deadline = kNow + base::kSecond;
  (void)rig.peer.on(sync, kNow);
  const auto again = sent<wire::Sync>(rig.peer.on(PublishState{{"t", 4, {4, 4}}}, kNow));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].revision, 4U);
  EXPECT_EQ(again[0].digest, (wire::Digest{4, 4}));
}

}  // namespace
}  // namespace jccl::protocol
