// What sync_state gives back is the run's state, whatever number it came under; and what it says of
// the own one: nothing of a revision that this peer did not publish, and a wish if it is one.
#include <gtest/gtest.h>

#include <latch>

#include "capi/state_holder.h"

namespace jccl::capi::test {
namespace {

// Rounds that leave the state as it is: the run has it under later numbers than joiners fetch it
// by.
TEST(SyncedStateTest, what_was_fetched_is_the_runs_under_a_later_number_too) {
  Cluster cluster(2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> members;
  for (std::size_t p = 0; p < 2; ++p) {
    members.emplace_back([&, p] {
      Holder own;
      ASSERT_TRUE(own.sync(cluster[p]).status.ok());
      while (!stop) {
        const SmallRound r = own.round(cluster[p], 1);
        if (stop) break;
        ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
        ASSERT_TRUE(cluster[p].publish(own.leaves(), own.options()).status.ok());
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return cluster[0].revision("model") >= 2; }));
  for (int i = 0; i < 6; ++i) {
    auto comm = Communicator::connect(cluster.peer_options());
    ASSERT_TRUE(comm.ok());
    Holder joiner;
    joiner.anchor.assign(1000, 7.0F);
    const SyncResult s = joiner.sync(*comm.value());
    EXPECT_TRUE(s.status.ok() && s.replaced) << s.status.text;
    EXPECT_EQ(joiner.anchor, std::vector<float>(1000, 1.0F)) << "at revision " << s.revision;
    EXPECT_EQ(s.digest, cluster[0].digest("model"));
    comm.value()->close();
  }
  stop = true;
  for (std::size_t p = 0; p < 2; ++p) cluster[p].abort();
  for (std::thread& member : members) member.join();
}

TEST(SyncedStateTest, who_did_not_publish_says_nothing_of_the_new_revision) {
  Cluster cluster(3);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own;
    ASSERT_TRUE(own.sync(comm).status.ok());
    ASSERT_TRUE(own.round(comm, 1).result.status.ok());
    if (p < 2) {  // two of three: they would outvote the one that did
      const SyncResult s = own.sync(comm);
      EXPECT_TRUE(s.status.ok() && s.replaced) << s.status.text;
    } else {
      const SyncResult s = own.publish(comm);
      EXPECT_TRUE(s.status.ok()) << s.status.text;
    }
    EXPECT_EQ(own.anchor, std::vector<float>(1000, 2.0F));
    EXPECT_EQ(comm.revision("model"), 1U);
    const SmallRound r = own.round(comm, 1);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_EQ(r.result.world, 3U);
  });
}

// It had edited its state, say, and no idea of what followed from the result: of two, each would
// have been as good as the other.
TEST(SyncedStateTest, who_edited_its_state_instead_of_publishing_says_nothing_of_the_new_revision) {
  Cluster cluster(2);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own;
    ASSERT_TRUE(own.sync(comm).status.ok());
    ASSERT_TRUE(own.round(comm, 1).result.status.ok());
    if (p == 0) {
      own.anchor[3] = 77;
      const SyncResult s = own.sync(comm);
      EXPECT_TRUE(s.status.ok() && s.replaced) << s.status.text;
    } else {
      const SyncResult s = own.publish(comm);
      EXPECT_TRUE(s.status.ok()) << s.status.text;
    }
    EXPECT_EQ(own.anchor, std::vector<float>(1000, 2.0F));
    const SmallRound r = own.round(comm, 1);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_EQ(r.result.world, 2U);
  });
}

// It ends a round that nobody came for, but not under who waits for it in one call.
TEST(SyncedStateTest, a_thread_that_synchronises_takes_no_round_from_one_that_waits_for_it) {
  Cluster cluster(1);
  Holder own;
  ASSERT_TRUE(own.sync(cluster[0]).status.ok());
  std::atomic<bool> stop{false};
  std::thread other([&] {
    Holder same = own;
    while (!stop) (void)same.sync(cluster[0]);
  });
  for (int i = 0; i < 200; ++i) {
    RoundOptions o = sum_of("model");
    std::vector<Leaf> state = own.leaves();
    o.state_leaves = state;  // compared while the round moves
    const SmallRound r = small_round(cluster[0], o, 1);
    EXPECT_NE(r.result.status.code, Code::kUnknownTag) << i << ": " << r.result.status.text;
    if (r.result.status.ok()) (void)own.publish(cluster[0]);
  }
  stop = true;
  other.join();
  EXPECT_TRUE(cluster[0].attributes().notices.empty()) << cluster[0].attributes().notices.front();
}

// Rounds 1 to 3, and then back to the state after the first; only once.
TEST(SyncedStateTest, a_member_that_is_current_restores_too) {
  Cluster cluster(2);
  std::latch trained(2);  // else it goes back before the other one published
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own, old;
    ASSERT_TRUE(own.sync(comm).status.ok());
    for (int i = 0; i < 3; ++i) {
      const RoundResult r = own.round(comm, 1).result;
      ASSERT_TRUE(r.status.ok()) << i << ": " << r.status.text;
      ASSERT_TRUE(own.publish(comm).status.ok());
      if (i == 0) old = own;
    }
    trained.arrive_and_wait();
    SyncOptions wish = own.options();
    wish.restore = base::Wish::kKnown;
    if (p == 0) {
      const SyncResult s = comm.sync_state(old.leaves(), wish);
      EXPECT_TRUE(s.status.ok() && !s.replaced) << s.status.text;
      EXPECT_EQ(s.revision, 4U);
      own = old;
    } else {  // hears of it by its next call
      SmallRound r = own.round(comm, 1);
      EXPECT_EQ(r.result.status.code, Code::kResync) << r.result.status.text;
      const SyncResult s = own.sync(comm);
      EXPECT_TRUE(s.replaced && s.went_back) << s.status.text;
    }
    EXPECT_EQ(own.anchor, std::vector<float>(1000, 2.0F));
    ASSERT_TRUE(own.round(comm, 1).result.status.ok());
    ASSERT_TRUE(own.publish(comm).status.ok());
    if (p == 0) {  // the same wish again: it goes on with the run, which it has
      const SyncResult s = comm.sync_state(old.leaves(), wish);
      EXPECT_TRUE(s.status.ok() && s.replaced) << s.status.text;
      EXPECT_EQ(old.anchor, own.anchor);
    }
    const SmallRound r = own.round(comm, 1);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
  });
}

}  // namespace
}  // namespace jccl::capi::test
