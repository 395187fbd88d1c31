#include "snapshot/fetch_plan.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/rng.h"

namespace jccl::snapshot {
namespace {

using base::kSecond;
using base::Time;

constexpr FetchOptions kOptions{.parts_per_ask = 2, .asks_per_holder = 2, .slow_after = kSecond};

std::string text(const std::vector<FetchAsk>& asks) {
  std::string out;
  for (const FetchAsk& ask : asks) {
    out += std::to_string(ask.holder) + ":" + std::to_string(ask.first_part) + "-" +
           std::to_string(ask.last_part) + " ";
  }
  return out;
}

void deliver(FetchPlan& plan, const FetchAsk& ask, Time now) {
  for (std::uint32_t part = ask.first_part; part < ask.last_part; ++part) {
    EXPECT_EQ(plan.on_part(ask.holder, ask.ask, part, true, now), PartUse::kKeep) << part;
  }
}

TEST(FetchPlanTest, parts_are_spread_over_the_holders_and_each_is_asked_for_once) {
  FetchPlan plan(kOptions, 1, 12);
  plan.add_holder(1, 0);
  plan.add_holder(2, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  EXPECT_EQ(text(asks), "1:1-3 2:3-5 1:5-7 2:7-9 ");
  EXPECT_TRUE(plan.next_asks(0).empty());
  deliver(plan, asks[1], 1);
  EXPECT_EQ(text(plan.next_asks(1)), "2:9-11 ");
  deliver(plan, asks[0], 2);
  EXPECT_EQ(text(plan.next_asks(2)), "1:11-12 ");
  EXPECT_EQ(plan.missing(), 7U);
  EXPECT_FALSE(plan.finished());
}

TEST(FetchPlanTest, a_silent_holder_of_an_outdated_revision_is_not_waited_for) {
  FetchPlan plan(kOptions, 0, 4);
  plan.add_holder(1, 0);
  plan.add_holder(2, 0);
  ASSERT_EQ(text(plan.next_asks(0)), "1:0-2 2:2-4 ");
  plan.on_outdated(2);
  EXPECT_EQ(text(plan.next_asks(1)), "1:2-4 ") << "the other may still have it";
  EXPECT_TRUE(plan.status().ok());
  plan.next_asks(kSecond);
  EXPECT_EQ(plan.status().text,
            "4 of 4 parts missing and no holder left: 0000000000000001 is silent, "
            "0000000000000002 holds that revision no more");
}

TEST(FetchPlanTest, what_the_fetcher_has_is_not_asked_for) {
  FetchPlan plan(kOptions, 0, 6, {0, 2, 5, 77});
  plan.add_holder(1, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  EXPECT_EQ(text(asks), "1:1-2 1:3-5 ");
  EXPECT_FALSE(plan.wants(2));
  EXPECT_TRUE(plan.wants(3));
  EXPECT_FALSE(plan.wants(77));
  for (const FetchAsk& ask : asks) deliver(plan, ask, 1);
  EXPECT_TRUE(plan.finished());
  EXPECT_TRUE(FetchPlan(kOptions, 1, 1).finished());
}

TEST(FetchPlanTest, the_parts_of_a_lost_holder_go_to_another) {
  FetchPlan plan(kOptions, 0, 8);
  plan.add_holder(1, 0);
  plan.add_holder(2, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  ASSERT_EQ(text(asks), "1:0-2 2:2-4 1:4-6 2:6-8 ");
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 0, true, 1), PartUse::kKeep);
  plan.on_holder_lost(1, "link lost");
  EXPECT_TRUE(plan.next_asks(1).empty());  // the other is busy
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 1, true, 2), PartUse::kDrop);
  deliver(plan, asks[1], 2);
  deliver(plan, asks[3], 2);
  EXPECT_EQ(text(plan.next_asks(2)), "2:1-2 2:4-6 ");
  plan.on_holder_lost(2, "left");
  EXPECT_EQ(plan.status().code, base::Code::kPeerLost);
  EXPECT_EQ(plan.status().text,
            "3 of 8 parts missing and no holder left: 0000000000000001 link lost, "
            "0000000000000002 left");
  plan.add_holder(1, 3);  // came back
  EXPECT_TRUE(plan.status().ok());
  EXPECT_EQ(text(plan.next_asks(3)), "1:1-2 1:4-6 ");
}

TEST(FetchPlanTest, a_holder_of_bad_bytes_is_never_asked_again) {
  FetchPlan plan(kOptions, 0, 4);
  plan.add_holder(1, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 1, false, 1), PartUse::kDrop);
  EXPECT_EQ(plan.status().text,
            "4 of 4 parts missing and no holder left: 0000000000000001 sent part 1 with a wrong "
            "digest");
  plan.add_holder(1, 2);
  EXPECT_FALSE(plan.status().ok());
  plan.add_holder(2, 2);
  EXPECT_EQ(text(plan.next_asks(2)), "2:0-2 2:2-4 ");
}

TEST(FetchPlanTest, a_part_can_be_fetched_again_from_others_whatever_its_digest) {
  FetchPlan plan(kOptions, 0, 4);
  plan.add_holder(1, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  for (const FetchAsk& ask : asks) deliver(plan, ask, 1);
  ASSERT_TRUE(plan.finished());
  plan.distrust(1, "forged a part");
  plan.fetch_again(1);
  EXPECT_FALSE(plan.finished());
  EXPECT_TRUE(plan.wants(1));
  EXPECT_EQ(plan.status().text,
            "1 of 4 parts missing and no holder left: 0000000000000001 forged a part");
  plan.add_holder(1, 2);
  plan.add_holder(2, 2);
  EXPECT_EQ(text(plan.next_asks(2)), "2:1-2 ");
}

TEST(FetchPlanTest, what_nobody_asked_for_is_dropped) {
  FetchPlan plan(kOptions, 0, 4);
  plan.add_holder(1, 0);
  plan.add_holder(2, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  ASSERT_EQ(text(asks), "1:0-2 2:2-4 ");
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 2, true, 0), PartUse::kDrop);   // asked of the other
  EXPECT_EQ(plan.on_part(1, asks[1].ask, 2, true, 0), PartUse::kDrop);   // the other's ask
  EXPECT_EQ(plan.on_part(3, 9, 0, false, 0), PartUse::kDrop);            // a stranger
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 99, true, 0), PartUse::kDrop);  // no such part
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 0, true, 0), PartUse::kKeep);
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 0, true, 0), PartUse::kDrop);  // once more
  EXPECT_EQ(plan.missing(), 3U);
}

TEST(FetchPlanTest, a_slow_holders_parts_are_asked_of_others_and_the_first_copy_counts) {
  FetchPlan plan(kOptions, 0, 4);
  plan.add_holder(1, 0);
  plan.add_holder(2, 0);
  const std::vector<FetchAsk> asks = plan.next_asks(0);
  deliver(plan, asks[1], kSecond / 2);
  EXPECT_EQ(plan.wake(), kSecond);
  EXPECT_TRUE(plan.next_asks(kSecond - 1).empty());
  const std::vector<FetchAsk> instead = plan.next_asks(kSecond);
  ASSERT_EQ(text(instead), "2:0-2 ");
  EXPECT_EQ(plan.waiting_for(), "2 of 4 parts from 0000000000000001 (slow), 0000000000000002");
  EXPECT_EQ(plan.on_part(1, asks[0].ask, 0, true, kSecond + 1), PartUse::kKeep);
  EXPECT_EQ(plan.on_part(2, instead[0].ask, 0, true, kSecond + 2), PartUse::kHave);
  EXPECT_EQ(plan.on_part(2, instead[0].ask, 1, true, kSecond + 2), PartUse::kKeep);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.waiting_for(), "");
}

TEST(FetchPlanTest, a_lone_slow_holder_is_tried_again_ever_more_rarely) {
  FetchPlan plan(kOptions, 0, 2);
  plan.add_holder(1, 0);
  ASSERT_EQ(text(plan.next_asks(0)), "1:0-2 ");
  EXPECT_TRUE(plan.next_asks(kSecond).empty());  // slow
  EXPECT_EQ(plan.wake(), 5 * kSecond);
  const std::vector<FetchAsk> again = plan.next_asks(5 * kSecond);
  EXPECT_EQ(text(again), "1:0-2 ");
  EXPECT_EQ(plan.wake(), 13 * kSecond);
  EXPECT_EQ(plan.on_part(1, again[0].ask, 0, true, 6 * kSecond), PartUse::kKeep);
  EXPECT_TRUE(plan.next_asks(6 * kSecond).empty());  // the rest is under way after all
  EXPECT_EQ(plan.wake(), 7 * kSecond);
}

// Holders that deliver late, lose links, lie, come back, or are silent: whatever happens, each part
// is kept exactly once, and the fetch ends as long as one honest holder stays.
TEST(FetchPlanTest, any_mixture_of_faults_ends_with_every_part_once) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    base::Rng rng(seed);
    const auto parts = static_cast<std::uint32_t>(rng.below(60));
    FetchPlan plan(kOptions, 3, 3 + parts);
    std::vector<int> kept(3 + parts);
    std::vector<std::pair<FetchAsk, std::uint32_t>> owed;
    for (base::Incarnation id = 1; id <= 4; ++id) plan.add_holder(id, 0);
    Time now = 0;
    int turns = 0;
    for (; !plan.finished() && turns < 5000; ++turns) {
      now += static_cast<Time>(rng.below(kSecond / 2));
      for (const FetchAsk& ask : plan.next_asks(now)) {
        for (std::uint32_t p = ask.first_part; p < ask.last_part; ++p) owed.push_back({ask, p});
      }
      const base::Incarnation other = 2 + rng.below(3);
      if (rng.chance(0.03)) plan.on_holder_lost(other, "link lost");
      if (rng.chance(0.05)) plan.add_holder(other, now);
      if (owed.empty()) continue;
      const std::size_t pick = rng.below(owed.size());
      const auto [ask, part] = owed[pick];
      owed.erase(owed.begin() + static_cast<long>(pick));
      if (ask.holder == 4 && rng.chance(0.7)) continue;  // never sent
      const bool good = ask.holder == 1 || !rng.chance(0.02);
      const PartUse use = plan.on_part(ask.holder, ask.ask, part, good, now);
      if (use == PartUse::kKeep) ++kept[part];
      EXPECT_TRUE(good || use == PartUse::kDrop);
      EXPECT_TRUE(plan.status().ok());
    }
    EXPECT_TRUE(plan.finished()) << "seed " << seed;
    for (std::uint32_t p = 3; p < 3 + parts; ++p) EXPECT_EQ(kept[p], 1) << "seed " << seed;
  }
}

// Its time begins with what it was asked, not with when it came.
TEST(FetchPlanTest, a_holder_that_had_nothing_to_do_is_not_slow) {
  FetchPlan plan({.parts_per_ask = 2, .asks_per_holder = 1, .slow_after = kSecond}, 0, 2);
  plan.add_holder(1, 0);
  plan.add_holder(2, 0);
  ASSERT_EQ(text(plan.next_asks(0)), "1:0-2 ");
  plan.on_holder_lost(1, "is gone");
  ASSERT_EQ(text(plan.next_asks(10 * kSecond)), "2:0-2 ");
  EXPECT_EQ(plan.wake(), 11 * kSecond);
  EXPECT_TRUE(plan.next_asks(10 * kSecond + 1).empty());
  EXPECT_EQ(plan.waiting_for().find("slow"), std::string::npos) << plan.waiting_for();
}

}  // namespace
}  // namespace jccl::snapshot
