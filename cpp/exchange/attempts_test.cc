#include "exchange/attempts.h"

#include "exchange/attempt/attempt_bench.h"
#include "snapshot/digest.h"

namespace jccl::exchange {
namespace {

using base::kMillisecond;
using base::kSecond;

constexpr base::Duration kLimit = kSecond;

// Peer 10 of a direct round with 11; lives are 100 more than ids.
struct Table : AttemptsHost {
  Table() : attempts(&memory, 4096, this) {
    std::vector<wire::Member> members(2);
    members[0].id = 10, members[0].incarnation = 110, members[0].site = "here";
    members[1].id = 11, members[1].incarnation = 111, members[1].site = "there";
    attempts.set_members(members, 110);
    call = std::make_shared<TestCall>();
    call->options.op = collective::Op::kSum;
    call->leaves.push_back(
        {codec::Dtype::kF32, values.size(), values.data(), values.data(), "w", {}});
    call->specs.push_back({codec::Dtype::kF32, values.size()});
    collective::Plan plan;
    plan.order = {10, 11};
    start.attempt = kAttempt, start.round = {"x", 1};
    start.contributors = {{10, 1.0}, {11, 1.0}};
    start.plan = collective::encode(plan);
  }
  void enqueue(base::Incarnation, std::uint64_t key, bool) override { keys.push_back(key); }
  void abandon(const std::function<bool(std::uint64_t)>& which,
               const std::function<bool(const wire::FrameHeader&)>&) override {
    for (const std::uint64_t key : keys) {
      if (which(key)) abandoned.push_back(item_of(key).kind);
    }
    seen_at_abandon = values.front();
  }
  void abandon_receiving(base::Incarnation,
                         const std::function<bool(const wire::FrameHeader&)>&) override {}
  base::Time last_received(base::Incarnation) const override { return heard; }
  void renew(base::Incarnation peer, const base::Status&) override { renewed.push_back(peer); }
  void attempt_done(const wire::Attempt&, const base::Digest&) override { done = true; }
  void attempt_failed(const wire::Attempt&, Code cause, base::PeerId peer, std::string) override {
    failures.emplace_back(cause, peer);
  }
  void violation(const wire::Attempt&, base::PeerId from, wire::ViolationKind kind) override {
    violations.emplace_back(from, kind);
  }
  // What 11 sends: its contribution to the own part, or the result of its part.
  void comes(wire::FrameKind kind, std::uint32_t chunk, float value) {
    const Attempt* run = attempts.find(kAttempt);
    ASSERT_NE(run, nullptr);
    const std::vector<float> data(values.size() / 2, value);
    base::Bytes bytes(data.size() * sizeof(float));
    std::memcpy(bytes.data(), data.data(), bytes.size());
    wire::FrameHeader header{kind, kAttempt, chunk, static_cast<std::uint32_t>(bytes.size()),
                             snapshot::check_of(bytes)};
    Placement at = attempts.place(111, header);
    ASSERT_EQ(at.kind, Placement::Kind::kInto) << at.status.text;
    std::memcpy(at.spans[0].data(), bytes.data(), bytes.size());
    ASSERT_TRUE(attempts.arrived(111, header, at.token).ok());
  }

  TestMemory memory;
  Attempts attempts;
  std::vector<float> values = std::vector<float>(64, 1.0F);
  std::shared_ptr<TestCall> call;
  wire::Start start;
  std::vector<std::uint64_t> keys;
  std::vector<wire::FrameKind> abandoned;
  float seen_at_abandon = 0;
  base::Time heard = 0;
  std::vector<base::Incarnation> renewed;
  std::vector<std::pair<Code, base::PeerId>> failures;
  std::vector<std::pair<base::PeerId, wire::ViolationKind>> violations;
  bool done = false;
};

TEST(AttemptsTest, who_is_silent_for_too_long_is_told_once_a_limit_and_gets_a_new_link) {
  Table table;
  table.attempts.run(table.start, table.call, kSecond);
  table.attempts.check_stalls(2 * kSecond, kLimit, 0);
  EXPECT_TRUE(table.failures.empty());
  table.attempts.check_stalls(2 * kSecond + 1, kLimit, 0);
  table.attempts.check_stalls(3 * kSecond, kLimit, 0);
  ASSERT_EQ(table.failures.size(), 1U);
  EXPECT_EQ(table.failures[0], std::pair(Code::kPeerLost, base::PeerId{11}));
  EXPECT_EQ(table.renewed, std::vector<base::Incarnation>{111});
  table.attempts.check_stalls(3 * kSecond + 2, kLimit, 0);
  EXPECT_EQ(table.failures.size(), 2U);
}

TEST(AttemptsTest, a_silence_counts_from_the_last_word_and_from_when_one_was_there_to_hear_it) {
  Table table;
  table.attempts.run(table.start, table.call, kSecond);
  table.heard = 5 * kSecond;
  table.attempts.check_stalls(6 * kSecond, kLimit, 0);
  EXPECT_TRUE(table.failures.empty());
  table.attempts.check_stalls(9 * kSecond, kLimit, 8 * kSecond);
  EXPECT_TRUE(table.failures.empty()) << "this side stood still before";
  table.attempts.check_stalls(9 * kSecond + 1, kLimit, 8 * kSecond);
  EXPECT_EQ(table.failures.size(), 1U);
}

// Else one that sent rubbish in place of what the others wait for would hold them to their
// deadlines.
TEST(AttemptsTest, of_whoever_violated_the_plan_only_frames_that_count_end_a_silence) {
  Table table;
  table.attempts.run(table.start, table.call, kSecond);
  const wire::FrameHeader none{wire::FrameKind::kContribution, kAttempt, 99, 128, 0};
  EXPECT_EQ(table.attempts.place(111, none).kind, Placement::Kind::kRefuse);
  ASSERT_EQ(table.violations.size(), 1U);
  table.heard = 2 * kSecond;
  table.attempts.check_stalls(2 * kSecond, kLimit, 0);
  EXPECT_TRUE(table.failures.empty());
  table.comes(wire::FrameKind::kContribution, 0, 1.0F);
  table.heard = 3 * kSecond;
  table.attempts.check_stalls(3 * kSecond, kLimit, 0);
  EXPECT_TRUE(table.failures.empty()) << "the contribution counted";
  table.attempts.check_stalls(3 * kSecond + 1, kLimit, 0);
  ASSERT_EQ(table.failures.size(), 1U) << "the result has not come";
  EXPECT_EQ(table.failures[0], std::pair(Code::kPeerLost, base::PeerId{11}));
}

// Frames of it that came before were drained as those of an attempt that is over.
TEST(AttemptsTest, an_attempt_whose_START_comes_after_that_of_a_later_one_fails_at_once) {
  Table table;
  table.attempts.run(table.start, table.call, 0);
  table.start.attempt.counter = kAttempt.counter - 1;
  const wire::FrameHeader header{wire::FrameKind::kContribution, table.start.attempt, 0, 128, 0};
  EXPECT_EQ(table.attempts.place(111, header).kind, Placement::Kind::kDrain);
  table.attempts.run(table.start, table.call, 0);
  ASSERT_EQ(table.failures.size(), 1U);
  EXPECT_EQ(table.failures[0], std::pair(Code::kLinkLost, base::PeerId{0}));
}

TEST(AttemptsTest, what_has_not_begun_waits_and_what_is_over_is_drained) {
  Table table;
  const wire::FrameHeader header{wire::FrameKind::kContribution, kAttempt, 0, 128, 0};
  EXPECT_EQ(table.attempts.place(111, header).kind, Placement::Kind::kPause);
  table.attempts.run(table.start, table.call, 0);
  table.attempts.discard(kAttempt);
  EXPECT_EQ(table.attempts.place(111, header).kind, Placement::Kind::kDrain);
}

// Its call ended here before its START came. A state that somebody fetches waits behind its frames.
TEST(AttemptsTest, what_is_let_go_before_it_began_is_drained) {
  Table table;
  const wire::FrameHeader header{wire::FrameKind::kContribution, kAttempt, 0, 128, 0};
  EXPECT_EQ(table.attempts.place(111, header).kind, Placement::Kind::kPause);
  table.attempts.discard(kAttempt);
  EXPECT_EQ(table.attempts.place(111, header).kind, Placement::Kind::kDrain);
}

TEST(AttemptsTest, an_attempt_that_exchanges_frames_over_a_lost_link_fails_and_no_other) {
  Table table;
  table.attempts.run(table.start, table.call, 0);
  table.attempts.link_failed(112, "no such peer");
  EXPECT_TRUE(table.failures.empty());
  table.attempts.link_failed(111, "nobody answers");
  ASSERT_EQ(table.failures.size(), 1U);
  EXPECT_EQ(table.failures[0], std::pair(Code::kLinkLost, base::PeerId{11}));
  EXPECT_EQ(table.call->here, "the link to there: nobody answers");
}

TEST(AttemptsTest, a_receiver_that_cannot_be_reached_ends_nobody_elses_attempt) {
  Table table;
  std::vector<wire::Member> members(3);
  for (std::uint32_t i = 0; i < 3; ++i) members[i].id = 10 + i, members[i].incarnation = 110 + i;
  table.attempts.set_members(members, 110);
  table.start.receivers = {12};
  table.attempts.run(table.start, table.call, 0);
  table.attempts.link_failed(112, "nobody answers");
  EXPECT_TRUE(table.failures.empty());
  table.attempts.link_failed(111, "nobody answers");
  EXPECT_EQ(table.failures.size(), 1U);
}

// An owner that ends may find callers whose memory frames still point at.
TEST(AttemptsTest, an_owner_that_ends_lets_go_of_every_frame_under_way) {
  Table table;
  table.attempts.run(table.start, table.call, 0);
  ASSERT_FALSE(table.keys.empty());
  table.attempts.clear();
  EXPECT_EQ(table.abandoned.size(), table.keys.size());
  EXPECT_EQ(table.attempts.size(), 0U);
}

// In place they lie where the result is written.
TEST(AttemptsTest, contributions_under_way_are_let_go_before_a_commit_writes) {
  Table table;
  table.attempts.run(table.start, table.call, 0);
  for (const std::uint64_t key : std::vector<std::uint64_t>(table.keys)) {
    (void)table.attempts.produce(key);
  }
  table.comes(wire::FrameKind::kContribution, 0, 2.0F);
  table.comes(wire::FrameKind::kResult, 1, 3.0F);
  ASSERT_TRUE(table.done);
  ASSERT_TRUE(table.attempts.commit(kAttempt));
  EXPECT_EQ(table.abandoned, std::vector{wire::FrameKind::kContribution});
  EXPECT_EQ(table.seen_at_abandon, 1.0F);
  EXPECT_EQ(table.values.front(), 3.0F);
  EXPECT_EQ(table.values.back(), 3.0F);
}

}  // namespace
}  // namespace jccl::exchange
