#include "collective/spec.h"

#include <gtest/gtest.h>

namespace jccl::collective {
namespace {

TEST(SpecTest, every_row_is_found_by_its_number_and_its_name) {
  for (const CollectiveSpec& spec : kCollectives) {
    EXPECT_EQ(collective_from_number(static_cast<int>(spec.collective)), spec.collective);
    EXPECT_EQ(collective_from_name(spec.name), spec.collective);
    EXPECT_EQ(&spec_of(spec.collective), &spec);
    EXPECT_EQ(name_of(spec.collective), spec.name);
  }
  const auto count = static_cast<std::int64_t>(std::size(kCollectives));
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{0}, count + 1, count + 256}) {
    EXPECT_EQ(collective_from_number(number), std::nullopt) << number;
  }
  for (const char* name : {"", "all", "?", "ALL_REDUCE"}) {
    EXPECT_EQ(collective_from_name(name), std::nullopt) << name;
  }
}

TEST(SpecTest, one_plan_is_asked_for_whatever_the_caller_names_and_several_as_he_does) {
  const CollectiveSpec& gather = spec_of(Collective::kAllGather);
  const CollectiveSpec& reduce = spec_of(Collective::kAllReduce);
  EXPECT_EQ(gather.only_plan(), PlanKind::kGather);
  EXPECT_EQ(reduce.only_plan(), std::nullopt);
  for (const char* plan : {"", "direct", "ring", "exchange"}) {
    EXPECT_EQ(hint_for(gather, plan, false, {}), HintKind::kGather);
    EXPECT_EQ(hint_for(spec_of(Collective::kReduceScatter), plan, false, {}), HintKind::kScatter);
  }
  EXPECT_EQ(hint_for(spec_of(Collective::kAllToAll), "ring", false, {}), HintKind::kAllToAll);
  EXPECT_EQ(hint_for(reduce, "direct", true, {}), HintKind::kDirect);
  EXPECT_EQ(hint_for(reduce, "ring", false, {}), HintKind::kRing);
  EXPECT_EQ(hint_for(reduce, "exchange", false, {}), HintKind::kExchange);
  EXPECT_EQ(hint_for(reduce, "gather", false, {}), HintKind::kAuto) << "not one of its plans";
  EXPECT_EQ(hint_for(reduce, "", false, {}), HintKind::kAuto);
  EXPECT_EQ(hint_for(reduce, "", true, {}), HintKind::kNoRing);
}

TEST(SpecTest, the_fastest_plan_is_what_the_master_chooses_anyhow_where_no_ring_can_be) {
  const CollectiveSpec& reduce = spec_of(Collective::kAllReduce);
  EXPECT_EQ(hint_for(reduce, "fastest", false, {}), HintKind::kFastest);
  EXPECT_EQ(hint_for(reduce, "fastest", false, codec::CodecId::kInt8), HintKind::kFastest);
  EXPECT_EQ(hint_for(reduce, "fastest", false, codec::top_k(64)), HintKind::kAuto);
  EXPECT_EQ(hint_for(reduce, "fastest", true, {}), HintKind::kNoRing);
  EXPECT_EQ(hint_for(spec_of(Collective::kAllGather), "fastest", false, {}), HintKind::kGather);
}

// What a plan does decides what DONE says; the row repeats it for whoever reads the table.
TEST(SpecTest, a_row_has_a_common_digest_where_its_plans_have_a_common_result) {
  for (const CollectiveSpec& spec : kCollectives) {
    for (std::uint8_t kind = 1; kind <= 6; ++kind) {
      if (!spec.carried_by(static_cast<PlanKind>(kind))) continue;
      EXPECT_EQ(spec.digest == CollectiveSpec::Digest::kCommon,
                has_common_result(static_cast<PlanKind>(kind)))
          << spec.name;
    }
  }
}

}  // namespace
}  // namespace jccl::collective
