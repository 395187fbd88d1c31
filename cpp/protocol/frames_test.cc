// What the master makes of words about frames: of a frame that a plan does not allow, and of a
// result that is another since somebody was sent something else. One's word weighs little; most
// others' is a fault; and who was misled pays for nothing.
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"
#include "protocol/rounds/master_attempt.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

constexpr wire::Digest kRight{7, 7}, kBent{6, 6};

class FramesTest : public HostileMember {
 protected:
  // Members a, b, … on connections 1, 2, …
  void run_of(std::size_t count) {
    MasterOptions some = options();
    some.start_peers = static_cast<std::uint32_t>(count);
    some.straggler = straggler_, some.straggler_after = kSecond;
    some.auditor.senders = [this](base::ByteView, wire::PeerId whom,
                                  std::vector<wire::PeerId> owners) {
      const auto count = static_cast<wire::PeerId>(members_);
      for (wire::PeerId& owner : owners) {
        if (ring_ && owner != whom) owner = whom == 1 ? count : whom - 1;
      }
      return owners;
    };
    begin(some, [this](const PlanRequest& request) {
      avoided_ = LinkSet(request.bad_links.begin(), request.bad_links.end());
      return plan(request);
    });
    for (std::size_t i = 0; i < count; ++i) {
      const std::string site(1, static_cast<char>('a' + i));
      ++last_;
      (void)join(last_, hello(100 * last_, site));
    }
    members_ = count;
    const wire::Attempt attempt = begin_round(1);
    for (ConnId conn = 1; conn <= count; ++conn) (void)say(conn, wire::Done{attempt, kRight});
    ASSERT_EQ(committed("grads"), 1U);
    ASSERT_EQ(id_of(count), count);
  }
  wire::PeerId id_of(ConnId conn) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.incarnation == 100 * conn) return peer.member.id;
    }
    return 0;
  }
  std::string faults(ConnId conn) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.incarnation == 100 * conn) return peer.faults;
    }
    return "is gone";
  }
  MasterEffects sees(ConnId conn, ConnId other) {
    return say(conn, wire::Violation{{1, 1}, id_of(other), wire::ViolationKind::kSender});
  }
  wire::Attempt begin_round(std::uint64_t n = 2) {
    wire::Attempt attempt;
    for (ConnId conn = 1; conn <= members_; ++conn) {
      for (const auto& start : sent<wire::Start>(say(conn, ready("grads", n)))) {
        attempt = start.attempt;
      }
    }
    return attempt;
  }
  // Each owns a share, which it sends to the others; `bent` is that of one owner at one of them.
  wire::Done done(const wire::Attempt& attempt, ConnId conn, ConnId owner, ConnId victim) const {
    wire::Done said{attempt, conn == victim ? kBent : kRight};
    for (ConnId one = 1; one <= members_; ++one) {
      const auto id = static_cast<wire::PeerId>(one);
      const bool bent = one == owner && conn == victim;
      said.shares.push_back({id, id, bent ? wire::Digest{9, 9} : wire::Digest{one, 0}});
    }
    return said;
  }
  // In a ring from 3 on: what of its one result each has.
  std::vector<wire::Done> words_in_ring(const wire::Attempt& attempt,
                                        const std::set<wire::PeerId>& bent) const {
    std::vector<wire::Done> words;
    const auto count = static_cast<wire::PeerId>(members_);
    for (wire::PeerId id = 1; id <= count; ++id) {
      const bool other = bent.count(id) > 0;
      const wire::PeerId from = id == 3 ? 3 : id == 1 ? count : id - 1;
      words.push_back({attempt, other ? kBent : kRight});
      words.back().shares.push_back({3, from, other ? wire::Digest{9, 9} : wire::Digest{3, 0}});
    }
    return words;
  }
  std::vector<wire::Done> words_of_all(const wire::Attempt& attempt, ConnId owner,
                                       ConnId victim) const {
    std::vector<wire::Done> words;
    for (ConnId conn = 1; conn <= members_; ++conn) {
      words.push_back(done(attempt, conn, owner, victim));
    }
    return words;
  }
  // All are done; which calls ended for good.
  std::set<ConnId> all_done(const std::vector<wire::Done>& words) {
    std::set<ConnId> ended;
    for (ConnId conn = 1; conn <= members_; ++conn) {
      for (const MasterSend& one : say(conn, words[conn - 1]).send) {
        const auto* outcome = std::get_if<wire::Outcome>(&one.message);
        if (outcome != nullptr && !outcome->retry) ended.insert(one.conn);
      }
    }
    return ended;
  }

  Straggler straggler_ = Straggler::kWait;
  std::size_t members_ = 0;
  bool ring_ = false;  // results come from the one before, and not from each owner
  LinkSet avoided_;    // by the newest plan
};

TEST_F(FramesTest, ones_word_about_frames_is_named_and_weighs_little) {
  run_of(4);
  const auto effects = sees(1, 4);
  ASSERT_FALSE(effects.history.empty());
  EXPECT_EQ(effects.history[0].kind, "violation");
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(sees(1, 4).history.empty()) << i;
  EXPECT_EQ(faults(4), "1 frames that no plan allows, as one says");
}

TEST_F(FramesTest, what_most_others_saw_three_times_is_a_ban) {
  run_of(4);
  for (int time = 1; time <= 3; ++time) {
    EXPECT_NE(faults(4), "is gone") << time;
    (void)sees(1, 4);
    (void)sees(2, 4);
  }
  EXPECT_EQ(faults(4), "is gone");
  for (ConnId conn = 1; conn <= 3; ++conn) EXPECT_EQ(faults(conn), "");
}

TEST_F(FramesTest, a_minority_frames_nobody) {
  run_of(5);
  for (int time = 0; time < 50; ++time) {
    (void)sees(4, 1);
    (void)sees(5, 1);
  }
  EXPECT_EQ(faults(1), "2 frames that no plan allows, as one says");
}

// One is all of the others there (simulator, hostile seed 79 of one build).
TEST_F(FramesTest, of_two_ones_word_about_frames_ends_nothing) {
  run_of(2);
  ASSERT_NE(begin_round(), wire::Attempt{});
  for (int time = 0; time < 9; ++time) {
    const MasterEffects effects = sees(1, 2);
    EXPECT_TRUE(sent<wire::Outcome>(effects).empty());
    EXPECT_EQ(effects.history.size(), time == 0 ? 1U : 0U);
  }
  EXPECT_EQ(faults(2), "");
}

TEST_F(FramesTest, who_left_is_no_witness) {
  run_of(6);  // more than two of five have to say so
  (void)sees(4, 1);
  (void)sees(5, 1);
  (void)say(5, wire::Leave{});
  (void)say(4, wire::Leave{});
  (void)sees(6, 1);  // of three
  EXPECT_EQ(faults(1).find("as most say"), std::string::npos) << faults(1);
  (void)sees(2, 1);
  EXPECT_NE(faults(1).find("as most say"), std::string::npos) << faults(1);
}

TEST_F(FramesTest, words_of_and_about_nobody_are_ignored) {
  run_of(4);
  (void)say(1, wire::Violation{{}, 77, wire::ViolationKind::kAck});
  EXPECT_TRUE(sees(4, 4).history.empty());
  (void)join(9, hello(900, "z"));  // no member
  EXPECT_TRUE(sees(9, 1).history.empty());
  for (ConnId conn = 1; conn <= 4; ++conn) EXPECT_EQ(faults(conn), "");
}

TEST_F(FramesTest, who_was_sent_another_result_pays_for_nothing_and_its_call_goes_on) {
  run_of(4);
  for (int time = 1; time <= 2; ++time) {
    const wire::Attempt attempt = begin_round();
    ASSERT_NE(attempt, wire::Attempt{}) << time;
    EXPECT_TRUE(all_done(words_of_all(attempt, 4, 1)).empty()) << time;
  }
  (void)begin_round();
  EXPECT_EQ(avoided_, (LinkSet{{1, 4}})) << "no round goes over that link again";
  EXPECT_EQ(faults(1), "");
}

TEST_F(FramesTest, whose_own_share_differs_is_outvoted_as_before) {
  run_of(4);
  const wire::Attempt attempt = begin_round();
  (void)all_done(words_of_all(attempt, 1, 1));
  EXPECT_EQ(faults(1), "1 results unlike the others'");
}

TEST_F(FramesTest, who_says_nothing_of_its_shares_is_outvoted) {
  run_of(4);
  const wire::Attempt attempt = begin_round();
  std::vector<wire::Done> words = words_of_all(attempt, 4, 1);
  words[0].shares.clear();
  (void)all_done(words);
  EXPECT_EQ(faults(1), "1 results unlike the others'");
}

TEST_F(FramesTest, who_says_that_most_others_mislead_it_is_outvoted) {
  run_of(4);
  const wire::Attempt attempt = begin_round();
  std::vector<wire::Done> words = words_of_all(attempt, 4, 1);
  for (wire::Share& share : words[0].shares) {
    if (share.owner != 1) share.digest = {8, 8};
  }
  (void)all_done(words);
  EXPECT_EQ(faults(1), "1 results unlike the others'");
}

// One of those with the right result says what it was sent to suit its lie.
TEST_F(FramesTest, a_liar_among_the_others_cannot_make_the_misled_one_pay) {
  run_of(4);
  const wire::Attempt attempt = begin_round();
  std::vector<wire::Done> words = words_of_all(attempt, 4, 1);
  words[3].shares = words[0].shares;
  (void)all_done(words);
  EXPECT_EQ(faults(1), "");
}

// In a ring a result comes by way of others: who passes on what it was sent is misled, too.
TEST_F(FramesTest, of_a_chain_the_link_counts_by_which_the_result_became_another) {
  ring_ = true;
  run_of(6);
  for (int time = 1; time <= 2; ++time) {  // 3 → 4 → 5 → 6 → 1 → 2, and 6 bends it
    EXPECT_TRUE(all_done(words_in_ring(begin_round(), {1, 2})).empty()) << time;
  }
  (void)begin_round();
  EXPECT_EQ(avoided_, (LinkSet{{1, 6}}));
  for (ConnId conn = 1; conn <= 6; ++conn) EXPECT_EQ(faults(conn), "");
}

// Most have what one of them made of it then, and who made the result is outvoted (simulator,
// hostile seeds 6015200 and 6041157 of one build).
TEST_F(FramesTest, who_made_what_another_bent_for_most_pays_for_nothing) {
  for (const bool says_so : {false, true}) {  // 4, of what it got; or that it got what it sent
    SCOPED_TRACE(says_so);
    last_ = 0, ring_ = true;
    SetUp();
    run_of(6);
    std::set<wire::PeerId> bent = {5, 6, 1, 2};
    if (!says_so) bent.insert(4);
    for (int time = 1; time <= 2; ++time) {
      EXPECT_TRUE(all_done(words_in_ring(begin_round(), bent)).empty()) << time;
    }
    (void)begin_round();
    EXPECT_EQ(avoided_, says_so ? (LinkSet{{4, 5}}) : (LinkSet{{3, 4}}));
    for (ConnId conn = 1; conn <= 6; ++conn) EXPECT_EQ(faults(conn), "");
  }
}

// It comes right after who made it, and says nothing, or that it came from the other side: then it
// is not known whose word to take, and who is there to be asked has said what it made.
TEST_F(FramesTest, who_bends_a_result_and_says_nothing_of_it_makes_nobody_pay) {
  ring_ = true;
  run_of(6);
  for (int time = 1; time <= 2; ++time) {
    std::vector<wire::Done> words = words_in_ring(begin_round(), {4, 5, 6, 1, 2});
    words[3].shares[0].from = time == 1 ? 5 : 4;
    EXPECT_TRUE(all_done(words).empty()) << time;
  }
  (void)begin_round();
  EXPECT_EQ(avoided_, (LinkSet{{4, 5}}));
  for (ConnId conn = 1; conn <= 6; ++conn) EXPECT_EQ(faults(conn), "");
}

TEST_F(FramesTest, who_sent_most_others_something_else_than_it_says_is_outvoted) {
  run_of(5);
  std::vector<wire::Done> words = words_of_all(begin_round(), 1, 1);
  words[1] = words[0];  // one of them has the same, since it lies, or was sent it
  (void)all_done(words);
  EXPECT_EQ(faults(1), "1 results unlike the others'");
}

// Whose frame one that says DONE withheld, or acknowledged and dropped: all that it lacks of that
// one's sums, or the rest when some have come.
TEST_F(FramesTest, who_waits_for_one_that_is_done_is_no_straggler_until_the_link_is_out) {
  straggler_ = Straggler::kEvict;
  for (const bool some_came : {false, true}) {
    SCOPED_TRACE(some_came);
    last_ = 0;
    run_of(4);
    for (int time = 1; time <= 2; ++time) {
      const wire::Attempt attempt = begin_round();
      ASSERT_NE(attempt, wire::Attempt{}) << time;
      for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, done(attempt, conn, 0, 0));
      for (int i = 0; i < 20; ++i) {
        now_ += kSecond / 10;
        const std::uint64_t left = some_came && i == 0 ? 20 : 10;
        (void)say(1, wire::Heartbeat{0, 0, {{attempt, left, 200, id_of(4)}}});
        for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Heartbeat{});
        (void)on(Tick{});
      }
      EXPECT_EQ(id_of(1), time == 1 ? 1U : 0U) << "the second time no plan had the link";
    }
    EXPECT_EQ(avoided_, (LinkSet{{1, 4}}));
  }
}

// Half of the others have what one of them made of it, and that one has neither: no result is that
// of most. The call went on for nobody then, and nobody was at fault.
TEST_F(FramesTest, without_a_majority_the_link_counts_as_well) {
  ring_ = true;
  run_of(4);
  for (int time = 1; time <= 2; ++time) {
    std::vector<wire::Done> words =
        words_in_ring(begin_round(), {1});  // 3 → 4 → 1 → 2, and 4 bends it
    words[3].result = {5, 5};
    EXPECT_TRUE(all_done(words).empty()) << time;
  }
  (void)begin_round();
  EXPECT_EQ(avoided_, (LinkSet{{1, 2}, {1, 4}})) << "2 says that it got the right one from 1";
  for (ConnId conn = 1; conn <= 4; ++conn) EXPECT_EQ(faults(conn), "");
}

// A deadline ends the hearing before two are done: that they say nothing of what they made is no
// word against anybody (hostile seed 6407176).
TEST_F(FramesTest, without_a_majority_who_is_not_done_yet_has_no_bad_links) {
  run_of(6);
  for (int time = 1; time <= 2; ++time) {
    std::vector<wire::Done> words = words_of_all(begin_round(), 1, 2);
    words[0].result = {5, 5};
    for (const ConnId conn : {1, 2, 5, 6}) (void)say(conn, words[conn - 1]);
    now_ += kSecond * 2;
    (void)on(Tick{});
  }
  (void)begin_round();
  EXPECT_EQ(avoided_, (LinkSet{{1, 2}}));
  for (ConnId conn = 1; conn <= 6; ++conn) EXPECT_EQ(faults(conn), "");
}

// Nor is it a way to send one something else, to say nothing of it.
TEST_F(FramesTest, without_a_majority_who_is_not_done_sent_one_something_else) {
  run_of(4);
  for (int time = 1; time <= 2; ++time) {
    const std::vector<wire::Done> words = words_of_all(begin_round(), 1, 2);
    for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, words[conn - 1]);
    now_ += kSecond * 2;
    (void)on(Tick{});
  }
  (void)begin_round();
  EXPECT_EQ(avoided_, (LinkSet{{1, 2}}));
  for (ConnId conn = 1; conn <= 4; ++conn) EXPECT_EQ(faults(conn), "");
}

TEST_F(FramesTest, without_a_majority_who_sent_most_another_one_than_it_made_is_at_fault) {
  run_of(4);
  for (int time = 1; time <= 2; ++time) {
    std::vector<wire::Done> words = words_of_all(begin_round(), 0, 0);
    for (ConnId conn = 1; conn <= 4; ++conn) {  // each has another one of 4's
      words[conn - 1].result = {conn, 1};
      words[conn - 1].shares[3].digest = {9, conn};
    }
    const std::set<ConnId> ended = all_done(words);
    EXPECT_EQ(ended, time == 1 ? std::set<ConnId>{} : std::set<ConnId>{4});
  }
  EXPECT_EQ(faults(4), "2 results unlike the others'");
  for (ConnId conn = 1; conn <= 3; ++conn) EXPECT_EQ(faults(conn), "");
}

// Two links of one liar explain a result, and one of the others is gone.
TEST_F(FramesTest, a_death_makes_nobody_pay_for_two_links_of_a_liar) {
  ring_ = true;
  run_of(4);
  const wire::Attempt attempt = begin_round();  // 1 → 2 → 3 → 4; 3 bends 1's share and 2's
  const auto word = [&](wire::PeerId id, bool first, bool second) {
    wire::Done said{attempt, first || second ? kBent : kRight};
    const auto share = [&](wire::PeerId owner, bool bent) {
      const wire::PeerId from = id == owner ? id : id == 1 ? 4 : id - 1;
      said.shares.push_back({owner, from, {bent ? 9U : 1U, owner}});
    };
    share(1, first), share(2, second);
    return said;
  };
  wire::Done lie = word(3, true, false);  // so 2's share became another after it, and 1's before
  lie.shares.push_back({3, 3, {8, 8}});   // … and nobody compares with it
  (void)say(1, word(1, false, false));
  (void)say(1, wire::Leave{});
  (void)say(2, word(2, false, false));
  (void)say(3, lie);
  (void)say(4, word(4, true, true));
  EXPECT_EQ(faults(2), "");
}

// Who lies says that both others of its shard mislead it. The others of other shards are no more
// that do not.
TEST_F(FramesTest, of_several_shards_each_has_its_own_majority) {
  MasterOptions three = options();
  three.start_peers = 3;
  begin(three);
  members_ = 6;
  for (ConnId conn = 1; conn <= members_; ++conn) {
    wire::Hello one = hello(100 * conn, std::string(1, static_cast<char>('a' + (conn - 1) / 2)));
    one.shard = static_cast<std::uint32_t>((conn - 1) % 2), one.shards = 2;
    (void)join(conn, one);
  }
  const wire::Attempt attempt = begin_round(1);
  ASSERT_NE(attempt, wire::Attempt{});
  for (ConnId conn = 1; conn <= members_; ++conn) {
    wire::Done said{attempt, conn == 1 ? kBent : kRight};
    for (ConnId owner = 2 - conn % 2; owner <= members_; owner += 2) {  // of its shard
      const bool bent = conn == 1 && owner != 1;
      said.shares.push_back({id_of(owner), id_of(owner), {bent ? 9U : 1U, owner}});
    }
    (void)say(conn, said);
  }
  EXPECT_EQ(faults(1), "1 results unlike the others'");
}

TEST_F(FramesTest, when_the_one_that_differs_goes_the_others_commit) {
  run_of(4);
  (void)all_done(words_of_all(begin_round(), 2, 1));  // the first time all go again
  const wire::Attempt attempt = begin_round();
  (void)say(2, wire::Done{attempt, {77, 77}});
  (void)say(1, wire::Done{attempt, kRight});
  (void)say(2, wire::Leave{});
  (void)say(3, wire::Done{attempt, kRight});
  (void)say(4, wire::Done{attempt, kRight});
  EXPECT_EQ(committed("grads"), 2U);
}

// What it sent one of the two that are left is no reason to end their calls.
TEST_F(FramesTest, who_bends_a_result_and_goes_ends_no_call) {
  run_of(3);
  (void)all_done(words_of_all(begin_round(), 2, 1));
  const wire::Attempt attempt = begin_round();
  (void)say(2, wire::Done{attempt, kRight});
  (void)say(1, wire::Done{attempt, kRight});
  (void)say(2, wire::Leave{});
  const auto last = sent<wire::Outcome>(say(3, wire::Done{attempt, kBent}));
  ASSERT_FALSE(last.empty());
  for (const wire::Outcome& outcome : last) EXPECT_TRUE(outcome.retry);
}

// The chain of what each has leads over one that is gone: nobody has a link with it any more, and
// the master ended by that (hostile seed 6449981).
TEST_F(FramesTest, a_link_of_one_that_went_is_no_link) {
  ring_ = true;
  run_of(4);
  std::vector<wire::Done> words = words_in_ring(begin_round(), {1, 2});  // 3 → 4 → 1 → 2
  words[2].result = {5, 5};
  for (const ConnId conn : {1, 3, 4}) (void)say(conn, words[conn - 1]);
  (void)say(1, wire::Leave{});
  const auto last = sent<wire::Outcome>(say(2, words[1]));
  ASSERT_EQ(last.size(), 3U);
  for (const wire::Outcome& outcome : last) EXPECT_TRUE(outcome.retry);
  for (ConnId conn = 2; conn <= 4; ++conn) EXPECT_EQ(faults(conn), "");
}

TEST_F(FramesTest, over_a_way_that_the_plan_has_not_nobody_is_misled) {
  run_of(4);
  std::vector<wire::Done> words = words_of_all(begin_round(), 4, 1);
  for (wire::Share& share : words[0].shares) {
    if (share.owner == 4) share.from = 3;
  }
  (void)all_done(words);
  EXPECT_EQ(faults(1), "1 results unlike the others'");
}

}  // namespace
}  // namespace jccl::protocol
