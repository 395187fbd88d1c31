// Who comes and goes without a round costs the others an epoch, links and attempts each time: new
// keys wait while many do, and nobody else does.
#include "base/text.h"
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

class ChurnTest : public HostileMember {
 protected:
  void SetUp() override {
    run_of_three();
    alive_ = {1, 2, 3};
  }
  static Shown shown(std::uint64_t key, std::string token = {}) {
    return {{static_cast<std::uint8_t>(key), static_cast<std::uint8_t>(key >> 8), 1},
            std::move(token)};
  }
  // A process with that key asks for a round, as a site of its own.
  ConnId come(std::uint64_t key, const std::string& token = {}) {
    const ConnId conn = ++conns_;
    const Shown by = shown(key, token);
    (void)on(ConnMessage{conn, hello(10 * conn, base::cat("new-", conn)), by});
    (void)on(ConnMessage{conn, wire::Resume{}, by});
    (void)say(conn, ready("grads", committed("grads") + 1));
    return conn;
  }
  bool is_member(ConnId conn) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.incarnation == 10 * conn) return peer.admitted;
    }
    return false;
  }
  void leave(ConnId conn) { (void)say(conn, wire::Leave{}); }
  // Thirty come, and go one after another: new keys wait for about 20 s.
  void many_come_and_go(const std::string& token = {}, std::uint64_t key = 0) {
    std::vector<ConnId> crowd;
    for (int i = 0; i < 30; ++i) crowd.push_back(come(key != 0 && i == 0 ? key : ++keys_, token));
    for (const ConnId conn : crowd) {
      ASSERT_TRUE(is_member(conn));
      leave(conn);
      wait(Visits::kTogether);
    }
  }
  // Members 1 to 3, and the newcomer, end a round.
  void commit_with(ConnId conn) {
    const std::uint64_t n = committed("grads") + 1;
    std::vector<wire::Start> starts;
    for (ConnId one = 1; one <= 3; ++one) starts = sent<wire::Start>(say(one, ready("grads", n)));
    ASSERT_EQ(starts.size(), 4U);
    for (const ConnId one : {ConnId{1}, ConnId{2}, ConnId{3}, conn}) {
      (void)say(one, wire::Done{starts[0].attempt, {7, 7}});
    }
    ASSERT_EQ(committed("grads"), n);
  }

  std::uint64_t keys_ = 1000;
  ConnId conns_ = 100;
};

TEST_F(ChurnTest, who_comes_and_goes_without_a_round_makes_new_keys_wait) {
  many_come_and_go();
  const ConnId conn = come(++keys_);
  EXPECT_FALSE(is_member(conn));
  std::string told;
  now_ += kSecond;
  for (const wire::Waiting& one : sent<wire::Waiting>(on(Tick{}))) told += one.text;
  EXPECT_NE(told.find("while many come and go"), std::string::npos) << told;
  alive_.push_back(conn);
  wait(25 * kSecond);
  EXPECT_TRUE(is_member(conn));
}

TEST_F(ChurnTest, in_a_minute_they_come_in_once_a_second_and_the_journal_grows_as_slowly) {
  int in = 0;
  const std::size_t rows = rows_;
  for (const base::Time end = now_ + 60 * kSecond; now_ < end;) {
    const ConnId conn = come(++keys_);
    in += is_member(conn);
    leave(conn);
    wait(50 * kMillisecond);
  }
  EXPECT_GE(in, 30);
  EXPECT_LE(in, 100);  // those that the gate let through go together
  EXPECT_LE(rows_ - rows, 200U);
}

TEST_F(ChurnTest, an_honest_newcomer_comes_in_while_others_come_and_go) {
  many_come_and_go();
  const ConnId honest = come(++keys_);
  alive_.push_back(honest);
  const base::Time begun = now_;
  while (!is_member(honest) && now_ < begun + 60 * kSecond) {
    leave(come(++keys_));
    wait(50 * kMillisecond);
  }
  EXPECT_LE(now_ - begun, 25 * kSecond);
}

TEST_F(ChurnTest, who_was_in_a_round_is_not_kept_waiting_and_keeps_nobody_waiting) {
  const std::uint64_t known = ++keys_;
  for (int i = 0; i < 5 * Visits::kFree; ++i) {
    const ConnId conn = come(i == 0 ? known : ++keys_);
    ASSERT_TRUE(is_member(conn)) << i;
    commit_with(conn);
    leave(conn);
  }
  many_come_and_go();
  EXPECT_FALSE(is_member(come(++keys_)));
  EXPECT_TRUE(is_member(come(known)));
}

TEST_F(ChurnTest, a_key_that_came_in_vain_is_new_again) {
  const std::uint64_t key = ++keys_;
  many_come_and_go({}, key);
  EXPECT_FALSE(is_member(come(key)));
  wait(25 * kSecond);
  const ConnId conn = come(key);
  ASSERT_TRUE(is_member(conn));
  commit_with(conn);
  leave(conn);
  many_come_and_go();
  EXPECT_TRUE(is_member(come(key)));
}

TEST_F(ChurnTest, who_loses_its_connection_counts_as_who_leaves) {
  std::vector<ConnId> crowd;
  for (int i = 0; i < 30; ++i) crowd.push_back(come(++keys_));
  for (const ConnId conn : crowd) {
    (void)on(ConnClosed{conn});
    wait(Visits::kTogether);
  }
  wait(kSecond);  // they are evicted
  EXPECT_FALSE(is_member(come(++keys_)));
}

TEST_F(ChurnTest, others_tokens_admit_meanwhile) {
  many_come_and_go("leaked");
  EXPECT_FALSE(is_member(come(++keys_, "leaked")));
  EXPECT_TRUE(is_member(come(++keys_, "another")));
}

class BeforeTheFirstRound : public ChurnTest {
 protected:
  void SetUp() override {
    MasterOptions many = options();
    many.start_peers = 40;
    begin(many);
    join({"a", "b", "c"});
    alive_ = {1, 2, 3};
  }
};

TEST_F(BeforeTheFirstRound, many_more_may_come_and_go) {
  many_come_and_go();
  EXPECT_TRUE(is_member(come(++keys_)));
}

TEST_F(BeforeTheFirstRound, the_journal_grows_by_two_rows_a_second_at_last) {
  const auto for_a_minute = [&] {
    const std::size_t rows = rows_;
    for (const base::Time end = now_ + 60 * kSecond; now_ < end;) {
      leave(come(++keys_));
      wait(50 * kMillisecond);
    }
    return rows_ - rows;
  };
  EXPECT_LE(for_a_minute(), 200U + 3 * Visits::kFreeAtFirst);
  EXPECT_LE(for_a_minute(), 200U);
}

TEST_F(ChurnTest, newcomers_that_go_together_keep_nobody_waiting) {
  std::vector<ConnId> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(come(++keys_));
  for (const ConnId conn : crowd) EXPECT_TRUE(is_member(conn));
  for (const ConnId conn : crowd) (void)on(ConnClosed{conn});
  wait(kSecond);
  EXPECT_FALSE(is_member(crowd[0]));
  EXPECT_TRUE(is_member(come(++keys_)));
}

TEST(VisitsTest, some_are_free_and_one_a_second_is_and_the_wait_is_bounded) {
  Visits visits;
  base::Time now = 1000 * kSecond;
  const auto add = [&] {
    now += Visits::kTogether;
    return visits.add(Visits::kFree, 600 * kSecond, now);
  };
  for (int i = 0; i < Visits::kFree; ++i) EXPECT_EQ(add(), 0);
  EXPECT_GT(add(), 0);
  EXPECT_GT(add(), Visits::kEach / 2);
  for (int i = 0; i < 10'000; ++i) EXPECT_LE(add(), 600 * kSecond);
  now += 600 * kSecond;
  for (int i = 0; i < 100; ++i, now += kSecond)
    EXPECT_LE(visits.add(Visits::kFree, 600 * kSecond, now), kSecond);
  now += 60 * kSecond;
  EXPECT_EQ(visits.add(Visits::kFree, 600 * kSecond, now), 0);
}

}  // namespace
}  // namespace jccl::protocol
