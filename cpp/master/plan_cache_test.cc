#include "master/plan_cache.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"
#include "collective/hint.h"
#include "collective/plan.h"

namespace jccl::master {
namespace {

using collective::HintKind;
using collective::PlanKind;

constexpr std::uint64_t kMuch = 1 << 28;

base::Result<base::Bytes> make_plan(const protocol::PlanRequest& request) {
  return PlanCache().plan(request);
}

protocol::PlanRequest request(HintKind kind) {
  protocol::PlanRequest out;
  out.hint = collective::encode_hint({kind, kMuch, kMuch, kMuch});
  out.contributors = {2, 3, 5, 7};
  return out;
}

collective::Plan plan_of(const protocol::PlanRequest& wish) {
  const auto bytes = make_plan(wish);
  EXPECT_TRUE(bytes.ok()) << bytes.status().text;
  const auto plan = collective::decode(bytes.value());
  EXPECT_TRUE(plan.ok());
  return plan.value();
}

PlanKind kind_of(const protocol::PlanRequest& wish) { return plan_of(wish).kind; }

TEST(PlannerTest, each_hint_gives_its_kind_of_plan) {
  EXPECT_EQ(kind_of(request(HintKind::kAuto)), PlanKind::kDirect);
  EXPECT_EQ(kind_of(request(HintKind::kDirect)), PlanKind::kDirect);
  EXPECT_EQ(kind_of(request(HintKind::kRing)), PlanKind::kRing);
  EXPECT_EQ(kind_of(request(HintKind::kGather)), PlanKind::kGather);
  EXPECT_EQ(kind_of(request(HintKind::kScatter)), PlanKind::kScatter);
  EXPECT_EQ(kind_of(request(HintKind::kExchange)), PlanKind::kExchange);
  EXPECT_EQ(kind_of(request(HintKind::kAllToAll)), PlanKind::kAllToAll);
}

TEST(PlannerTest, a_bad_link_is_gone_round) {
  auto wish = request(HintKind::kAuto);
  wish.bad_links = {{3, 2}};
  EXPECT_EQ(plan_of(wish).shares, (std::vector<std::uint32_t>{0, 0, 1, 1}));
  wish.bad_links = {{3, 2}, {5, 7}};
  EXPECT_EQ(kind_of(wish), PlanKind::kRing);
}

TEST(PlannerTest, a_call_that_may_not_ring_gets_any_other_plan_or_none) {
  auto wish = request(HintKind::kNoRing);
  EXPECT_EQ(kind_of(wish), kind_of(request(HintKind::kAuto)));
  wish.bad_links = {{3, 2}, {5, 7}};
  PlanCache planner;
  EXPECT_EQ(planner.plan(wish).status().code, base::Code::kLinkLost);
}

TEST(PlannerTest, peers_that_only_dial_out_own_nothing) {
  auto wish = request(HintKind::kAuto);
  wish.dial_only = {2, 7};
  EXPECT_EQ(plan_of(wish).shares, (std::vector<std::uint32_t>{0, 1, 1, 0}));
  wish.dial_only = {2, 9};
  wish.receivers = {9};
  EXPECT_EQ(plan_of(wish).shares, (std::vector<std::uint32_t>{0, 1, 1, 1}));
}

TEST(PlannerTest, a_bad_link_to_a_receiver_changes_only_who_serves_it) {
  auto wish = request(HintKind::kAuto);
  wish.receivers = {9};
  wish.bad_links = {{3, 9}};
  EXPECT_EQ(plan_of(wish), (collective::Plan{PlanKind::kDirect, {2, 3, 5, 7}, {1, 0, 1, 1}}));
}

TEST(PlannerTest, no_way_round_is_an_error_that_names_a_link) {
  auto wish = request(HintKind::kAuto);
  wish.contributors = {2, 3};
  wish.bad_links = {{2, 3}};
  const auto plan = make_plan(wish);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code, base::Code::kLinkLost);
}

TEST(PlannerTest, a_hint_of_another_making_is_refused) {
  auto wish = request(HintKind::kAuto);
  wish.hint = {1, 2, 3};
  EXPECT_EQ(make_plan(wish).status().code, base::Code::kInvalid);
}

TEST(PlannerTest, few_bytes_are_exchanged) {
  auto wish = request(HintKind::kAuto);
  wish.hint = collective::encode_hint({HintKind::kAuto, 4096, 4096, 4096});
  EXPECT_EQ(kind_of(wish), PlanKind::kExchange);
}

collective::Plan planned(PlanCache& planner, const protocol::PlanRequest& wish) {
  return collective::decode(planner.plan(wish).value()).value();
}

wire::Measured uplink(std::uint64_t bytes_per_s) { return {bytes_per_s, {}}; }

TEST(PlannerTest, a_slow_uplink_owns_less_once_it_is_known) {
  PlanCache planner;
  const auto wish = request(HintKind::kAuto);
  EXPECT_TRUE(planned(planner, wish).shares.empty());
  for (wire::PeerId id : {2, 3, 5}) planner.note(id, uplink(1'000'000'000));
  EXPECT_TRUE(planned(planner, wish).shares.empty());
  planner.note(7, uplink(50'000'000));
  planner.note(7, uplink(50'000'000));
  const auto plan = planned(planner, wish);
  ASSERT_EQ(plan.shares.size(), 4U);
  EXPECT_LT(plan.shares[3], plan.shares[0] / 10);
  ASSERT_EQ(planner.plans().size(), 1U);
  const PlanView view = planner.plans()[0];
  EXPECT_EQ(view.uses, 3U);
  EXPECT_EQ(view.candidates.front().plan, plan);
  EXPECT_GE(view.candidates.size(), 2U);
}

// Before anybody measured, all plans of a fast network are alike.
TEST(PlannerTest, where_any_order_will_do_a_ring_comes_when_cores_are_known_to_be_shared) {
  PlanCache planner;
  const auto wish = request(HintKind::kFastest);
  EXPECT_EQ(planned(planner, wish).kind, PlanKind::kDirect);
  const auto tell = [&](std::uint32_t core) {
    for (wire::PeerId id : {2, 3, 5, 7}) planner.note(id, {4'000'000'000, {}, core});
  };
  tell(500);
  EXPECT_EQ(planned(planner, wish).kind, PlanKind::kRing);
  EXPECT_EQ(planned(planner, request(HintKind::kAuto)).kind, PlanKind::kDirect);
  for (wire::PeerId id : {2, 3, 5, 7}) planner.note(id, {100'000'000, {}, 1'000'000});
  EXPECT_EQ(planned(planner, wish).kind, PlanKind::kRing) << "in use, and within a tenth";
  const std::vector<wire::LinkMeasured> far = {
      {2, 800'000, 0}, {3, 800'000, 0}, {5, 800'000, 0}, {7, 800'000, 0}};
  for (wire::PeerId id : {2, 3, 5, 7}) planner.note(id, {0, far, 1000});
  EXPECT_NE(planned(planner, wish).kind, PlanKind::kRing) << "six long delays";
}

// What was planned before anything was measured has no claim to stay.
TEST(PlannerTest, where_any_order_will_do_the_first_plan_is_as_good_as_none) {
  int rings = 0;
  for (std::uint64_t bytes = 64'000; bytes < 64'000'000; bytes += bytes / 50) {
    auto wish = request(HintKind::kFastest);
    wish.hint = collective::encode_hint({HintKind::kFastest, bytes, bytes, bytes});
    PlanCache early, late;
    EXPECT_NE(planned(early, wish).kind, PlanKind::kRing);
    for (PlanCache* one : {&early, &late}) {
      for (wire::PeerId id : {2, 3, 5, 7}) one->note(id, {1'000'000'000, {}, 500});
    }
    const bool ring = planned(late, wish).kind == PlanKind::kRing;
    EXPECT_EQ(planned(early, wish).kind == PlanKind::kRing, ring) << bytes;
    rings += ring ? 1 : 0;
  }
  EXPECT_GT(rings, 0);
}

// In a star a link carries a third of what its peer sends; as the rate of a link that would bound a
// ring, which needs one for all of it.
TEST(PlannerTest, links_that_share_an_uplink_say_nothing_against_a_ring) {
  const auto of_rate = [](std::uint64_t rate) {
    std::vector<wire::LinkMeasured> links;
    for (wire::PeerId id : {2, 3, 5, 7}) links.push_back({id, 100, rate});
    return links;
  };
  const auto kind = [&](std::uint64_t rate) {
    PlanCache planner;
    for (wire::PeerId id : {2, 3, 5, 7}) planner.note(id, {300'000'000, of_rate(rate), 500});
    return planned(planner, request(HintKind::kFastest)).kind;
  };
  EXPECT_EQ(kind(75'000'000), PlanKind::kRing);
  EXPECT_EQ(kind(0), PlanKind::kRing) << "not measured";
  EXPECT_EQ(kind(20'000'000), PlanKind::kDirect)
      << "slow of itself: a ring sends it thrice as much";
}

TEST(PlannerTest, a_plan_in_use_stays_until_another_gains_a_quarter) {
  PlanCache planner;
  const auto wish = request(HintKind::kAuto);
  for (wire::PeerId id : {2, 3, 5, 7}) planner.note(id, uplink(100'000'000));
  EXPECT_TRUE(planned(planner, wish).shares.empty());
  for (int i = 0; i < 4; ++i) planner.note(7, uplink(85'000'000));  // 1.18 times as long
  EXPECT_TRUE(planned(planner, wish).shares.empty());
  auto after = wish;  // a new membership starts anew
  after.contributors = {3, 5, 7, 9};
  for (int i = 0; i < 4; ++i) planner.note(7, uplink(60'000'000));
  EXPECT_FALSE(planned(planner, after).shares.empty());
  EXPECT_FALSE(planned(planner, wish).shares.empty());
}

TEST(PlannerTest, rates_and_delays_of_links_count) {
  PlanCache planner;
  const auto wish = request(HintKind::kAuto);
  for (int i = 0; i < 3; ++i) {
    planner.note(2, {0, {{3, 80'000, 5'000'000}, {5, 80'000, 90'000'000}, {99, 1, 1}}});
  }
  const auto plan = planned(planner, wish);
  ASSERT_EQ(plan.shares.size(), 4U);
  EXPECT_LT(plan.shares[0] + plan.shares[1], plan.shares[2] / 4);
  auto small = wish;
  small.hint = collective::encode_hint({HintKind::kAuto, 100'000, 100'000, 100'000});
  EXPECT_EQ(planned(planner, small).kind, PlanKind::kExchange);  // 40 ms less
}

TEST(PlannerTest, the_kind_that_was_asked_for_stays_whatever_is_measured) {
  base::Rng rng(3);
  for (int trial = 0; trial < 200; ++trial) {
    PlanCache planner;
    const auto kind = static_cast<HintKind>(1 + rng.below(5));
    for (int step = 0; step < 5; ++step) {
      wire::Measured measured{rng.below(1 << 30), {}};
      for (wire::PeerId id : {2, 3, 5, 7}) {
        measured.links.push_back(
            {id, static_cast<std::uint32_t>(rng.below(1 << 20)), rng.below(1 << 30)});
      }
      planner.note(static_cast<wire::PeerId>(2 + rng.below(6)), measured);
      EXPECT_EQ(planned(planner, request(kind)).kind, static_cast<PlanKind>(kind));
      const PlanKind automatic = planned(planner, request(HintKind::kAuto)).kind;
      EXPECT_TRUE(automatic == PlanKind::kDirect || automatic == PlanKind::kExchange);
    }
  }
}

TEST(PlannerTest, a_thousand_peers_that_measured_all_their_links_are_planned_for) {
  PlanCache planner;
  auto wish = request(HintKind::kAuto);
  wish.contributors.clear();
  for (wire::PeerId id = 1; id <= 1000; ++id) wish.contributors.push_back(id);
  base::Rng rng(4);
  for (const wire::PeerId from : wish.contributors) {
    wire::Measured measured{100'000'000, {}};
    for (const wire::PeerId to : wish.contributors) {
      if (to != from) measured.links.push_back({to, 80'000, 1'000'000 + rng.below(1'000'000)});
    }
    for (auto& link : measured.links) {
      if (from == 7 || link.peer == 7) link.bytes_per_s /= 50;
    }
    planner.note(from, std::move(measured));
  }
  const auto plan = planned(planner, wish);
  ASSERT_EQ(plan.shares.size(), 1000U);
  EXPECT_EQ(plan.shares[6], 0U);
}

TEST(PlannerTest, it_keeps_a_bounded_number_of_plans) {
  PlanCache planner;
  auto wish = request(HintKind::kAuto);
  for (std::uint64_t bytes = 1; bytes <= 1000; ++bytes) {
    wish.hint = collective::encode_hint({HintKind::kAuto, bytes, bytes, bytes});
    ASSERT_TRUE(planner.plan(wish).ok());
    ASSERT_LE(planner.plans().size(), 64U);
  }
  EXPECT_EQ(planner.plans().front().hint.data_bytes, 1000U);
}

TEST(PlannerTest, a_link_that_broke_after_the_plan_was_made_is_gone_round) {
  PlanCache planner;
  auto wish = request(HintKind::kRing);
  const auto before = planned(planner, wish);
  wish.bad_links = {{before.order[0], before.order[1]}};
  EXPECT_NE(planned(planner, wish).order, before.order);
}

TEST(PlannerTest, of_too_many_measures_those_of_the_longest_gone_are_forgotten) {
  PlanCache planner;
  for (wire::PeerId peer = 1; peer <= 5000; ++peer) planner.note(peer, {1, {}});
  EXPECT_LE(planner.measured().size(), 2 * base::kPeersMax);
  EXPECT_EQ(planner.measured().count(1), 0U);
  EXPECT_EQ(planner.measured().count(5000), 1U);
}

TEST(PlannerTest, a_link_delays_by_half_its_round_trip) {
  PlanCache planner;
  const wire::Measured far{0, {{2, 80'000, 0}, {3, 80'000, 0}, {5, 80'000, 0}, {7, 80'000, 0}}};
  auto wish = request(HintKind::kExchange);
  wish.hint = collective::encode_hint({HintKind::kExchange, 64, 64, 64});
  for (const wire::PeerId peer : wish.contributors) planner.note(peer, far);
  ASSERT_TRUE(planner.plan(wish).ok());
  EXPECT_NEAR(planner.plans().front().candidates.front().seconds, 0.04, 0.002);
}

}  // namespace
}  // namespace jccl::master
