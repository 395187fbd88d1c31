#include "snapshot/proof_plan.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace jccl::snapshot {
namespace {

using base::Code;
using base::Incarnation;
using base::kSecond;
using base::Time;

constexpr ProofOptions kProofOptions{
    .asks_per_holder = 4, .slow_after = kSecond, .lost_after = 10 * kSecond};

ProofPlan::Holders some_holders(std::size_t count) {
  ProofPlan::Holders out;
  for (std::uint8_t i = 1; i <= count; ++i) out[i] = base::PublicKey{i};
  return out;
}

std::string asks_text(const std::vector<ProofAsk>& asks) {
  std::string out;
  for (const ProofAsk& ask : asks) {
    out += std::to_string(ask.holder) + ":" + std::to_string(ask.part) + " ";
  }
  return out;
}

// Holders in `liars` contradict. What was asked meanwhile is answered, too.
void answer(ProofPlan& plan, std::vector<ProofAsk> asks, const std::set<Incarnation>& liars,
            Time now = 0) {
  while (!asks.empty()) {
    for (const ProofAsk& ask : asks) {
      plan.on_answer(ask.holder, ask.ask, !liars.contains(ask.holder), now);
    }
    asks = plan.next_asks(now);
  }
}

TEST(ProofPlanTest, a_lone_holder_is_believed) {
  ProofPlan plan(kProofOptions, some_holders(1), 3, 5);
  plan.on_part(3, 1);
  plan.on_part(4, 1);
  EXPECT_TRUE(plan.next_asks(0).empty());
  EXPECT_TRUE(plan.finished());
}

TEST(ProofPlanTest, of_three_one_more_than_its_sender_is_asked_for_each_part) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 6);
  for (std::uint32_t part = 0; part < 6; ++part) plan.on_part(part, 1 + part / 2);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  EXPECT_EQ(asks_text(asks), "2:0 2:1 3:2 1:3 2:4 1:5 ");
  EXPECT_TRUE(plan.next_asks(0).empty());
  EXPECT_EQ(plan.waiting(), 6U);
  answer(plan, asks, {});
  EXPECT_TRUE(plan.finished());
  EXPECT_TRUE(plan.take_unproved().empty());
  EXPECT_TRUE(plan.take_outvoted().empty());
}

TEST(ProofPlanTest, a_forged_part_is_fetched_again_and_its_sender_named_and_asked_no_more) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 2);
  plan.on_part(0, 1);
  answer(plan, plan.next_asks(0), {2, 3});
  EXPECT_FALSE(plan.finished());
  EXPECT_TRUE(plan.status().ok());
  EXPECT_EQ(plan.take_unproved(), (std::vector<Unproved>{{0, 1}}));
  EXPECT_EQ(plan.take_outvoted(), (std::vector<Outvoted>{{1, 0}}));
  plan.on_part(0, 3);
  plan.on_part(1, 2);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  EXPECT_EQ(asks_text(asks), "2:0 3:1 ") << "and not the forger";
  answer(plan, asks, {});
  EXPECT_TRUE(plan.finished());
  EXPECT_TRUE(plan.take_outvoted().empty()) << "each once";
}

TEST(ProofPlanTest, who_contradicts_most_is_named_and_frames_nobody) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 1);
  plan.on_part(0, 1);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  ASSERT_EQ(asks_text(asks), "2:0 ");
  answer(plan, asks, {2});
  EXPECT_TRUE(plan.finished());
  EXPECT_TRUE(plan.take_unproved().empty());
  EXPECT_EQ(plan.take_outvoted(), (std::vector<Outvoted>{{2, 0}}));
}

TEST(ProofPlanTest, of_two_that_contradict_each_other_nothing_is_taken_and_nobody_named) {
  ProofPlan plan(kProofOptions, some_holders(2), 0, 1);
  plan.on_part(0, 1);
  answer(plan, plan.next_asks(0), {2});
  EXPECT_TRUE(plan.status().ok());
  ASSERT_EQ(plan.take_unproved(), (std::vector<Unproved>{{0, 1}}));
  plan.on_part(0, 2);  // from the other one
  answer(plan, plan.next_asks(0), {1});
  EXPECT_EQ(plan.status().code, Code::kDisputed);
  EXPECT_EQ(plan.status().text,
            "part 0: 1 of 2 holders stand by it and 1 contradict; nobody can say who is right");
  EXPECT_FALSE(plan.finished());
  EXPECT_TRUE(plan.take_outvoted().empty());
}

TEST(ProofPlanTest, of_two_a_part_that_changed_on_its_way_is_fetched_from_the_other) {
  ProofPlan plan(kProofOptions, some_holders(2), 0, 1);
  plan.on_part(0, 1);
  answer(plan, plan.next_asks(0), {2});
  ASSERT_EQ(plan.take_unproved().size(), 1U);
  plan.on_part(0, 2);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  EXPECT_EQ(asks_text(asks), "1:0 ") << "who sent it before has a say about these bytes";
  answer(plan, asks, {});
  EXPECT_TRUE(plan.finished());
  EXPECT_TRUE(plan.take_outvoted().empty());
}

TEST(ProofPlanTest, two_against_two_is_no_majority) {
  ProofPlan plan(kProofOptions, some_holders(4), 0, 1);
  plan.on_part(0, 1);
  answer(plan, plan.next_asks(0), {3, 4});
  EXPECT_EQ(plan.take_unproved(), (std::vector<Unproved>{{0, 1}}));
  plan.on_part(0, 3);
  answer(plan, plan.next_asks(0), {1, 2});
  EXPECT_EQ(plan.status().code, Code::kDisputed);
}

TEST(ProofPlanTest, lives_with_one_key_have_one_vote) {
  ProofPlan::Holders all = some_holders(3);
  all[4] = all[5] = all[1];
  ProofPlan plan(kProofOptions, all, 0, 1);
  plan.on_part(0, 4);
  answer(plan, plan.next_asks(0), {2, 3});
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.take_unproved(), (std::vector<Unproved>{{0, 4}}));
}

// An answer to an ask of the bytes before says nothing about those that are here now.
TEST(ProofPlanTest, an_answer_about_bytes_that_were_fetched_again_does_not_count) {
  ProofPlan plan(kProofOptions, some_holders(5), 0, 1);
  plan.on_part(0, 1);
  std::vector<ProofAsk> asks = plan.next_asks(0);
  ASSERT_EQ(asks_text(asks), "2:0 3:0 ");
  plan.on_answer(2, asks[0].ask, false, 0);
  const std::vector<ProofAsk> more = plan.next_asks(0);
  ASSERT_EQ(asks_text(more), "4:0 5:0 ");
  plan.on_answer(4, more[0].ask, false, 0);
  plan.on_answer(5, more[1].ask, false, 0);
  ASSERT_EQ(plan.take_unproved().size(), 1U);
  plan.on_part(0, 2);
  const std::vector<ProofAsk> anew = plan.next_asks(0);
  EXPECT_EQ(asks_text(anew), "3:0 4:0 ");
  EXPECT_EQ(plan.asked(3, asks[1].ask), std::nullopt);
  plan.on_answer(3, asks[1].ask, false, 1);  // late
  answer(plan, anew, {});
  EXPECT_TRUE(plan.finished());
}

TEST(ProofPlanTest, a_holder_that_dies_while_it_is_asked_gives_way_to_another) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 1);
  plan.on_part(0, 1);
  ASSERT_EQ(asks_text(plan.next_asks(0)), "2:0 ");
  plan.on_holder_lost(2, "left");
  const std::vector<ProofAsk> asks = plan.next_asks(1);
  EXPECT_EQ(asks_text(asks), "3:0 ");
  answer(plan, asks, {}, 1);
  EXPECT_TRUE(plan.finished());
}

TEST(ProofPlanTest, holders_that_are_gone_do_not_make_a_majority_of_who_is_left) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 1);
  plan.on_part(0, 1);
  plan.on_holder_lost(2, "holds that revision no more");
  ASSERT_EQ(asks_text(plan.next_asks(0)), "3:0 ");
  EXPECT_TRUE(plan.status().ok());
  plan.on_holder_lost(3, "left");
  plan.next_asks(1);
  EXPECT_EQ(plan.status().code, Code::kPeerLost);
  EXPECT_EQ(plan.status().text,
            "part 0: 1 of 3 holders stand by it and 0 contradict; the others don't answer: 1 parts "
            "to be proved, 0000000000000002 holds that revision no more, 0000000000000003 left");
  EXPECT_FALSE(plan.finished());
}

TEST(ProofPlanTest, who_was_evicted_has_no_vote) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 2);
  plan.on_part(0, 1);
  plan.on_part(1, 2);
  ASSERT_EQ(asks_text(plan.next_asks(0)), "2:0 3:1 ");
  plan.on_holder_evicted(2);
  plan.on_holder_evicted(2);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  EXPECT_EQ(asks_text(asks), "3:0 1:1 ") << "what it sent, both others have to stand by";
  plan.on_holder_evicted(3);
  plan.next_asks(0);
  answer(plan, plan.next_asks(0), {});
  EXPECT_EQ(plan.waiting(), 1U) << "the last one sent part 0";
  plan.on_answer(1, asks[1].ask, true, 0);
  EXPECT_TRUE(plan.finished());
}

TEST(ProofPlanTest, a_silent_holder_is_not_waited_for_if_others_can_say_it) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 1);
  plan.on_part(0, 1);
  ASSERT_EQ(asks_text(plan.next_asks(0)), "2:0 ");
  EXPECT_EQ(plan.wake(), kSecond);
  EXPECT_TRUE(plan.next_asks(kSecond - 1).empty());
  const std::vector<ProofAsk> asks = plan.next_asks(kSecond);
  EXPECT_EQ(asks_text(asks), "3:0 ");
  answer(plan, asks, {}, kSecond);
  EXPECT_TRUE(plan.finished());
}

TEST(ProofPlanTest, where_all_are_needed_a_silent_one_ends_it_in_a_bounded_time) {
  ProofPlan plan(kProofOptions, some_holders(2), 0, 1);
  plan.on_part(0, 1);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  ASSERT_EQ(asks_text(asks), "2:0 ");
  plan.next_asks(kSecond);
  EXPECT_TRUE(plan.status().ok()) << "slow";
  EXPECT_EQ(plan.wake(), 10 * kSecond);
  plan.next_asks(10 * kSecond);
  EXPECT_EQ(plan.status().code, Code::kPeerLost);
  EXPECT_FALSE(plan.finished());
}

TEST(ProofPlanTest, a_slow_answer_counts) {
  ProofPlan plan(kProofOptions, some_holders(2), 0, 1);
  plan.on_part(0, 1);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  plan.next_asks(5 * kSecond);
  plan.on_answer(2, asks[0].ask, true, 6 * kSecond);
  EXPECT_TRUE(plan.finished());
}

TEST(ProofPlanTest, a_holder_has_a_bounded_number_of_asks_and_the_rest_wait) {
  ProofPlan plan(kProofOptions, some_holders(2), 0, 9);
  for (std::uint32_t part = 0; part < 9; ++part) plan.on_part(part, 1);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  EXPECT_EQ(asks_text(asks), "2:0 2:1 2:2 2:3 ");
  plan.on_answer(2, asks[1].ask, true, 0);
  EXPECT_EQ(asks_text(plan.next_asks(0)), "2:4 ");
}

TEST(ProofPlanTest, a_link_that_was_replaced_is_asked_anew) {
  ProofPlan plan(kProofOptions, some_holders(2), 0, 1);
  plan.on_part(0, 1);
  const std::vector<ProofAsk> before = plan.next_asks(0);
  plan.on_holder_lost(2, "a stripe broke");
  plan.on_holder_back(2);
  const std::vector<ProofAsk> asks = plan.next_asks(1);
  EXPECT_EQ(asks_text(asks), "2:0 ");
  EXPECT_NE(asks[0].ask, before[0].ask);
}

TEST(ProofPlanTest, what_nobody_asked_for_counts_for_nothing) {
  ProofPlan plan(kProofOptions, some_holders(3), 0, 2);
  plan.on_part(0, 1);
  const std::vector<ProofAsk> asks = plan.next_asks(0);
  ASSERT_EQ(asks_text(asks), "2:0 ");
  plan.on_answer(3, asks[0].ask, true, 0);  // asked of another
  plan.on_answer(2, asks[0].ask + 1, true, 0);
  plan.on_answer(99, asks[0].ask, true, 0);  // a stranger
  EXPECT_EQ(plan.waiting(), 1U);
  plan.on_part(1, 99);  // nobody of them stands by it
  EXPECT_EQ(asks_text(plan.next_asks(0)), "2:1 3:1 ");
}

// A minority that lies in every way, among honest ones that die and come back: what is proved is
// what the honest hold, nobody honest is named, and the plan ends in a bounded time.
TEST(ProofPlanTest, a_lying_minority_proves_nothing_false_and_frames_nobody) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    base::Rng rng(seed);
    const std::size_t count = 1 + rng.below(6), liars = rng.below((count + 1) / 2);
    const std::uint32_t parts = 1 + static_cast<std::uint32_t>(rng.below(20));
    const auto lies = [&](Incarnation holder) { return holder <= liars; };
    ProofPlan plan(kProofOptions, some_holders(count), 0, parts);
    std::vector<bool> right(parts), fetched(parts);
    std::set<Incarnation> distrusted;
    std::vector<ProofAsk> owed;
    Time now = 0;
    for (int turn = 0; !plan.finished() && plan.status().ok(); ++turn) {
      ASSERT_LT(turn, 20'000) << "seed " << seed;
      now += static_cast<Time>(rng.below(kSecond / 4));
      for (std::uint32_t part = 0; part < parts; ++part) {
        if (fetched[part] || rng.chance(0.5)) continue;
        const Incarnation from = 1 + rng.below(count);
        if (distrusted.contains(from)) continue;
        fetched[part] = true;
        right[part] = !lies(from) || rng.chance(0.5);
        plan.on_part(part, from);
      }
      for (const ProofAsk& ask : plan.next_asks(now)) owed.push_back(ask);
      if (rng.chance(0.02)) {
        const Incarnation one = 1 + rng.below(count);
        plan.on_holder_lost(one, "left");
        if (rng.chance(0.9)) plan.on_holder_back(one);
      }
      for (std::size_t i = owed.size(); i-- > 0;) {
        if (!rng.chance(0.5)) continue;
        const ProofAsk ask = owed[i];
        owed.erase(owed.begin() + static_cast<long>(i));
        if (lies(ask.holder) && rng.chance(0.3)) continue;  // never answers
        const bool says = lies(ask.holder) ? rng.chance(0.5) : right[ask.part];
        plan.on_answer(ask.holder, ask.ask, says, now);
      }
      for (const Outvoted& one : plan.take_outvoted()) {
        EXPECT_TRUE(lies(one.holder)) << "seed " << seed;
        distrusted.insert(one.holder);
      }
      for (const Unproved& one : plan.take_unproved()) {
        fetched[one.part] = false;
        if (lies(one.from)) distrusted.insert(one.from);
      }
    }
    for (std::uint32_t part = 0; plan.finished() && part < parts; ++part) {
      EXPECT_TRUE(right[part]) << "seed " << seed << " part " << part;
    }
  }
}

}  // namespace
}  // namespace jccl::snapshot
