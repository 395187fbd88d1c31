#include "collective/hint.h"

#include <gtest/gtest.h>

namespace jccl::collective {
namespace {

TEST(HintTest, every_kind_comes_back_as_it_went) {
  for (std::uint8_t kind = 0; kind <= 5; ++kind) {
    const Hint hint{static_cast<HintKind>(kind)};
    const auto back = decode_hint(encode_hint(hint));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value(), hint);
  }
}

TEST(HintTest, anything_else_is_refused) {
  for (const base::Bytes& bytes :
       {base::Bytes{}, base::Bytes{6}, base::Bytes{255}, base::Bytes{1, 0}}) {
    EXPECT_EQ(decode_hint(bytes).status().code, base::Code::kInvalid);
  }
}

}  // namespace
}  // namespace jccl::collective
