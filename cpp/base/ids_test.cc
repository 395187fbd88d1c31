#include "base/ids.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

TEST(IdsTest, a_run_id_comes_back_from_its_text) {
  RunId run;
  for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<std::uint8_t>(16 * i + 15 - i);
  RunId read{};
  ASSERT_TRUE(from_hex(to_hex(run), &read));
  EXPECT_EQ(read, run);
}

TEST(IdsTest, what_is_not_32_small_hex_digits_is_no_run_id) {
  const std::string good(32, 'a');
  RunId read;
  ASSERT_TRUE(from_hex(good, &read));
  EXPECT_FALSE(from_hex(good + "a", &read));
  EXPECT_FALSE(from_hex(good.substr(1), &read));
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char wrong : {'g', 'A', '/', ':', '`', ' '}) {
      std::string text = good;
      text[at] = wrong;
      EXPECT_FALSE(from_hex(text, &read)) << text;
    }
  }
}

}  // namespace
}  // namespace jccl::base
