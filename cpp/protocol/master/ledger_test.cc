#include "protocol/master/ledger.h"

#include <gtest/gtest.h>

namespace jccl::protocol {
namespace {

wire::CommitRecord commit(std::uint64_t n, wire::Attempt attempt) {
  wire::CommitRecord record;
  record.attempt = attempt;
  record.round = {"t", n};
  record.contributors = {{1, 1.0}};
  record.world = 1;
  record.result = {n, 0};
  record.shard_results = {{n, 1}};
  return record;
}

wire::Verdict verdict(const Ledger& ledger, wire::Attempt attempt, std::uint64_t n) {
  return ledger.outcome({attempt, {"t", n}}, 0)->verdict;
}

TEST(LedgerTest, an_outcome_is_committed_aborted_or_expired) {
  Ledger ledger(2);
  for (std::uint64_t n = 1; n <= 4; ++n) ledger.apply(commit(n, {1, 10 * n}));
  EXPECT_EQ(verdict(ledger, {1, 40}, 4), wire::Verdict::kCommitted);
  EXPECT_EQ(verdict(ledger, {1, 30}, 3), wire::Verdict::kCommitted);
  EXPECT_EQ(verdict(ledger, {1, 39}, 4), wire::Verdict::kAborted);
  EXPECT_EQ(verdict(ledger, {1, 50}, 5), wire::Verdict::kAborted);
  EXPECT_EQ(verdict(ledger, {1, 20}, 2), wire::Verdict::kExpired) << "it was committed";
  EXPECT_EQ(verdict(ledger, {1, 19}, 2), wire::Verdict::kExpired) << "nobody knows any more";
}

TEST(LedgerTest, an_attempt_without_its_round_is_only_answered_when_it_is_remembered) {
  Ledger ledger(1);
  ledger.apply(commit(1, {1, 1}));
  ledger.apply(commit(2, {1, 2}));
  EXPECT_TRUE(ledger.outcome({{1, 2}, {}}, 0).has_value());
  EXPECT_FALSE(ledger.outcome({{1, 1}, {}}, 0).has_value());
}

TEST(LedgerTest, each_shard_hears_its_own_result) {
  Ledger ledger(4);
  ledger.apply(commit(1, {1, 1}));
  EXPECT_EQ(ledger.outcome({{1, 1}, {"t", 1}}, 0)->result, (wire::Digest{1, 0}));
  EXPECT_EQ(ledger.outcome({{1, 1}, {"t", 1}}, 1)->result, (wire::Digest{1, 1}));
}

TEST(LedgerTest, of_too_many_bans_the_one_that_ends_first_is_forgotten) {
  Ledger ledger(1);
  const auto key = [](std::uint64_t i) {
    wire::PublicKey key{};
    for (int byte = 0; byte < 8; ++byte) {
      key[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(i >> (8 * byte));
    }
    return key;
  };
  for (std::uint64_t i = 0; i <= kBansMax; ++i) {
    wire::BanRecord ban;
    ban.key = key(i);
    ban.until_unix_ms = i == 5 ? 1 : 1000 + i;
    ledger.apply(ban);
  }
  EXPECT_EQ(ledger.bans().size(), kBansMax);
  EXPECT_EQ(ledger.bans().count(key(5)), 0u);
  EXPECT_EQ(ledger.bans().count(key(kBansMax)), 1u);
}

TEST(LedgerTest, a_member_that_left_the_epoch_is_fenced_for_ever) {
  Ledger ledger(4);
  wire::Member a, b;
  a.id = 1, a.incarnation = 100, a.site = "a";
  b.id = 2, b.incarnation = 200, b.site = "b";
  ledger.apply(wire::EpochRecord{1, 3, {a, b}, ""});
  EXPECT_FALSE(ledger.fenced(200));
  ledger.apply(wire::EpochRecord{2, 3, {a}, ""});
  ledger.apply(wire::EpochRecord{3, 3, {a}, ""});
  EXPECT_TRUE(ledger.fenced(200));
  EXPECT_FALSE(ledger.fenced(100));
  EXPECT_EQ(ledger.next_id(), 3U) << "its id is not used again";
}

TEST(LedgerTest, so_many_fenced_lives_are_remembered_and_no_more) {
  Ledger ledger(4);
  for (std::uint64_t process = 1; process <= kFencedMax + 2; ++process) {
    wire::Member member;
    member.id = static_cast<wire::PeerId>(process), member.incarnation = process, member.site = "a";
    ledger.apply(wire::EpochRecord{process, member.id + 1, {member}, ""});
  }
  EXPECT_EQ(ledger.fenced().size(), kFencedMax);
  EXPECT_FALSE(ledger.fenced(1)) << "the first that left";
  EXPECT_TRUE(ledger.fenced(2));
  EXPECT_TRUE(ledger.fenced(kFencedMax + 1));
  EXPECT_FALSE(ledger.fenced(kFencedMax + 2)) << "a member";
}

TEST(LedgerTest, a_commit_ends_what_is_known_of_the_state) {
  Ledger ledger(4);
  ledger.apply(wire::BirthRecord{"t", "a", {100}, {{7, 7}}, {}, ""});
  EXPECT_EQ(ledger.standing("t").digests.at(0), (wire::Digest{7, 7}));
  ledger.apply(commit(1, {1, 1}));
  EXPECT_TRUE(ledger.standing("t").digests.empty());
  ledger.apply(wire::StateRecord{"t", 1, false, {{8, 8}}});
  EXPECT_EQ(ledger.standing("t").digests.at(0), (wire::Digest{8, 8}));
}

}  // namespace
}  // namespace jccl::protocol
