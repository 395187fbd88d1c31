// Large calls of the CUDA platform, whose rounds begin while their operands are still on the bus.
#include <gtest/gtest.h>

#include "codec/codec.h"
#include "cuda/cuda_driver.h"
#include "testing/devices.h"

namespace jccl::xla_ext::testing {
namespace {

constexpr std::size_t kCount = 4 << 20;  // 16 MiB of f32, in four parts
constexpr int kScalars = 3;              // copied before them

class Feeds : public Devices {
 protected:
  void SetUp() override {
    Devices::SetUp();
    // Else the launching thread waits for all copies, and has the round begin then.
    if (!cuda::driver().value().stream_wait_always) GTEST_SKIP() << "streams can't wait";
  }
  // The device's round stands before its last part; the other peer's is with the thread.
  std::thread held(Cluster& peers, Round& device, Round& cpu) {
    fake_cuda_hold_before_copy(stream(0), kScalars + 4);
    EXPECT_EQ(device.launch(contexts_[0], peers[0]), "");
    return std::thread([&] { EXPECT_EQ(on_cpu(cpu, peers), ""); });
  }
  static std::string on_cpu(Round& round, Cluster& peers) {
    return round.launch(kTargetTable, {}, round_attributes(peers[1], "w"));
  }
  // The other peer goes on without the device; what the device's peer says of it.
  static std::string left_out(Cluster& peers, Round& cpu) {
    EXPECT_EQ(on_cpu(cpu, peers), "");
    EXPECT_EQ(cpu.code(), 0);
    EXPECT_EQ(cpu.world(), 1);
    EXPECT_EQ(cpu.out->read<float>(), cpu.leaf->read<float>());
    EXPECT_TRUE(eventually([&] { return !peers[0].last_fault("w").empty(); }));
    return peers[0].last_fault("w");
  }
  static void go_on() {  // once it has come to where it is to be held
    EXPECT_TRUE(eventually([] { return fake_cuda_held(stream(0)); }));
    fake_cuda_hold(stream(0), false);
  }
};

Floats ramp(float step) {
  Floats values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = step * static_cast<float>(i % 1021);
  return values;
}

TEST_F(Feeds, a_round_is_under_way_while_its_last_part_is_not_here) {
  Cluster peers(2);
  Round device(ramp(0.1F)), cpu(ramp(0.7F));
  std::thread other = held(peers, device, cpu);
  // The first half is added up here, and its result is there; of the second one the other peer has
  // what has come.
  const std::uint64_t most = kCount * sizeof(float) / 4 * 3;
  const auto got = [&] { return peers[1].comm().attributes().received_bytes; };
  EXPECT_TRUE(eventually([&] { return got() >= most; }));
  EXPECT_EQ(device.code(), -1);
  go_on();
  other.join();
  settle(0);
  EXPECT_EQ(device.code(), 0);
  EXPECT_EQ(device.world(), 2);
  EXPECT_EQ(device.out->read<float>(), cpu.out->read<float>());
  EXPECT_FLOAT_EQ(device.out->read<float>()[3], 3 * 0.1F + 3 * 0.7F);
}

TEST_F(Feeds, a_round_that_is_aborted_gives_back_operands_that_come_after_it) {
  Cluster peers(2);
  Round device(ramp(0.1F)), cpu(ramp(0.7F));
  std::thread other = held(peers, device, cpu);
  EXPECT_TRUE(eventually([&] { return peers[1].comm().attributes().received_bytes > 0; }));
  peers[0].comm().abort();
  EXPECT_TRUE(eventually([&] { return !peers[0].last_fault("w").empty(); }));
  go_on();
  settle(0);
  EXPECT_NE(device.code(), 0);
  EXPECT_EQ(device.out->read<float>(), device.leaf->read<float>());
  peers[1].comm().abort();
  other.join();
}

TEST_F(Feeds, operands_that_stop_coming_are_left_out_of_the_round) {
  Cluster peers(2);
  Round device(ramp(0.1F)), cpu(ramp(0.7F));
  fake_cuda_hold_before_copy(stream(0), kScalars + 4);  // and for good
  EXPECT_EQ(device.launch(contexts_[0], peers[0]), "");
  const std::string why = left_out(peers, cpu);
  EXPECT_NE(why.find("stopped in the midst"), std::string::npos) << why;
  go_on();
  settle(0);
}

TEST_F(Feeds, a_copy_that_is_refused_leaves_the_round_to_the_others) {
  Cluster peers(2);
  Round device(ramp(0.1F)), cpu(ramp(0.7F));
  fake_cuda_fail("cuMemcpyDtoHAsync", kScalars + 3, kLost, false);
  const std::string error = device.launch(contexts_[0], peers[0]);
  EXPECT_NE(error.find("cuMemcpyDtoHAsync"), std::string::npos) << error;
  const std::string why = left_out(peers, cpu);
  EXPECT_NE(why.find("cuMemcpyDtoHAsync"), std::string::npos) << why;
}

TEST_F(Feeds, memory_of_a_refused_call_is_not_used_again_before_its_stream_is_done_with_it) {
  Cluster peers(2);
  Round refused(ramp(0.1F)), next(ramp(0.2F)), cpu(ramp(0.7F));
  fake_cuda_hold_before_copy(stream(0), kScalars + 2);
  fake_cuda_fail("cuMemcpyDtoHAsync", kScalars + 3, kLost, false);
  EXPECT_NE(refused.launch(contexts_[0], peers[0]), "");
  left_out(peers, cpu);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the host lets go of it
  const int blocks = fake_cuda_count("cuMemHostAlloc");
  std::thread other([&] { EXPECT_EQ(on_cpu(cpu, peers), ""); });
  EXPECT_EQ(next.launch({1, 2, stream(1)}, peers[0]), "");  // another program's
  other.join();
  settle(1);
  EXPECT_EQ(next.code(), 0);
  EXPECT_EQ(fake_cuda_count("cuMemHostAlloc"), blocks + 1);
  go_on();  // a part of the first call is written now
  settle(0);
  EXPECT_EQ(next.out->read<float>(), cpu.out->read<float>());
}

TEST_F(Devices, a_large_start_lets_go_of_its_operands_when_they_are_copied) {
  Cluster peers(2);
  Async first(ramp(0.1F)), second(ramp(0.7F));
  start_and_meet(peers, first, second);
  EXPECT_EQ(first.code(), 0);
  EXPECT_EQ(first.out->read<float>(), second.out->read<float>());
  EXPECT_FLOAT_EQ(first.out->read<float>()[3], 3 * 0.1F + 3 * 0.7F);
}

TEST_F(Feeds, encoded_operands_come_in_parts_too) {
  constexpr std::size_t kMany = 3 * kCount;  // 12 MiB of int8
  const codec::Codec int8{codec::CodecId::kInt8};
  Floats values(kMany);
  for (std::size_t i = 0; i < kMany; ++i) values[i] = static_cast<float>(i % 255) - 127;
  std::vector<std::uint8_t> bytes(codec::encoded_bytes(int8, codec::Dtype::kF32, kMany));
  codec::encode(int8, codec::Dtype::kF32, values.data(), kMany, bytes.data());
  Cluster peers(2);
  Attributes attributes[2];
  for (int i = 0; i < 2; ++i) {
    attributes[i] = round_attributes(peers[static_cast<std::size_t>(i)], "w");
    attributes[i]["codec"] = std::string("int8");
  }
  Round device(values), cpu(values);
  device.leaf = Array::bytes_of(bytes);
  attributes[0]["encoded"] =
      std::vector<std::int64_t>{0, static_cast<std::int64_t>(codec::Dtype::kF32), 1, kMany};
  fake_cuda_hold_before_copy(stream(0), kScalars + 3);
  EXPECT_EQ(device.launch(kCudaTargetTable, contexts_[0], attributes[0]), "");
  std::thread other([&] { EXPECT_EQ(cpu.launch(kTargetTable, {}, attributes[1]), ""); });
  EXPECT_TRUE(eventually([&] { return peers[1].comm().attributes().received_bytes > 0; }));
  go_on();
  other.join();
  settle(0);
  EXPECT_EQ(device.code(), 0);
  EXPECT_EQ(device.world(), 2);
  EXPECT_EQ(device.out->read<float>(), cpu.out->read<float>());
}

}  // namespace
}  // namespace jccl::xla_ext::testing
