// What no scenario can say: messages out of order, from strangers, and with values nobody sends.
#include "protocol/master/master_machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/text.h"
#include "protocol/test_effects.h"

namespace jccl::protocol {
namespace {

struct Rig {
  explicit Rig(const MasterOptions& given = options()) : master(given, plan, {}, kNow) {
    (void)master.start(kNow);
  }
  static MasterOptions options() {
    MasterOptions options;
    options.run.fill(9);
    return options;
  }
  static base::Result<base::Bytes> plan(const PlanRequest&) { return base::Bytes{}; }

  MasterEffects say(ConnId conn, wire::Message message) {
    return master.on(ConnMessage{conn, std::move(message)}, kNow);
  }
  static wire::Hello hello(wire::Incarnation incarnation, const std::string& site) {
    wire::Hello hello;
    hello.incarnation = incarnation;
    hello.site = site;
    return hello;
  }
  void join(ConnId conn, wire::Incarnation incarnation, const std::string& site) {
    (void)say(conn, hello(incarnation, site));
    (void)say(conn, wire::Resume{});
  }

  MasterMachine master;
};

bool refused(const MasterEffects& effects, ConnId conn, base::Code code) {
  const auto refuses = sent<wire::Refuse>(effects);
  return !refuses.empty() && refuses[0].code == code && effects.close == std::vector<ConnId>{conn};
}

wire::Ready call_on(const std::string& tag) {
  wire::Ready ready;
  ready.round = {tag, 1};
  ready.deadline = 1000 * base::kSecond;
  return ready;
}

TEST(MasterTest, a_starting_master_journals_the_run_and_a_new_epoch_first) {
  MasterMachine master(Rig::options(), Rig::plan, {}, kNow);
  const MasterEffects effects = master.start(kNow);
  ASSERT_EQ(effects.journal.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<wire::RunRecord>(effects.journal[0]));
  EXPECT_EQ(std::get<wire::EpochRecord>(effects.journal[1]).epoch, 1U);
  MasterMachine again(Rig::options(), Rig::plan, effects.journal, kNow);
  const MasterEffects second = again.start(kNow);
  ASSERT_EQ(second.journal.size(), 1U);
  EXPECT_EQ(std::get<wire::EpochRecord>(second.journal[0]).epoch, 2U);
}

TEST(MasterTest, whatever_comes_before_the_hello_closes_the_connection) {
  for (const wire::Message& message :
       {wire::Message(wire::Resume{}), wire::Message(wire::Ready{}), wire::Message(wire::Leave{}),
        wire::Message(wire::Heartbeat{}), wire::Message(wire::Start{})}) {
    Rig rig;
    EXPECT_TRUE(refused(rig.say(1, message), 1, base::Code::kInvalid));
    EXPECT_TRUE(rig.say(1, message).send.empty()) << "it is closed already";
  }
}

TEST(MasterTest, messages_out_of_turn_close_the_connection) {
  Rig rig;
  (void)rig.say(1, Rig::hello(10, "a"));
  EXPECT_TRUE(refused(rig.say(1, wire::Done{}), 1, base::Code::kInvalid)) << "before Resume";
  rig.join(2, 20, "b");
  EXPECT_TRUE(refused(rig.say(2, wire::Resume{}), 2, base::Code::kInvalid)) << "twice";
  rig.join(3, 30, "c");
  EXPECT_TRUE(refused(rig.say(3, Rig::hello(30, "c")), 3, base::Code::kInvalid)) << "twice";
  rig.join(4, 40, "d");
  EXPECT_TRUE(refused(rig.say(4, wire::Outcome{}), 4, base::Code::kInvalid)) << "a master's";
}

TEST(MasterTest, another_version_or_run_or_seat_is_refused_with_the_reason) {
  Rig rig;
  wire::Hello hello = Rig::hello(10, "a");
  hello.version = hello.oldest = wire::kVersion + 1;
  const MasterEffects effects = rig.say(1, hello);
  EXPECT_TRUE(refused(effects, 1, base::Code::kVersion));
  const std::string newer = std::to_string(wire::kVersion + 1) + ": upgrade the master";
  EXPECT_NE(sent<wire::Refuse>(effects).at(0).text.find(newer), std::string::npos);
  hello.version = hello.oldest = wire::kVersion - 1;
  const std::string older = std::to_string(wire::kVersion - 1) + ": upgrade the peer";
  const MasterEffects again = rig.say(6, hello);
  EXPECT_NE(sent<wire::Refuse>(again).at(0).text.find(older), std::string::npos);
  hello = Rig::hello(10, "a");
  hello.run.fill(1);
  EXPECT_TRUE(refused(rig.say(2, hello), 2, base::Code::kWrongRun));
  hello = Rig::hello(10, "a");
  hello.shard = 1;
  EXPECT_TRUE(refused(rig.say(3, hello), 3, base::Code::kInvalid));
  EXPECT_TRUE(refused(rig.say(4, Rig::hello(10, "")), 4, base::Code::kInvalid));
  EXPECT_TRUE(refused(rig.say(5, Rig::hello(0, "a")), 5, base::Code::kInvalid));
}

TEST(MasterTest, a_peer_that_speaks_its_version_too_is_welcome) {
  Rig rig;
  wire::Hello hello = Rig::hello(10, "a");
  hello.version = wire::kVersion + 2;
  for (const ConnId conn : {1, 2}) {
    hello.oldest = conn == 1 ? wire::kVersionOldest : wire::kVersion;
    const auto welcome = sent<wire::Welcome>(rig.say(conn, hello));
    ASSERT_EQ(welcome.size(), 1U);
    EXPECT_EQ(welcome[0].version, wire::kVersion);
    hello.incarnation += 1, hello.site += "b";
  }
  hello.oldest = wire::kVersion + 1;
  const auto refused = sent<wire::Refuse>(rig.say(99, hello));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].text,
            base::cat("the master speaks protocol version ", wire::kVersion, ", this peer ",
                      wire::kVersion + 1, " to ", wire::kVersion + 2, ": upgrade the master"));
}

TEST(MasterTest, who_sends_how_much_at_most_is_shown) {
  MasterOptions options = Rig::options();
  options.max_rate = 2'000'000;
  Rig rig(options);
  for (const std::uint64_t own : {0, 1'000'000, 3'000'000}) {
    wire::Hello hello = Rig::hello(10 + own, base::cat("s", own));
    hello.max_rate = own, hello.day_bytes = 7 * own;
    const auto welcome = sent<wire::Welcome>(rig.say(1 + own, hello));
    ASSERT_EQ(welcome.size(), 1U);
    EXPECT_EQ(welcome[0].max_rate, options.max_rate);
  }
  std::multiset<std::uint64_t> shown;
  for (const PeerView& peer : rig.master.view(kNow).peers) {
    shown.insert(peer.max_rate);
    EXPECT_EQ(base::cat("s", peer.day_bytes / 7), peer.member.site);
  }
  EXPECT_EQ(shown, (std::multiset<std::uint64_t>{1'000'000, 2'000'000, 2'000'000}));
}

TEST(MasterTest, an_impossible_weight_or_tag_is_rejected) {
  Rig rig;
  rig.join(1, 10, "a");
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = base::kSecond;
  for (const double weight : {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    ready.weight = weight;
    const MasterEffects effects = rig.say(1, ready);
    ASSERT_FALSE(sent<wire::Reject>(effects).empty());
    EXPECT_EQ(sent<wire::Reject>(effects).at(0).code, base::Code::kInvalid);
  }
  ready.weight = 1;
  ready.round.n = 7;
  const MasterEffects effects = rig.say(1, ready);
  ASSERT_FALSE(sent<wire::Reject>(effects).empty()) << "ahead of the run";
  EXPECT_EQ(sent<wire::Reject>(effects).at(0).code, base::Code::kResync);
}

TEST(MasterTest, messages_about_unknown_attempts_are_answered) {
  Rig rig;
  rig.join(1, 10, "a");
  ASSERT_FALSE(sent<wire::Start>(rig.say(1, call_on("another"))).empty());  // of a later epoch
  const MasterEffects effects = rig.say(1, wire::Query{{{1, 5}, {"t", 1}}});
  ASSERT_FALSE(sent<wire::Outcome>(effects).empty());
  EXPECT_EQ(sent<wire::Outcome>(effects).at(0).verdict, wire::Verdict::kAborted);
  EXPECT_EQ(sent<wire::Outcome>(effects).at(0).attempt, (wire::Attempt{1, 5}));
  (void)rig.say(1, wire::Done{{1, 5}, {}});
  (void)rig.say(1, wire::Fail{{1, 5}, base::Code::kGuard, 3, "x"});
  (void)rig.say(1, wire::Withdraw{{"never", 3}});
  (void)rig.say(1, wire::Published{{"never", 3, {}}});
}

// Its successor may have committed it; who asks is told so there.
TEST(MasterTest, an_attempt_of_a_later_epoch_is_not_this_masters_to_answer) {
  Rig rig;
  rig.join(1, 10, "a");
  EXPECT_TRUE(sent<wire::Outcome>(rig.say(1, wire::Query{{{5, 5}, {"t", 1}}})).empty());
}

// It would be told as aborted, and commit.
TEST(MasterTest, nor_is_one_that_is_still_to_come) {
  Rig rig;
  rig.join(1, 10, "a");
  const auto starts = sent<wire::Start>(rig.say(1, call_on("t")));
  ASSERT_EQ(starts.size(), 1U);
  wire::Attempt next = starts[0].attempt;
  ++next.counter;
  EXPECT_TRUE(sent<wire::Outcome>(rig.say(1, wire::Query{{next, {"t", 1}}})).empty());
  EXPECT_TRUE(
      sent<wire::Outcome>(rig.say(1, wire::Fail{next, base::Code::kAborted, 0, "x"})).empty());
}

// Or a data plane that has run a later one lets go of frames of the earlier one.
TEST(MasterTest, starts_that_were_lost_come_again_in_the_order_of_their_attempts) {
  Rig rig;
  rig.join(1, 10, "a");
  const std::vector<std::string> tags = {"z", "b", "m"};
  for (const std::string& tag : tags) {
    ASSERT_FALSE(sent<wire::Start>(rig.say(1, call_on(tag))).empty());
  }
  (void)rig.master.on(ConnClosed{1}, kNow);
  (void)rig.say(2, Rig::hello(10, "a"));
  std::vector<std::string> again;
  for (const MasterSend& one : rig.say(2, wire::Resume{}).send) {
    if (const auto* start = std::get_if<wire::Start>(&one.message))
      again.push_back(start->round.tag);
  }
  EXPECT_EQ(again, tags);
}

TEST(MasterTest, a_machine_that_was_not_driven_evicts_nobody_for_it) {
  Rig rig;
  rig.join(1, 10, "a");
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = 1000 * base::kSecond;
  (void)rig.say(1, ready);
  const MasterEffects effects = rig.master.on(Tick{}, kNow + 60 * base::kSecond);
  EXPECT_TRUE(sent<wire::Evicted>(effects).empty());
  EXPECT_TRUE(rig.master.view(kNow + 60 * base::kSecond).peers.at(0).admitted);
}

// Simulator, seed 72167: its first record took the store longer than the grace of a restart.
TEST(MasterTest, a_restarted_machine_that_was_not_driven_still_gives_its_grace) {
  constexpr base::Duration kGraceMax = 600 * base::kSecond;
  std::vector<wire::Record> journal;
  const auto keep = [&journal](const MasterEffects& effects) {
    journal.insert(journal.end(), effects.journal.begin(), effects.journal.end());
  };
  MasterMachine first(Rig::options(), Rig::plan, {}, kNow);
  keep(first.start(kNow));
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = 1000 * base::kSecond;
  for (const wire::Message& said :
       {wire::Message(Rig::hello(10, "a")), wire::Message(wire::Resume{}), wire::Message(ready)}) {
    keep(first.on(ConnMessage{1, said}, kNow));
  }
  MasterMachine again(Rig::options(), Rig::plan, journal, kNow);
  (void)again.start(kNow);
  const base::Time wakes = kNow + 600 * base::kSecond;
  ASSERT_EQ(again.view(wakes).peers.size(), 1U);
  EXPECT_TRUE(again.on(Tick{}, wakes).journal.empty());
  base::Time evicted = base::kNever;
  for (base::Time tick = wakes; evicted == base::kNever && tick < wakes + kGraceMax;
       tick += base::kSecond / 10) {
    if (!again.on(Tick{}, tick).journal.empty()) evicted = tick;
  }
  EXPECT_GE(evicted, wakes + Rig::options().restart_grace - base::kSecond);
  EXPECT_LE(evicted, wakes + Rig::options().restart_grace + base::kSecond);
}

// Simulator, seed 4000003156: it had dialled while nobody listened, and waited between two tries.
TEST(MasterTest, who_hung_up_on_a_machine_that_stood_still_may_come_back) {
  MasterOptions options = Rig::options();
  options.reset_grace = base::kSecond / 10;
  MasterMachine master(options, Rig::plan, {}, kNow);
  (void)master.start(kNow);
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = 1000 * base::kSecond;
  for (const wire::Message& said :
       {wire::Message(Rig::hello(10, "a")), wire::Message(wire::Resume{}), wire::Message(ready)}) {
    (void)master.on(ConnMessage{1, said}, kNow);
  }
  const base::Time wakes = kNow + 600 * base::kSecond;
  EXPECT_TRUE(master.on(ConnClosed{1}, wakes).journal.empty());
  base::Time evicted = base::kNever;
  for (base::Time tick = wakes; evicted == base::kNever && tick < wakes + 60 * base::kSecond;
       tick += base::kSecond / 10) {
    if (!master.on(Tick{}, tick).journal.empty()) evicted = tick;
  }
  EXPECT_GE(evicted, wakes + options.silence);
  EXPECT_LE(evicted, wakes + options.silence + base::kSecond);
}

// Simulator, seed 23577: the others had called before the master stood still, one while it did.
TEST(MasterTest, a_machine_that_was_not_driven_calls_nobody_late_for_it) {
  MasterOptions options = Rig::options();
  options.start_peers = 3;
  options.straggler = Straggler::kEvict;
  options.straggler_after = 2 * base::kSecond;
  Rig rig(options);
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = 1000 * base::kSecond;
  std::vector<wire::Start> starts;
  for (const ConnId conn : {1, 2, 3}) {
    rig.join(conn, 10 * conn, std::string(1, static_cast<char>('a' + conn)));
    starts = sent<wire::Start>(rig.say(conn, ready));
  }
  ASSERT_EQ(starts.size(), 3U);
  for (const ConnId conn : {1, 2, 3}) (void)rig.say(conn, wire::Done{starts[0].attempt, {1, 2}});
  ready.round.n = 2;
  for (const ConnId conn : {1, 2}) (void)rig.say(conn, ready);
  const base::Time wakes = kNow + 60 * base::kSecond;
  EXPECT_TRUE(sent<wire::Evicted>(rig.master.on(Tick{}, wakes)).empty());
  EXPECT_EQ(sent<wire::Start>(rig.master.on(ConnMessage{3, ready}, wakes)).size(), 3U);
}

// Simulator, seed 44372337213: the one that had fetched the state had not said so yet.
TEST(MasterTest, a_machine_that_was_not_driven_still_waits_for_who_fetches) {
  Rig rig;
  const auto asks = [](std::uint64_t digest) {
    wire::Sync sync;
    sync.tag = "model", sync.digest = {digest, digest};
    sync.deadline = 5 * base::kSecond;
    return sync;
  };
  for (const ConnId conn : {1, 2, 3}) {
    wire::Hello hello = Rig::hello(10 * conn, std::string(1, static_cast<char>('a' + conn)));
    hello.addresses = {"there"};
    (void)rig.say(conn, hello);
    (void)rig.say(conn, wire::Resume{});
  }
  (void)rig.say(1, asks(1));
  const auto offers = sent<wire::SyncReply>(rig.say(2, asks(2)));
  ASSERT_FALSE(offers.empty());
  ASSERT_EQ(offers.back().verdict, wire::SyncVerdict::kFetch);
  (void)rig.say(1, wire::Leave{});
  wire::Sync last = asks(3);
  last.deadline = 60 * base::kSecond;
  (void)rig.say(3, last);
  const auto lost_by = [&rig](base::Time from, base::Time until) {
    base::Time lost = base::kNever;
    for (base::Time now = from; lost == base::kNever && now < until; now += base::kSecond / 10) {
      const auto tell = [&](const MasterEvent& event) {
        for (const auto& reply : sent<wire::SyncReply>(rig.master.on(event, now))) {
          if (reply.code == base::Code::kStateLost) lost = now;
        }
      };
      for (const ConnId conn : {2, 3}) tell(ConnMessage{conn, wire::Heartbeat{}});
      tell(Tick{});
    }
    return lost;
  };
  const base::Time wakes = kNow + 4 * base::kSecond;
  EXPECT_EQ(lost_by(wakes, wakes + 6 * base::kSecond), base::kNever);
  EXPECT_NE(lost_by(wakes + 6 * base::kSecond, wakes + 20 * base::kSecond), base::kNever);
}

// Simulator, seed 73466: behind a busy disk each event came before the timer's, and put that off.
TEST(MasterTest, what_is_due_is_done_by_whichever_event_comes) {
  MasterOptions options = Rig::options();
  options.start_peers = 2;
  Rig rig(options);
  rig.join(1, 10, "a");
  rig.join(2, 20, "b");
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = base::kSecond;
  (void)rig.say(1, ready);
  base::Time ended = base::kNever;
  for (base::Time now = kNow; ended == base::kNever && now < kNow + 60 * base::kSecond;
       now += options.heartbeat / 4) {
    const MasterEffects effects = rig.master.on(ConnMessage{2, wire::Heartbeat{}}, now);
    if (!sent<wire::Reject>(effects).empty()) ended = now;
  }
  EXPECT_LE(ended, kNow + base::kSecond + 2 * options.heartbeat);
}

TEST(MasterTest, measurements_of_members_go_to_the_planner_and_those_of_observers_nowhere) {
  Rig rig;
  rig.join(1, 10, "a");
  const wire::Measured measured{5, {{2, 30, 40}}};
  EXPECT_TRUE(rig.say(1, measured).measured.empty());
  wire::Ready ready;
  ready.round = {"t", 1};
  ready.deadline = 1000 * base::kSecond;
  (void)rig.say(1, ready);
  const MasterEffects effects = rig.say(1, measured);
  ASSERT_EQ(effects.measured.size(), 1U);
  EXPECT_EQ(effects.measured[0].first, rig.master.view(kNow).peers.at(0).member.id);
  EXPECT_EQ(effects.measured[0].second, measured);
  EXPECT_TRUE(effects.send.empty());
  EXPECT_TRUE(effects.journal.empty());
}

TEST(MasterTest, nothing_is_sent_for_a_heartbeat_but_its_answer) {
  Rig rig;
  rig.join(1, 10, "a");
  const MasterEffects effects = rig.say(1, wire::Heartbeat{3, 77});
  ASSERT_EQ(effects.send.size(), 1U);
  EXPECT_EQ(std::get<wire::HeartbeatAck>(effects.send[0].message).sequence, 3U);
  EXPECT_TRUE(effects.journal.empty());
  EXPECT_EQ(rig.master.view(kNow).peers.at(0).progress, 77U);
}

}  // namespace
}  // namespace jccl::protocol
