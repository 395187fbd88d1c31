// What a peer makes of a connection to the master that fails.
#include <gtest/gtest.h>

#include "protocol/peer/peer_machine.h"
#include "protocol/test_effects.h"

namespace jccl::protocol {
namespace {

const base::Status kBadToken{base::Code::kAuth, "TLS handshake failed: the token does not match"};

TEST(PeerConnectionTest, a_token_that_never_was_good_ends_the_communicator) {
  PeerMachine peer(PeerOptions{}, 5, kNow);
  (void)peer.start(kNow);
  const PeerEffects effects = peer.on(Disconnected{kBadToken}, kNow);
  ASSERT_TRUE(effects.broken.has_value());
  EXPECT_EQ(effects.broken->code, base::Code::kAuth);
}

// Found with a proxy that flips bits: the handshake of a reconnect met one of them.
TEST(PeerConnectionTest, a_handshake_that_fails_after_a_welcome_is_tried_again) {
  PeerMachine peer(PeerOptions{}, 5, kNow);
  (void)peer.start(kNow);
  (void)peer.on(Connected{}, kNow);
  (void)peer.on(FromMaster{wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond}}, kNow);
  (void)peer.on(Disconnected{{base::Code::kLinkLost, "reset"}}, kNow);
  EXPECT_TRUE(peer.on(PeerTick{}, kNow + base::kSecond).connect);
  const PeerEffects failed = peer.on(Disconnected{kBadToken}, kNow + base::kSecond);
  EXPECT_FALSE(failed.broken.has_value());
  EXPECT_TRUE(peer.on(PeerTick{}, kNow + 3 * base::kSecond).connect);
}

// A master that stood still with its clock reads that they hung up, and waits `reset_grace` for
// them (simulator, seed 21869540733).
TEST(PeerConnectionTest, who_hangs_up_on_a_silent_master_dials_again_soon_however_often) {
  PeerMachine peer(PeerOptions{}, 5, kNow);
  (void)peer.start(kNow);
  (void)peer.on(Connected{}, kNow);
  (void)peer.on(FromMaster{wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond}}, kNow);
  const base::Duration pause = PeerOptions{}.reconnect_pause;
  base::Time hung_up = 0;
  int dialled = 0;
  for (base::Time now = kNow; dialled < 6 && now < kNow + 60 * base::kSecond; now += pause) {
    const PeerEffects effects = peer.on(PeerTick{}, now);
    if (effects.disconnect) hung_up = now;
    if (!effects.connect) continue;
    EXPECT_EQ(now, hung_up + pause) << dialled;
    ++dialled;
    (void)peer.on(Connected{}, now);
  }
  EXPECT_EQ(dialled, 6);
}

TEST(PeerConnectionTest, the_lower_of_two_bounds_of_its_rate_holds) {
  for (const std::uint64_t own : {0, 20'000}) {
    for (const std::uint64_t run : {0, 1, 15'000, 30'000}) {
      PeerOptions options;
      options.max_rate = own, options.day_bytes = 5;
      PeerMachine peer(options, 5, kNow);
      (void)peer.start(kNow);
      const auto hello = sent<wire::Hello>(peer.on(Connected{}, kNow));
      ASSERT_EQ(hello.size(), 1U);
      EXPECT_EQ(hello[0].max_rate, own);
      EXPECT_EQ(hello[0].day_bytes, 5U);
      EXPECT_EQ(peer.max_rate(), own) << "it has no run yet";
      wire::Welcome welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond, run};
      (void)peer.on(FromMaster{welcome}, kNow);
      const std::uint64_t its = run == 1 ? 10'000 : run;  // less would be none
      EXPECT_EQ(peer.max_rate(), own == 0 || its == 0 ? own + its : std::min(own, its));
    }
  }
}

TEST(PeerConnectionTest, a_welcome_in_another_version_ends_it) {
  for (const std::uint16_t version : {wire::kVersionOldest - 1, wire::kVersion + 1}) {
    PeerMachine peer(PeerOptions{}, 5, kNow);
    (void)peer.start(kNow);
    (void)peer.on(Connected{}, kNow);
    Call call;
    call.tag = "t", call.deadline = kNow + 60 * base::kSecond;
    (void)peer.on(call, kNow);
    wire::Welcome welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond};
    welcome.version = version;
    const auto done = peer.on(FromMaster{welcome}, kNow).complete;
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status.code, base::Code::kVersion);
    EXPECT_NE(done[0].status.text.find(std::to_string(version)), std::string::npos)
        << done[0].status.text;
  }
}

// Else it is over before the master has heard who holds it (attack of 29 November 2026: calls of
// 0.45 s, and no round for 800 s).
TEST(PeerConnectionTest, in_a_short_call_it_says_often_whom_it_waits_for) {
  for (const bool is_short : {false, true}) {
    PeerMachine peer(PeerOptions{}, 5, kNow);
    (void)peer.start(kNow);
    (void)peer.on(Connected{}, kNow);
    (void)peer.on(FromMaster{wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond}}, kNow);
    const auto beats = [&](base::Time from, base::Duration time) {
      std::size_t count = 0;
      for (base::Time now = from; now < from + time; now += base::kMillisecond) {
        count += sent<wire::Heartbeat>(peer.on(PeerTick{}, now)).size();
        (void)peer.on(FromMaster{wire::HeartbeatAck{}}, now);
      }
      return count;
    };
    const auto moves = [&](const char* tag, std::uint64_t number, base::Duration time) {
      Call call;
      call.tag = tag, call.deadline = kNow + time;
      const auto ready = sent<wire::Ready>(peer.on(call, kNow));
      ASSERT_EQ(ready.size(), 1u);
      wire::Start start;
      start.attempt = {1, number}, start.round = ready[0].round, start.call = ready[0].call;
      (void)peer.on(FromMaster{start}, kNow);
    };
    moves("long", 1, 60 * base::kSecond);
    moves("t", 2, (is_short ? 400 : 60'000) * base::kMillisecond);
    EXPECT_EQ(beats(kNow, 399 * base::kMillisecond), is_short ? 7u : 0u);
    (void)peer.on(CancelCall{"t"}, kNow + base::kSecond / 2);
    EXPECT_LE(beats(kNow + base::kSecond, 2 * base::kSecond), 5u) << "the other one moves yet";
  }
}

TEST(PeerConnectionTest, a_call_of_a_peer_that_is_turned_away_says_why) {
  PeerMachine peer(PeerOptions{}, 5, kNow);
  (void)peer.start(kNow);
  (void)peer.on(Connected{}, kNow);
  (void)peer.on(FromMaster{wire::Refuse{base::Code::kLinkLost, "eu has a connection"}}, kNow);
  Call call;
  call.tag = "t";
  call.deadline = kNow + base::kSecond;
  (void)peer.on(call, kNow);
  EXPECT_NE(peer.waiting_for("t", kNow).find("eu has a connection"), std::string::npos);
  const PeerEffects over = peer.on(PeerTick{}, call.deadline);
  ASSERT_EQ(over.complete.size(), 1U);
  EXPECT_NE(over.complete[0].status.text.find("eu has a connection"), std::string::npos);
}

// It was told that the master is lost, which served all others.
TEST(PeerConnectionTest, whose_token_has_expired_since_it_came_in_says_so) {
  PeerMachine peer(PeerOptions{}, 5, kNow);
  (void)peer.start(kNow);
  (void)peer.on(Connected{}, kNow);
  (void)peer.on(FromMaster{wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond}}, kNow);
  Call call;
  call.tag = "t";
  call.deadline = kNow + 100 * base::kSecond;
  (void)peer.on(call, kNow);
  (void)peer.on(Disconnected{{base::Code::kLinkLost, "reset"}}, kNow);
  const base::Status expired{base::Code::kAuth, "the token of us has expired; ask for a new one"};
  base::Time now = kNow;
  std::vector<base::Status> told;
  for (; now < kNow + 61 * base::kSecond && told.empty(); now += 100 * base::kMillisecond) {
    const PeerEffects effects = peer.on(PeerTick{}, now);
    for (const auto& one : effects.complete) told.push_back(one.status);
    if (effects.connect) (void)peer.on(Disconnected{expired}, now);
    if (now == kNow + 10 * base::kSecond) {
      EXPECT_NE(peer.waiting_for("t", now).find(expired.text), std::string::npos);
    }
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].code, base::Code::kMasterLost);
  EXPECT_NE(told[0].text.find(expired.text), std::string::npos) << told[0].text;
}

// A peer whose seat is another key's, for as long as it waits for a master. It is never asleep.
class TurnedAwayTest : public testing::Test {
 protected:
  void SetUp() override {
    (void)peer_.start(kNow);
    (void)peer_.on(Connected{}, kNow);
    (void)peer_.on(FromMaster{wire::Refuse{base::Code::kLinkLost, "the seat of site eu is taken"}},
                   kNow);
  }
  // To the end of the grace; what became of the calls and syncs that were open.
  std::vector<base::Status> wait() {
    std::vector<base::Status> told;
    const base::Time end = kNow + PeerOptions{}.master_grace;
    for (now_ = kNow; now_ < end; now_ += 100 * base::kMillisecond)
      take(peer_.on(PeerTick{}, now_), &told);
    take(peer_.on(PeerTick{}, now_), &told);
    return told;
  }
  static void take(const PeerEffects& effects, std::vector<base::Status>* told) {
    for (const auto& call : effects.complete) told->push_back(call.status);
    for (const auto& sync : effects.synced) told->push_back(sync.status);
  }
  std::vector<base::Status> ask() {
    std::vector<base::Status> told;
    Call call;
    call.tag = "t";
    call.deadline = now_ + 600 * base::kSecond;
    take(peer_.on(call, now_), &told);
    SyncCall sync;
    sync.tag = "model";
    sync.deadline = call.deadline;
    take(peer_.on(sync, now_), &told);
    return told;
  }
  static void expect_reasons(const std::vector<base::Status>& told) {
    ASSERT_EQ(told.size(), 2U);
    for (const base::Status& one : told) {
      EXPECT_EQ(one.code, base::Code::kMasterLost);
      EXPECT_NE(one.text.find("turned away by the master: the seat of site eu is taken"),
                std::string::npos)
          << one.text;
    }
  }
  PeerMachine peer_{PeerOptions{}, 5, kNow};
  base::Time now_ = kNow;
};

TEST_F(TurnedAwayTest, what_was_open_says_why_when_the_grace_is_over) {
  ASSERT_TRUE(ask().empty());
  expect_reasons(wait());
}

// "unreachable" sent people to look for a master that was there.
TEST_F(TurnedAwayTest, what_is_called_after_the_grace_says_why) {
  ASSERT_TRUE(wait().empty());
  expect_reasons(ask());
}

}  // namespace
}  // namespace jccl::protocol
