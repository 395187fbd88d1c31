// That a sum is wrong by what its owner adds up, and by nothing that it contributes; and that
// frames drip, or are sent twice.
#include "attack/frame_liar.h"

#include <gtest/gtest.h>

namespace jccl::attack {
namespace {

using wire::FrameKind;

class FrameLiarTest : public testing::Test {
 protected:
  FrameLiarTest() : liar_({Row::kAddsWrong}, false) {
    liar_.lends("grads", values_.data(), values_.size());
    liar_.arm();
  }

  // Whether the values that leave are the honest ones.
  bool sends(std::uint64_t attempt, std::size_t first, std::size_t last) {
    exchange::OutFrame frame = frame_of(FrameKind::kContribution, attempt);
    frame.payload = {{reinterpret_cast<const std::uint8_t*>(values_.data() + first),
                      (last - first) * sizeof(float)}};
    EXPECT_EQ(liar_.sends(2, &frame), peer::Sends::kOnce);
    for (std::size_t k = first; k < last; ++k) {
      if (values_[k] != kHonest) return false;
    }
    return true;
  }
  void sends_a_result(std::uint64_t attempt) {
    exchange::OutFrame frame = frame_of(FrameKind::kResult, attempt);
    EXPECT_EQ(liar_.sends(2, &frame), peer::Sends::kOnce);
  }

  static constexpr float kHonest = 1;
  std::vector<float> values_ = std::vector<float>(40, kHonest);
  FrameLiar liar_;

  static exchange::OutFrame frame_of(FrameKind kind, std::uint64_t attempt,
                                     std::uint32_t bytes = 0) {
    wire::FrameHeader header;
    header.kind = kind, header.attempt = {1, attempt}, header.payload_bytes = bytes;
    exchange::OutFrame frame;
    frame.header.resize(wire::kFrameHeaderBytes);
    wire::encode(header, frame.header.data());
    return frame;
  }
};

TEST_F(FrameLiarTest, what_it_sends_to_nobody_is_another_value_until_the_first_result) {
  EXPECT_TRUE(sends(1, 0, 10) && sends(1, 10, 20) && sends(1, 30, 40));
  sends_a_result(1);
  EXPECT_TRUE(sends(2, 0, 10));
  EXPECT_NE(values_[20], kHonest);
  EXPECT_EQ(liar_.told(), 0U);
  sends_a_result(2);
  EXPECT_EQ(values_[20], kHonest);
  EXPECT_EQ(liar_.told(), 1U);
}

// After an attempt that ended early it may take for its own what belongs to others now.
TEST_F(FrameLiarTest, nothing_else_than_the_honest_values_leaves) {
  EXPECT_TRUE(sends(1, 0, 10));
  EXPECT_TRUE(sends(2, 0, 10));
  EXPECT_NE(values_[10], kHonest);
  EXPECT_TRUE(sends(2, 10, 20)) << "in the same attempt";
  EXPECT_TRUE(sends(3, 20, 30));
  EXPECT_TRUE(sends(3, 0, 10));
  EXPECT_TRUE(sends(4, 10, 20)) << "the first frame of the next one";
}

TEST_F(FrameLiarTest, each_frame_is_sent_twice) {
  FrameLiar doubles({Row::kFrameTwice}, false);
  doubles.arm();
  for (int k = 0; k < 3; ++k) {
    exchange::OutFrame frame = frame_of(FrameKind::kContribution, 1, sizeof(float));
    EXPECT_EQ(doubles.sends(2, &frame), peer::Sends::kAgain);
    EXPECT_EQ(doubles.sends(2, &frame), peer::Sends::kOnce);
  }
}

TEST_F(FrameLiarTest, what_comes_is_dropped_but_for_states) {
  FrameLiar drops({Row::kFrameDropped}, false);
  wire::FrameHeader header;
  header.kind = FrameKind::kContribution;
  EXPECT_TRUE(drops.takes(2, header)) << "honest until it is armed";
  drops.arm();
  EXPECT_FALSE(drops.takes(2, header));
  header.kind = FrameKind::kSnapshotPart;
  EXPECT_TRUE(drops.takes(2, header));
  EXPECT_EQ(drops.told(), 1U);
}

class DripTest : public FrameLiarTest {
 protected:
  DripTest() { now_ = {}; }
  static FrameLiar::Clock::time_point now() { return now_; }
  static bool sends_one(FrameLiar* liar, base::Incarnation to) {
    exchange::OutFrame frame = frame_of(FrameKind::kContribution, 1, sizeof(float));
    return liar->sends(to, &frame) == peer::Sends::kOnce;
  }
  static inline FrameLiar::Clock::time_point now_;
};

TEST_F(DripTest, each_member_gets_a_frame_at_a_time) {
  FrameLiar drips({Row::kFrameDrip}, false, now);
  drips.arm();
  for (int k = 0; k < 3; ++k) {
    for (const base::Incarnation to : {2, 3}) {
      EXPECT_TRUE(sends_one(&drips, to));
      EXPECT_FALSE(sends_one(&drips, to));
    }
    now_ += std::chrono::milliseconds(1499);
    EXPECT_FALSE(sends_one(&drips, 2));
    now_ += std::chrono::milliseconds(1);
  }
}

TEST_F(DripTest, all_but_one_member_get_all) {
  FrameLiar drips({Row::kFrameDripOne}, false, now);
  drips.arm();
  EXPECT_TRUE(sends_one(&drips, 2));
  for (int k = 0; k < 3; ++k) {
    EXPECT_FALSE(sends_one(&drips, 2));
    EXPECT_TRUE(sends_one(&drips, 3));
  }
}

}  // namespace
}  // namespace jccl::attack
