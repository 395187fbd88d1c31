#include "base/quorum.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

TEST(QuorumTest, reads_what_it_writes) {
  EXPECT_EQ(quorum_from_text("")->share, 0U);
  const auto usual = quorum_from_text("0.9:2");
  ASSERT_TRUE(usual.has_value());
  EXPECT_EQ(*usual, (Quorum{900, 2 * kSecond}));
  EXPECT_EQ(to_text(*usual), "0.9:2");
  EXPECT_EQ(to_text(Quorum{}), "");
  EXPECT_EQ(*quorum_from_text("0.501:0.25"), (Quorum{501, 250 * kMillisecond}));
}

TEST(QuorumTest, half_all_and_nonsense_are_none) {
  for (const char* text : {"0.5:2", "0.5001:2", "1:2", "0.9999:2", "0.9", "0.9:", ":2", "0.9:-1",
                           "nan:2", "0.9:nan", "0.9:86401", "a:b", "-0.9:2", "0.9:2:3", ":"}) {
    EXPECT_FALSE(quorum_from_text(text).has_value()) << text;
  }
  EXPECT_TRUE(quorum_of(0.9, 86'400).has_value());
}

TEST(QuorumTest, is_usable_only_as_it_is_made) {
  EXPECT_TRUE(is_usable(Quorum{}));
  EXPECT_FALSE(is_usable({0, 1})) << "a grace of no quorum";
  EXPECT_FALSE(is_usable({500, 0}));
  EXPECT_FALSE(is_usable({1000, 0}));
  EXPECT_FALSE(is_usable({900, -1}));
  EXPECT_FALSE(is_usable({900, kGraceMax + 1}));
  EXPECT_TRUE(is_usable({501, 0}));
}

TEST(QuorumTest, is_met_by_its_share_and_more_than_half_but_not_by_all) {
  const Quorum most{900, 0};
  EXPECT_FALSE(most.met(8, 10));
  EXPECT_TRUE(most.met(9, 10));
  EXPECT_FALSE(most.met(10, 10)) << "nobody is missing";
  EXPECT_FALSE(Quorum({501, 0}).met(1, 2)) << "nobody can tell which of two is slow";
  EXPECT_TRUE(Quorum({501, 0}).met(2, 3));
  EXPECT_FALSE(Quorum({501, 0}).met(2, 4));
  EXPECT_FALSE(Quorum{}.met(3, 4));
  EXPECT_TRUE(most.enough(10, 10));
  EXPECT_FALSE(Quorum{}.enough(4, 4));
}

}  // namespace
}  // namespace jccl::base
