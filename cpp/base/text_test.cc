#include "base/text.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

TEST(TextTest, numbers_are_as_short_as_people_write_them) {
  EXPECT_EQ(cat(3, " ", -1L, " ", true, " ", 0.5, " ", 1e300, " ", 0.25f),
            "3 -1 1 0.5 1e+300 0.25");
}

TEST(TextTest, what_people_write_is_shown_as_it_is) {
  for (const std::string text :
       {"", "site-1", "Zürich, 東京 🙂", "a\\b [/red] \"q\"", "é\u00A0!"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(TextTest, nothing_ends_a_line_or_drives_a_terminal) {
  EXPECT_EQ(printable("a\nb\r\tc"), "a\\nb\\u000d\\u0009c");
  EXPECT_EQ(printable("\x1b[2J\x7f"), "\\u001b[2J\\u007f");
  EXPECT_EQ(printable("\u0085\u009b\u2028\u2029"), "\\u0085\\u009b\\u2028\\u2029");
  EXPECT_EQ(printable("\u202Egnp\u2066\u200F\u061C"), "\\u202egnp\\u2066\\u200f\\u061c");
  EXPECT_EQ(printable("\u2067\u2068\u2069\u200E"), "\\u2067\\u2068\\u2069\\u200e");
  EXPECT_EQ(printable("\u202A\u202B\u202C\u202D"), "\\u202a\\u202b\\u202c\\u202d");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\u0000b");
}

TEST(TextTest, bytes_of_no_character_are_named) {
  EXPECT_EQ(printable("\xff\x9b"
                      "31m\xc3"),
            "\\xff\\x9b31m\\xc3");
}

TEST(TextTest, printing_twice_changes_nothing_more) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(printable(printable(all)), printable(all));
}

}  // namespace
}  // namespace jccl::base
