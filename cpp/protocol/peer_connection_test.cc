// What a peer makes of a connection to the master that fails.
#include <gtest/gtest.h>

#include "protocol/peer_machine.h"
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

}  // namespace
}  // namespace jccl::protocol
