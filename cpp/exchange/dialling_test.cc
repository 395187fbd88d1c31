#include "exchange/dialling.h"

#include <gtest/gtest.h>

namespace jccl::exchange {
namespace {

using base::kMillisecond;
using base::kSecond;
using base::Time;

constexpr base::Duration kRepair = kSecond;

Ends ends(base::PeerId here, base::PeerId there, bool here_listens = true,
          bool there_listens = true) {
  return {here, there, here_listens, there_listens, true};
}

std::size_t due(const Ends& of, const LinkNow& link, Time now, const Redial& redial = {}) {
  return Dialling(of, link, now, kRepair).due(redial);
}

TEST(DiallingTest, of_two_that_listen_the_lower_id_dials) {
  EXPECT_TRUE(Dialling::is_appointed(ends(1, 2)));
  EXPECT_FALSE(Dialling::is_appointed(ends(2, 1)));
}

TEST(DiallingTest, who_cannot_be_dialled_dials_and_two_of_them_have_no_link) {
  EXPECT_TRUE(Dialling::is_appointed(ends(2, 1, false, true)));
  EXPECT_FALSE(Dialling::is_appointed(ends(1, 2, true, false)));
  LinkNow link;
  link.in_use = true;
  EXPECT_EQ(due(ends(1, 2, false, false), link, 100 * kSecond), 0u);
  EXPECT_EQ(due(ends(1, 2, true, false), link, 100 * kSecond), 0u);
}

TEST(DiallingTest, nobody_dials_before_the_master_has_named_a_secret) {
  Ends of = ends(1, 2);
  of.has_secret = false;
  EXPECT_FALSE(Dialling::is_appointed(of));
  EXPECT_EQ(due(of, {}, 100 * kSecond), 0u);
}

TEST(DiallingTest, all_that_are_missing_are_dialled_at_once) {
  LinkNow link;
  link.wanted = 8;
  EXPECT_EQ(due(ends(1, 2), link, 0), 8u);
  link.stripes = 3, link.dials = 2;
  EXPECT_EQ(due(ends(1, 2), link, 0), 3u);
  link.dials = 6;
  EXPECT_EQ(due(ends(1, 2), link, 0), 0u);
}

TEST(DiallingTest, those_that_retire_take_room_until_they_are_gone) {
  LinkNow link;
  link.wanted = base::kStripesMax;
  link.retiring = 10;
  EXPECT_EQ(due(ends(1, 2), link, 0), base::kStripesMax - 10u);
  link.retiring = base::kStripesMax;
  EXPECT_EQ(due(ends(1, 2), link, 0), 0u);
}

TEST(DiallingTest, nothing_is_dialled_before_it_is_due_again) {
  Redial redial;
  redial.failed(kSecond);
  EXPECT_EQ(due(ends(1, 2), {}, kSecond + kMillisecond, redial), 0u);
  EXPECT_EQ(due(ends(1, 2), {}, kSecond + 20 * kMillisecond, redial), 1u);
}

TEST(DiallingTest, the_other_side_helps_where_a_link_in_use_stays_down) {
  LinkNow link;
  link.down_since = kSecond;
  link.in_use = true;
  EXPECT_EQ(due(ends(2, 1), link, kSecond + kRepair / 2), 0u);
  EXPECT_EQ(due(ends(2, 1), link, kSecond + kRepair / 2 + 1), 1u);
  link.in_use = false;
  EXPECT_EQ(due(ends(2, 1), link, 100 * kSecond), 0u);
  link.in_use = true, link.stripes = 1, link.wanted = 2;
  EXPECT_EQ(due(ends(2, 1), link, 100 * kSecond), 0u) << "how many, the other side says";
}

bool takes(const Ends& of, const LinkNow& link, Time now, const Redial& redial = {}) {
  return Dialling(of, link, now, kRepair).takes(redial);
}

TEST(DiallingTest, who_does_not_dial_takes_what_comes_up_to_the_bound) {
  LinkNow link;
  link.stripes = base::kStripesMax - 2, link.retiring = 1;
  EXPECT_TRUE(takes(ends(2, 1), link, 0));
  link.retiring = 2;
  EXPECT_FALSE(takes(ends(2, 1), link, 0));
}

TEST(DiallingTest, who_dials_takes_help_only_where_it_does_not_manage) {
  LinkNow link;
  link.down_since = kSecond;
  link.in_use = true;
  EXPECT_FALSE(takes(ends(1, 2), link, kSecond + kRepair / 4));
  EXPECT_TRUE(takes(ends(1, 2), link, kSecond + kRepair / 4 + 1));
  Redial failing;
  failing.failed(kSecond);
  failing.failed(2 * kSecond);
  EXPECT_TRUE(takes(ends(1, 2), link, kSecond, failing)) << "it tried twice";
  link.stripes = 1, link.heard = 5 * kSecond;
  EXPECT_FALSE(takes(ends(1, 2), link, 5 * kSecond + kRepair));
  EXPECT_TRUE(takes(ends(1, 2), link, 5 * kSecond + kRepair + 1)) << "what stands is silent";
  link.in_use = false;
  EXPECT_FALSE(takes(ends(1, 2), link, 100 * kSecond)) << "nobody speaks, and nobody has to";
}

}  // namespace
}  // namespace jccl::exchange
