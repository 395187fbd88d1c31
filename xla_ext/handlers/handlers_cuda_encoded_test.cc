// Contributions that were encoded on the device, in calls of the CUDA platform: what crosses the
// bus, and what comes back. Over a driver that stands in for CUDA's and real communicators.
#include <gtest/gtest.h>

#include "testing/devices.h"

namespace jccl::xla_ext::testing {
namespace {

// Int8 codes of 1, 2, … under a scale of 2, as some device's encoder made them.
std::vector<std::uint8_t> codes_of(std::size_t count) {
  std::vector<std::uint8_t> bytes{0, 0, 0, 0x40};
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i + 1));
  return bytes;
}

Attributes encoded_attributes(const Entry& entry, std::int64_t count) {
  Attributes attributes = round_attributes(entry, "w");
  attributes["codec"] = std::string("int8");
  attributes["encoded"] = std::vector<std::int64_t>{0, 1, 1, count};  // leaf 0: f32, one extent
  return attributes;
}

TEST_F(Devices, of_an_encoded_leaf_its_bytes_alone_cross_the_bus) {
  constexpr std::size_t kCount = 100;
  Cluster peers(2);
  Round device(Floats(kCount, 0.0F)), cpu(Floats(kCount, 0.0F));
  device.leaf = cpu.leaf = Array::bytes_of(codes_of(kCount));
  Attributes there = encoded_attributes(peers[1], kCount);
  std::thread other([&] { EXPECT_EQ(cpu.launch(kTargetTable, {}, there), ""); });
  EXPECT_EQ(device.launch(kCudaTargetTable, contexts_[0], encoded_attributes(peers[0], kCount)),
            "");
  other.join();
  settle(0);
  EXPECT_EQ(device.code(), 0);
  EXPECT_EQ(device.out->read<float>(), cpu.out->read<float>());
  for (std::size_t i = 0; i < kCount; ++i) {
    // The sum's largest is 400 = 127 scales of 400/127.
    EXPECT_NEAR(device.out->read<float>()[i], 4.0F * static_cast<float>(i + 1), 1.6F);
  }
  EXPECT_EQ(fake_cuda_bytes("cuMemcpyDtoHAsync"), kCount + 4 + 3 * 4);  // and three scalars
}

Floats values_of(std::size_t count) {
  Floats values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(2.0F * static_cast<float>(i + 1));
  return values;
}

TEST_F(Devices, what_encoded_leaves_stand_for_comes_back_from_a_round_that_nobody_joins) {
  Cluster peers(2);
  Round alone(Floats(100, 0.0F), 0.2F);
  alone.leaf = Array::bytes_of(codes_of(100));
  ASSERT_EQ(alone.launch(kCudaTargetTable, contexts_[0], encoded_attributes(peers[0], 100)), "");
  settle(0);
  EXPECT_NE(alone.code(), 0);
  EXPECT_EQ(alone.out->read<float>(), values_of(100));
}

TEST_F(Devices, what_encoded_leaves_stand_for_comes_back_where_no_memory_is_pinned) {
  Cluster peers(1);
  Round round(Floats(100, 0.0F));
  round.leaf = Array::bytes_of(codes_of(100));
  fake_cuda_fail("cuMemHostAlloc", 1, kNoMemory, false);
  fake_cuda_allow_pageable_copies();
  ASSERT_EQ(round.launch(kCudaTargetTable, contexts_[0], encoded_attributes(peers[0], 100)), "");
  settle(0);
  EXPECT_EQ(round.code(), number(Code::kLimit));
  EXPECT_EQ(round.out->read<float>(), values_of(100));
}

TEST_F(Devices, a_round_of_encoded_leaves_outlives_the_call_that_started_it) {
  Cluster peers(1);
  Async call(Floats(3, 0.0F));
  call.leaf = Array::bytes_of(codes_of(3));
  call.attributes["codec"] = std::string("int8");
  call.attributes["encoded"] = std::vector<std::int64_t>{0, 1, 1, 3};
  ASSERT_EQ(call.start(contexts_[0], peers[0]), "");
  ASSERT_EQ(call.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(call.code(), 0);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(call.out->read<float>()[i], 2.0F * static_cast<float>(i + 1), 0.03F);
  }
}

}  // namespace
}  // namespace jccl::xla_ext::testing
