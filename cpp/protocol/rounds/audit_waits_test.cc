// Audits at the master: whom they wait for and how long, and what of those who are gone.
#include "protocol/rounds/audit_rig.h"

namespace jccl::protocol {
namespace {

TEST_F(AuditTest, who_is_there_and_shows_nothing_is_out_and_nobody_else) {
  run_of(4);
  (void)calls();
  (void)answer(all_done(), 1);  // all but b
  EXPECT_EQ(committed("grads"), 0U);
  const base::Duration silence = HostileMember::options().silence;
  wait(2 * silence + 5 * kCells * kCellTime + kAskTime - base::kMillisecond);
  EXPECT_TRUE(is_member("b"));
  wait(2 * base::kMillisecond);
  EXPECT_FALSE(is_member("b"));
  for (const char* site : {"a", "c", "d"}) EXPECT_TRUE(is_member(site)) << site;
  (void)say(9, hello(999, "b"), key_of(wire::Message(hello(200, "b"))));
  for (const PeerView& peer : master_->view(now_).peers) {
    EXPECT_EQ(has(peer.faults, "1 audits that it showed nothing"), peer.member.site == "b")
        << peer.member.site << ": " << peer.faults;
  }
}

// They show nothing, and take no room of what comes at once.
TEST_F(AuditTest, who_only_receives_makes_no_question_smaller) {
  run_of(3);
  (void)calls();
  (void)answer(all_done());
  wire::Ready receives = ready("grads", 2);
  receives.weight = 0;
  for (int k = 0; k < 20; ++k) {
    const std::string name = base::cat("receiver-", k);
    join({name.c_str()});
    (void)say(last_, receives);
  }
  (void)calls(2);
  ASSERT_EQ(start_.receivers.size(), 20U);
  const auto asks = sent<wire::AuditAsk>(all_done());
  ASSERT_EQ(asks.size(), 3U);
  EXPECT_EQ(asks[0].cells.size(), 3 * kCells);
}

// What follows is held_test's: some of that time is free, the rest is waited outside eightfold.
TEST_F(AuditTest, who_withholds_has_held_the_others) {
  run_of(4);
  const base::Duration patience =
      2 * HostileMember::options().silence + 5 * kCells * kCellTime + kAskTime;
  (void)calls();
  (void)answer(all_done(), 1);
  EXPECT_TRUE(has(history(wait(patience + base::kMillisecond), "held"), "site=b"));
}

TEST_F(AuditTest, who_leaves_before_its_patience_ends_has_held_the_others_as_well) {
  run_of(4);
  (void)calls();
  (void)answer(all_done(), 1);
  wait(2 * HostileMember::options().silence);
  EXPECT_TRUE(has(history(say(2, wire::Leave{}), "held"), "site=b"));
}

// Else no wrong sum would convict whoever goes each time that one of its own is drawn.
TEST_F(AuditTest, who_goes_when_its_own_cells_are_drawn_is_held_to_have_withheld_them) {
  for (const bool fails : {false, true}) {
    last_ = 0;
    run_of(4);
    (void)calls();
    (void)answer(all_done(), 1);
    for (std::uint32_t cell = kCells; cell < 2 * kCells; ++cell) (void)say(2, shown(1, cell));
    if (fails) {
      (void)say(2, wire::Fail{start_.attempt, base::Code::kAborted, 0, "interrupted"});
    } else {
      (void)say(2, wire::Leave{});
      (void)say(9, hello(999, "b"), key_of(wire::Message(hello(200, "b"))));
    }
    std::string faults;
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == "b") faults = peer.faults;
    }
    EXPECT_NE(faults.find("1 audits that it showed nothing"), std::string::npos)
        << fails << ": " << faults;
  }
}

TEST_F(AuditTest, who_has_shown_its_own_cells_may_go) {
  run_of(4);
  (void)calls();
  (void)answer(all_done(), 1);
  for (std::uint32_t cell = kCells; cell < 2 * kCells; ++cell) {
    (void)say(2, shown(1, cell));
    (void)say(2, shown(1, cell, true));
  }
  (void)say(2, wire::Leave{});
  (void)say(9, hello(999, "b"), key_of(wire::Message(hello(200, "b"))));
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

// By saying which links fail a few would choose rounds that nobody audits.
TEST_F(AuditTest, no_plan_may_be_one_that_has_no_audit) {
  run_of(4);
  (void)calls();
  EXPECT_FALSE(rings_);
  last_ = 0;
  run_of(4, 0);
  (void)calls();
  EXPECT_TRUE(rings_);
}

// … by and by, so that none of its words is late.
class SlowAnswers : public AuditTest {
 protected:
  std::string faults_of(const std::string& site) {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == site) return peer.faults;
    }
    return "nobody of that name";
  }
  // b shows a cell after each `pause`. Until when it was a member; kNever: to the end.
  base::Time shows_each(base::Duration pause, std::uint64_t n = 1) {
    (void)calls(n);
    (void)answer(all_done(), 1);
    const base::Time begin = now_;
    for (std::uint32_t cell = 0; cell < 3 * kCells; ++cell) {
      for (base::Duration waited = 0; waited < pause; waited += kStep) {
        wait(kStep);
        if (!is_member("b")) return now_ - begin;
      }
      (void)say(2, shown(1, cell));
      if (cell / kCells == 1) (void)say(2, shown(1, cell, true));
    }
    return base::kNever;
  }
  static constexpr base::Duration kStep = 25 * base::kMillisecond;
};

TEST_F(SlowAnswers, take_a_time_that_grows_with_what_was_asked_and_not_with_each_word) {
  run_of(3);
  const base::Duration patience =
      2 * HostileMember::options().silence + 4 * kCells * kCellTime + kAskTime;
  EXPECT_EQ(shows_each(patience / (3 * kCells) - kStep), base::kNever);
  EXPECT_EQ(committed("grads"), 1U);
  EXPECT_NEAR(static_cast<double>(shows_each(patience / (3 * kCells) + 4 * kStep, 2)),
              static_cast<double>(patience), static_cast<double>(2 * kStep));
}

TEST_F(SlowAnswers, are_no_longer_waited_for_than_stragglers) {
  MasterOptions options = HostileMember::options();
  options.straggler = Straggler::kEvict, options.straggler_after = 4 * base::kSecond;
  run_of(3, 1, options);
  EXPECT_NEAR(static_cast<double>(shows_each(600 * base::kMillisecond)),
              static_cast<double>(options.straggler_after + kAskTime),
              static_cast<double>(2 * kStep));
  // It showed something: it is slow, and no more is known.
  (void)say(9, hello(999, "b"), key_of(wire::Message(hello(200, "b"))));
  EXPECT_EQ(faults_of("b"), "");
}

// Each in its turn, so that all take longer than a straggler may.
TEST_F(SlowAnswers, of_all_are_no_reason_to_put_one_out) {
  MasterOptions options = HostileMember::options();
  options.straggler = Straggler::kEvict, options.straggler_after = 4 * base::kSecond;
  run_of(3, 1, options);
  (void)calls();
  (void)all_done();
  for (std::uint32_t cell = 0; cell < 3 * kCells; ++cell) {
    wait(600 * base::kMillisecond);
    for (std::size_t i = 0; i < 3; ++i) {
      (void)say(conn_[i], shown(i, cell));
      if (cell / kCells == i) (void)say(conn_[i], shown(i, cell, true));
    }
  }
  EXPECT_EQ(committed("grads"), 1U);
  for (const char* site : {"a", "b", "c"}) EXPECT_TRUE(is_member(site)) << site;
}

// It shows parts and results, the others parts alone: on equal lines it takes twice as long.
TEST_F(SlowAnswers, of_who_owns_all_that_is_asked_for_are_as_quick_as_others) {
  MasterOptions options = HostileMember::options();
  options.straggler = Straggler::kEvict, options.straggler_after = 4 * base::kSecond;
  run_of(3, 0.3, options);
  std::vector<std::uint32_t> cells;
  std::uint64_t n = 0;
  const auto are_of_b = [&cells] {
    return cells.size() > 1 && cells.front() / kCells == 1 && cells.back() / kCells == 1;
  };
  for (n = 1; n < 1000; ++n) {
    (void)calls(n);
    const MasterEffects asked = all_done();
    const std::vector<wire::AuditAsk> asks = sent<wire::AuditAsk>(asked);
    cells = asks.empty() ? std::vector<std::uint32_t>() : asks[0].cells;
    if (are_of_b()) break;
    (void)answer(asked);
    ASSERT_EQ(committed("grads"), n);
  }
  ASSERT_TRUE(are_of_b());
  wait(5 * base::kSecond);
  for (const std::uint32_t cell : cells) {
    for (std::size_t i = 0; i < 3; ++i) (void)say(conn_[i], shown(i, cell));
  }
  wait(6 * base::kSecond);
  EXPECT_TRUE(is_member("b"));
  for (const std::uint32_t cell : cells) (void)say(2, shown(1, cell, true));
  for (const char* site : {"a", "b", "c"}) EXPECT_TRUE(is_member(site)) << site;
  EXPECT_EQ(committed("grads"), n);
}

TEST_F(SlowAnswers, of_all_until_a_deadline_are_held_against_nobody) {
  run_of(3);
  (void)calls(1, 3, 2 * base::kSecond);
  (void)all_done();
  for (std::size_t i = 0; i < 3; ++i) (void)say(conn_[i], shown(i, 0));
  EXPECT_EQ(history(wait(2 * base::kSecond), "held"), "");
  EXPECT_EQ(master_->view(now_).tags[0].phase, "idle");
}

// As at a deadline of all.
TEST_F(SlowAnswers, that_are_none_have_held_the_others_when_the_call_ends_first_as_well) {
  run_of(3);
  calls_but(1, 6 * base::kSecond, 10 * base::kSecond);
  (void)answer(all_done(), 1);
  wait(5400 * base::kMillisecond);
  const wire::Fail fail{start_.attempt, base::Code::kDeadline, 0, "deadline passed"};
  EXPECT_TRUE(has(history(say(2, fail), "held"), "site=b"));
}

// The cells of seven come in two questions, and the time for an answer is of both.
TEST_F(AuditTest, who_answers_each_question_late_holds_the_others_once) {
  MasterOptions options = HostileMember::options();
  options.straggler = Straggler::kEvict, options.straggler_after = 4 * base::kSecond;
  run_of(7, 1, options);
  (void)calls();
  const auto first = all_done();
  MasterEffects rest = answer(first, 1);
  EXPECT_TRUE(sent<wire::AuditAsk>(rest).empty());
  wait(3 * base::kSecond);
  MasterEffects second;
  const std::vector<wire::AuditAsk> asks = sent<wire::AuditAsk>(first);
  for (const std::uint32_t cell : asks.at(0).cells) {
    second = say(2, shown(1, cell));
    if (cell / kCells == 1) second = say(2, shown(1, cell, true));
  }
  ASSERT_EQ(sent<wire::AuditAsk>(second).size(), 7U);
  (void)answer(second, 1);
  wait(2 * base::kSecond - base::kMillisecond);
  EXPECT_TRUE(is_member("b"));
  wait(2 * base::kMillisecond);
  EXPECT_FALSE(is_member("b"));
}

// Else a liar could end the others' calls, as of two sites whose roots cross.
TEST_F(AuditTest, roots_of_one_that_is_gone_are_held_against_nobody_and_do_not_commit) {
  run_of(3, 1e-9);  // nothing is drawn
  (void)calls();
  wire::Done false_receipt = done(1);
  false_receipt.audit.receipts[0][0] ^= 1;
  (void)say(1, done(0));
  (void)say(2, false_receipt);
  (void)say(2, wire::Leave{});
  const auto outcomes = sent<wire::Outcome>(say(3, done(2)));
  ASSERT_FALSE(outcomes.empty());
  EXPECT_EQ(outcomes[0].code, base::Code::kPeerLost) << outcomes[0].text;
  EXPECT_TRUE(outcomes[0].retry);
}

// A slow line shows nothing for as long.
TEST_F(AuditTest, who_shows_nothing_until_a_short_deadline_has_held_the_others_and_lied_to_nobody) {
  run_of(3);
  (void)calls(1, 3, 2 * base::kSecond);
  (void)answer(all_done(), 1);
  EXPECT_TRUE(has(history(wait(2 * base::kSecond), "held"), "site=b"));
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(AuditTest, where_all_calls_are_short_it_has_held_them_as_well) {
  run_of(3);
  (void)calls(1, 3, base::kSecond);
  (void)answer(all_done(), 1);
  EXPECT_TRUE(has(history(wait(2 * base::kSecond), "held"), "site=b"));
}

// … nor has it held anybody where one call leaves all too little time.
TEST_F(AuditTest, a_short_call_that_ends_audits_has_held_the_others_itself) {
  run_of(3);
  calls_but(0, 2 * base::kSecond, 60 * base::kSecond);
  (void)answer(all_done(), 1);
  const auto lines = wait(2 * base::kSecond);
  EXPECT_TRUE(has(history(lines, "held"), "site=a"));
  EXPECT_FALSE(has(history(lines, "held"), "site=b"));
  EXPECT_EQ(history(lines, "fault"), "");
}

TEST_F(AuditTest, calls_too_short_for_an_audit_do_not_stop_the_run) {
  run_of(4);
  for (int time = 0; time < 20 && (time == 0 || is_member("a")); ++time) {
    calls_but(0, base::kSecond, 100 * base::kSecond, static_cast<std::uint64_t>(time) + 1);
    (void)all_done();
    wait(base::kSecond);  // an audit takes longer, for all
  }
  EXPECT_FALSE(is_member("a"));
  for (const char* site : {"b", "c", "d"}) EXPECT_TRUE(is_member(site)) << site;
}

TEST_F(AuditTest, an_ask_that_was_lost_with_its_connection_is_said_again) {
  run_of(3);
  (void)calls();
  const auto asked = all_done();
  (void)answer(asked, 1);
  (void)on(ConnClosed{2});
  const auto back = join(9, hello(200, "b"));
  ASSERT_EQ(sent<wire::AuditAsk>(back).size(), 1U);
  EXPECT_EQ(sent<wire::AuditAsk>(back)[0].cells.size(), 3 * kCells);
}

TEST_F(AuditTest, what_was_drawn_of_one_that_died_does_not_commit) {
  run_of(3);
  (void)calls();
  const auto asked = all_done();
  (void)answer(asked, 1);
  const auto last = say(2, wire::Leave{});
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_TRUE(has(sent<wire::Outcome>(last).at(0).text, "b left before it was audited"));
  EXPECT_TRUE(sent<wire::Outcome>(last).at(0).retry);
}

TEST_F(AuditTest, a_call_that_ended_before_the_audit_ends_the_attempt_as_a_withdrawal) {
  run_of(3);
  (void)calls();
  (void)all_done();
  const auto last =
      say(2, wire::Fail{start_.attempt, base::Code::kAborted, 0, "the call had ended"});
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_TRUE(is_member("b"));
  EXPECT_TRUE(has(master_->view(now_).peers[1].faults, "attempts left"));
}

TEST_F(AuditTest, an_audit_ends_with_the_deadline_of_its_calls) {
  run_of(3);
  (void)calls(1, 3, 2 * base::kSecond);
  (void)answer(all_done(), 1);
  wait(2 * base::kSecond);
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_EQ(master_->view(now_).tags[0].phase, "idle");
  EXPECT_TRUE(is_member("b"));
}

}  // namespace
}  // namespace jccl::protocol
