// A peer's own state against what it published or adopted: mistakes of an honest user's, in real
// clusters. What no peer could have meant is in no result.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "capi/state_holder.h"

namespace jccl::capi::test {
namespace {

TEST(OwnStateTest, an_edited_anchor_is_in_no_result_and_publishing_heals_it) {
  Cluster cluster(2);
  std::atomic<bool> healed{false};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own;
    ASSERT_TRUE(own.sync(comm).status.ok());
    if (p == 0) {
      own.anchor[7] = std::nextafter(own.anchor[7], 2.0F);
      const SmallRound refused = own.round(comm, 100);
      EXPECT_EQ(refused.result.status.code, Code::kResync);
      EXPECT_EQ(refused.result.sent_bytes, 0U);
      EXPECT_EQ(refused.value, 100);
      const std::string& text = refused.result.status.text;
      EXPECT_TRUE(contains(text, "differs from revision 0")) << text;
      EXPECT_TRUE(contains(text, "leaf anchor/w f32[1000];")) << text;
      EXPECT_TRUE(contains(text, "jccl.sync_state")) << text;
      EXPECT_EQ(own.round(comm, 100).result.status.code, Code::kResync) << "until it is healed";
      const SyncResult fixed = comm.publish(own.leaves(), own.options());
      EXPECT_EQ(fixed.status.code, Code::kResynced) << fixed.status.text;
      EXPECT_TRUE(fixed.replaced && fixed.edited);
      EXPECT_EQ(own.anchor, std::vector<float>(1000, 1.0F));
      healed = true;
    }
    const SmallRound r = own.round(comm, 1);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_TRUE(healed) << "committed without the other peer";
    EXPECT_EQ(r.result.world, 2U);
    EXPECT_EQ(r.value, 2);
    EXPECT_TRUE(own.publish(comm).status.ok());
  });
  EXPECT_EQ(cluster[0].digest("model"), cluster[1].digest("model"));
}

// The state is read while the call's data move, and found to differ.
TEST(OwnStateTest, an_edited_state_that_is_compared_beside_its_call_is_in_no_result) {
  Cluster cluster(3);
  std::atomic<bool> healed{false};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own;
    own.anchor.assign(3'000'000, 1.0F);  // some chunks, and time to begin with them
    ASSERT_TRUE(own.sync(comm).status.ok());
    std::vector<float> x(own.anchor.size(), p == 0 ? 100.0F : 1.0F), y(x.size());
    const auto round = [&] {
      RoundOptions o = sum_of("model");
      o.state_leaves = own.leaves();
      return comm.run({leaf_of(x, y)}, o);
    };
    if (p == 0) {
      own.anchor.back() = 2;
      const RoundResult refused = round();
      EXPECT_EQ(refused.status.code, Code::kResync);
      EXPECT_TRUE(contains(refused.status.text, "leaf anchor/w f32[3000000];"))
          << refused.status.text;
      EXPECT_TRUE(contains(comm.new_mistake("model"), "leaf anchor/w"));
      EXPECT_EQ(y[0], 0) << "outputs of a failed call stay as they were";
      EXPECT_EQ(round().status.code, Code::kResync) << "until it is healed";
      EXPECT_TRUE(own.sync(comm).replaced);
      healed = true;
      std::fill(x.begin(), x.end(), 1.0F);
    }
    const RoundResult r = round();
    EXPECT_TRUE(r.status.ok()) << r.status.text;
    EXPECT_TRUE(healed) << "committed without the other peer";
    EXPECT_EQ(r.world, 3U);
    EXPECT_EQ(y, std::vector<float>(y.size(), 3.0F));
  });
}

// Marks are sums of bits: those of zeros are the same in every dtype. The others call nothing, so
// it is the comparison that ends the call.
TEST(OwnStateTest, a_leaf_of_another_type_with_the_same_bits_differs) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t p, Communicator& comm) {
    Holder own;
    own.anchor.assign(4, 0.0F);
    ASSERT_TRUE(own.sync(comm).status.ok());
    if (p == 1) return;
    std::vector<float> x(3, 1.0F), y(3);
    RoundOptions o = sum_of("model");
    o.deadline = 10 * base::kSecond;
    o.state_leaves = own.leaves();
    o.state_leaves->back().dtype = codec::Dtype::kI32;
    const RoundResult refused = comm.run({leaf_of(x, y)}, o);
    EXPECT_EQ(refused.status.code, Code::kResync);
    EXPECT_TRUE(contains(refused.status.text, "has another type or size")) << refused.status.text;
  });
}

// As norms before a round of DiLoCo: the others may be in that round already, and wait there.
TEST(OwnStateTest, a_call_before_a_states_rounds_ends_where_others_are_in_one) {
  Cluster cluster(2);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own;
    ASSERT_TRUE(own.sync(comm).status.ok());
    const auto before = [&](const char* tag) {
      RoundOptions o = sum_of(tag);
      o.state_tag = "model";
      o.state = peer::marks_of(own.leaves());
      o.deadline = 600 * base::kSecond;
      return small_round(comm, o, 1);
    };
    EXPECT_EQ(before("norm").value, 2);
    if (p == 1) {
      ++own.anchor[3];
      const RoundResult refused = before("norm").result;
      EXPECT_EQ(refused.status.code, Code::kResync);
      EXPECT_TRUE(contains(refused.status.text, "'model' differs")) << refused.status.text;
      ASSERT_TRUE(own.sync(comm).status.ok());
      const RoundResult sent_on = before("norm").result;
      EXPECT_EQ(sent_on.status.code, Code::kResync);
      EXPECT_TRUE(contains(sent_on.status.text, "others are in the next round of model"))
          << sent_on.status.text;
    }
    EXPECT_EQ(own.round(comm, 1).value, 2);
    EXPECT_TRUE(own.publish(comm).status.ok());
    EXPECT_EQ(before("other").value, 2) << "its first of a later state";
    EXPECT_EQ(before("norm").value, 2);
  });
}

// The round of an older checkpoint's successor: nobody has its handle any more.
TEST(OwnStateTest, a_round_whose_handle_was_lost_with_its_state_ends_and_keeps_no_tag_busy) {
  for (const bool synchronised : {false, true}) {
    Cluster cluster(2);
    cluster.on_all([&](std::size_t p, Communicator& comm) {
      Holder own;
      ASSERT_TRUE(own.sync(comm).status.ok());
      std::vector<float> x(64, 1.0F);
      RoundOptions o = sum_of("model");
      o.state = peer::marks_of(own.leaves());
      const auto started = comm.start({leaf_of(x, x)}, o, true);
      ASSERT_TRUE(started.ok()) << started.status().text;
      if (p == 0) {
        const std::vector<void*> outs = {x.data()};
        const RoundResult r = comm.wait(started.value(), &outs);
        EXPECT_TRUE(r.status.ok()) << r.status.text;
        EXPECT_EQ(x[0], 2) << "the lost round's input counts";
        EXPECT_TRUE(own.publish(comm).status.ok());
      } else if (synchronised) {
        EXPECT_TRUE(comm.is_open(started.value()));
        EXPECT_TRUE(own.sync(comm).status.ok());
      } else {  // the state is as it was before that round
        const auto again = comm.start({leaf_of(x, x)}, o, true);
        ASSERT_TRUE(again.ok()) << again.status().text;
        EXPECT_EQ(comm.wait(again.value()).status.code, Code::kResync);
        EXPECT_EQ(comm.publish(own.leaves(), own.options()).status.code, Code::kResynced);
      }
      EXPECT_EQ(own.anchor[0], 2);
      if (p == 1) {
        EXPECT_FALSE(comm.is_open(started.value()));
      }
      EXPECT_EQ(own.round(comm, 1).value, 2);
    });
  }
}

// A hundred times as much to read as there is time for; whatever the machine, it is not all read.
TEST(OwnStateTest, a_comparison_ends_with_the_deadline_of_its_call) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t p, Communicator& comm) {
    Holder own;
    ASSERT_TRUE(own.sync(comm).status.ok());
    if (p == 1) return;
    std::vector<float> large(16'000'000), x(3, 1.0F), y(3);
    for (const bool beside : {true, false}) {
      RoundOptions o = sum_of("model");
      o.deadline = base::kSecond / 5;
      o.state_leaves.emplace(4000, leaf_of(large, large));
      Leaf leaf = leaf_of(x, y);
      if (!beside) leaf.out = large.data();  // in the state's memory: compared before
      const auto begun = std::chrono::steady_clock::now();
      const RoundResult ended = comm.run({leaf}, o);
      EXPECT_EQ(ended.status.code, Code::kDeadline) << ended.status.text;
      EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5)) << beside;
    }
  });
}

// Results are received into private outputs while the round runs.
TEST(OwnStateTest, a_private_output_in_the_states_own_memory_is_no_edit) {
  ClusterOptions options;
  options.peer.chunk_bytes = 4096;
  Cluster cluster(2, options);
  cluster.on_all([](std::size_t, Communicator& comm) {
    Holder own;
    own.anchor.assign(16 << 20, 1.0F);  // its end is read when results have long come
    ASSERT_TRUE(own.sync(comm).status.ok());
    std::vector<float> x(1 << 16, 2.0F);
    Leaf leaf = leaf_of(x, x);
    leaf.out = own.anchor.data() + own.anchor.size() - x.size();
    RoundOptions o = sum_of("model");
    o.state_leaves = own.leaves();
    o.out_private = true;
    const RoundResult r = comm.run({leaf}, o);
    EXPECT_TRUE(r.status.ok()) << r.status.text;
    EXPECT_EQ(own.anchor.back(), 4);
  });
}

// By marks, or beside the call: no shard waits for one that is not in the round.
TEST(OwnStateTest, one_edited_shard_ends_the_calls_of_its_site) {
  for (const bool beside : {false, true}) {
    ClusterOptions options;
    options.start_together = false;
    options.master.start_peers = 2;
    Cluster cluster(0, options);
    for (std::uint32_t i = 0; i < 4; ++i) {
      ConnectOptions peer = cluster.peer_options();
      peer.site = i < 2 ? "eu" : "us";
      peer.shard = i % 2, peer.shards = 2;
      cluster.add(peer);
    }
    cluster.on_all([&](std::size_t p, Communicator& comm) {
      Holder own;
      ASSERT_TRUE(own.sync(comm).status.ok());
      if (p == 1) own.anchor[3] = 7;
      const auto round = [&] {
        RoundOptions o = sum_of("model");
        o.deadline = 60 * kSecond;
        if (beside) o.state_leaves = own.leaves();
        if (!beside) o.state = peer::marks_of(own.leaves());
        return small_round(comm, o, 1);
      };
      if (p < 2) {
        const SmallRound refused = round();
        EXPECT_EQ(refused.result.status.code, Code::kResync) << refused.result.status.text;
        EXPECT_TRUE(contains(refused.result.status.text, "leaf anchor/w"))
            << refused.result.status.text;
        EXPECT_EQ(own.sync(comm).replaced, p == 1);
      }
      const SmallRound r = round();
      EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.result.world, 2U);
      EXPECT_EQ(r.value, 2);
    });
  }
}

TEST(OwnStateTest, a_sign_of_zero_and_another_nan_are_edits) {
  Cluster cluster(1);
  Communicator& comm = cluster[0];
  Holder own;
  own.anchor = {0.0F, std::numeric_limits<float>::quiet_NaN(), 1.0F};
  ASSERT_TRUE(own.sync(comm).status.ok());
  own.anchor[0] = -0.0F;
  EXPECT_EQ(own.round(comm, 1).result.status.code, Code::kResync);
  own.anchor[0] = 0.0F;
  const std::uint32_t other_nan = 0x7FC00001;
  std::memcpy(&own.anchor[1], &other_nan, sizeof(other_nan));
  EXPECT_EQ(own.round(comm, 1).result.status.code, Code::kResync);
}

TEST(OwnStateTest, an_older_state_that_is_synchronised_again_becomes_the_newest_also_alone) {
  Cluster cluster(1);
  Communicator& comm = cluster[0];
  Holder own;
  ASSERT_TRUE(own.sync(comm).status.ok());
  const Holder old = own;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(own.round(comm, 1).result.status.ok());
    EXPECT_TRUE(own.publish(comm).status.ok());
  }
  Holder restored = old;
  const SmallRound refused = restored.round(comm, 1);
  EXPECT_EQ(refused.result.status.code, Code::kResync);
  EXPECT_TRUE(contains(refused.result.status.text, "leaf count i32[1] and 1 more"))
      << refused.result.status.text;
  const SyncResult s = restored.sync(comm);
  EXPECT_TRUE(s.status.ok()) << s.status.text;
  EXPECT_TRUE(s.replaced);
  EXPECT_EQ(s.revision, 3U);
  EXPECT_EQ(restored.anchor, own.anchor);
  EXPECT_FALSE(restored.sync(comm).replaced);
  EXPECT_TRUE(restored.round(comm, 1).result.status.ok());
}

TEST(OwnStateTest, who_comes_back_with_the_newest_state_serves_it_to_joiners) {
  Cluster cluster(1);
  Holder own;
  ASSERT_TRUE(own.sync(cluster[0]).status.ok());
  ASSERT_TRUE(own.round(cluster[0], 1).result.status.ok());
  ASSERT_TRUE(own.publish(cluster[0]).status.ok());
  cluster[0].close();
  Communicator* again = cluster.add();
  Holder restored = own;
  const SyncResult back = restored.sync(*again);
  ASSERT_TRUE(back.status.ok()) << back.status.text;
  EXPECT_FALSE(back.replaced);
  EXPECT_EQ(back.revision, 1U);
  EXPECT_EQ(again->revision("model"), 1U);
  Communicator* joiner = cluster.add();
  Holder fresh;
  const SyncResult got = fresh.sync(*joiner);
  ASSERT_TRUE(got.status.ok()) << got.status.text;
  EXPECT_EQ(fresh.anchor, own.anchor);
}

TEST(OwnStateTest, an_edit_between_start_and_wait_is_not_published_and_the_round_counts) {
  Cluster cluster(2);
  std::vector<std::vector<float>> ends(2);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    Holder own;
    ASSERT_TRUE(own.sync(comm).status.ok());
    std::vector<float> x(64, 1.0F);
    RoundOptions o = sum_of("model");
    o.state = peer::marks_of(own.leaves());
    const auto started = comm.start({leaf_of(x, x)}, o);
    ASSERT_TRUE(started.ok()) << started.status().text;
    if (p == 0) own.anchor[3] = -5;
    const RoundResult r = comm.wait(started.value());
    EXPECT_TRUE(r.status.ok()) << r.status.text;
    EXPECT_EQ(r.world, 2U);
    EXPECT_EQ(x[0], 2);
    const SyncResult s = own.publish(comm);
    EXPECT_EQ(s.status.code, p == 0 ? Code::kResynced : Code::kOk) << s.status.text;
    EXPECT_EQ(s.edited, p == 0);
    EXPECT_EQ(contains(comm.new_mistake("model"), "leaf anchor/w f32[1000]"), p == 0);
    EXPECT_EQ(own.count[0], 1);
    ends[p] = own.anchor;
    EXPECT_TRUE(own.round(comm, 1).result.status.ok());
  });
  EXPECT_EQ(ends[0], std::vector<float>(1000, 2.0F));
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(OwnStateTest, nobody_who_forgot_to_synchronise_sends_anything) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t p, Communicator& comm) {
    Holder own;
    own.anchor[0] = static_cast<float>(p);
    for (int i = 0; i < 2; ++i) {
      const SmallRound r = own.round(comm, 5);
      EXPECT_EQ(r.result.status.code, Code::kInvalid);
      EXPECT_TRUE(contains(r.result.status.text, "call jccl.sync_state first"))
          << r.result.status.text;
      EXPECT_EQ(r.value, 5);
      EXPECT_EQ(comm.new_mistake("model").empty(), i == 1) << "said once";
    }
    EXPECT_EQ(own.publish(comm).status.code, Code::kInvalid);
    EXPECT_EQ(comm.attributes().rounds_committed, 0U);
  });
}

TEST(OwnStateTest, a_tag_with_shared_state_takes_no_call_without_it) {
  Cluster cluster(1);
  Communicator& comm = cluster[0];
  Holder own;
  ASSERT_TRUE(own.sync(comm).status.ok());
  for (const Collective collective : {Collective::kAllReduce, Collective::kBarrier}) {
    RoundOptions o = sum_of("model");
    o.collective = collective;
    const RoundResult r = comm.run({}, o);
    EXPECT_EQ(r.status.code, Code::kInvalid);
    EXPECT_TRUE(contains(r.status.text, "pass it as state=")) << r.status.text;
  }
  EXPECT_TRUE(small_round(comm, sum_of("another tag"), 1).result.status.ok());
  EXPECT_TRUE(own.round(comm, 1).result.status.ok());
}

TEST(OwnStateTest, a_state_of_fewer_leaves_is_another_one) {
  Cluster cluster(1);
  Holder own;
  ASSERT_TRUE(own.sync(cluster[0]).status.ok());
  RoundOptions o = sum_of("model");
  o.state = peer::marks_of({own.leaves()[0]});
  const SmallRound r = small_round(cluster[0], o, 1);
  EXPECT_EQ(r.result.status.code, Code::kResync);
  EXPECT_TRUE(contains(r.result.status.text, "1 leaves instead of 2")) << r.result.status.text;
}

TEST(OwnStateTest, each_word_of_a_mark_is_compared) {
  Cluster cluster(1);
  Holder own;
  for (std::uint32_t snapshot::Mark::* word : {&snapshot::Mark::first, &snapshot::Mark::second}) {
    ASSERT_TRUE(own.sync(cluster[0]).status.ok());  // what differed once is refused until then
    RoundOptions o = sum_of("model");
    o.state = peer::marks_of(own.leaves());
    o.state->back().*word += 1;
    EXPECT_EQ(small_round(cluster[0], o, 1).result.status.code, Code::kResync);
  }
}

TEST(OwnStateTest, marks_of_large_leaves_are_those_of_their_pieces) {
  std::vector<float> large((std::size_t{40} << 20) / 4 + 3);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i % 977);
  std::vector<double> other(5, 2.0);
  const auto together = peer::marks_of({leaf_of(other, other), leaf_of(large, large)});
  EXPECT_EQ(together[0], peer::marks_of({leaf_of(other, other)})[0]);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(large.data());
  EXPECT_EQ(together[1], snapshot::mark_of({bytes, large.size() * 4}, 4));
}

TEST(OwnStateTest, what_is_published_is_handed_out_where_it_is_wanted) {
  Cluster cluster(1);
  Holder own;
  ASSERT_TRUE(own.sync(cluster[0]).status.ok());
  ASSERT_TRUE(own.round(cluster[0], 1).result.status.ok());
  SyncOptions o = own.options();
  o.before = peer::marks_of(own.leaves());
  for (float& x : own.anchor) x += 1;
  std::vector<std::int32_t> count{-1};
  std::vector<float> anchor(own.anchor.size(), -1);
  const auto leaves = std::vector<Leaf>{leaf_of(own.count, count, "count"),
                                        leaf_of(own.anchor, anchor, "anchor/w")};
  const SyncResult published = cluster[0].publish(leaves, o);
  EXPECT_TRUE(published.status.ok()) << published.status.text;
  EXPECT_EQ(published.revision, 1U);
  EXPECT_EQ(count, own.count);
  EXPECT_EQ(anchor, own.anchor);
}

}  // namespace
}  // namespace jccl::capi::test
