// One member, or somebody on the way to become one, speaks under others' names, about others' links
// and states, and asks others to wait: what an attacker of the whole run did once.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "protocol/hostile_rig.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {
namespace {

using base::cat;

TEST_F(HostileMember, a_name_that_is_said_by_another_puts_nobody_out) {
  join({"a", "b"});
  (void)say(2, ready("grads"));
  (void)say(1, ready("grads"));
  for (ConnId conn = 10; conn < 20; ++conn) {
    const auto refuses = sent<wire::Refuse>(say(conn, hello(1000 + conn, "a")));
    ASSERT_EQ(refuses.size(), 1U);
    EXPECT_EQ(refuses[0].code, base::Code::kLinkLost);
    EXPECT_NE(refuses[0].text.find("give each a site or shard of its own"), std::string::npos);
  }
  EXPECT_EQ(master_->view(now_).peers.size(), 2U);
  now_ += base::kSecond;  // two heartbeats in silence: its process may be gone
  EXPECT_FALSE(sent<wire::Refuse>(say(20, hello(2000, "a"))).empty()) << "or not";
  alive_ = {2};
  wait(options().silence);
  EXPECT_FALSE(sent<wire::Welcome>(say(21, hello(2000, "a"))).empty());
}

TEST_F(HostileMember, who_only_sits_on_a_name_gives_way) {
  wire::Hello squatter = hello(666, "eu");
  squatter.shard = 1, squatter.shards = 2;
  (void)join(9, squatter);
  const auto refused = sent<wire::Refuse>(say(1, hello(100, "eu")));
  ASSERT_EQ(refused.size(), 1U) << "it may be an honest one that compiles";
  EXPECT_EQ(refused[0].code, base::Code::kLinkLost) << "which ends no communicator";
  alive_ = {9};
  wait(61 * base::kSecond);
  EXPECT_FALSE(sent<wire::Welcome>(say(2, hello(101, "eu"))).empty());
}

// The one that names all others has the most broken links.
TEST_F(HostileMember, who_reports_broken_links_to_all_goes_itself) {
  MasterOptions four = options();
  four.start_peers = 4;
  begin(four, [](const PlanRequest& request) -> base::Result<base::Bytes> {
    if (request.bad_links.size() < 3) return base::Bytes{};
    return base::Status{base::Code::kLinkLost, "no plan avoids them"};
  });
  join({"a", "b", "c", "liar"});
  for (int turn = 0; turn < 3; ++turn) {
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads"));
    const auto starts = sent<wire::Start>(say(4, ready("grads")));
    if (starts.size() < 4) break;
    for (wire::PeerId peer = 1; peer <= 3; ++peer) {
      (void)say(4, wire::Fail{starts[0].attempt, base::Code::kLinkLost, peer, "made up"});
    }
  }
  for (ConnId conn = 1; conn <= 4; ++conn) (void)say(conn, ready("grads"));
  std::vector<std::string> sites;
  for (const PeerView& peer : master_->view(now_).peers) sites.push_back(peer.member.site);
  EXPECT_EQ(sites, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(HostileMember, who_asks_first_after_a_restart_does_not_say_what_a_state_looks_like) {
  std::vector<wire::Record> journal;
  const auto keep = [&journal](const MasterEffects& effects) {
    journal.insert(journal.end(), effects.journal.begin(), effects.journal.end());
  };
  begin(options());
  wire::Sync sync;
  sync.tag = "model", sync.descriptor = {1, 1}, sync.digest = {5, 5}, sync.summary = "f32[3]";
  sync.deadline = 60 * base::kSecond;
  keep(say(1, hello(100, "a")));
  keep(say(1, wire::Resume{}));
  keep(say(1, sync));
  ASSERT_EQ(std::count_if(journal.begin(), journal.end(),
                          [](const wire::Record& record) {
                            return std::holds_alternative<wire::BirthRecord>(record);
                          }),
            1);
  journal.insert(journal.begin(), wire::RunRecord{options().run, wire::kVersion});
  std::erase_if(journal, [&](const wire::Record& record) {
    return &record != &journal.front() && std::holds_alternative<wire::RunRecord>(record);
  });
  begin(options(), plan, journal);
  wire::Sync other = sync;
  other.descriptor = {6, 6}, other.summary = "made up";
  (void)join(9, hello(900, "liar"));
  const auto refused = sent<wire::SyncReply>(say(9, other));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].code, base::Code::kMismatch);
  EXPECT_NE(refused[0].text.find("the state of the run is f32[3]"), std::string::npos);
  (void)join(10, hello(1000, "b"));
  const auto reply = sent<wire::SyncReply>(say(10, sync));
  ASSERT_FALSE(reply.empty());
  EXPECT_NE(reply.back().code, base::Code::kMismatch);
}

// Simulator, seed 9005484: its connection was lost while it fetched, and then the holder died.
TEST_F(HostileMember, a_fetch_under_way_is_known_on_a_new_connection) {
  begin(options());
  wire::Sync sync;
  sync.tag = "model", sync.digest = {5, 5}, sync.deadline = 600 * base::kSecond;
  (void)join(1, hello(500, "a"));
  (void)say(1, sync);
  (void)say(1, wire::Published{{"model", 0, {5, 5}}});
  (void)join(3, hello(900, "c"));
  sync.fetching = true;
  (void)say(3, sync);
  (void)join(2, hello(100, "b"));
  sync.fetching = false, sync.digest = {6, 6};
  (void)say(2, sync);
  (void)on(ConnClosed{1});
  for (int turn = 0; turn < 100; ++turn) {
    now_ += 100 * base::kMillisecond;
    std::vector<wire::SyncReply> replies;
    for (const ConnId conn : {2, 3}) {
      for (auto& reply : sent<wire::SyncReply>(say(conn, wire::Heartbeat{}))) {
        replies.push_back(reply);
      }
    }
    for (auto& reply : sent<wire::SyncReply>(on(Tick{}))) replies.push_back(reply);
    for (const wire::SyncReply& reply : replies) {
      ASSERT_NE(reply.code, base::Code::kStateLost) << turn << ": " << reply.text;
    }
  }
}

// A hold is for one joiner; a crowd that asks for one after the other does not stop the rounds.
TEST_F(HostileMember, joiners_that_never_enter_hold_rounds_a_third_of_the_time) {
  begin(options());
  wire::Sync sync;
  sync.tag = "model", sync.deadline = 600 * base::kSecond;
  wire::Hello holder = hello(100, "a");
  holder.addresses = {"127.0.0.1:1"};
  (void)join(1, holder);
  (void)say(1, sync);
  (void)say(1, wire::Published{{"model", 0, {}}});
  sync.digest = {9, 9};  // they never fetch what they are offered
  for (ConnId conn = 10; conn < 18; ++conn) (void)join(conn, hello(1000 + conn, cat("o", conn)));
  const base::Time begun = now_;
  base::Duration held = 0;
  std::uint64_t n = 0;
  while (now_ < begun + 90 * base::kSecond) {
    for (ConnId conn = 10; conn < 18; ++conn) (void)say(conn, sync);
    wire::Ready call = ready("model", n + 1);
    call.has_state = true;
    call.revision = n, call.state = {n, 0};
    auto starts = sent<wire::Start>(say(1, call));
    const auto hear = [&starts](const MasterEffects& effects) {
      for (const wire::Start& start : sent<wire::Start>(effects)) starts.push_back(start);
    };
    const base::Time asked = now_;
    while (starts.empty() && now_ < asked + 30 * base::kSecond) {
      now_ += 50 * base::kMillisecond;
      for (ConnId conn = 10; conn < 18; ++conn) hear(say(conn, wire::Heartbeat{}));
      hear(say(1, wire::Heartbeat{}));
      hear(on(Tick{}));
    }
    held += now_ - asked;
    ASSERT_FALSE(starts.empty()) << n << ": " << master_->view(now_).tags.at(0).waiting_for;
    (void)say(1, wire::Done{starts[0].attempt, {n, 1}});
    ++n;
    (void)say(1, wire::Published{{"model", n, {n, 0}}});
    now_ += 10 * base::kMillisecond;
  }
  EXPECT_GT(held, base::kSecond) << "it holds for some of them";
  EXPECT_LT(held, 30 * base::kSecond);
}

// Three members of which c takes 20 s, and calls of 20.9 s, which no hold of a second leaves time
// for.
struct TightCalls : HostileMember {
  static constexpr base::Duration kCall = 20'900 * base::kMillisecond;
  struct Member {
    base::Duration takes = 0;
    base::Time done_at = base::kNever, due = base::kNever, ends = 0;
    wire::Attempt attempt;
  };
  void SetUp() override {
    begin(made_);
    for (ConnId conn = 1; conn <= last_; ++conn) {
      wire::Hello peer = hello(100 * conn, std::string(1, static_cast<char>('a' + conn - 1)));
      peer.addresses = {"127.0.0.1:1"};
      (void)join(conn, peer);
      members_[conn].takes = conn == 3 ? 20 * base::kSecond : others_take_;
    }
    wire::Sync sync;
    sync.tag = "model", sync.deadline = 9000 * base::kSecond;
    for (ConnId conn = 1; conn <= last_; ++conn) (void)say(conn, sync);
    for (ConnId conn = 1; conn <= last_; ++conn) {
      (void)say(conn, wire::Published{{"model", 0, {}}});
    }
    for (ConnId conn = 1; conn <= last_; ++conn) call(conn);
  }
  void call(ConnId conn) {
    wire::Ready ready{};
    const bool is_short = shorter_ > 0 && conn == 3 && state().holds_rest_until_ <= now_;
    ready.round = {"model", n_ + 1}, ready.call = ++calls_;
    ready.deadline = is_short ? shorter_ : kCall;
    members_[conn].ends = now_ + ready.deadline;
    ready.has_state = true, ready.revision = n_, ready.state = {n_, 0};
    hear(say(conn, wire::Published{{"model", n_, {n_, 0}}}));
    hear(say(conn, ready));
  }
  void hear(const MasterEffects& effects) {
    for (const HistoryLine& line : effects.history) kinds_[line.kind]++;
    for (const auto& send : effects.send) {
      if (const auto* start = std::get_if<wire::Start>(&send.message)) {
        Member& member = members_[send.conn];
        member.attempt = start->attempt, member.done_at = now_ + member.takes;
      } else if (const auto* outcome = std::get_if<wire::Outcome>(&send.message)) {
        members_[send.conn].done_at = base::kNever;
        if (outcome->verdict == wire::Verdict::kCommitted) n_ = outcome->round.n;
        if (send.conn == 4) continue;                               // which calls once
        members_[send.conn].due = now_ + 200 * base::kMillisecond;  // the program's own step
      }
    }
  }
  void joiners_come() {
    for (ConnId conn = 10; conn < 14; ++conn) (void)join(conn, hello(1000 + conn, cat("o", conn)));
  }
  void step(int turn) {  // 20 ms; joiners never fetch what they are offered
    now_ += 20 * base::kMillisecond;
    for (auto& [conn, member] : members_) {
      if (now_ >= member.due) {
        member.due = base::kNever;
        call(conn);
      }
      const bool is_over = says_so_ && conn == 3 && now_ + 600 * base::kMillisecond >= member.ends;
      if (is_over && member.done_at != base::kNever) {
        member.done_at = base::kNever;
        hear(say(conn, wire::Fail{member.attempt, base::Code::kDeadline, 0, "its time is over"}));
      }
      if (now_ < member.done_at) continue;
      member.done_at = base::kNever;
      hear(say(conn, wire::Done{member.attempt, {n_, 1}}));
    }
    wire::Sync sync;
    sync.tag = "model", sync.deadline = 9000 * base::kSecond, sync.digest = {9, 9};
    for (ConnId conn = 10; turn % 5 == 0 && conn < ask_; ++conn) hear(say(conn, sync));
    if (turn % 25 == 0) {
      for (ConnId conn = 1; conn <= last_; ++conn) hear(say(conn, beat_of(conn)));
      for (ConnId conn = 10; conn < 14; ++conn) hear(say(conn, wire::Heartbeat{}));
    }
    hear(on(Tick{}));
  }
  wire::Heartbeat beat_of(ConnId conn) const {
    wire::Heartbeat beat;
    const auto member = members_.find(conn);
    if (moves_ && member != members_.end() && member->second.done_at != base::kNever) {
      beat.moving = {{member->second.attempt, 1000, 2000}};
    }
    return beat;
  }
  void run() {  // for 1,000 s
    joiners_come();
    for (int turn = 0; turn < 50'000; ++turn) step(turn);
  }
  const MasterMachine::State& state() const { return master_->state(); }
  const Round& round() const { return state().rounds_.at("model"); }
  bool moves_ = true;           // and says so
  bool says_so_ = false;        // that its call is over, shortly before
  base::Duration shorter_ = 0;  // its call, where joiners may have a hold
  ConnId ask_ = 14;             // joiners with lower numbers do
  ConnId last_ = 3;
  base::Duration others_take_ = 5 * base::kSecond;
  MasterOptions made_ = options();
  std::uint64_t n_ = 0, calls_ = 0;
  std::map<ConnId, Member> members_;
  std::map<std::string, int> kinds_;
};

TEST_F(TightCalls, that_holds_leave_no_time_for_are_nobodys_fault) {
  run();
  EXPECT_GT(kinds_["abort"], 0) << "holds end calls, or this shows nothing";
  EXPECT_EQ(kinds_["held"], 0);
  EXPECT_TRUE(is_member("c"));
  EXPECT_GE(n_, 40U) << "of 50 that there is time for";
}

TEST_F(TightCalls, who_has_nothing_to_move_pays_for_them_all_the_same) {
  moves_ = false;
  run();
  EXPECT_GT(kinds_["held"], 0);
  EXPECT_FALSE(is_member("c"));
}

TEST_F(TightCalls, and_who_says_shortly_before_that_its_call_is_over) {
  moves_ = false, says_so_ = true;
  run();
  EXPECT_GT(kinds_["held"], 0);
  EXPECT_FALSE(is_member("c"));
}

TEST_F(TightCalls, and_whose_call_is_shorter_than_others) {
  joiners_come();
  for (int turn = 0; turn < 50'000 && n_ < 2; ++turn) step(turn);
  shorter_ = 12 * base::kSecond;
  for (int turn = 0; turn < 5'000 && kinds_["abort"] < 1; ++turn) step(turn);
  EXPECT_EQ(kinds_["abort"], 1);
  EXPECT_EQ(kinds_["held"], 1);
}

struct TightCallsOfFour : TightCalls {
  TightCallsOfFour() {
    last_ = 4;
    others_take_ = 15 * base::kSecond;
    made_.straggler = Straggler::kSkip, made_.straggler_after = 6 * base::kSecond;
  }
};

TEST_F(TightCallsOfFour, a_site_that_is_skipped_undoes_no_hold) {
  joiners_come();
  const auto skips = [&] { return round().skipped.count("d") > 0; };
  for (int turn = 0; turn < 50'000 && !skips(); ++turn) step(turn);
  ASSERT_TRUE(skips());
  for (int turn = 0; turn < 50'000 && round().held_since == base::kNever; ++turn) step(turn);
  ASSERT_NE(round().held_since, base::kNever);
  for (int turn = 0; turn < 100; ++turn) step(turn);
  EXPECT_GT(round().held, 900 * base::kMillisecond);
}

TEST_F(TightCalls, a_hold_is_of_calls_that_are_here) {
  joiners_come();
  for (int turn = 0; turn < 50'000 && round().held_since == base::kNever; ++turn) step(turn);
  ASSERT_NE(round().held_since, base::kNever);
  hear(say(3, wire::Withdraw{{"model", n_ + 1}}));    // it comes back when the hold is long over
  for (int turn = 0; turn < 250; ++turn) step(turn);  // 5 s
  call(3);
  for (int turn = 0; turn < 100; ++turn) step(turn);
  ASSERT_TRUE(round().running.has_value());
  EXPECT_LE(round().held, 2 * base::kSecond);
}

TEST_F(TightCalls, once_between_two_commits) {
  joiners_come();
  for (int turn = 0; turn < 50'000 && n_ < 2; ++turn) step(turn);
  ask_ = 11;  // … and the next one asks when the attempt that lacks the time is nearly over
  const auto runs_for = [&] { return round().running ? now_ - round().running->since : 0; };
  for (int turn = 0; turn < 50'000 && runs_for() < 18 * base::kSecond; ++turn) step(turn);
  ASSERT_GT(round().held, 0);
  const_cast<MasterMachine::State&>(state()).holds_rest_until_ = 0;
  ask_ = 12;
  for (int turn = 0; turn < 5'000 && kinds_["abort"] < 2; ++turn) {
    step(turn);
    EXPECT_TRUE(kinds_["abort"] != 1 || kinds_["held"] == 0);
    const base::Duration rest = state().holds_rest_until_ - now_;
    EXPECT_TRUE(kinds_["abort"] != 1 || rest > 8 * 30 * base::kSecond) << "of all that it cost";
  }
  EXPECT_GT(round().held, 0) << "the second attempt was held as well";
  EXPECT_EQ(n_, 2U);
  EXPECT_EQ(kinds_["held"], 1) << "others have waited for it";
}

// Of two the word of one is all there is: that it is done itself, and has nothing left to send.
TEST_F(HostileMember, one_of_two_can_have_the_other_evicted_as_a_straggler) {
  MasterOptions two = options();
  two.start_peers = 2;
  two.straggler = Straggler::kEvict;
  two.straggler_after = base::kSecond;
  begin(two);
  join({"a", "b"});
  alive_ = {1, 2};
  (void)say(1, ready("grads"));
  const auto starts = sent<wire::Start>(say(2, ready("grads")));
  ASSERT_EQ(starts.size(), 2U);
  (void)say(1, wire::Done{starts[0].attempt, {7, 7}});
  wait(3 * base::kSecond);
  const auto sites = master_->view(now_).peers;
  EXPECT_TRUE(std::none_of(sites.begin(), sites.end(), [](const PeerView& peer) {
    return peer.member.site == "b" && peer.admitted;
  }));
  (void)join(3, hello(201, "b"));
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 0U);
  EXPECT_EQ(sent<wire::Start>(say(1, ready("grads", 2))).size(), 2U) << "it is back at once";
}

}  // namespace
}  // namespace jccl::protocol
