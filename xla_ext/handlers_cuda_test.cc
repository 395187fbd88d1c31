// The calls of the CUDA platform, from launch to the bytes on the device, over a driver that stands
// in for CUDA's and real communicators. Each launch has a thread of its own, as it has in XLA.
#include <gtest/gtest.h>

#include "base/limits.h"
#include "testing/cluster.h"
#include "testing/device_program.h"
#include "testing/fake_cuda.h"

namespace jccl::xla_ext::testing {
namespace {

using base::Code;
using Floats = std::vector<float>;

constexpr int kLost = 719;
constexpr int kNoMemory = 2;

int number(Code code) { return static_cast<int>(code); }

class Devices : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda_reset();
    for (int i = 0; i < 2; ++i) contexts_.push_back({i, 1, stream(i)});
  }
  void TearDown() override {
    EXPECT_STREQ(fake_cuda_violation(), "");
    EXPECT_TRUE(eventually([] { return fake_cuda_contexts_pushed() == 0; }));  // frees are late
    fake_cuda_reset();
  }
  static void* stream(int at) {  // streams have threads: the same ones for all tests
    static void* held[] = {fake_cuda_stream(0), fake_cuda_stream(1)};
    return held[at];
  }
  static void settle(int at) {
    ASSERT_TRUE(eventually([&] { return fake_cuda_idle(stream(at)); }));
  }
  std::vector<Context> contexts_;
};

struct Round {
  explicit Round(const Floats& values, float deadline_s = 0)
      : leaf(Array::floats(values)),
        out(Array::floats(Floats(values.size(), -7.0F))),
        deadline(Array::scalar(static_cast<std::int32_t>(deadline_s * 1000))) {}

  std::string launch(const Target* table, const Context& context, const Attributes& attributes) {
    return invoke(table, "jccl_round", context, {leaf, weight, deadline, token},
                  {out, status, token_out}, attributes);
  }
  std::string launch(const Context& context, Entry& entry) {
    return launch(kCudaTargetTable, context, round_attributes(entry, "w"));
  }
  int code() const { return status->read<std::int32_t>()[0]; }
  int world() const { return status->read<std::int32_t>()[1]; }

  ArrayRef leaf, out, deadline;
  ArrayRef weight = Array::scalar(1.0F), token = Array::token(4), token_out = Array::token(0);
  ArrayRef status = Array::status();
};

struct Async {
  explicit Async(const Floats& values)
      : leaf(Array::floats(values)),
        passed(Array::floats({1, 2})),
        passed_out(Array::floats({0, 0})),
        like(Array::floats(Floats(values.size(), 5.0F))),
        out(Array::floats(Floats(values.size(), -7.0F))) {}

  std::string start(const Context& context, Entry& entry) {
    Attributes attributes = round_attributes(entry, "a");
    attributes["count"] = 1;
    return invoke(kCudaTargetTable, "jccl_start", context, {leaf, passed, weight, deadline, token},
                  {handle, passed_out, token_out}, attributes);
  }
  std::string done(const Context& context, Entry& entry) {
    const Attributes attributes{{"comm", entry.id()}, {"tag", std::string("a")}};
    return invoke(kCudaTargetTable, "jccl_done", context, {handle, like, passed_out, token},
                  {out, status, token_out}, attributes);
  }
  int code() const { return status->read<std::int32_t>()[0]; }

  ArrayRef leaf, passed, passed_out, like, out;
  ArrayRef handle = Array::handle(), status = Array::status();
  ArrayRef weight = Array::scalar(1.0F), deadline = Array::scalar(std::int32_t{0});
  ArrayRef token = Array::token(4), token_out = Array::token(0);
};

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
  ASSERT_EQ(first.start(contexts_[0], peers[0]), "");
  settle(0);  // though the other peer has not come
  EXPECT_EQ(first.passed_out->read<float>(), (Floats{1, 2}));
  std::memset(first.leaf->data(), 0, first.leaf->bytes());  // its memory is another's by now
  std::thread done([&] { EXPECT_EQ(first.done(contexts_[0], peers[0]), ""); });
  ASSERT_EQ(second.start(contexts_[1], peers[1]), "");
  EXPECT_EQ(second.done(contexts_[1], peers[1]), "");
  done.join();
  settle(0);
  settle(1);
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

TEST_F(Devices, local_devices_make_one_round) {
  Cluster peers(2);
  const Floats whole{1, 2, 3, 4, 5, 6, 7, 8};
  Round other(whole);
  std::thread elsewhere([&] {
    Attributes attributes = round_attributes(peers[1], "w");
    attributes["paths"] = std::string("w");
    EXPECT_EQ(other.launch(kTargetTable, {}, attributes), "");
  });
  Attributes attributes = round_attributes(peers[0], "w");
  // One axis of two devices, which cuts the only leaf.
  attributes["geometry"] = std::vector<std::int64_t>{1, 2, 1, 1, 8, 1, 0, -1, 1, 0, 1, 1, 0, 4};
  attributes["held"] = std::vector<std::int64_t>{peers[0].id(), 0};
  attributes["parts"] = 1;
  attributes["local_devices"] = 2;
  std::vector<ArrayRef> outs, statuses;
  std::vector<std::thread> launches;
  for (int i = 0; i < 2; ++i) {
    const auto piece = Array::floats(Floats(whole.begin() + 4 * i, whole.begin() + 4 * i + 4));
    outs.push_back(Array::floats(Floats(4, 0.0F)));
    statuses.push_back(Array::status());
    launches.emplace_back([&, i, piece, out = outs.back(), status = statuses.back()] {
      EXPECT_EQ(invoke(kCudaTargetTable, "jccl_mesh_round", contexts_[static_cast<std::size_t>(i)],
                       {piece, Array::scalar(std::int32_t{i}), Array::scalar(1.0F),
                        Array::scalar(std::int32_t{0}), Array::token(0)},
                       {out, status, Array::token(0)}, attributes),
                "");
    });
  }
  for (auto& launch : launches) launch.join();
  elsewhere.join();
  for (std::size_t i = 0; i < 2; ++i) {
    settle(static_cast<int>(i));
    EXPECT_EQ(statuses[i]->read<std::int32_t>()[0], 0);
    EXPECT_EQ(statuses[i]->read<std::int32_t>()[1], 2);
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(outs[i]->read<float>()[k], 2 * whole[4 * i + k]);
    }
  }
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
  const Floats values(1000, 3.0F);
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
