// The calls of the CUDA platform, from launch to the bytes on the device, over a driver that stands
// in for CUDA's and real communicators. Each launch has a thread of its own, as it has in XLA.
#include <gtest/gtest.h>

#include "testing/devices.h"

namespace jccl::xla_ext::testing {
namespace {

TEST_F(Devices, a_round_has_the_bits_that_it_has_on_a_cpu) {
  Cluster peers(2);
  const Floats one{1.5F, 0.1F, -3.0F, 1e-3F}, two{0.25F, 0.2F, 8.0F, 7e5F};
  Round device(one), cpu(two);
  std::thread other(
      [&] { EXPECT_EQ(cpu.launch(kTargetTable, {}, round_attributes(peers[1], "w")), ""); });
  EXPECT_EQ(device.launch(contexts_[0], peers[0]), "");
  other.join();
  settle(0);
  EXPECT_EQ(device.code(), 0);
  EXPECT_EQ(device.world(), 2);
  EXPECT_EQ(device.out->read<float>(), cpu.out->read<float>());
  EXPECT_EQ(device.out->read<float>()[0], 1.75F);
  EXPECT_EQ(device.leaf->read<float>(), one);
  EXPECT_EQ(device.token_out->read<std::uint32_t>()[0], 5U);
}

// Results of one call more than most have: what this peer has of it.
TEST_F(Devices, an_all_to_all_brings_its_blocks_up_and_its_slot) {
  Cluster peers(2);
  Round rounds[2] = {Round({10, 11, 12}), Round({20, 21, 22})};
  ArrayRef extents[2] = {Array::ints({-1, -1}), Array::ints({-1, -1})};
  const auto launch = [&](std::size_t peer) {
    Attributes attributes = round_attributes(peers[peer], "blocks");
    attributes["collective"] = 6;
    attributes["slots"] = 3;
    Round& round = rounds[peer];
    EXPECT_EQ(invoke(kCudaTargetTable, "jccl_round", contexts_[peer],
                     {round.leaf, round.weight, round.deadline, round.token},
                     {round.out, round.status, round.token_out, extents[peer]}, attributes),
              "");
  };
  std::thread other([&] { launch(1); });
  launch(0);
  other.join();
  settle(0);
  settle(1);
  const auto slot = extents[0]->read<std::int32_t>()[0];  // whoever joined first
  for (const std::int32_t peer : {0, 1}) {
    EXPECT_EQ(rounds[peer].code(), 0);
    const std::int32_t own = peer == 0 ? slot : 1 - slot;
    EXPECT_EQ(extents[peer]->read<std::int32_t>(), (std::vector<std::int32_t>{own, 2}));
    const float of_first = 10.0F * static_cast<float>(slot == 0 ? 1 : 2);
    const float at = static_cast<float>(own);
    EXPECT_EQ(rounds[peer].out->read<float>(), (Floats{of_first + at, 30 - of_first + at, 0}));
  }
}

TEST_F(Devices, rounds_launched_far_ahead_take_their_turns_on_the_stream) {
  constexpr int kRounds = 20;
  Cluster peers(2);
  std::vector<std::unique_ptr<Round>> rounds[2];
  for (int i = 0; i < 2 * kRounds; ++i) {
    rounds[i % 2].push_back(std::make_unique<Round>(Floats(300, static_cast<float>(i / 2))));
  }
  std::vector<std::thread> launches;
  for (int peer = 0; peer < 2; ++peer) {
    launches.emplace_back([&, peer] {
      for (auto& round : rounds[peer]) EXPECT_EQ(round->launch(contexts_[peer], peers[peer]), "");
    });
  }
  for (auto& launch : launches) launch.join();
  settle(0);
  settle(1);
  for (int i = 0; i < kRounds; ++i) {
    for (int peer = 0; peer < 2; ++peer) {
      EXPECT_EQ(rounds[peer][i]->code(), 0);
      EXPECT_EQ(rounds[peer][i]->out->read<float>(), Floats(300, 2.0F * static_cast<float>(i)));
    }
  }
}

TEST_F(Devices, a_stream_goes_on_after_a_start_and_waits_at_done) {
  Cluster peers(2);
  Async first(Floats(100, 1.0F)), second(Floats(100, 2.0F));
  start_and_meet(peers, first, second);
  EXPECT_EQ(first.passed_out->read<float>(), (Floats{1, 2}));
  for (const Async* peer : {&first, &second}) {
    EXPECT_EQ(peer->code(), 0);
    EXPECT_EQ(peer->out->read<float>(), Floats(100, 3.0F));
  }
  ASSERT_EQ(first.done(contexts_[0], peers[0]), "");  // a handle is good for once
  settle(0);
  EXPECT_EQ(first.code(), number(Code::kUnknownTag));
  EXPECT_EQ(first.out->read<float>(), Floats(100, 5.0F));
}

TEST_F(Devices, done_without_a_round_gives_its_operands_and_says_why) {
  Cluster peers(1);
  Async call(Floats(10, 1.0F));
  ASSERT_EQ(call.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(call.code(), number(Code::kUnknownTag));
  EXPECT_EQ(call.out->read<float>(), Floats(10, 5.0F));
  EXPECT_NE(peers[0].last_fault("a").find("names no open round"), std::string::npos);
  ASSERT_EQ(call.start(contexts_[0], peers[0]), "");
  call.like = Array::floats({1, 2, 3});
  call.out = Array::floats({0, 0, 0});
  ASSERT_EQ(call.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(call.code(), number(Code::kInvalid));
  EXPECT_EQ(call.out->read<float>(), (Floats{1, 2, 3}));
}

TEST_F(Devices, a_deadline_releases_the_stream_and_the_operands_come_back) {
  Cluster peers(2);
  Round alone({1, 2, 3}, 0.3F);
  ASSERT_EQ(alone.launch(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_TRUE(alone.code() == number(Code::kDeadline) || alone.code() == number(Code::kTooFew))
      << alone.code();
  EXPECT_EQ(alone.out->read<float>(), (Floats{1, 2, 3}));
}

TEST_F(Devices, an_abort_ends_the_wait_of_a_stream) {
  Cluster peers(2);
  Round alone({1, 2, 3});
  std::thread launch([&] { EXPECT_EQ(alone.launch(contexts_[0], peers[0]), ""); });
  EXPECT_TRUE(eventually([&] {
    peers[0].comm().abort();  // one before the round began ends nothing
    return alone.code() != -1;
  }));
  launch.join();
  settle(0);
  EXPECT_EQ(alone.code(), number(Code::kAborted));
  EXPECT_EQ(alone.out->read<float>(), (Floats{1, 2, 3}));
}

TEST_F(Devices, a_closed_communicator_is_a_status) {
  Cluster peers(2);
  Async open(Floats(10, 1.0F));
  ASSERT_EQ(open.start(contexts_[0], peers[0]), "");
  settle(0);
  peers.close(0);
  ASSERT_EQ(open.done(contexts_[0], peers[0]), "");
  Round late({1, 2, 3});
  ASSERT_EQ(late.launch(contexts_[0], peers[0]), "");
  Async never(Floats(10, 1.0F));
  ASSERT_EQ(never.start(contexts_[0], peers[0]), "");
  ASSERT_EQ(never.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(open.code(), number(Code::kClosed));
  EXPECT_EQ(late.code(), number(Code::kClosed));
  EXPECT_EQ(never.code(), number(Code::kClosed));
  EXPECT_EQ(late.out->read<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(open.out->read<float>(), Floats(10, 5.0F));
}

TEST_F(Devices, pinned_memory_goes_with_the_communicator_and_not_before_the_stream_is_done) {
  {
    Cluster peers(1);
    Round round(Floats(1 << 20, 1.0F));
    ASSERT_EQ(round.launch(contexts_[0], peers[0]), "");
    settle(0);
    EXPECT_GT(fake_cuda_pinned_bytes(), 2 * round.leaf->bytes());
    const int allocations = fake_cuda_count("cuMemHostAlloc");
    ASSERT_EQ(round.launch(contexts_[0], peers[0]), "");
    settle(0);
    EXPECT_EQ(fake_cuda_count("cuMemHostAlloc"), allocations);  // used again
    Async open(Floats(1 << 20, 1.0F));
    fake_cuda_hold(stream(0), true);
    ASSERT_EQ(open.start(contexts_[0], peers[0]), "");
    peers.close(0);
    EXPECT_GT(fake_cuda_pinned_bytes(), open.leaf->bytes());
    fake_cuda_hold(stream(0), false);
    settle(0);
    EXPECT_TRUE(eventually([&] { return fake_cuda_pinned_bytes() == 0; }));
  }
}

TEST_F(Devices, no_pinned_memory_is_a_status_and_the_next_call_works) {
  Cluster peers(1);
  Round round(Floats(1 << 18, 1.0F));
  fake_cuda_fail("cuMemHostAlloc", 1, kNoMemory, false);
  ASSERT_EQ(round.launch(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(round.status->read<std::int32_t>(),
            (std::vector<std::int32_t>{number(Code::kLimit), 0, 0, 0}));
  EXPECT_EQ(round.out->read<float>(), round.leaf->read<float>());
  const std::string fault = peers[0].last_fault("w");
  EXPECT_NE(fault.find("pinned memory"), std::string::npos) << fault;
  EXPECT_NE(fault.find("cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"),
            std::string::npos)
      << fault;
  Async async(Floats(1 << 18, 1.0F));
  fake_cuda_fail("cuMemHostAlloc", 1, kNoMemory, false);
  ASSERT_EQ(async.start(contexts_[0], peers[0]), "");
  ASSERT_EQ(async.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(async.code(), number(Code::kLimit));
  EXPECT_EQ(async.out->read<float>(), Floats(1 << 18, 5.0F));
  ASSERT_EQ(round.launch(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(round.code(), 0);
}

TEST_F(Devices, a_lost_device_is_an_error_that_names_the_call) {
  const char* const functions[] = {"cuStreamGetCtx",    "cuCtxPushCurrent", "cuMemcpyDtoHAsync",
                                   "cuMemcpyHtoDAsync", "cuLaunchHostFunc", "cuStreamIsCapturing"};
  for (const char* function : functions) {
    Cluster peers(1);
    Round round({1, 2, 3});
    fake_cuda_fail(function, 1, kLost, true);
    const std::string error = round.launch(contexts_[0], peers[0]);
    EXPECT_NE(error.find(function), std::string::npos) << error;
    EXPECT_NE(error.find("CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)"),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("start it again"), std::string::npos) << error;
    EXPECT_TRUE(eventually([] { return fake_cuda_contexts_pushed() == 0; })) << function;
    fake_cuda_reset();
  }
}

TEST_F(Devices, a_device_that_is_lost_while_its_stream_waits_ends_nothing_of_the_host) {
  Cluster peers(2);
  Async lost({1, 2, 3});
  ASSERT_EQ(lost.start(contexts_[0], peers[0]), "");
  settle(0);
  fake_cuda_fail("cuMemcpyDtoDAsync", 1, kLost, true);
  EXPECT_NE(lost.done(contexts_[0], peers[0]), "");
  // The round is the host's: the other peer, without a device, gets its result.
  Round other({1, 1, 1});
  Attributes attributes = round_attributes(peers[1], "a");
  EXPECT_EQ(other.launch(kTargetTable, {}, attributes), "");
  EXPECT_EQ(other.code(), 0);
  EXPECT_EQ(other.out->read<float>(), (Floats{2, 3, 4}));
}

TEST_F(Devices, a_call_is_not_recorded_into_a_graph) {
  Cluster peers(1);
  for (int i = 0; i < kTargets; ++i) {
    EXPECT_EQ(
        traits_of(kCudaTargetTable[i].handler) & XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE,
        0U)
        << kCudaTargetTable[i].name;
  }
  Round round({1, 2, 3});
  fake_cuda_record(stream(0), true);
  const std::string error = round.launch(contexts_[0], peers[0]);
  EXPECT_NE(error.find("records a CUDA graph"), std::string::npos) << error;
  fake_cuda_record(stream(0), false);
  EXPECT_TRUE(fake_cuda_idle(stream(0)));
}

TEST_F(Devices, a_state_comes_up_again_only_if_a_newer_one_replaces_it) {
  Cluster peers(1);
  Floats values(1000, 3.0F);
  peer::Leaf leaf{codec::Dtype::kF32, 1000, values.data(), values.data(), "w", {1000}};
  peer::SyncOptions synchronised;
  synchronised.tag = "m";
  ASSERT_TRUE(peers[0].comm().sync_state({leaf}, synchronised).status.ok());
  const auto state = Array::floats(values), out = Array::floats(Floats(1000, 0.0F));
  const auto status = Array::status(), token_out = Array::token(0);
  const Attributes attributes{
      {"comm", peers[0].id()}, {"tag", std::string("m")}, {"paths", std::string("w")}};
  ASSERT_EQ(
      invoke(kCudaTargetTable, "jccl_publish", contexts_[0],
             {state, Array::ints({0, 1, 1, 1}), Array::scalar(std::int32_t{0}), Array::token(1)},
             {out, status, token_out}, attributes),
      "");
  settle(0);
  EXPECT_EQ(status->read<std::int32_t>()[0], 0);
  EXPECT_EQ(out->read<float>(), values);
  EXPECT_EQ(fake_cuda_count("cuMemcpyHtoDAsync"), 2);  // status and token
  EXPECT_NE(peers[0].comm().digest("m"), base::Digest{});
}

TEST_F(Devices, the_outer_step_has_the_bits_of_the_cpu) {
  Floats anchor, delta, momentum;
  for (int i = 0; i < 999; ++i) {
    anchor.push_back(0.37F * static_cast<float>(i % 17) - 1.1F);
    delta.push_back(1e-3F * static_cast<float>(i % 31));
    momentum.push_back(0.011F * static_cast<float>(i % 13));
  }
  ArrayRef outs[2][2];
  for (int on_device = 0; on_device < 2; ++on_device) {
    for (auto& out : outs[on_device]) out = Array::floats(Floats(999, 0.0F));
    ASSERT_EQ(invoke(on_device ? kCudaTargetTable : kTargetTable, "jccl_outer", contexts_[0],
                     {Array::floats(anchor), Array::floats(momentum), Array::floats(delta),
                      Array::scalar(0.7F), Array::scalar(0.9F), Array::ints({0, 2, 1, 1})},
                     {outs[on_device][0], outs[on_device][1]}, {{"kind", 2}}),
              "");
    settle(0);
  }
  EXPECT_EQ(outs[0][0]->read<float>(), outs[1][0]->read<float>());
  EXPECT_EQ(outs[0][1]->read<float>(), outs[1][1]->read<float>());
  EXPECT_NE(outs[0][0]->read<float>(), anchor);
}

}  // namespace
}  // namespace jccl::xla_ext::testing
