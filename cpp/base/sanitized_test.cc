#include "base/sanitized.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

// Each compiler says it in its own way: under clang no test knew it for a time.
TEST(SanitizedTest, tests_know_whether_the_build_has_a_sanitizer) {
  EXPECT_EQ(kSanitized, JCCL_TEST_SANITIZED == 1);
}

}  // namespace
}  // namespace jccl::base
