// Audits at the master: who is convicted, by what, and that nobody else is; what commits, and when.
// Cells are one byte each here, and their sum is the sum of the bytes.
#include <algorithm>

#include "protocol/hostile_rig.h"
#include "wire/cell_leaf.h"

namespace jccl::protocol {
namespace {

constexpr std::uint32_t kCells = 3;  // of each owner
constexpr base::Duration kCellTime = 125 * base::kMillisecond;

// What one contributor holds, as an honest one would.
struct Holder {
  std::vector<base::MerkleTree> parts;  // by owner
  base::MerkleTree result;
};

class AuditTest : public HostileMember {
 protected:
  void run_of(std::size_t members, double share = 1) {
    run_of(members, share, HostileMember::options());
  }
  void run_of(std::size_t members, double share, MasterOptions options) {
    options.start_peers = static_cast<std::uint32_t>(members);
    options.audit = share;
    options.auditor.refusal = [this](base::ByteView, base::ByteView) { return refusal_; };
    options.auditor.add_up = [](const ShownCell& cell) {
      Sum sum;
      std::uint8_t all = 0;
      for (std::size_t i = 0; i < cell.parts.size(); ++i) {
        if (cell.parts[i].size() != 1) {
          sum.wrong = i, sum.why = "it is no byte";
          return sum;
        }
        all = static_cast<std::uint8_t>(all + cell.parts[i][0]);
      }
      sum.right = cell.result.size() == 1 && cell.result[0] == all;
      return sum;
    };
    options.auditor.random = [this] { return ++seed_; };
    begin(options);
    constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};
    for (std::size_t i = 0; i < members; ++i) join({kNames[i]}), alive_.push_back(last_);
    size_ = members;
  }

  static std::uint8_t part_of(std::size_t i, std::uint32_t cell) {
    return static_cast<std::uint8_t>(10 * i + cell);
  }
  std::uint8_t sum_of(std::uint32_t cell) const {
    std::uint8_t sum = wrong_.count(cell) > 0 ? 1 : 0;  // as its owner says
    for (std::size_t i = 0; i < size_; ++i) sum += part_of(i, cell);
    return sum;
  }
  base::Bytes bytes_of(std::size_t i, std::uint32_t cell, bool result) const {
    if (!result && i == long_) return {1, 2};
    return {result ? sum_of(cell) : part_of(i, cell)};
  }
  wire::Sha256 leaf(std::size_t i, std::uint32_t cell, bool result) const {
    const base::Bytes byte = bytes_of(i, cell, result);
    const wire::PeerId id = result ? 0 : start_.contributors[i].id;
    return wire::cell_leaf(start_.audit, start_.attempt, id, cell, terms_, byte);
  }
  Holder holder(std::size_t i) const {
    Holder holder;
    std::vector<wire::Sha256> results;
    for (std::uint32_t cell = 0; cell < kCells * size_; ++cell)
      results.push_back(leaf(i, cell, true));
    for (std::size_t owner = 0; owner < size_; ++owner) {
      std::vector<wire::Sha256> leaves;
      for (std::uint32_t k = 0; k < kCells; ++k) {
        leaves.push_back(leaf(i, static_cast<std::uint32_t>(kCells * owner) + k, false));
      }
      holder.parts.emplace_back(std::move(leaves));
    }
    holder.result = base::MerkleTree(std::move(results));
    return holder;
  }
  wire::Done done(std::size_t i) const {
    wire::Done done{start_.attempt, {7, 7}};
    done.audit.cells = kCells;
    done.audit.result = holder(i).result.root();
    for (std::size_t other = 0; other < size_; ++other) {
      done.audit.parts.push_back({kCells, holder(i).parts[other].root()});
      done.audit.receipts.push_back(holder(other).parts[i].root());
    }
    return done;
  }
  wire::AuditPart shown(std::size_t i, std::uint32_t cell, bool result = false) const {
    wire::AuditPart part{start_.attempt, cell, result, terms_, {}, {}};
    part.path =
        result ? holder(i).result.path(cell) : holder(i).parts[cell / kCells].path(cell % kCells);
    part.bytes = bytes_of(i, cell, result);
    return part;
  }

  // The effects of the last READY; start_ is what it brought.
  MasterEffects calls(std::uint64_t n = 1, std::size_t members = 0) {
    MasterEffects last;
    for (std::size_t i = 0; i < (members == 0 ? size_ : members); ++i)
      last = say(conn_[i], ready("grads", n));
    const auto starts = sent<wire::Start>(last);
    if (!starts.empty()) start_ = starts.front();
    return last;
  }
  MasterEffects all_done() {
    MasterEffects last;
    for (std::size_t i = 0; i < size_; ++i) last = say(conn_[i], done(i));
    return last;
  }
  // Everything that `asked` asks for, but of whom `but` names; and what all of it brings.
  MasterEffects answer(const MasterEffects& asked, std::size_t but = 99) {
    MasterEffects all;
    const auto show = [&](ConnId conn, const wire::AuditPart& part) {
      MasterEffects effects = say(conn, part);
      all.send.insert(all.send.end(), effects.send.begin(), effects.send.end());
      all.history.insert(all.history.end(), effects.history.begin(), effects.history.end());
    };
    for (const MasterSend& one : asked.send) {
      const auto* ask = std::get_if<wire::AuditAsk>(&one.message);
      const auto i =
          static_cast<std::size_t>(std::find(conn_.begin(), conn_.end(), one.conn) - conn_.begin());
      if (ask == nullptr || i == but) continue;
      for (const std::uint32_t cell : ask->cells) {
        show(one.conn, shown(i, cell));
        if (cell / kCells == i) show(one.conn, shown(i, cell, true));
      }
    }
    return all;
  }
  std::string history(const MasterEffects& effects, const std::string& kind) {
    for (const HistoryLine& line : effects.history) {
      if (line.kind != kind) continue;
      std::string text;
      for (const auto& [key, value] : line.fields) text += key + "=" + value + " ";
      return text;
    }
    return "";
  }
  bool is_member(const std::string& site) {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == site) return peer.admitted;
    }
    return false;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  wire::Start start_;
  std::vector<ConnId> conn_{1, 2, 3, 4, 5};  // by position
  std::size_t size_ = 0;
  std::uint64_t seed_ = 0;
  std::string refusal_;
  std::set<std::uint32_t> wrong_;  // cells that their owners add up wrong
  base::Bytes terms_{1, 2, 3};
  std::size_t long_ = 99;  // whose parts have a byte too many
};

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
  for (wire::Incarnation life = 1; life <= 3; ++life) {
    wrong_ = {kCells * 3};  // its id is the highest each time
    (void)calls();
    ASSERT_EQ(start_.contributors.size(), 4U) << life;
    const auto last = answer(all_done());
    EXPECT_TRUE(has(history(last, "convicted"), "d added up cell 9 wrong")) << life;
    const std::string ban = history(last, "ban");
    EXPECT_EQ(ban.empty(), life < 3);
    EXPECT_TRUE(life < 3 || has(ban, "3 cells that an audit proved wrong")) << ban;
    alive_ = {1, 2, 3};
    (void)on(ConnClosed{conn_[3]});
    conn_[3] = 40 + life;
    (void)say(conn_[3], hello(4000 + life, "d"), key);
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

TEST_F(AuditTest, who_is_there_and_shows_nothing_is_out_and_nobody_else) {
  run_of(4);
  (void)calls();
  (void)answer(all_done(), 1);  // all but b
  EXPECT_EQ(committed("grads"), 0U);
  const base::Duration silence = HostileMember::options().silence;
  wait(2 * silence + 4 * kCells * kCellTime - base::kMillisecond);
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

// … by and by, so that none of its words is late.
class SlowAnswers : public AuditTest {
 protected:
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
  const base::Duration patience = 2 * HostileMember::options().silence + 3 * kCells * kCellTime;
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
              static_cast<double>(options.straggler_after), static_cast<double>(2 * kStep));
}

TEST_F(AuditTest, who_shows_nothing_until_a_short_deadline_withholds_it) {
  run_of(3);
  for (std::size_t i = 0; i < 3; ++i) {
    wire::Ready one = ready("grads");
    one.deadline = 2 * base::kSecond;
    const auto starts = sent<wire::Start>(say(i + 1, one));
    if (!starts.empty()) start_ = starts[0];
  }
  (void)answer(all_done(), 1);
  wait(2 * base::kSecond);
  EXPECT_TRUE(has(master_->view(now_).peers[1].faults, "audits that it showed nothing"));
  EXPECT_EQ(master_->view(now_).peers[0].faults, "");
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
  for (std::size_t i = 0; i < 3; ++i) {
    wire::Ready one = ready("grads");
    one.deadline = 2 * base::kSecond;
    const auto starts = sent<wire::Start>(say(i + 1, one));
    if (!starts.empty()) start_ = starts[0];
  }
  (void)answer(all_done(), 1);
  wait(2 * base::kSecond);
  EXPECT_EQ(committed("grads"), 0U);
  EXPECT_EQ(master_->view(now_).tags[0].phase, "idle");
  EXPECT_TRUE(is_member("b"));
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
