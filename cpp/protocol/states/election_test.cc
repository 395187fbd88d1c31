#include "protocol/states/election.h"

#include <gtest/gtest.h>

namespace jccl::protocol {
namespace {

constexpr wire::Digest kOne{1, 0}, kTwo{2, 0};

TEST(ElectionTest, more_than_half_of_all_voters_decide) {
  Election election({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  election.vote("a", 0, kOne);
  election.vote("b", 0, kOne);
  EXPECT_EQ(election.majority(), nullptr) << "half is not more";
  election.vote("c", 0, kOne);
  ASSERT_NE(election.majority(), nullptr);
  EXPECT_EQ(*election.majority(), Ballot{kOne});
}

TEST(ElectionTest, a_site_votes_once_with_all_its_shards) {
  Election election({{"a", 2}, {"b", 2}});
  election.vote("a", 0, kOne);
  EXPECT_EQ(election.votes(), 0U);
  election.vote("a", 1, kTwo);
  election.vote("a", 0, kTwo);  // its first word counts
  election.vote("a", 7, kTwo);
  election.vote("stranger", 0, kOne);
  EXPECT_EQ(election.votes(), 1U);
  ASSERT_NE(election.most(), nullptr);
  EXPECT_EQ(*election.most(), (Ballot{kOne, kTwo}));
  EXPECT_EQ(election.silent(), std::vector<std::string>{"b"});
}

TEST(ElectionTest, who_is_silent_may_be_left_out_of_the_count) {
  Election election({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  EXPECT_EQ(election.most(), nullptr);
  election.vote("a", 0, kTwo);
  election.vote("b", 0, kOne);
  EXPECT_EQ(election.most(), nullptr) << "one against one";
  election.vote("c", 0, kOne);
  EXPECT_EQ(election.majority(), nullptr) << "two of four";
  ASSERT_NE(election.most(), nullptr);
  EXPECT_EQ(*election.most(), Ballot{kOne});
}

TEST(ElectionTest, who_leaves_takes_its_vote_along) {
  Election election({{"a", 1}, {"b", 1}});
  election.vote("a", 0, kOne);
  election.vote("b", 0, kTwo);
  EXPECT_EQ(election.majority(), nullptr);
  EXPECT_EQ(election.most(), nullptr);
  election.leave("b");
  ASSERT_NE(election.majority(), nullptr);
  EXPECT_EQ(*election.majority(), Ballot{kOne});
  election.leave("a");
  EXPECT_EQ(election.voters(), 0U);
  EXPECT_EQ(election.majority(), nullptr);
  EXPECT_FALSE(election.pieced().has_value());
}

TEST(ElectionTest, pieces_of_several_sites_count_where_none_contradicts) {
  Election election({{"a", 2}, {"b", 2}});
  election.vote("a", 0, kOne);
  EXPECT_FALSE(election.pieced().has_value()) << "nobody speaks for the second shard";
  election.vote("b", 1, kTwo);
  EXPECT_EQ(election.pieced(), (Ballot{kOne, kTwo}));
  Election other({{"a", 2}, {"b", 2}, {"c", 2}});
  other.vote("a", 0, kOne);
  other.vote("b", 0, kTwo);
  other.vote("c", 1, kTwo);
  EXPECT_FALSE(other.pieced().has_value());
}

TEST(ElectionTest, both_sides_are_named) {
  Election election({{"a", 1}, {"b", 1}, {"c", 1}});
  election.vote("a", 0, kOne);
  election.vote("c", 0, kOne);
  election.vote("b", 0, kTwo);
  const std::string sides = election.sides();
  EXPECT_NE(sides.find("a, c hold " + base::to_hex(kOne)), std::string::npos) << sides;
  EXPECT_NE(sides.find("b holds " + base::to_hex(kTwo)), std::string::npos) << sides;
}

}  // namespace
}  // namespace jccl::protocol
