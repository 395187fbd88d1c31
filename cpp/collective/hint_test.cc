#include "collective/hint.h"

#include <gtest/gtest.h>

namespace jccl::collective {
namespace {

TEST(HintTest, every_kind_comes_back_as_it_went) {
  for (std::uint8_t kind = 0; kind <= 8; ++kind) {
    const Hint hint{static_cast<HintKind>(kind), 1ULL << 40, 77, 0, Auditable::kWide};
    const auto back = decode_hint(encode_hint(hint));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value(), hint);
  }
}

TEST(HintTest, a_kind_of_plan_is_asked_for_by_a_kind_of_its_own) {
  for (std::uint8_t number = 1; number <= 6; ++number) {
    const auto kind = static_cast<PlanKind>(number);
    EXPECT_FALSE(is_open(hint_of(kind))) << name_of(kind);
    EXPECT_EQ(plan_of(hint_of(kind)), kind) << name_of(kind);
  }
  EXPECT_EQ(plan_of(HintKind::kAuto), std::nullopt);
  EXPECT_EQ(plan_of(HintKind::kNoRing), std::nullopt);
  EXPECT_EQ(plan_of(HintKind::kFastest), std::nullopt);
}

TEST(HintTest, anything_else_is_refused) {
  const base::Bytes good = encode_hint({HintKind::kRing, 1, 2, 3});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(decode_hint(base::ByteView(good).first(size)).status().code, base::Code::kInvalid);
  }
  base::Bytes longer = good, unknown = good;
  longer.push_back(0);
  EXPECT_EQ(decode_hint(longer).status().code, base::Code::kInvalid);
  unknown[0] = 9;
  EXPECT_EQ(decode_hint(unknown).status().code, base::Code::kInvalid);
  unknown = good;
  unknown.back() = 3;
  EXPECT_EQ(decode_hint(unknown).status().code, base::Code::kInvalid);
}

}  // namespace
}  // namespace jccl::collective
