// Audits of work: what the master makes of words about other members' work. One's word decides
// nothing, and most others' bans, if that is the policy of most.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kSecond;
using wire::FindingPolicy;

class FindingsTest : public HostileMember {
 protected:
  // Members a, b, … on connections 1, 2, …
  void run_of(std::size_t count) {
    MasterOptions some = options();
    some.start_peers = static_cast<std::uint32_t>(count);
    begin(some);
    for (ConnId conn = 1; conn <= count; ++conn) {
      last_ = conn;
      (void)join(conn, hello(100 * conn, std::string(1, static_cast<char>('a' + conn - 1))));
    }
    wire::Attempt attempt;
    for (ConnId conn = 1; conn <= count; ++conn) {
      for (const auto& start : sent<wire::Start>(say(conn, ready("grads")))) {
        attempt = start.attempt;
      }
    }
    for (ConnId conn = 1; conn <= count; ++conn) (void)say(conn, wire::Done{attempt, {7, 7}});
    ASSERT_EQ(committed("grads"), 1U);
  }
  const PeerView* peer(ConnId conn) {
    view_ = master_->view(now_);
    for (const PeerView& one : view_.peers) {
      if (one.member.incarnation == 100 * conn && one.admitted) return &one;
    }
    return nullptr;
  }
  MasterEffects finds(ConnId conn, ConnId other, FindingPolicy policy, bool differs = true,
                      std::uint64_t round = 50) {
    const PeerView* one = peer(other);
    const wire::PeerId id = one == nullptr ? 0 : one->member.id;
    return say(conn, wire::Finding{"model", round, id, differs, 3'500, policy});
  }
  std::vector<FindingView> findings() { return master_->view(now_).findings; }
  MasterView view_;
};

TEST_F(FindingsTest, are_shown_with_who_found_what) {
  run_of(4);
  (void)finds(1, 4, FindingPolicy::kWarn, false);
  (void)finds(2, 4, FindingPolicy::kWarn, true);
  ASSERT_EQ(findings().size(), 1U);
  const FindingView row = findings()[0];
  EXPECT_EQ(row.site, "d");
  EXPECT_EQ(row.tag, "model");
  EXPECT_EQ(row.round, 50U);
  EXPECT_EQ(row.repeated, 2U);
  EXPECT_EQ(row.different, 1U);
  EXPECT_EQ(row.worst, 3.5);
  EXPECT_EQ(row.convicted, 0U);
}

TEST_F(FindingsTest, one_member_cannot_make_up_the_round_that_is_shown) {
  run_of(5);
  for (const ConnId conn : {1U, 2U}) (void)finds(conn, 4, FindingPolicy::kWarn, false);
  (void)finds(3, 4, FindingPolicy::kWarn, true, 9'000);
  EXPECT_EQ(findings()[0].round, 50U);
  EXPECT_EQ(findings()[0].different, 0U);
}

TEST_F(FindingsTest, most_others_ban_for_some_time) {
  run_of(4);
  (void)finds(1, 4, FindingPolicy::kExclude);
  EXPECT_NE(peer(4), nullptr);
  (void)finds(2, 4, FindingPolicy::kExclude);
  EXPECT_EQ(peer(4), nullptr);
  ASSERT_EQ(view_.bans.size(), 1U);
  EXPECT_EQ(view_.bans[0].site, "d");
  EXPECT_NE(view_.bans[0].until_unix_ms, wire::kForGood);
  EXPECT_EQ(findings()[0].convicted, 1U);
}

TEST_F(FindingsTest, most_others_ban_for_good_by_that_policy) {
  run_of(4);
  for (const ConnId conn : {1U, 2U}) (void)finds(conn, 4, FindingPolicy::kBan);
  EXPECT_EQ(peer(4), nullptr);
  ASSERT_EQ(view_.bans.size(), 1U);
  EXPECT_EQ(view_.bans[0].until_unix_ms, wire::kForGood);
  EXPECT_NE(view_.bans[0].reason.find("round 50 of model"), std::string::npos);
}

TEST_F(FindingsTest, the_mildest_policy_of_most_decides) {
  run_of(4);
  (void)finds(1, 4, FindingPolicy::kBan);
  (void)finds(2, 4, FindingPolicy::kExclude);
  EXPECT_EQ(peer(4), nullptr);
  EXPECT_NE(view_.bans.at(0).until_unix_ms, wire::kForGood);
}

TEST_F(FindingsTest, that_warn_exclude_nobody) {
  run_of(4);
  for (const ConnId conn : {1U, 2U, 3U}) (void)finds(conn, 4, FindingPolicy::kWarn);
  EXPECT_NE(peer(4), nullptr);
  EXPECT_EQ(findings()[0].different, 3U);
}

TEST_F(FindingsTest, of_a_minority_exclude_nobody_however_often_they_are_said) {
  run_of(5);
  for (int i = 0; i < 20; ++i) (void)finds(1, 5, FindingPolicy::kBan, true, 50U + unsigned(i));
  (void)finds(2, 5, FindingPolicy::kBan);
  EXPECT_NE(peer(5), nullptr);
  EXPECT_TRUE(view_.bans.empty());
}

TEST_F(FindingsTest, a_newer_word_takes_the_place_of_an_older_one) {
  run_of(4);
  (void)finds(1, 4, FindingPolicy::kBan);
  (void)finds(1, 4, FindingPolicy::kBan, false, 100);
  (void)finds(2, 4, FindingPolicy::kBan, true, 100);
  EXPECT_NE(peer(4), nullptr);
}

TEST_F(FindingsTest, of_two_nobody_is_convicted) {
  run_of(2);
  (void)finds(1, 2, FindingPolicy::kBan);
  EXPECT_NE(peer(2), nullptr);
}

TEST_F(FindingsTest, on_oneself_count_for_nothing) {
  run_of(3);
  (void)finds(3, 3, FindingPolicy::kBan);
  EXPECT_TRUE(findings().empty());
  (void)finds(1, 3, FindingPolicy::kBan);
  EXPECT_NE(peer(3), nullptr);
}

TEST_F(FindingsTest, of_who_has_left_do_not_count) {
  run_of(5);
  (void)finds(1, 5, FindingPolicy::kBan);
  (void)finds(2, 5, FindingPolicy::kBan);
  (void)say(1, wire::Leave{});
  (void)say(2, wire::Leave{});
  (void)finds(3, 5, FindingPolicy::kBan);  // of two others it is one
  EXPECT_NE(peer(5), nullptr);
}

TEST_F(FindingsTest, are_forgotten_after_ten_minutes) {
  run_of(4);
  (void)finds(1, 4, FindingPolicy::kBan);
  alive_ = {1, 2, 3, 4};
  (void)wait(601 * kSecond);
  (void)finds(2, 4, FindingPolicy::kBan);
  EXPECT_NE(peer(4), nullptr);
}

TEST_F(FindingsTest, about_nobody_are_ignored) {
  run_of(3);
  (void)say(1, wire::Finding{"model", 50, 77, true, 0, FindingPolicy::kBan});
  EXPECT_TRUE(findings().empty());
}

}  // namespace
}  // namespace jccl::protocol
