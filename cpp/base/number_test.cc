#include "base/number.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

TEST(NumberTest, what_people_write_is_read) {
  EXPECT_EQ(decimal("0"), 0);
  EXPECT_EQ(decimal("0.25"), 0.25);
  EXPECT_EQ(decimal(".5"), 0.5);
  EXPECT_EQ(decimal("1e6"), 1e6);
  EXPECT_EQ(decimal("1E-2"), 0.01);
}

TEST(NumberTest, what_strtod_takes_besides_is_refused) {
  for (const char* text : {"", "nan", "NaN", "inf", "infinity", "0x10", "0x1p3", " 1", "1 ", "+1",
                           "-1", "-0", "1,5", "1_000", "1e999", "e3", ".", "1.5.2", "0.1f"}) {
    EXPECT_EQ(decimal(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace jccl::base
