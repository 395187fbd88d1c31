// What the master makes of a fetcher's word that a holder is outvoted: it names the holder, and
// weighs little; nobody is framed by it.
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kSecond;

constexpr wire::Digest kRightResult{9, 9};

class OutvotedTest : public HostileMember {
 protected:
  // Four members hold revision 0 of a state; `fetchers` more are sent to fetch it.
  void run_of_four(std::size_t fetchers) {
    MasterOptions four = options();
    four.start_peers = 4;
    begin(four);
    for (ConnId conn = 1; conn <= 4 + fetchers; ++conn) {
      wire::Hello one = hello(100 * conn, "site-" + std::to_string(conn));
      one.addresses = {"127.0.0.1:1"};
      (void)join(conn, one);
      sync(conn, conn <= 4 ? kRightResult : wire::Digest{1, conn});
    }
    for (ConnId conn = 1; conn <= 4; ++conn) ASSERT_TRUE(is_member(conn));
  }
  std::vector<wire::SyncReply> sync(ConnId conn, wire::Digest own) {
    wire::Sync sync;
    sync.tag = "model";
    sync.digest = own;
    sync.deadline = 1000 * kSecond;
    return sent<wire::SyncReply>(say(conn, sync));
  }
  bool is_member(ConnId conn) const { return view(conn).admitted; }
  PeerView view(ConnId conn) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.incarnation == 100 * conn) return peer;
    }
    return {};
  }
  static wire::Outvoted word_against(ConnId conn) {
    return {{"model", 0, kRightResult}, 100 * conn, 3};
  }
  // It has the state now, enters, and is in a round with the others.
  void enter(ConnId conn, std::uint64_t n) {
    (void)sync(conn, kRightResult);
    ASSERT_TRUE(is_member(conn));
    std::vector<wire::Start> starts;
    for (ConnId one = 1; one <= conn; ++one)
      starts = sent<wire::Start>(say(one, ready("grads", n)));
    ASSERT_EQ(starts.size(), conn);
    for (ConnId one = 1; one <= conn; ++one) {
      (void)say(one, wire::Done{starts[0].attempt, {7, 7}});
    }
    ASSERT_EQ(committed("grads"), n);
  }
};

TEST_F(OutvotedTest, a_word_counts_when_who_says_it_was_in_a_round) {
  run_of_four(1);
  const auto effects = say(5, word_against(2));
  ASSERT_EQ(effects.history.size(), 1U);
  EXPECT_EQ(effects.history[0].kind, "outvoted") << "it is named at once";
  EXPECT_EQ(view(2).faults, "");
  enter(5, 1);
  EXPECT_EQ(view(2).faults, "1 parts of a state unlike the others'");
  EXPECT_EQ(view(1).faults, "");
}

TEST_F(OutvotedTest, who_was_not_sent_to_that_holder_for_that_state_says_nothing) {
  run_of_four(1);
  wire::Outvoted other = word_against(2);
  other.held.digest = {6, 6};
  EXPECT_TRUE(say(5, other).history.empty());
  other = word_against(2);
  other.held.tag = "grads";
  EXPECT_TRUE(say(5, other).history.empty());
  EXPECT_TRUE(say(5, word_against(77)).history.empty()) << "nobody";
  EXPECT_TRUE(say(5, word_against(5)).history.empty()) << "itself";
  EXPECT_TRUE(say(3, word_against(2)).history.empty()) << "who fetches nothing";
  enter(5, 1);
  EXPECT_EQ(view(2).faults, "");
}

TEST_F(OutvotedTest, words_alone_are_no_ban_however_many_say_them) {
  run_of_four(40);
  for (ConnId conn = 5; conn <= 44; ++conn) {
    for (int i = 0; i < 9; ++i) (void)say(conn, word_against(2));
    enter(conn, conn - 4);
  }
  EXPECT_EQ(view(2).faults, "5 parts of a state unlike the others'");
  EXPECT_TRUE(is_member(2));
}

TEST_F(OutvotedTest, each_accuser_counts_once_in_a_while) {
  Blame blame;
  const wire::PublicKey holder{1};
  EXPECT_TRUE(blame.accused(holder, {9}, 0));
  EXPECT_FALSE(blame.accused(holder, {9}, kFaultHalfLife - 1));
  EXPECT_TRUE(blame.accused(holder, {9}, kFaultHalfLife));
}

}  // namespace
}  // namespace jccl::protocol
