// Who was in a round, as a program is told.
#include <gtest/gtest.h>

#include <thread>

#include "testing/cluster.h"
#include "testing/device_program.h"

namespace jccl::xla_ext {
namespace {

using testing::Array;
using testing::ArrayRef;
using Words = std::vector<std::uint32_t>;

// A round of both, each with this weight; the status that the first one had.
ArrayRef round_of(testing::Cluster& peers, float first, float second) {
  const auto call = [&](std::size_t at, float weight) {
    auto attributes = testing::round_attributes(peers[at], "a");
    attributes["op"] = std::string("mean");
    const ArrayRef status = Array::status();
    const std::vector<ArrayRef> operands = {Array::floats({1}), Array::scalar(weight),
                                            Array::scalar(std::int32_t{0}), Array::token(0)};
    EXPECT_EQ(testing::invoke(kTargetTable, "jccl_round", {}, operands,
                              {Array::floats({0}), status, Array::token(0)}, attributes),
              "");
    return status;
  };
  std::thread other([&] { call(1, second); });
  const ArrayRef status = call(0, first);
  other.join();
  return status;
}

Words counted(const Entry& entry, const ArrayRef& status, std::size_t room) {
  const ArrayRef like = Array::ints(std::vector<std::int32_t>(2 * room));
  std::vector<std::uint32_t> words(2 * room, 9);
  HostCall call;
  call.operands = {like->view(), status->view()};
  call.results = {{codec::Dtype::kU32, words.size(), words.data(), {room, 2}}};
  call.attributes = {{"comm", entry.id()}, {"tag", std::string("a")}};
  const auto ended = call_handler("jccl_counted", std::move(call));
  EXPECT_TRUE(ended.ok()) << ended.text;
  return words;
}

TEST(CountedTest, a_program_is_told_who_was_in_its_round_with_which_weight) {
  testing::Cluster peers(2);
  ArrayRef status = round_of(peers, 3, 500);
  const auto first = peers[0].comm().attributes().id, second = peers[1].comm().attributes().id;
  const bool ordered = first < second;
  const Words expected =
      ordered ? Words{2, 1, first, 3, second, 500, 0, 0} : Words{2, 1, second, 500, first, 3, 0, 0};
  EXPECT_EQ(counted(peers[0], status, 4), expected);
  EXPECT_EQ(counted(peers[0], status, 2), (Words(expected.begin(), expected.begin() + 4)));
  status = round_of(peers, 0, 1e-6F);  // the one only receives, the other has a name alone
  EXPECT_EQ(counted(peers[0], status, 3), (Words{1, 2, second, 0, 0, 0}));
}

TEST(CountedTest, a_round_that_did_not_commit_names_nobody) {
  testing::Cluster peers(2);
  round_of(peers, 1, 1);
  const ArrayRef aborted = Array::ints({3, 0, 0, 0});
  EXPECT_EQ(counted(peers[0], aborted, 2), (Words{0, 0, 0, 0}));
  peers.close(0);
  EXPECT_EQ(counted(peers[0], Array::ints({0, 0, 0, 0}), 2), (Words{0, 0, 0, 0}));
}

}  // namespace
}  // namespace jccl::xla_ext
