#include "protocol/members/roster.h"

#include <gtest/gtest.h>

#include <map>

#include "base/limits.h"
#include "base/rng.h"

namespace jccl::protocol {
namespace {

wire::Roster random_roster(base::Rng& rng, const wire::Roster& before) {
  std::map<wire::PeerId, wire::Member> members;
  wire::PeerId last = 0;
  for (const wire::Member& member : before.members) {
    last = std::max(last, member.id);
    if (rng.chance(0.8)) members[member.id] = member;
    if (rng.chance(0.1)) members[member.id] = {member.id, 7, "s", 0, 1, {"moved:1"}, {5}};
  }
  for (std::uint64_t i = rng.below(4); i > 0; --i) {
    ++last;
    const auto key = static_cast<std::uint8_t>(rng.next());
    members[last] = {last, rng.next(), "site", 0, 1, {"host:1"}, {key}};
  }
  wire::Roster roster;
  roster.epoch = before.epoch + 1 + rng.below(3);
  for (const auto& [id, member] : members) roster.members.push_back(member);
  roster.tags = before.tags;
  for (wire::TagInfo& info : roster.tags) info.committed += rng.below(2);
  const std::string tag = "tag-" + std::to_string(100'000 + roster.epoch);
  if (rng.chance(0.2)) roster.tags.push_back({tag, 0, false});
  return roster;
}

TEST(RosterTest, changes_in_a_row_lead_to_the_whole) {
  base::Rng rng(11);
  wire::Roster master, peer;
  master.epoch = peer.epoch = 1;
  for (int i = 0; i < 500; ++i) {
    const wire::Roster next = random_roster(rng, master);
    ASSERT_TRUE(apply(change_of(master, next), &peer));
    ASSERT_EQ(peer.epoch, next.epoch);
    ASSERT_EQ(peer.members, next.members);
    ASSERT_EQ(peer.tags, next.tags);
    master = next;
  }
}

TEST(RosterTest, a_change_says_only_what_differs) {
  wire::Roster from, to;
  from.epoch = 4;
  to.epoch = 5;
  for (wire::PeerId id = 1; id <= 1000; ++id) from.members.push_back({id, id, "s", 0, 1, {}, {}});
  to.members = from.members;
  to.members.erase(to.members.begin() + 6);
  to.members.push_back({1001, 1001, "s", 0, 1, {}, {9}});
  const wire::Roster change = change_of(from, to);
  EXPECT_EQ(change.base, 4U);
  ASSERT_EQ(change.members.size(), 1U);
  EXPECT_EQ(change.members[0].id, 1001U);
  EXPECT_EQ(change.left, std::vector<wire::PeerId>{7});
}

// Each change is within the bounds of a message, their sum need not be.
TEST(RosterTest, changes_that_add_up_to_more_members_or_tags_than_there_may_be_are_refused) {
  for (const bool tags : {false, true}) {
    wire::Roster at;
    bool taken = true;
    std::size_t changes = 0;
    for (; taken && changes < 4000; ++changes) {
      wire::Roster news;
      news.base = at.epoch;
      news.epoch = at.epoch + 1;
      const auto id = static_cast<wire::PeerId>(changes + 1);
      if (tags) news.tags.push_back({"tag-" + std::to_string(id), 0, false});
      if (!tags) news.members.push_back({id, id, "s", 0, 1, {}, 1});
      if (at.epoch == 0) news.base = 0;
      taken = apply(news, &at);
    }
    EXPECT_EQ(changes, (tags ? base::kTagsMax : base::kPeersMax) + 1);
  }
}

TEST(RosterTest, a_change_of_another_roster_is_not_applied) {
  wire::Roster at, news;
  at.epoch = 3;
  at.members.push_back({1, 1, "s", 0, 1, {}, 1});
  news.epoch = 5;
  news.base = 4;
  news.left = {1};
  EXPECT_FALSE(apply(news, &at));
  EXPECT_EQ(at.epoch, 3U);
  EXPECT_EQ(at.members.size(), 1U);
}

}  // namespace
}  // namespace jccl::protocol
