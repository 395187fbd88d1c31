// Fetched states are proved against forgers: the parts that these serve have the right digests.
#include "peer/snapshots/snapshot_harness.h"

namespace jccl::peer {
namespace {

TEST_F(FetchingTest, a_forged_part_of_one_of_three_is_not_taken_and_its_forger_named) {
  fetch({31, 32, 33});
  forge(31);
  ASSERT_EQ(snapshot::digest_of(part_of(31, 1)), snapshot::digest_of(part_of(32, 1)));
  ASSERT_NE(part_of(31, 1), part_of(32, 1));
  run({31, 32, 33});
  expect_right();
  EXPECT_EQ(outvoted_, (std::vector<wire::Outvoted>{{want_, 31, 1}}));
}

TEST_F(FetchingTest, whoever_is_the_forger_of_three_the_right_state_is_taken) {
  for (const Incarnation forger : {31, 32, 33}) {
    ended_.clear(), queued_.clear(), forged_.clear(), outvoted_.clear();
    fetch({31, 32, 33});
    forge(forger);
    run({31, 32, 33});
    expect_right();
    for (const wire::Outvoted& one : outvoted_) EXPECT_EQ(one.holder, forger);
  }
}

TEST_F(FetchingTest, of_two_of_which_one_forges_nothing_is_taken_and_both_are_heard) {
  for (const Incarnation forger : {31, 32}) {
    ended_.clear(), queued_.clear(), forged_.clear();
    fetch({31, 32});
    forge(forger);
    run({31, 32});
    ASSERT_EQ(ended_.size(), 1u);
    EXPECT_EQ(ended_[0].code, Code::kDisputed) << ended_[0].text;
    EXPECT_EQ(fetchers_.newest("s"), nullptr);
    EXPECT_TRUE(outvoted_.empty());
  }
}

TEST_F(FetchingTest, a_bit_that_changes_on_the_way_from_one_of_two_is_fetched_from_the_other) {
  fetch({31, 32});
  for (bool first = true; ended_.empty(); first = false) {
    // From one of them the first part of the data comes with a bit changed.
    const bool moved = answer(31, first, 1);
    if (!answer(32, false) && !moved) break;
  }
  expect_right();
}

// Who sent a part has no proof to give: each of the others has, and half of them are asked.
TEST_F(FetchingTest, each_part_is_proved_by_one_more_of_three) {
  fetch({31, 32, 33});
  run({31, 32, 33});
  expect_right();
  EXPECT_EQ(proofs_[31] + proofs_[32] + proofs_[33], 5) << "the manifest's part and four";
}

TEST_F(FetchingTest, a_key_is_drawn_for_each_part_when_its_bytes_are_here) {
  fetch({31, 32});
  EXPECT_EQ(keys_, 0);
  ASSERT_TRUE(answer(31, false));  // the manifest
  EXPECT_EQ(keys_, 1);
  ASSERT_TRUE(answer(32, false));  // its proof
  EXPECT_EQ(keys_, 1);
  run({31, 32});
  EXPECT_EQ(keys_, 5);
  EXPECT_EQ(keys_of_.size(), 5U) << "none is used for two parts";
  expect_right();
}

TEST_F(FetchingTest, holders_that_moved_on_prove_nothing_and_the_next_try_needs_no_part_again) {
  fetch({31, 32});
  ASSERT_TRUE(answer(31, false));
  ASSERT_TRUE(answer(32, false));
  for (int i = 0; i < 9 && ended_.empty(); ++i) {
    const auto header = make(fetcher_, 32);
    if (header && header->kind == FrameKind::kProofAsk) {
      reply(32, FrameKind::kSnapshotGone, header->attempt, 0, {});
    }
    (void)answer(31, false);
  }
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].code, Code::kPeerLost) << ended_[0].text;
  EXPECT_EQ(fetchers_.newest("s"), nullptr) << "one of two stands by it";
  ended_.clear(), queued_.clear();
  order({33, 34, 35});  // others hold it by now
  std::size_t asked = 0;
  for (bool moved = true; moved && ended_.empty();) {
    moved = false;
    for (const Incarnation holder : {33, 34, 35}) moved = answer(holder, false) || moved, ++asked;
  }
  expect_right();
  EXPECT_EQ(proofs_[33] + proofs_[34] + proofs_[35], 2 * 4);
}

TEST_F(FetchingTest, who_answers_no_proof_is_waited_for_in_a_bounded_time) {
  fetch({31, 32});
  for (int i = 0; i < 9; ++i) {
    const auto header = make(fetcher_, 32);
    if (header && header->kind == FrameKind::kSnapshotAsk) queued_[32].clear();
    (void)answer(31, false);
  }
  EXPECT_TRUE(ended_.empty());
  fetcher_.tick(29 * base::kSecond);
  EXPECT_TRUE(ended_.empty());
  fetcher_.tick(61 * base::kSecond);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].code, Code::kPeerLost) << ended_[0].text;
}

// ---- … and who gives them ----------------------------------------------------------------------

class ProofServingTest : public SnapshotTrafficTest {
 protected:
  void ask_proof(Incarnation from, std::uint64_t number, std::uint32_t part) {
    wire::FrameHeader header;
    header.kind = FrameKind::kProofAsk;
    header.attempt = {1, number};
    EXPECT_TRUE(
        hand_in(traffic_, from, header, wire::encode(wire::ProofAsk{"s", 1, number, part, kKey}))
            .ok());
  }
  static constexpr net::MacKey kKey{4, 2};
  SnapshotTraffic traffic_{&store_, &pool_, this};
};

TEST_F(ProofServingTest, a_proof_is_the_mac_of_the_part_under_the_key_that_was_sent) {
  const SnapshotRef held = publish(1);
  ask_proof(kAsker, 8, 2);
  const auto header = make(traffic_, kAsker);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, FrameKind::kProof);
  EXPECT_EQ(header->attempt, (wire::Attempt{1, 8}));
  const base::ByteView second{held->data->data() + held->layout.part_bytes(),
                              held->layout.part_bytes()};
  EXPECT_TRUE(std::ranges::equal(payload(), net::mac_of(kKey, second)));
  EXPECT_FALSE(std::ranges::equal(payload(), net::mac_of({}, second)));
  ask_proof(kAsker, 9, 99);
  EXPECT_EQ(make(traffic_, kAsker)->kind, FrameKind::kSnapshotGone);
}

TEST_F(ProofServingTest, macs_are_formed_at_a_bounded_rate_and_for_all_who_ask_in_turn) {
  publish(1);
  traffic_.tick(base::kSecond);
  const auto formed = [&](Incarnation asker) {
    std::size_t count = 0;
    for (; make(traffic_, asker); ++count) frames_.clear();
    return count;
  };
  std::size_t greedy = 0;
  for (std::uint64_t number = 0; number < 5'000; ++number) {
    ask_proof(kAsker, number, 1);
    greedy += formed(kAsker);
  }
  EXPECT_EQ(greedy, 512u) << "at once";
  EXPECT_EQ(traffic_.open_items(), 608u) << "the rest is passed over";
  for (std::uint64_t number = 0; number < 16; ++number) ask_proof(77, number, 1);
  EXPECT_EQ(formed(77), 0u);
  traffic_.tick(base::kSecond + base::kSecond / 32);  // 32 more
  EXPECT_EQ(formed(77), 16u);
  EXPECT_EQ(formed(kAsker), 16u);
  traffic_.forget(kAsker);
  EXPECT_EQ(traffic_.open_items(), 0u);
}

}  // namespace
}  // namespace jccl::peer
