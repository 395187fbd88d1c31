// Parts of the FFI that need neither a device nor a run: what a program names is checked before it
// is used.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "encoded_leaves.h"
#include "geometry.h"
#include "operands.h"
#include "registry.h"

namespace jccl::xla_ext {
namespace {

using codec::Dtype;

// Two devices, a leaf of eight elements of which each holds a half, one operand.
std::vector<std::int64_t> halves() { return {1, 2, 1, 1, 8, 1, 0, -1, 1, 0, 1, 1, 0, 4}; }

TEST(HostPartsTest, a_geometry_that_does_not_fit_is_refused) {
  ASSERT_TRUE(Geometry::read(halves(), 1).has_value());
  auto longer = halves();
  longer.push_back(0);
  EXPECT_FALSE(Geometry::read(longer, 1).has_value());
  auto uneven = halves();
  uneven[4] = 7;
  EXPECT_FALSE(Geometry::read(uneven, 1).has_value());
  auto without_room = halves();
  without_room.back() = 3;
  EXPECT_FALSE(Geometry::read(without_room, 1).has_value());
}

TEST(HostPartsTest, an_encoded_leaf_has_a_dtype_that_there_is) {
  const std::int64_t most = codec::kDtypeNumberMax;
  EXPECT_TRUE(EncodedLeaves::read(std::array<std::int64_t, 4>{0, most, 1, 8}, "int8"));
  EXPECT_FALSE(EncodedLeaves::read(std::array<std::int64_t, 4>{0, most + 1, 1, 8}, "int8"));
}

TEST(HostPartsTest, bytes_that_no_encoder_writes_stand_for_nothing) {
  const auto leaves = EncodedLeaves::read(std::array<std::int64_t, 4>{0, 1, 1, 4}, "int8");
  ASSERT_TRUE(leaves);
  std::array<std::uint8_t, 8> bytes{0, 0, 0x80, 0x3F, 1, 2, 3, 4};  // a scale of 1
  std::array<float, 4> out{};
  const View from{Dtype::kU8, 8, bytes.data(), {8}}, to{Dtype::kF32, 4, out.data(), {4}};
  leaves->decode(from, to);
  EXPECT_EQ(out, (std::array<float, 4>{1, 2, 3, 4}));
  bytes[7] = 0x80;
  leaves->decode(from, to);
  EXPECT_EQ(out, (std::array<float, 4>{}));
}

TEST(HostPartsTest, every_leaf_of_a_failed_round_is_what_was_put_in) {
  std::array<float, 2> first{1, 2}, last{3, 4}, first_out{}, last_out{};
  Payload payload;
  payload.in = {{Dtype::kF32, 2, first.data(), {2}}, {Dtype::kF32, 2, last.data(), {2}}};
  payload.out = {{Dtype::kF32, 2, first_out.data(), {2}}, {Dtype::kF32, 2, last_out.data(), {2}}};
  payload.keep_input();
  EXPECT_EQ(first_out, first);
  EXPECT_EQ(last_out, last);
}

TEST(HostPartsTest, what_a_status_has_no_room_for_is_its_most) {
  std::array<std::int32_t, 4> words{};
  put_status({Dtype::kI32, 4, words.data(), {4}}, base::Code::kOk, 3, std::uint64_t{1} << 33, 1);
  EXPECT_EQ(words, (std::array<std::int32_t, 4>{0, 3, INT32_MAX, 1}));
}

TEST(HostPartsTest, a_round_ends_with_the_leaves_that_it_began_with) {
  Entry entry(nullptr, 1);
  const std::vector<Shape> shapes{{Dtype::kF32, 4}};
  entry.opened(7, "t", shapes);
  base::Tag tag;
  EXPECT_EQ(entry.take(7, {{Dtype::kF32, 5}}, &tag).code, base::Code::kInvalid);
  EXPECT_TRUE(entry.take(7, shapes, &tag).ok());
  EXPECT_EQ(tag, "t");
  EXPECT_EQ(entry.take(7, shapes, &tag).code, base::Code::kUnknownTag);
}

TEST(HostPartsTest, two_devices_of_one_execution_are_not_two_peers) {
  Entry entry(nullptr, 1);
  EXPECT_TRUE(entry.enter("t", 5, 0).ok());
  EXPECT_TRUE(entry.enter("t", 5, 0).ok());
  EXPECT_EQ(entry.enter("t", 5, 1).code, base::Code::kLocalSkew);
  EXPECT_TRUE(entry.enter("t", 6, 1).ok());
}

TEST(HostPartsTest, a_row_of_faults_is_of_one_code) {
  Fault fault;
  for (const auto& [code, row] : {std::pair{base::Code::kMismatch, 1U},
                                  {base::Code::kMismatch, 2U},
                                  {base::Code::kDeadline, 1U},
                                  {base::Code::kMismatch, 1U}}) {
    fault.follow(code);
    fault.status.code = code;
    EXPECT_EQ(fault.row, row);
  }
}

}  // namespace
}  // namespace jccl::xla_ext
