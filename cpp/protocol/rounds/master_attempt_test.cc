#include "protocol/rounds/master_attempt.h"

#include <gtest/gtest.h>

namespace jccl::protocol {
namespace {

Participant part(wire::PeerId id, const std::string& site, double weight = 1,
                 std::uint32_t shard = 0) {
  Participant part;
  part.id = id;
  part.incarnation = 100 + id;
  part.site = site;
  part.shard = shard;
  part.weight = weight;
  return part;
}

struct Running : MasterAttempt {
  explicit Running(std::vector<Participant> parts, std::uint32_t min_peers = 1)
      : MasterAttempt({1, 1}, {"t", 1}, std::move(parts), min_peers) {}
  void done(wire::PeerId id, std::uint64_t digest) {
    MasterAttempt::done(*part_of(100 + id), {digest, 0});
  }
};

TEST(MasterAttemptTest, commits_when_all_contributors_agree) {
  Running a({part(1, "a"), part(2, "b"), part(3, "c", 0)});
  a.done(1, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kMoving);
  EXPECT_EQ(a.waits_for(), "b");
  a.done(2, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kAgreed);
  EXPECT_EQ(a.world(), 2U);
  EXPECT_EQ(a.results(), std::vector<wire::Digest>({{5, 0}}));
}

TEST(MasterAttemptTest, a_receiver_decides_nothing) {
  Running a({part(1, "a"), part(2, "b", 0)});
  a.done(2, 6);
  EXPECT_EQ(a.phase(), AttemptPhase::kMoving);
  a.gone("b");
  EXPECT_EQ(a.phase(), AttemptPhase::kMoving);
  a.done(1, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kAgreed);
}

TEST(MasterAttemptTest, unequal_results_of_one_shard_do_not_commit) {
  Running a({part(1, "a"), part(2, "b")});
  a.done(1, 5);
  a.done(2, 6);
  EXPECT_EQ(a.phase(), AttemptPhase::kUnequal);
}

TEST(MasterAttemptTest, shards_have_their_own_results) {
  Running a({part(1, "a", 1, 0), part(2, "a", 1, 1), part(3, "b", 1, 0), part(4, "b", 1, 1)});
  a.done(1, 5), a.done(3, 5), a.done(2, 6), a.done(4, 6);
  EXPECT_EQ(a.phase(), AttemptPhase::kAgreed);
  EXPECT_EQ(a.results(), std::vector<wire::Digest>({{5, 0}, {6, 0}}));
}

TEST(MasterAttemptTest, a_second_report_of_one_part_changes_nothing) {
  Running a({part(1, "a"), part(2, "b")});
  a.done(1, 5);
  a.done(1, 6);
  a.done(2, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kAgreed);
}

TEST(MasterAttemptTest, who_was_done_and_left_stays_in) {
  Running a({part(1, "a"), part(2, "b")});
  a.done(2, 5);
  a.gone("b");
  EXPECT_EQ(a.phase(), AttemptPhase::kMoving);
  a.done(1, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kAgreed);
  EXPECT_EQ(a.contributors().size(), 2U);
}

TEST(MasterAttemptTest, an_evicted_contributors_digest_decides_nothing) {
  Running a({part(1, "a"), part(2, "b")});
  a.done(2, 6);
  a.gone("b");
  a.done(1, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kAgreed);
  EXPECT_EQ(a.results(), std::vector<wire::Digest>({{5, 0}}));
}

TEST(MasterAttemptTest, who_left_before_done_ends_it_unless_all_others_are_done) {
  Running lost({part(1, "a"), part(2, "b")});
  lost.gone("b");
  EXPECT_EQ(lost.phase(), AttemptPhase::kLost);
  EXPECT_EQ(lost.reason(), "b lost before DONE");
  Running kept({part(1, "a"), part(2, "b")});
  kept.done(1, 5);
  kept.gone("b");
  EXPECT_EQ(kept.phase(), AttemptPhase::kAgreed);
}

TEST(MasterAttemptTest, fewer_sites_than_a_commit_needs_end_it) {
  Running a({part(1, "a"), part(2, "b")}, 2);
  a.done(2, 5);
  a.gone("b");
  EXPECT_EQ(a.phase(), AttemptPhase::kLost);
  a.done(1, 5);
  EXPECT_EQ(a.phase(), AttemptPhase::kLost) << "a decision is final";
}

// While they agree, and an audit goes on. Convicting the last one committed what nobody has: the
// master ended by a failed check (hostile seed 36010975).
TEST(MasterAttemptTest, fewer_sites_than_a_commit_needs_end_what_they_agreed_on) {
  for (const std::uint32_t needed : {1U, 2U}) {
    Running a({part(1, "a"), part(2, "b")}, needed);
    a.done(1, 5), a.done(2, 5);
    ASSERT_EQ(a.phase(), AttemptPhase::kAgreed);
    a.gone("b");
    EXPECT_EQ(a.phase(), needed == 1 ? AttemptPhase::kAgreed : AttemptPhase::kLost);
    a.gone("a");
    EXPECT_EQ(a.phase(), AttemptPhase::kLost);
    EXPECT_EQ(a.reason(), base::cat("fewer sites left than the ", needed, " a commit needs"));
  }
}

TEST(MasterAttemptTest, the_last_contributor_can_not_commit_by_dying) {
  Running a({part(1, "a"), part(2, "b", 0)});
  a.gone("a");
  EXPECT_EQ(a.phase(), AttemptPhase::kLost);
}

}  // namespace
}  // namespace jccl::protocol
