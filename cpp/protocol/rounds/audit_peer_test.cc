// The peer's side of an audit: what it is bound by is told, and told again; what it is asked for it
// shows while its call is open, and says so when that is over.
#include <gtest/gtest.h>

#include "protocol/peer/peer_machine.h"
#include "protocol/test_effects.h"

namespace jccl::protocol {
namespace {

class AuditedPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    (void)peer_.start(kNow);
    greet();
    Call call;
    call.tag = "t", call.deadline = kNow + 60 * base::kSecond;
    const wire::Ready ready = sent<wire::Ready>(peer_.on(call, kNow)).at(0);
    wire::Start start{kAttempt, {"t", 1}, {{1, 1}}, {}, {}, ready.call};
    start.audit = {7};
    (void)hear(start);
    roots_.cells = 3, roots_.result = {4};
    roots_.parts = {{3, {5}}}, roots_.receipts = {{5}};
  }
  void greet() {
    (void)peer_.on(Connected{}, kNow);
    again_ = hear(wire::Welcome{{}, 1, base::kSecond / 2, 3 * base::kSecond});
    (void)hear(wire::Roster{1, 0, {{1, 5, "a", 0, 1, {}, {}}}, {}, {}, {}, {}});
  }
  PeerEffects hear(wire::Message message) { return peer_.on(FromMaster{std::move(message)}, kNow); }
  PeerEffects done() { return peer_.on(AttemptDone{kAttempt, {1, 1}, {}, roots_}, kNow); }

  static constexpr wire::Attempt kAttempt{1, 1};
  PeerMachine peer_{PeerOptions{}, 5, kNow};
  PeerEffects again_;
  wire::AuditRoots roots_;
};

TEST_F(AuditedPeer, what_it_is_bound_by_is_told_with_done_and_again_on_the_next_connection) {
  EXPECT_EQ(sent<wire::Done>(done()).at(0).audit, roots_);
  (void)peer_.on(Disconnected{}, kNow);
  (void)peer_.on(PeerTick{}, kNow + base::kSecond);
  greet();
  EXPECT_EQ(sent<wire::Done>(again_).at(0).audit, roots_);
}

TEST_F(AuditedPeer, it_shows_what_it_is_asked_for_while_its_call_is_open) {
  EXPECT_TRUE(hear(wire::AuditAsk{kAttempt, {0}}).audit.empty()) << "before DONE";
  (void)done();
  const auto asked = hear(wire::AuditAsk{kAttempt, {0, 2}});
  ASSERT_EQ(asked.audit.size(), 1U);
  EXPECT_EQ(asked.audit[0].cells.size(), 2U);
  const auto shown = peer_.on(AuditAnswer{kAttempt, {{kAttempt, 0, false, {}, {}, {1}}}}, kNow);
  EXPECT_EQ(sent<wire::AuditPart>(shown).size(), 1U);
  EXPECT_TRUE(sent<wire::AuditPart>(peer_.on(AuditAnswer{{1, 9}, {{}}}, kNow)).empty());
}

TEST_F(AuditedPeer, it_says_so_when_its_call_has_ended) {
  (void)done();
  const auto ended = peer_.on(CancelCall{"t"}, kNow);
  ASSERT_EQ(ended.complete.size(), 1U);
  EXPECT_EQ(ended.complete[0].status.code, base::Code::kInDoubt);
  const auto asked = hear(wire::AuditAsk{kAttempt, {0}});
  EXPECT_TRUE(asked.audit.empty());
  ASSERT_EQ(sent<wire::Fail>(asked).size(), 1U);
  EXPECT_EQ(sent<wire::Fail>(asked)[0].attempt, kAttempt);
}

TEST_F(AuditedPeer, it_says_so_when_its_call_ends_before_the_answer_is_there) {
  (void)done();
  ASSERT_EQ(hear(wire::AuditAsk{kAttempt, {0}}).audit.size(), 1U);
  (void)peer_.on(CancelCall{"t"}, kNow);
  const auto late = peer_.on(AuditAnswer{kAttempt, {{kAttempt, 0, false, {}, {}, {1}}}}, kNow);
  EXPECT_TRUE(sent<wire::AuditPart>(late).empty());
  ASSERT_EQ(sent<wire::Fail>(late).size(), 1U);
  EXPECT_EQ(sent<wire::Fail>(late)[0].attempt, kAttempt);
}

}  // namespace
}  // namespace jccl::protocol
