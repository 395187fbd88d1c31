#include "net/link/retirement.h"

#include <gtest/gtest.h>

namespace jccl::net {
namespace {

// The two ends of a stripe. Words and ends arrive in the order in which they left.
TEST(RetirementTest, one_begins_the_other_answers_and_both_close) {
  Retirement ours, theirs;
  ours.begin(1);
  EXPECT_TRUE(ours.word_due());
  ours.said();
  EXPECT_FALSE(ours.word_due());
  EXPECT_FALSE(ours.shuts()) << "the other side's frames are still to come";

  theirs.came(2);
  EXPECT_TRUE(theirs.begun());
  EXPECT_TRUE(theirs.word_due());
  theirs.said();
  EXPECT_FALSE(theirs.shuts()) << "who answers waits for who began";
  EXPECT_FALSE(theirs.over(false));

  ours.came(3);
  EXPECT_TRUE(ours.word_due()) << "what came with the answer is to be told";
  EXPECT_FALSE(ours.shuts());
  ours.said();
  EXPECT_TRUE(ours.shuts());
  EXPECT_FALSE(ours.shuts()) << "once";
  EXPECT_TRUE(theirs.over(true));
  EXPECT_TRUE(ours.over(true));
}

TEST(RetirementTest, if_both_begin_both_close) {
  Retirement ours, theirs;
  ours.begin(1), theirs.begin(1);
  ours.said(), theirs.said();
  ours.came(2), theirs.came(2);
  ours.said(), theirs.said();
  EXPECT_TRUE(ours.shuts() && theirs.shuts());
  EXPECT_TRUE(ours.over(true) && theirs.over(true));
}

TEST(RetirementTest, an_end_before_its_time_is_a_loss) {
  Retirement end;
  EXPECT_FALSE(end.over(true)) << "nobody began";
  end.begin(1);
  EXPECT_FALSE(end.over(true));
  end.said();
  EXPECT_FALSE(end.over(true)) << "the other side has not said its last word";
  end.came(2);
  EXPECT_FALSE(end.over(false)) << "a frame may not have arrived";
  EXPECT_TRUE(end.over(true));
}

}  // namespace
}  // namespace jccl::net
