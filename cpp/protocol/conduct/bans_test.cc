// How long a ban is, and who comes back while a token's keys wait for others' bans.
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

class BansTest : public HostileMember {
 protected:
  static wire::PublicKey key(ConnId member) { return key_of(hello(100 * member, "")); }
  static wire::Ready odd(std::uint64_t n) {
    wire::Ready other = ready("grads", n);
    other.descriptor = {6, 6};
    return other;
  }
  // In its own process, or another one with the same key.
  void come(ConnId conn, wire::Incarnation process, const std::string& site, const Shown& shown) {
    (void)on(ConnMessage{conn, hello(process, site), shown});
    (void)on(ConnMessage{conn, wire::Resume{}, shown});
  }
  // The others are READY for round 2, and this one says three times what nobody else does.
  base::Duration ban_of(ConnId conn, const wire::PublicKey& key) {
    for (ConnId other = 1; other <= 2; ++other) (void)say(other, ready("grads", 2));
    for (int time = 0; time < 3; ++time) (void)say(conn, odd(2));
    const auto unix_ms = static_cast<std::uint64_t>(now_ / kMillisecond);
    for (const BanView& ban : master_->view(now_).bans) {
      if (ban.key == key && ban.until_unix_ms > unix_ms) {
        return static_cast<base::Duration>(ban.until_unix_ms - unix_ms) * kMillisecond;
      }
    }
    return 0;
  }
};

// Bans that were over long before the faults that led to them would have faded, one of them an
// operator's, and a master that was started since.
TEST_F(BansTest, each_ban_of_a_key_doubles_its_next_however_short_or_long_ago_it_was) {
  now_ = 10 * 86'400 * kSecond;
  MasterOptions short_bans = options();
  short_bans.start_peers = 3;
  short_bans.ban = 2 * kSecond;
  const wire::BanRecord by_operator{key(3), 1000, "c", "by an operator"};
  begin(short_bans, plan, {wire::RunRecord{options().run, wire::kVersion}, by_operator});
  join({"a", "b", "c"});
  commit("grads", 1);
  ConnId conn = 3;
  for (const base::Duration span : {4 * kSecond, 8 * kSecond, 16 * kSecond}) {
    ASSERT_EQ(ban_of(conn, key(3)), span);
    EXPECT_FALSE(is_member("c"));
    alive_ = {1, 2};
    wait(span + kMillisecond);
    ++conn;
    come(conn, 1000 + conn, "c", {key(3)});
    (void)say(conn, odd(2));  // whatever it asks for, it is let in
    ASSERT_TRUE(is_member("c")) << "a ban that is over keeps nobody out";
    alive_ = {1, 2, conn};
    wait(3 * kFaultHalfLife);
  }
}

class SlowedTokenTest : public BansTest {
 protected:
  // Sites c and d came by one token, and each was in a round.
  void SetUp() override {
    MasterOptions four = options();
    four.start_peers = 4;
    begin(four);
    come(1, 100, "a", {key(1)}), come(2, 200, "b", {key(2)});
    come(3, 300, "c", theirs(3)), come(4, 400, "d", theirs(4));
    std::vector<wire::Start> starts;
    for (ConnId conn = 1; conn <= 4; ++conn) starts = sent<wire::Start>(say(conn, ready("grads")));
    ASSERT_EQ(starts.size(), 4U);
    for (ConnId conn = 1; conn <= 4; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    ASSERT_EQ(committed("grads"), 1U);
  }
  static Shown theirs(ConnId member) { return {key(member), "t"}; }
  void comes_back_and_calls() {
    come(5, 500, "d", theirs(4));
    (void)say(5, ready("grads", 2));
  }
};

TEST_F(SlowedTokenTest, a_key_against_which_nothing_is_held_is_back_at_once) {
  (void)say(4, wire::Leave{});
  ASSERT_GT(ban_of(3, key(3)), 0);
  comes_back_and_calls();
  EXPECT_TRUE(is_member("d"));
  come(6, 600, "e", theirs(6));
  (void)say(6, ready("grads", 2));
  EXPECT_FALSE(is_member("e")) << "a new key waits";
}

TEST_F(SlowedTokenTest, a_key_that_was_blamed_waits_as_new_ones_do) {
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads", 2));
  (void)say(4, odd(2));
  (void)say(4, wire::Leave{});
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Withdraw{{"grads", 2}});
  wait(kSecond);
  ASSERT_GT(ban_of(3, key(3)), 0);
  comes_back_and_calls();
  EXPECT_FALSE(is_member("d"));
  alive_ = {1, 2, 5};
  wait(2 * kSecond);
  EXPECT_TRUE(is_member("d"));
}

// Its fault has faded: it is an accident by now.
TEST_F(SlowedTokenTest, a_key_whose_fault_has_faded_is_back_at_once) {
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads", 2));
  (void)say(4, odd(2));
  (void)say(4, wire::Leave{});
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Withdraw{{"grads", 2}});
  alive_ = {1, 2, 3};
  wait(kFaultHalfLife);
  ASSERT_GT(ban_of(3, key(3)), 0);
  comes_back_and_calls();
  EXPECT_TRUE(is_member("d"));
}

}  // namespace
}  // namespace jccl::protocol
