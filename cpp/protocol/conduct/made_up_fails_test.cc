// What a member makes up, failures and rounds that nobody can know of: it costs an attempt or two,
// is held against it or its links, and ends nobody else's call.
#include <functional>
#include <map>
#include <set>

#include "base/text.h"
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

class MadeUpFails : public HostileMember {
 protected:
  // Round n with all three in it; what member 3 then says of it.
  MasterEffects after(std::uint64_t n, const wire::Fail& said) {
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", n));
    const auto starts = sent<wire::Start>(say(3, ready("grads", n)));
    EXPECT_EQ(starts.size(), 3U);
    if (starts.empty()) return {};
    attempt_ = starts[0].attempt;
    return say(3, wire::Fail{attempt_, said.cause, said.peer, said.text});
  }
  static std::set<ConnId> ended(const MasterEffects& effects) {
    std::set<ConnId> conns;
    for (const MasterSend& one : effects.send) {
      const auto* told = std::get_if<wire::Outcome>(&one.message);
      if (told != nullptr && !told->retry) conns.insert(one.conn);
    }
    return conns;
  }
  std::string faults(const std::string& site) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == site) return peer.faults;
    }
    return "is gone";
  }
  wire::PeerId id_of(const std::string& site) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == site) return peer.member.id;
    }
    return 0;
  }
  bool admitted(const std::string& site) const { return id_of(site) != 0; }
  void done_by(std::initializer_list<ConnId> conns, const MasterEffects& effects) {
    const auto starts = sent<wire::Start>(effects);
    ASSERT_FALSE(starts.empty());
    for (const ConnId conn : conns) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
  }
  wire::Attempt attempt_;
};

TEST_F(MadeUpFails, damage_of_nobody_ends_the_call_of_who_says_it) {
  run_of_three();
  for (std::uint64_t time = 1; time <= 2; ++time) {
    EXPECT_TRUE(ended(after(2, {{}, Code::kCorrupt, 0, "damaged"})).empty());
    now_ += kSecond;
    EXPECT_EQ(ended(on(Tick{})), std::set<ConnId>{3}) << time;
    EXPECT_EQ(faults("c").substr(0, 1), std::to_string(time)) << faults("c");
    now_ += kSecond;
  }
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", 2));
  (void)after(2, {{}, Code::kCorrupt, 0, "damaged"});
  now_ += kSecond;
  (void)on(Tick{});
  EXPECT_EQ(faults("c"), "is gone");
}

TEST_F(MadeUpFails, damage_by_another_is_the_links_and_ends_nobodys_call) {
  run_of_three();
  std::set<std::uint64_t> ends;
  for (int time = 0; time < 6 && faults("c") != "is gone"; ++time) {
    const auto effects = after(2, {{}, Code::kCorrupt, id_of(time % 2 == 0 ? "a" : "b"), "NaN"});
    for (const ConnId conn : ended(effects)) ends.insert(conn);
    now_ += kSecond;
    for (const ConnId conn : ended(on(Tick{}))) ends.insert(conn);
  }
  EXPECT_EQ(ends.count(1) + ends.count(2), 0U);
  EXPECT_EQ(faults("a") + faults("b"), "");
}

TEST_F(MadeUpFails, of_two_the_second_damage_ends_both) {
  MasterOptions two = options();
  two.start_peers = 2;
  begin(two);
  join({"a", "b"});
  for (int time = 1; time <= 2; ++time) {
    (void)say(1, ready("grads"));
    const auto starts = sent<wire::Start>(say(2, ready("grads")));
    ASSERT_EQ(starts.size(), 2U);
    const auto effects = on(ConnMessage{2, wire::Fail{starts[0].attempt, Code::kCorrupt, 0, "x"}});
    EXPECT_EQ(ended(effects).size(), time == 1 ? 0U : 2U);
  }
}

TEST_F(MadeUpFails, a_deadline_that_is_far_is_held_against_who_says_it_is_over) {
  run_of_three();
  for (std::uint64_t n = 2; n <= 4; ++n) {
    (void)after(n, {{}, Code::kDeadline, 0, "over"});
    now_ += kSecond;
    (void)on(Tick{});
    if (n < 4) commit("grads", n);  // with it
  }
  EXPECT_EQ(faults("c"), "is gone");
}

// A link of nobody's is no link.
TEST_F(MadeUpFails, a_broken_link_to_nobody_ends_the_call_of_who_says_it) {
  for (const wire::PeerId whom : {0, 99}) {
    last_ = 0;
    run_of_three();
    for (int time = 0; time < 2; ++time) {
      EXPECT_TRUE(ended(after(2, {{}, Code::kLinkLost, whom, "made up"})).empty());
      now_ += kSecond;
      EXPECT_EQ(ended(on(Tick{})), std::set<ConnId>{3});
    }
    (void)after(2, {{}, Code::kLinkLost, whom, "made up"});
    now_ += kSecond;
    (void)on(Tick{});
    EXPECT_EQ(faults("c"), "is gone") << whom;
  }
}

// SKIPPED and GUARD say what became of one's own input: passed on, all took theirs out.
TEST_F(MadeUpFails, what_became_of_ones_own_input_is_told_to_nobody_else) {
  run_of_three();
  int others = 0;
  for (const MasterSend& one : after(2, {{}, Code::kSkipped, 0, "skipped"}).send) {
    const auto* told = std::get_if<wire::Outcome>(&one.message);
    if (told == nullptr) continue;
    EXPECT_EQ(told->code, Code::kAborted);
    EXPECT_TRUE(told->retry);
    ++others;
  }
  EXPECT_EQ(others, 3);
}

// The first time all go again; from the second on the round goes on without it.
TEST_F(MadeUpFails, who_ends_attempts_again_and_again_is_left_out_of_the_round) {
  for (const bool withdraws : {true, false}) {
    last_ = 0;
    run_of_three();
    const auto ends = [&] {
      return withdraws ? say(3, wire::Withdraw{{"grads", 2}})
                       : say(3, wire::Fail{attempt_, Code::kAborted, 0, "had ended"});
    };
    (void)after(2, {{}, Code::kAborted, 0, "had ended"});
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", 2));
    const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
    ASSERT_EQ(starts.size(), 3U);
    attempt_ = starts[0].attempt;
    (void)ends();
    (void)say(1, ready("grads", 2));
    done_by({1, 2}, say(2, ready("grads", 2)));
    EXPECT_EQ(committed("grads"), 2U);
  }
}

// The pause after attempts that failed is of whoever is still there: each that went has ended one
// attempt, and no more.
TEST_F(MadeUpFails, those_that_went_slow_down_no_attempt) {
  run_of_three();
  for (ConnId conn = 4; conn < 12; ++conn) {
    (void)join(conn, hello(100 * conn, std::string(1, static_cast<char>('a' + conn))));
    (void)say(conn, ready("grads", 2));
    for (ConnId honest = 1; honest <= 2; ++honest) (void)say(honest, ready("grads", 2));
    EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 4U) << conn;
    (void)say(conn, wire::Leave{});
  }
  for (ConnId honest = 1; honest <= 2; ++honest) (void)say(honest, ready("grads", 2));
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 3U);
}

TEST_F(MadeUpFails, one_key_is_here_so_many_times_and_no_more) {
  const Shown by{{42}};
  int welcomed = 0;
  for (ConnId conn = 1; conn <= 100; ++conn) {
    wire::Hello one = hello(100 * conn, "s");
    one.shard = static_cast<std::uint32_t>(conn - 1), one.shards = 100;
    welcomed += !sent<wire::Welcome>(on(ConnMessage{conn, one, by})).empty();
  }
  EXPECT_EQ(welcomed, 64);
  EXPECT_FALSE(sent<wire::Welcome>(on(ConnMessage{200, hello(7, "other"), {{43}}})).empty());
}

// Two sites on a tag of their own vouched for each other, and then all rounds waited for them.
TEST_F(MadeUpFails, who_shares_a_state_with_nobody_of_the_run_is_waited_for_by_nobody) {
  run_of_three();
  for (ConnId conn = 4; conn <= 5; ++conn) {
    (void)join(conn, hello(100 * conn, std::string(1, static_cast<char>('a' + conn))));
    wire::Sync sync;
    sync.tag = "own", sync.source = conn == 4, sync.deadline = 600 * kSecond;
    (void)say(conn, sync);
  }
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", 2));
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 3U);
}

TEST_F(MadeUpFails, the_wish_of_one_for_many_first_sites_keeps_no_run_from_starting) {
  for (const bool by_the_operator : {false, true}) {
    MasterOptions of_two = options();
    of_two.start_peers = by_the_operator ? 2 : 1;
    begin(of_two);
    wire::Hello greedy = hello(900, "z");
    greedy.start_peers = 1024;
    (void)join(9, greedy);
    for (ConnId conn = 1; conn <= 2; ++conn) {
      wire::Hello one = hello(100 * conn, conn == 1 ? "a" : "b");
      one.start_peers = by_the_operator ? 0 : 2;
      (void)join(conn, one);
    }
    (void)say(1, ready("grads"));
    EXPECT_EQ(sent<wire::Start>(say(2, ready("grads"))).size(), 2U) << by_the_operator;
  }
}

// Simulator, seed 46088280472: it was banned for one jump.
TEST_F(MadeUpFails, a_clock_that_jumps_over_many_deadlines_at_once_is_one_fault) {
  run_of_three();
  std::vector<wire::Attempt> attempts;
  for (const char* tag : {"one", "two", "three", "four"}) {
    std::vector<wire::Start> starts;
    for (ConnId conn = 1; conn <= 3; ++conn) starts = sent<wire::Start>(say(conn, ready(tag)));
    ASSERT_EQ(starts.size(), 3U);
    attempts.push_back(starts[0].attempt);
  }
  for (const wire::Attempt& one : attempts) {
    (void)say(3, wire::Fail{one, Code::kDeadline, 0, "deadline passed"});
    now_ += base::kMillisecond;
  }
  EXPECT_NE(faults("c"), "is gone");
  EXPECT_NE(faults("c").find("1 rounds refused alone, 3 deadlines"), std::string::npos)
      << faults("c");
}

TEST_F(MadeUpFails, a_deadline_that_is_near_is_no_lie) {
  run_of_three();
  (void)say(1, ready("grads", 2));
  (void)say(2, ready("grads", 2));
  wire::Ready brief = ready("grads", 2);
  brief.deadline = options().silence / 2;
  const auto starts = sent<wire::Start>(say(3, brief));
  ASSERT_EQ(starts.size(), 3U);
  (void)say(3, wire::Fail{starts[0].attempt, Code::kDeadline, 0, "over"});
  EXPECT_EQ(faults("c").find("refused"), std::string::npos) << faults("c");
}

// Two faults are no ban, and whoever starts again under a new key leaves them behind: to its token.
TEST_F(MadeUpFails, a_new_key_before_the_ban_makes_the_next_ones_wait) {
  run_of_three();
  ConnId conn = 3;
  int came = 1;
  for (; came < 8 && admitted("c"); ++came) {
    const std::uint64_t n = committed("grads") + 1;
    for (int fault = 0; fault < 2; ++fault) {
      for (ConnId honest = 1; honest <= 2; ++honest) (void)say(honest, ready("grads", n));
      wire::Ready odd = ready("grads", n);
      odd.descriptor = {6, 6};
      (void)say(conn, odd);
    }
    done_by({1, 2}, say(conn, wire::Leave{}));
    ASSERT_EQ(committed("grads"), n);
    ++conn;
    (void)join(conn, hello(100 * conn, "c"));
    (void)say(conn, ready("grads", n + 1));
    (void)say(1, ready("grads", n + 1));
    done_by({1, 2, conn}, say(2, ready("grads", n + 1)));
    ASSERT_EQ(committed("grads"), n + 1);
  }
  EXPECT_GT(came, 2);  // one that leaves with its faults may be replaced
  EXPECT_LT(came, 5);
  (void)say(conn, ready("grads", committed("grads") + 1));
  now_ += options().silence / 4;
  const auto told = sent<wire::Waiting>(on(Tick{}));
  const std::string waits = told.empty() ? "" : told.back().text;
  EXPECT_NE(waits.find("after faults of peers that came as it did"), std::string::npos) << waits;
}

// Each is refused, and the others wait for a call that can begin.
TEST_F(MadeUpFails, rounds_and_revisions_that_nobody_can_know_of_are_held_against_who_names_them) {
  const auto banned_by = [&](const std::function<wire::Ready()>& invented) {
    last_ = 0;
    MasterOptions three = options();
    three.start_peers = 3;
    begin(three);
    join({"a", "b", "c"});
    for (ConnId conn = 1; conn <= 3; ++conn) {
      wire::Sync sync;
      sync.tag = "model", sync.deadline = 600 * kSecond;
      (void)say(conn, sync);
    }
    int times = 0;
    for (; times < 20 && admitted("c"); ++times) {
      EXPECT_EQ(sent<wire::Reject>(say(3, invented())).size(), 1U);
    }
    return times;
  };
  const auto of_model = [](std::uint64_t n, std::uint64_t revision, bool has_state) {
    wire::Ready call = ready("model", n);
    call.has_state = has_state, call.revision = revision;
    return call;
  };
  EXPECT_EQ(banned_by([&] { return of_model(7, 6, true); }), 10);
  EXPECT_EQ(banned_by([&] { return of_model(1, 6, true); }), 10);
  EXPECT_EQ(banned_by([&] { return of_model(1, 0, false); }), 10);
}

TEST_F(MadeUpFails, a_restart_of_the_master_does_not_let_new_keys_in_at_once_after_bans) {
  for (const char* token : {"", "p-0-0-0-0123abcd"}) {
    std::vector<wire::Record> journal = {wire::RunRecord{options().run, wire::kVersion}};
    for (std::uint8_t key = 1; key <= 3; ++key) {
      if (*token != 0) journal.push_back(wire::TokenRecord{token, false, {key}, 0});
      wire::BanRecord ban;
      ban.key = {key}, ban.until_unix_ms = 600'000;
      journal.push_back(ban);
    }
    MasterOptions later = options();
    later.unix_ahead = -now_;
    begin(later, plan, journal);
    const auto come = [&](ConnId conn) {
      const Shown by{{static_cast<std::uint8_t>(90 + conn)}, token};
      const std::string site = std::string(1, static_cast<char>('a' + conn));
      (void)on(ConnMessage{conn, hello(100 * conn, site), by});
      (void)on(ConnMessage{conn, wire::Resume{}, by});
      (void)on(ConnMessage{conn, ready("grads"), by});
      return admitted(site);
    };
    EXPECT_TRUE(come(1)) << token;
    EXPECT_FALSE(come(2)) << token;  // after three bans each makes the next one wait
  }
}

// Of two, as nobody can tell which is wrong.
TEST_F(MadeUpFails, who_ends_every_attempt_by_a_report_is_not_followed_at_full_speed) {
  MasterOptions two = options();
  two.start_peers = 2;
  begin(two);
  join({"a", "b"});
  alive_ = {1, 2};
  std::size_t starts = 0;
  const base::Time end = now_ + 10 * base::kSecond;
  while (now_ < end) {
    (void)say(1, ready("grads"));
    const auto begun = sent<wire::Start>(say(2, ready("grads")));
    if (!begun.empty()) {
      ++starts;
      (void)say(2, wire::Fail{begun[0].attempt, base::Code::kLinkLost, 0, "made up"});
    }
    wait(5 * base::kMillisecond);
  }
  EXPECT_GE(starts, 4U);
  EXPECT_LE(starts, 25U) << "4 at once, 7 within the first 1.3 s, then one a second";
}

// Who ends an attempt for which the others wait has held them, whatever it says.
class LateFails : public MadeUpFails {
 protected:
  void begin_round() {
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", 2));
    const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
    ASSERT_EQ(starts.size(), 3U);
    attempt_ = starts[0].attempt;
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    alive_ = {1, 2, 3};
    wait(3 * kSecond);
  }
  std::string held_after(const wire::Message& message) {
    auto lines = say(3, message).history;
    for (const HistoryLine& line : wait(kSecond)) lines.push_back(line);
    for (const HistoryLine& line : lines) {
      const std::map<std::string, std::string> said(line.fields.begin(), line.fields.end());
      if (line.kind == "held") return base::cat(said.at("site"), ": ", said.at("text"));
    }
    return "nobody";
  }
};

TEST_F(LateFails, a_refusal_has_held_the_others) {
  run_of_three();
  begin_round();
  EXPECT_EQ(held_after(wire::Fail{attempt_, Code::kCorrupt, 0, "damaged"}),
            "c: others waited for it for 3187 ms");
}

TEST_F(LateFails, so_has_another_result) {
  run_of_three();
  begin_round();
  EXPECT_EQ(held_after(wire::Done{attempt_, {8, 8}}), "c: others waited for it for 3000 ms");
}

TEST_F(LateFails, so_has_a_link_that_the_plan_avoids) {
  run_of_three();
  for (int time = 0; time < 2; ++time) {
    (void)after(2, {{}, Code::kLinkLost, id_of("a"), "broken"});
    now_ += kSecond;
    (void)on(Tick{});
  }
  begin_round();
  EXPECT_EQ(held_after(wire::Fail{attempt_, Code::kLinkLost, id_of("a"), "broken"}),
            "c: others waited for it for 3000 ms");
}

// It has held the others so long that it has to go, too.
TEST_F(LateFails, who_is_banned_when_it_has_to_go_is_banned_by_name) {
  run_of_three();
  for (int time = 0; time < 2; ++time) {
    (void)after(2, {{}, Code::kCorrupt, 0, "damaged"});
    now_ += kSecond;
    (void)on(Tick{});
  }
  begin_round();
  wait(9 * kSecond);
  auto lines = say(3, wire::Fail{attempt_, Code::kCorrupt, 0, "damaged"}).history;
  for (const HistoryLine& line : wait(kSecond)) lines.push_back(line);
  std::vector<std::string> banned;
  for (const HistoryLine& line : lines) {
    const std::map<std::string, std::string> said(line.fields.begin(), line.fields.end());
    if (line.kind == "ban") banned.push_back(said.at("site"));
  }
  EXPECT_EQ(banned, std::vector<std::string>{"c"});
  // When the time is paid, too, new keys that come as it did are let in one by one.
  alive_ = {1, 2};
  wait(200 * kSecond);
  for (ConnId conn = 4; conn <= 5; ++conn) {
    (void)join(conn, hello(100 * conn, conn == 4 ? "d" : "e"));
    (void)say(conn, ready("grads", 2));
  }
  EXPECT_TRUE(admitted("d"));
  EXPECT_FALSE(admitted("e")) << "its ban counts";
}

// An operator's program that fails at times, and a fault of long ago, delay nobody.
TEST_F(MadeUpFails, one_fault_of_each_key_makes_up_no_ban_for_long) {
  Blame blame;
  for (std::uint8_t key = 0; key < 20; ++key) (void)blame.charge({key}, "t", Fault::kGuard, 0);
  EXPECT_EQ(blame.of_token("t", 0), 0);
  for (std::uint8_t key = 0; key < 5; ++key) (void)blame.charge({key}, "t", Fault::kMismatch, 0);
  EXPECT_GE(blame.of_token("t", 0), kBanAt);
  EXPECT_EQ(blame.of_token("another", 0), 0);
  EXPECT_EQ(blame.of_token("t", 2 * kFaultHalfLife), 0);
}

}  // namespace
}  // namespace jccl::protocol
