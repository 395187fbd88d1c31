// A peer whose user changed the state that it published needs a resync, and nothing else: what it
// published is still held, and the run's newest may be that very revision.
#include <gtest/gtest.h>

#include "protocol/peer/peer_machine.h"
#include "protocol/test_effects.h"

namespace jccl::protocol {
namespace {

struct HolderRig {
  explicit HolderRig(std::uint32_t shards = 1) : peer(options(shards), 5, kNow) {
    (void)peer.start(kNow);
    (void)peer.on(Connected{}, kNow);
    (void)hear(wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond});
    (void)hear(wire::Roster{1, 0, {{1, 5, "a", 0, 1, {}, {}}}, {}, {}, {}, {}});
  }
  static PeerOptions options(std::uint32_t shards) {
    PeerOptions options;
    options.shards = shards;
    return options;
  }
  PeerEffects hear(wire::Message message) { return peer.on(FromMaster{std::move(message)}, kNow); }
  PeerEffects call() {
    Call call;
    call.tag = "t";
    call.is_state = true;
    call.deadline = kNow + 60 * base::kSecond;
    return peer.on(call, kNow);
  }
  PeerMachine peer;
  const wire::Held held{"t", 0, {1, 2}};
};

TEST(OwnStateMachineTest, a_changed_state_makes_no_call_ready_until_it_is_synchronised) {
  HolderRig rig;
  (void)rig.peer.on(PublishState{rig.held}, kNow);
  const base::Digest before = rig.peer.digest();
  EXPECT_FALSE(rig.peer.needs_resync("t"));
  EXPECT_TRUE(rig.peer.on(StateChanged{"t"}, kNow).send.empty());
  EXPECT_TRUE(rig.peer.needs_resync("t"));
  EXPECT_NE(rig.peer.digest(), before);
  const PeerEffects refused = rig.call();
  EXPECT_TRUE(sent<wire::Ready>(refused).empty());
  ASSERT_EQ(refused.complete.size(), 1U);
  EXPECT_EQ(refused.complete[0].status.code, base::Code::kResync);

  SyncCall sync;
  sync.tag = "t";
  sync.digest = rig.held.digest;
  sync.deadline = kNow + 60 * base::kSecond;
  (void)rig.peer.on(sync, kNow);
  wire::SyncReply current;
  current.tag = "t";
  current.verdict = wire::SyncVerdict::kCurrent;
  current.digest = rig.held.digest;
  const PeerEffects synced = rig.hear(current);
  ASSERT_EQ(synced.synced.size(), 1U);
  EXPECT_TRUE(synced.synced[0].status.ok());
  EXPECT_FALSE(rig.peer.needs_resync("t"));
  EXPECT_EQ(sent<wire::Ready>(rig.call()).size(), 1U);
}

TEST(OwnStateMachineTest, a_state_that_changes_while_its_call_waits_ends_the_call) {
  HolderRig rig;
  (void)rig.peer.on(PublishState{rig.held}, kNow);
  (void)rig.call();
  EXPECT_TRUE(rig.peer.on(StateChanged{"another tag", "why"}, kNow).complete.empty());
  const PeerEffects ended = rig.peer.on(StateChanged{"t", "leaf w"}, kNow);
  EXPECT_EQ(sent<wire::Withdraw>(ended).size(), 1U);
  ASSERT_EQ(ended.complete.size(), 1U);
  EXPECT_EQ(ended.complete[0].status.code, base::Code::kResync);
  EXPECT_NE(ended.complete[0].status.text.find("leaf w"), std::string::npos);
  EXPECT_TRUE(rig.peer.needs_resync("t"));
}

wire::Start start_of(const HolderRig& rig) {
  wire::Start start;
  start.round = {"t", 1};
  start.attempt = {1, 1};
  start.has_state = true;
  start.state = rig.held.digest;
  start.call = 1;
  start.contributors = {{1, 1.0}};
  return start;
}

// Else the calls of the site's other shards would wait for it.
TEST(OwnStateMachineTest, of_a_site_with_more_shards_the_call_ends_with_its_attempt) {
  HolderRig rig(2);
  (void)rig.peer.on(PublishState{rig.held}, kNow);
  (void)rig.call();
  const PeerEffects waits = rig.peer.on(StateChanged{"t", "leaf w"}, kNow);
  EXPECT_TRUE(waits.complete.empty() && waits.send.empty());
  EXPECT_EQ(rig.hear(start_of(rig)).run.size(), 1U);
  const PeerEffects ended =
      rig.peer.on(AttemptFailed{{1, 1}, base::Code::kResync, 0, "leaf w"}, kNow);
  const auto fails = sent<wire::Fail>(ended);
  ASSERT_EQ(fails.size(), 1U);
  EXPECT_EQ(fails[0].cause, base::Code::kResync);
  EXPECT_EQ(ended.discard.size(), 1U);
  ASSERT_EQ(ended.complete.size(), 1U) << "nobody can have counted it";
  EXPECT_EQ(ended.complete[0].status.code, base::Code::kResync);
  EXPECT_TRUE(rig.peer.needs_resync("t"));
}

TEST(OwnStateMachineTest, a_call_whose_data_move_is_not_ended_by_the_change_alone) {
  HolderRig rig;
  (void)rig.peer.on(PublishState{rig.held}, kNow);
  (void)rig.call();
  (void)rig.hear(start_of(rig));
  const PeerEffects changed = rig.peer.on(StateChanged{"t", "leaf w"}, kNow);
  EXPECT_TRUE(changed.complete.empty() && changed.send.empty());
}

TEST(OwnStateMachineTest, what_is_fetched_when_its_sync_is_over_is_not_held) {
  HolderRig rig;
  SyncCall sync;
  sync.tag = "t";
  sync.digest = rig.held.digest;
  sync.deadline = kNow + base::kSecond;
  (void)rig.peer.on(sync, kNow);
  wire::SyncReply newer;
  newer.tag = "t";
  newer.verdict = wire::SyncVerdict::kFetch;
  newer.revision = 7, newer.digest = {7, 7};
  const PeerEffects fetching = rig.hear(newer);
  ASSERT_EQ(fetching.fetch.size(), 1U);
  ASSERT_EQ(rig.peer.on(PeerTick{}, sync.deadline).synced.size(), 1U);
  (void)rig.peer.on(PublishState{{"t", 8, {8, 8}}}, sync.deadline);
  const base::Digest before = rig.peer.digest();
  EXPECT_TRUE(rig.peer.on(FetchDone{fetching.fetch[0].want}, sync.deadline).send.empty());
  EXPECT_EQ(rig.peer.digest(), before);
  // Nor is it what the next sync asked for.
  const base::Time later = sync.deadline;
  sync.deadline += base::kSecond;
  (void)rig.peer.on(sync, later);
  const PeerEffects late = rig.peer.on(FetchDone{fetching.fetch[0].want}, later);
  EXPECT_TRUE(sent<wire::Sync>(late).empty());
}

TEST(OwnStateMachineTest, a_tag_without_a_state_has_none_that_could_change) {
  HolderRig rig;
  (void)rig.peer.on(StateChanged{"t"}, kNow);
  EXPECT_FALSE(rig.peer.needs_resync("t"));
}

}  // namespace
}  // namespace jccl::protocol
