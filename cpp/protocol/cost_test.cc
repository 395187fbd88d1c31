// What one event costs the master: the tags that it is about are looked at, and no others.
#include "base/text.h"
#include "protocol/hostile_rig.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

class CostTest : public HostileMember {
 protected:
  void SetUp() override {
    run_of_three();
    alive_ = {1, 2, 3};
  }
  static wire::Sync sync(int tag, base::Duration deadline) {
    wire::Sync sync;
    sync.tag = base::cat("t", tag), sync.deadline = deadline;
    return sync;
  }
  // Of what is done, in tags that were looked at.
  template <typename What>
  std::uint64_t looks(What what) {
    const std::uint64_t before = master_->state().settled_;
    what();
    return master_->state().settled_ - before;
  }
  static constexpr int kMany = 120;  // as many tags as one may open, nearly
};

TEST_F(CostTest, a_sync_costs_one_look_however_many_there_are) {
  for (int time = 0; time < 3; ++time) {
    const auto looked = looks([&] {
      for (int i = 0; i < kMany; ++i) (void)say(3, sync(i, kSecond));
    });
    EXPECT_LE(looked, 2 * kMany) << time;
  }
}

TEST_F(CostTest, what_ends_at_many_moments_is_looked_at_once_each) {
  for (int i = 0; i < kMany; ++i) {
    (void)say(3, sync(i, kSecond));
    now_ += 10'000;
  }
  now_ += kSecond - kMany * 10'000 - 50 * kMillisecond;
  (void)on(Tick{});  // the heartbeats until then
  const auto looked = looks([&] {
    for (int i = 0; i < 10 * kMany && wake_ < now_ + 100 * kMillisecond; ++i) {
      now_ = std::max(now_, wake_);
      (void)on(Tick{});
    }
  });
  EXPECT_LE(looked, 4 * kMany);
  EXPECT_EQ(master_->state().rounds_.size(), 1U);  // grads
}

// A Sync that is refused is over for this tag alone.
TEST_F(CostTest, a_refused_sync_costs_one_look) {
  for (int i = 0; i < kMany; ++i) (void)say(3, sync(i, 1000 * kSecond));
  wire::Sync wrong;
  wrong.tag = "grads", wrong.deadline = kSecond;  // a tag without state
  const auto looked = looks([&] {
    for (int i = 0; i < kMany; ++i) ASSERT_EQ(sent<wire::SyncReply>(say(3, wrong)).size(), 1U);
  });
  EXPECT_LE(looked, 2 * kMany);
}

// Each tag costs a look at all that ask for it.
TEST_F(CostTest, a_connection_costs_no_look_at_states_that_a_crowd_waits_for) {
  constexpr int kTags = 16, kCrowd = 64;
  for (int one = 0; one < kCrowd; ++one) {
    const ConnId conn = 100 + static_cast<ConnId>(one);
    (void)join(conn, hello(1000 + conn, base::cat("o", one)));
    for (int tag = 0; tag < kTags; ++tag) (void)say(conn, sync(tag, 1000 * kSecond));
  }
  const auto looked = looks([&] {
    (void)join(50, hello(500, "new"));
    (void)on(ConnClosed{50});
  });
  EXPECT_LT(looked, kTags);
  (void)on(Tick{});
  now_ += kSecond;
  EXPECT_GE(looks([&] { (void)on(Tick{}); }), kTags) << "but at each tick";
}

// A READY costs no look at all members, where each is a site of its own; others would be counted.
TEST_F(CostTest, who_is_outside_makes_no_quorum) {
  MasterOptions listed = options();
  listed.start_peers = 3;
  listed.admission = Admission::kListed;
  for (const wire::Incarnation one : {100, 200, 300}) listed.listed.insert(key_of(hello(one, "")));
  begin(listed), last_ = 0;
  join({"a", "b", "c"});
  commit("x", 1);
  (void)join(10, hello(1000, "o"));
  (void)say(10, ready("x", 2));
  (void)say(1, ready("x", 2));
  ASSERT_FALSE(is_member("o"));
  ASSERT_EQ(master_->state().rounds_.at("x").ready.size(), 2U);
  EXPECT_EQ(master_->state().rounds_.at("x").quorum_since, base::kNever);
  (void)say(2, ready("x", 2));
  EXPECT_NE(master_->state().rounds_.at("x").quorum_since, base::kNever);
}

}  // namespace
}  // namespace jccl::protocol
