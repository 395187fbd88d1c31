// Audits at the master: who is convicted, by what, and that nobody else is; what commits, and when.
#include "protocol/rounds/audit_rig.h"

namespace jccl::protocol {
namespace {

TEST_F(AuditTest, what_all_added_up_right_commits_when_it_was_looked_at) {
  run_of(3);
  (void)calls();
  EXPECT_EQ(start_.audit, HostileMember::options().run);
  const auto asked = all_done();
  ASSERT_EQ(sent<wire::AuditAsk>(asked).size(), 3U);
  EXPECT_EQ(sent<wire::AuditAsk>(asked)[0].cells.size(), 3 * kCells);
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_TRUE(has(master_->view(now_).tags[0].waiting_for, "waits for cells of a, b, c"))
      << master_->view(now_).tags[0].waiting_for;
  const auto last = answer(asked);
  EXPECT_EQ(committed("grads"), 1U);
  EXPECT_EQ(sent<wire::Outcome>(last).size(), 3U);
  EXPECT_EQ(master_->view(now_).tags[0].audited, 3 * kCells);
  EXPECT_EQ(master_->view(now_).tags[0].audit, "audited at a share of 1");
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(AuditTest, an_owner_that_adds_up_wrong_is_convicted_named_and_out_and_the_round_goes_on) {
  run_of(4);
  wrong_ = {kCells * 2 + 1};  // c's
  (void)calls();
  const auto last = answer(all_done());
  EXPECT_EQ(committed("grads"), 0U);
  const std::string line = history(last, "convicted");
  EXPECT_TRUE(has(line, "site=c ")) << line;
  EXPECT_TRUE(has(line, "c added up cell 7 wrong, in round 1 of grads")) << line;
  EXPECT_FALSE(is_member("c"));
  const auto told = sent<wire::Outcome>(last);
  ASSERT_EQ(told.size(), 4U);
  EXPECT_TRUE(told[0].retry);
  EXPECT_TRUE(has(told[0].text, "c added up cell 7 wrong"));
  for (const PeerView& peer : master_->view(now_).peers) {
    EXPECT_TRUE(peer.member.site == "c" || peer.faults.empty()) << peer.member.site;
  }
  wrong_.clear();
  (void)say(1, ready("grads"));
  (void)say(2, ready("grads"));
  const auto again = sent<wire::Start>(say(4, ready("grads")));
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again[0].contributors.size(), 3U);
}

// Nobody's word is needed, so two are enough.
TEST_F(AuditTest, of_two_the_one_that_adds_up_wrong_is_convicted) {
  run_of(2);
  wrong_ = {0};
  (void)calls();
  EXPECT_TRUE(has(history(answer(all_done()), "convicted"), "site=a "));
  EXPECT_FALSE(is_member("a"));
  EXPECT_TRUE(is_member("b"));
}

// It comes back each time, with its key, and does the same.
TEST_F(AuditTest, three_wrong_sums_are_a_ban) {
  run_of(4);
  const wire::PublicKey key = key_of(wire::Message(hello(400, "d")));
  for (wire::Incarnation process = 1; process <= 3; ++process) {
    wrong_ = {kCells * 3};  // its id is the highest each time
    (void)calls();
    ASSERT_EQ(start_.contributors.size(), 4U) << process;
    const auto last = answer(all_done());
    EXPECT_TRUE(has(history(last, "convicted"), "d added up cell 9 wrong")) << process;
    const std::string ban = history(last, "ban");
    EXPECT_EQ(ban.empty(), process < 3);
    EXPECT_TRUE(process < 3 || has(ban, "3 cells that an audit proved wrong")) << ban;
    EXPECT_TRUE(process < 3 || has(ban, "site=d")) << ban;
    alive_ = {1, 2, 3};
    (void)on(ConnClosed{conn_[3]});
    conn_[3] = 40 + process;
    (void)say(conn_[3], hello(4000 + process, "d"), key);
    (void)say(conn_[3], wire::Resume{}, key);
    alive_.push_back(conn_[3]);
    (void)say(conn_[3], ready("grads"), key);
    wait(20 * base::kSecond);
  }
}

TEST_F(AuditTest, a_part_that_its_sender_was_not_bound_to_convicts_it) {
  run_of(3);
  (void)calls();
  (void)all_done();
  wire::AuditPart forged = shown(1, 0);
  forged.bytes[0] ^= 1;
  const auto last = say(2, forged);
  EXPECT_TRUE(has(history(last, "convicted"), "b showed another part of cell 0"));
  EXPECT_FALSE(is_member("b"));
  EXPECT_TRUE(is_member("a"));
}

TEST_F(AuditTest, a_part_of_another_cell_or_contributor_proves_nothing) {
  run_of(3);
  (void)calls();
  (void)all_done();
  wire::AuditPart other = shown(1, 1);
  other.cell = 0;
  EXPECT_TRUE(has(history(say(2, other), "convicted"), "site=b "));
}

TEST_F(AuditTest, an_owner_that_shows_another_result_than_it_told_is_convicted) {
  run_of(3);
  (void)calls();
  (void)all_done();
  wire::AuditPart forged = shown(0, 0, true);
  forged.bytes[0] ^= 1;
  EXPECT_TRUE(has(history(say(1, forged), "convicted"), "a showed another result of cell 0"));
}

TEST_F(AuditTest, who_takes_a_cell_for_something_else_is_convicted) {
  run_of(3);
  (void)calls();
  terms_ = {9};
  const wire::Done odd = done(1);  // b binds its own parts as something else
  const wire::AuditPart part = shown(1, 0);
  terms_ = {1, 2, 3};
  wire::Done first = done(0), second = done(1), third = done(2);
  second.audit.parts = odd.audit.parts;
  first.audit.receipts[1] = odd.audit.parts[0].root;
  second.audit.receipts[1] = odd.audit.parts[1].root;
  third.audit.receipts[1] = odd.audit.parts[2].root;
  (void)say(1, first);
  (void)say(2, second);
  (void)say(3, third);
  (void)say(2, part);
  (void)say(3, shown(2, 0));
  (void)say(1, shown(0, 0));
  const auto last = say(1, shown(0, 0, true));
  EXPECT_TRUE(has(history(last, "convicted"), "b took cell 0 for something else"))
      << history(last, "convicted");
}

TEST_F(AuditTest, a_part_that_no_encoder_writes_convicts_its_sender) {
  run_of(3);
  long_ = 1;
  (void)calls();
  EXPECT_TRUE(has(history(answer(all_done()), "convicted"),
                  "b sent a part of cell 0 that no encoder writes: it is no byte"));
}

// Which of the two lies nobody can tell: as with a link, who has most such goes in the end.
TEST_F(AuditTest, a_receipt_that_differs_is_held_against_both_ends_and_frames_nobody) {
  run_of(4);
  for (int attempt = 0; attempt < 2; ++attempt) {
    (void)calls();
    wire::Done false_receipt = done(2);
    false_receipt.audit.receipts[0][0] ^= 1;  // c says that a sent something else
    (void)say(1, done(0));
    (void)say(2, done(1));
    (void)say(3, false_receipt);
    const auto last = say(4, done(3));
    EXPECT_TRUE(sent<wire::AuditAsk>(last).empty());
    ASSERT_EQ(sent<wire::Outcome>(last).size(), 4U);
    EXPECT_EQ(sent<wire::Outcome>(last)[0].code, base::Code::kCorrupt);
    EXPECT_TRUE(has(sent<wire::Outcome>(last)[0].text, "a and c"));
    EXPECT_TRUE(history(last, "convicted").empty());
    EXPECT_TRUE(attempt == 0 || has(history(last, "cut"), "link=a c")) << "plans avoid it";
  }
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(AuditTest, who_contradicts_itself_is_convicted) {
  run_of(3);
  (void)calls();
  wire::Done odd = done(1);
  odd.audit.receipts[1][0] ^= 1;  // b says that it received something else from itself
  (void)say(1, done(0));
  (void)say(2, odd);
  const auto last = say(3, done(2));
  EXPECT_TRUE(
      has(history(last, "convicted"), "b says that it received something else from itself"));
  EXPECT_FALSE(is_member("b"));
}

TEST_F(AuditTest, a_root_of_the_result_that_differs_is_a_result_that_differs) {
  run_of(3);
  (void)calls();
  wire::Done odd = done(1);
  odd.audit.result[0] ^= 1;
  (void)say(1, done(0));
  (void)say(2, odd);
  const auto last = say(3, done(2));
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_TRUE(has(sent<wire::Outcome>(last).at(0).text, "outvoted b"));
}

TEST_F(AuditTest, done_without_roots_is_a_result_that_differs) {
  run_of(3);
  (void)calls();
  (void)say(1, done(0));
  (void)say(2, wire::Done{start_.attempt, {7, 7}});
  const auto last = say(3, done(2));
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_TRUE(has(sent<wire::Outcome>(last).at(0).text, "outvoted b"));
}

// A plan without a link gives whoever lacks it no cells. A hash of them is made up.
TEST_F(AuditTest, a_hash_of_no_cells_convicts_its_sender) {
  for (const bool receipt : {true, false}) {
    run_of(4);
    (void)calls();
    std::vector<wire::Done> told;
    for (std::size_t i = 0; i < 4; ++i) {
      told.push_back(done(i));
      told[i].audit.parts[2] = {0, {}};
    }
    told[2].audit.cells = 0;
    for (wire::Sha256& root : told[2].audit.receipts) root = {};
    if (receipt) {
      told[2].audit.receipts[0][0] = 1;  // c received something from a
    } else {
      told[2].audit.parts[2].root[0] = 1, told[2].audit.receipts[2][0] = 1;
    }
    MasterEffects last;
    for (std::size_t i = 0; i < 4; ++i) last = say(conn_[i], told[i]);
    EXPECT_TRUE(has(history(last, "convicted"), "c says that")) << receipt;
    EXPECT_FALSE(is_member("c"));
    alive_.clear(), last_ = 0;
  }
}

TEST_F(AuditTest, who_counts_cells_otherwise_than_all_others_is_outvoted) {
  run_of(4);
  for (int attempt = 0; attempt < 2; ++attempt) {
    (void)calls();
    wire::Done odd = done(2);
    odd.audit.parts[0].cells += 1;
    (void)say(1, done(0)), (void)say(2, done(1)), (void)say(3, odd);
    const auto last = say(4, done(3));
    EXPECT_TRUE(has(sent<wire::Outcome>(last).at(0).text, "outvoted c"));
    EXPECT_TRUE(history(last, "cut").empty());
  }
}

TEST_F(AuditTest, what_nobody_asked_for_counts_for_nothing) {
  run_of(3, 1e-9);
  (void)calls();
  wire::AuditPart forged = shown(1, 0);
  forged.bytes[0] ^= 1;
  EXPECT_TRUE(history(say(2, forged), "convicted").empty()) << "before DONE";
  (void)all_done();
  EXPECT_EQ(committed("grads"), 1U) << "none is drawn";
  EXPECT_TRUE(history(say(2, forged), "convicted").empty()) << "it is over";
  EXPECT_TRUE(is_member("b"));
}

TEST_F(AuditTest, a_share_of_the_cells_is_drawn_and_not_the_same_each_time) {
  run_of(3, 0.3);
  std::size_t asked = 0, rounds = 200;
  std::set<std::vector<std::uint32_t>> draws;
  for (std::uint64_t n = 1; n <= rounds; ++n) {
    (void)calls(n);
    const auto effects = all_done();
    const auto asks = sent<wire::AuditAsk>(effects);
    if (!asks.empty()) asked += asks[0].cells.size(), draws.insert(asks[0].cells);
    (void)answer(effects);
    ASSERT_EQ(committed("grads"), n);
  }
  const double share = static_cast<double>(asked) / static_cast<double>(rounds * 3 * kCells);
  EXPECT_NEAR(share, 0.3, 0.05);
  EXPECT_GT(draws.size(), 50U);
}

TEST_F(AuditTest, what_cannot_be_audited_runs_and_is_said_once) {
  run_of(3);
  refusal_ = "partial sums travel";
  const auto first = calls();
  EXPECT_EQ(start_.audit, wire::RunId{});
  EXPECT_TRUE(has(history(first, "audit"), "not audited: partial sums travel"));
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{start_.attempt, {7, 7}});
  EXPECT_EQ(committed("grads"), 1U);
  EXPECT_TRUE(history(calls(2), "audit").empty());
  EXPECT_EQ(master_->view(now_).tags[0].audit, "not audited: partial sums travel");
}

TEST_F(AuditTest, that_nobody_else_contributes_is_said) {
  run_of(3);
  for (ConnId conn = 2; conn <= 3; ++conn) {
    wire::Ready receives = ready("grads");
    receives.weight = 0;
    (void)say(conn, receives);
  }
  EXPECT_TRUE(has(history(say(1, ready("grads")), "audit"), "not audited: of one contribution"));
}

TEST_F(AuditTest, without_the_option_nothing_is_asked_or_said) {
  run_of(3, 0);
  const auto started = calls();
  EXPECT_EQ(start_.audit, wire::RunId{});
  EXPECT_TRUE(history(started, "audit").empty());
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{start_.attempt, {7, 7}});
  EXPECT_EQ(committed("grads"), 1U);
}

}  // namespace
}  // namespace jccl::protocol
