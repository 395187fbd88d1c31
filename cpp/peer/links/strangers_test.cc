#include "peer/links/strangers.h"

#include <gtest/gtest.h>

namespace jccl::peer {
namespace {

constexpr StrangerBounds kFew{4, 2, 6, 3};

TEST(StrangersTest, a_bounded_number_of_links_stands_and_the_oldest_idle_one_goes) {
  std::vector<StrangerLink> links = {{1, "a", 1, 50}, {2, "b", 1, 20}, {3, "c", 1, 30}};
  EXPECT_EQ(room_for(links, 4, "d", kFew).instead_of, 0u);
  EXPECT_TRUE(room_for(links, 4, "d", kFew).granted);
  links.push_back({4, "d", 1, 40});
  EXPECT_EQ(room_for(links, 5, "e", kFew).instead_of, 2u);
  links[1].busy = true;
  EXPECT_EQ(room_for(links, 5, "e", kFew).instead_of, 3u);
  for (StrangerLink& link : links) link.busy = true;
  EXPECT_FALSE(room_for(links, 5, "e", kFew).granted) << "all are at work";
  EXPECT_TRUE(room_for(links, 4, "d", kFew).granted) << "one more stripe of a link that stands";
}

TEST(StrangersTest, one_network_replaces_its_own_links_alone) {
  const std::vector<StrangerLink> links = {{1, "a", 1, 50}, {2, "a", 1, 40}, {3, "b", 1, 10}};
  EXPECT_EQ(room_for(links, 4, "a", kFew).instead_of, 2u);
  EXPECT_EQ(room_for(links, 4, "b", kFew).instead_of, 0u);
}

TEST(StrangersTest, stripes_are_bounded_in_each_link_and_in_all) {
  const std::vector<StrangerLink> links = {{1, "a", 3, 50}, {2, "b", 2, 40}, {3, "c", 1, 45}};
  EXPECT_FALSE(room_for(links, 1, "a", kFew).granted);
  EXPECT_EQ(room_for(links, 2, "b", kFew).instead_of, 3u) << "never itself";
}

}  // namespace
}  // namespace jccl::peer
