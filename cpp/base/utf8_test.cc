#include "base/utf8.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

TEST(Utf8Test, characters_of_every_length_are_text) {
  for (const char* text : {"", "plain", "\xC2\xA2", "\xE2\x82\xAC", "\xF0\x90\x8D\x88",
                           "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_EQ(to_utf8(text), text);
  }
}

TEST(Utf8Test, what_is_no_character_is_found_and_replaced) {
  const std::pair<const char*, const char*> cases[] = {
      {"\xFF", "?"},            // no first byte
      {"a\x80z", "a?z"},        // a continuation alone
      {"\xC2", "?"},            // cut short
      {"\xE2\x82", "??"},       //
      {"\xE2\x28\xA1", "?(?"},  // broken off
      {"\xC2z", "?z"},          // in its last byte
      {"\xE2\x82z", "??z"},
      {"\xF0\x90\x8Dz", "???z"},
      {"\xC0\xAF", "??"},       // overlong
      {"\xE0\x9F\xBF", "???"},  //
      {"\xF0\x8F\xBF\xBF", "????"},
      {"\xED\xA0\x80", "???"},       // a surrogate
      {"\xF4\x90\x80\x80", "????"},  // beyond U+10FFFF
      {"\xF5\x80\x80\x80", "????"},
  };
  for (const auto& [given, clean] : cases) {
    EXPECT_FALSE(is_utf8(given)) << clean;
    EXPECT_EQ(to_utf8(given), clean);
    EXPECT_TRUE(is_utf8(to_utf8(given)));
  }
}

}  // namespace
}  // namespace jccl::base
