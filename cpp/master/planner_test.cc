#include "master/planner.h"

#include <gtest/gtest.h>

#include "collective/hint.h"
#include "collective/plan.h"

namespace jccl::master {
namespace {

using collective::HintKind;
using collective::PlanKind;

protocol::PlanRequest request(HintKind kind) {
  protocol::PlanRequest out;
  out.hint = collective::encode_hint({kind});
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
}

TEST(PlannerTest, a_bad_link_is_gone_round) {
  auto wish = request(HintKind::kAuto);
  wish.bad_links = {{3, 2}};
  EXPECT_EQ(plan_of(wish).shares, (std::vector<std::uint32_t>{0, 0, 1, 1}));
  wish.bad_links = {{3, 2}, {5, 7}};
  EXPECT_EQ(kind_of(wish), PlanKind::kRing);
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

}  // namespace
}  // namespace jccl::master
