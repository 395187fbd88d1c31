// What calls of the CUDA platform are told of a tag's state: marks, made on the device. The state
// itself stays there; of a mistake only words come down.
#include <gtest/gtest.h>

#include "testing/devices.h"

namespace jccl::xla_ext::testing {
namespace {

peer::Leaf leaf_of(Floats& values) {
  peer::Leaf leaf;
  leaf.count = values.size();
  leaf.in = values.data();
  leaf.out = values.data();
  leaf.path = "anchor";
  leaf.shape = {values.size()};
  return leaf;
}

ArrayRef marks_of(Floats values) {
  auto words = std::make_shared<Array>(codec::Dtype::kU32, std::vector<std::uint64_t>{1, 2});
  const peer::StateMarks marks = peer::marks_of({leaf_of(values)});
  std::memcpy(words->data(), &marks[0].first, 4);
  std::memcpy(static_cast<std::uint8_t*>(words->data()) + 4, &marks[0].second, 4);
  return words;
}

void synchronise(Entry& entry, Floats values, const std::string& tag) {
  peer::SyncOptions options;
  options.tag = tag;
  ASSERT_TRUE(entry.comm().sync_state({leaf_of(values)}, options).status.ok());
}

Attributes with_marks(Attributes attributes) {
  attributes["marks"] = std::int32_t{1};
  return attributes;
}

const Floats kState{1, 2, 3}, kEdited{1, 2, 3.5F};

TEST_F(Devices, a_round_of_an_edited_state_ends_before_anything_is_sent) {
  Cluster peers(1);
  synchronise(peers[0], kState, "w");
  const auto run = [&](Round& round, const Floats& state) {
    ASSERT_EQ(invoke(kCudaTargetTable, "jccl_round", contexts_[0],
                     {round.leaf, marks_of(state), round.weight, round.deadline, round.token},
                     {round.out, round.status, round.token_out},
                     with_marks(round_attributes(peers[0], "w"))),
              "");
    settle(0);
  };
  for (const Floats& state : {kEdited, kState}) {
    Round round({5, 6, 7});
    run(round, state);
    EXPECT_EQ(round.code(), number(Code::kResync)) << "until it was healed";
    EXPECT_EQ(round.out->read<float>(), (Floats{5, 6, 7}));
    EXPECT_EQ(round.token_out->read<std::uint32_t>()[0], 5U);
  }
  synchronise(peers[0], kEdited, "w");
  Round round({5, 6, 7});
  run(round, kState);
  EXPECT_EQ(round.code(), 0);
}

TEST_F(Devices, a_start_of_an_edited_state_leaves_a_handle_that_says_so) {
  Cluster peers(1);
  synchronise(peers[0], kState, "a");
  Async call({5, 6, 7});
  const auto start = [&](const Floats& state) {
    Attributes all = with_marks(round_attributes(peers[0], "a"));
    all["count"] = 1;
    return invoke(kCudaTargetTable, "jccl_start", contexts_[0],
                  {call.leaf, call.passed, marks_of(state), call.weight, call.deadline, call.token},
                  {call.handle, call.passed_out, call.token_out}, all);
  };
  ASSERT_EQ(start(kEdited), "");
  ASSERT_EQ(call.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(call.code(), number(Code::kResync));
  EXPECT_NE(peers[0].last_fault("a").find("leaf anchor f32[3]"), std::string::npos)
      << peers[0].last_fault("a");
  synchronise(peers[0], kState, "a");
  ASSERT_EQ(start(kState), "");
  ASSERT_EQ(call.done(contexts_[0], peers[0]), "");
  settle(0);
  EXPECT_EQ(call.code(), 0);
  EXPECT_EQ(call.passed_out->read<float>(), (Floats{1, 2}));
  EXPECT_EQ(call.out->read<float>(), (Floats{5, 6, 7}));
}

TEST_F(Devices, a_state_that_was_edited_is_not_published_and_the_newest_comes_up) {
  Cluster peers(1);
  synchronise(peers[0], kState, "w");
  const auto publish = [&](const Floats& fresh, const Floats& before, ArrayRef status) {
    const auto leaf = Array::floats(fresh), out = Array::floats({0, 0, 0});
    EXPECT_EQ(invoke(kCudaTargetTable, "jccl_publish", contexts_[0],
                     {leaf, marks_of(before), Array::ints({0, 1, 0, 1}),
                      Array::scalar(std::int32_t{0}), Array::token(4)},
                     {out, status, Array::token(0)},
                     with_marks({{"comm", peers[0].id()},
                                 {"tag", std::string("w")},
                                 {"paths", std::string("anchor")}})),
              "");
    settle(0);
    return out->read<float>();
  };
  const auto status = Array::status();
  EXPECT_EQ(publish({4, 4, 4}, kEdited, status), kState);
  EXPECT_EQ(status->read<std::int32_t>(),
            (std::vector<std::int32_t>{number(Code::kResynced), 1, 0, 1}));
  EXPECT_EQ(publish(kState, kState, status), kState);
  EXPECT_EQ(status->read<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 0, 0}));
}

TEST_F(Devices, a_call_without_the_marks_that_it_names_is_malformed) {
  Cluster peers(1);
  Round round({5, 6, 7});
  EXPECT_NE(invoke(kCudaTargetTable, "jccl_round", contexts_[0],
                   {round.weight, round.deadline, round.token}, {round.status, round.token_out},
                   with_marks(round_attributes(peers[0], "w"))),
            "");
}

}  // namespace
}  // namespace jccl::xla_ext::testing
