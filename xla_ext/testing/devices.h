// Two fake devices with a stream each, and the calls that tests of the CUDA platform make on them:
// each has its operands and results, and may be launched again.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "testing/cluster.h"
#include "testing/device_program.h"
#include "testing/fake_cuda.h"

namespace jccl::xla_ext::testing {

using base::Code;
using Floats = std::vector<float>;

inline constexpr int kLost = 719;
inline constexpr int kNoMemory = 2;

inline int number(Code code) { return static_cast<int>(code); }

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
    Attributes all = round_attributes(entry, "a");
    all["count"] = 1;
    for (const auto& [name, value] : attributes) all[name] = value;
    return invoke(kCudaTargetTable, "jccl_start", context, {leaf, passed, weight, deadline, token},
                  {handle, passed_out, token_out}, all);
  }
  std::string done(const Context& context, Entry& entry) {
    return invoke(kCudaTargetTable, "jccl_done", context, {handle, like, passed_out, token},
                  {out, status, token_out}, {{"comm", entry.id()}, {"tag", std::string("a")}});
  }
  int code() const { return status->read<std::int32_t>()[0]; }

  Attributes attributes;  // of the start, besides its usual ones
  ArrayRef leaf, passed, passed_out, like, out;
  ArrayRef handle = Array::handle(), status = Array::status();
  ArrayRef weight = Array::scalar(1.0F), deadline = Array::scalar(std::int32_t{0});
  ArrayRef token = Array::token(4), token_out = Array::token(0);
};

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
  // A start whose stream goes on before the other peer has come, and what both get of the round.
  void start_and_meet(Cluster& peers, Async& first, Async& second) {
    ASSERT_EQ(first.start(contexts_[0], peers[0]), "");
    settle(0);
    std::memset(first.leaf->data(), 0, first.leaf->bytes());  // its memory is another's by now
    std::thread done([&] { EXPECT_EQ(first.done(contexts_[0], peers[0]), ""); });
    EXPECT_EQ(second.start(contexts_[1], peers[1]), "");
    EXPECT_EQ(second.done(contexts_[1], peers[1]), "");
    done.join();
    settle(0);
    settle(1);
  }
  std::vector<Context> contexts_;
};

}  // namespace jccl::xla_ext::testing
