#include "net/security/group_name.h"

#include <gtest/gtest.h>

namespace jccl::net {
namespace {

TEST(GroupName, letters_digits_and_three_signs_are_taken) {
  for (const char* name : {"west", "9", "eu-1_a.b", "A"}) EXPECT_TRUE(is_group_name(name)) << name;
  EXPECT_TRUE(is_group_name(std::string(kGroupNameBytesMax, 'a')));
}

TEST(GroupName, what_could_be_a_path_or_end_a_line_is_refused) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "/a", "a/", "-a", "_a", ".a", "a b", "a\n",
                           "a\\b", "a:b", "ä", "a%2fb", "a*"}) {
    EXPECT_FALSE(is_group_name(name)) << name;
  }
  EXPECT_FALSE(is_group_name(std::string(kGroupNameBytesMax + 1, 'a')));
  EXPECT_FALSE(is_group_name(std::string_view("a\0b", 3)));
}

TEST(GroupName, a_refusal_repeats_the_name_on_one_line_and_says_what_is_taken) {
  const base::Status no = check_group_name("a\nb");
  EXPECT_EQ(no.code, base::Code::kInvalid);
  EXPECT_EQ(no.text.find('\n'), std::string::npos);
  EXPECT_NE(no.text.find("letters, digits"), std::string::npos);
  EXPECT_TRUE(check_group_name("").ok());  // the run itself
}

}  // namespace
}  // namespace jccl::net
