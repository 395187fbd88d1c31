#include "codec/roundtrip.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "codec/f32_form.h"
#include "codec/kernels/isa.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

using base::Bytes;

TEST(RoundtripTest, it_is_decode_of_encode) {
  for (const Isa isa : available_isas()) {
    force_isa(isa);
    for (const Codec& codec : all_codecs()) {
      for (const Dtype dtype : kFloats) {
        for (const std::size_t size : test_sizes()) {
          Bytes in = leaf_of(dtype, wild_values(size, size + 3));
          Bytes bytes(encoded_bytes(codec, dtype, size));
          Bytes expected(in.size());
          Bytes out(in.size());
          encode(codec, dtype, in.data(), size, bytes.data());
          decode(codec, dtype, bytes.data(), size, expected.data());
          roundtrip(codec, dtype, in.data(), size, out.data());
          ASSERT_EQ(out, expected) << name_of(codec) << name_of(dtype) << size;
          roundtrip(codec, dtype, in.data(), size, in.data());
          ASSERT_EQ(in, expected) << "in place";
        }
      }
    }
  }
  force_isa(available_isas().back());
}

TEST(RoundtripTest, the_residual_is_what_the_contribution_leaves_out) {
  for (const Codec& codec : all_codecs()) {
    for (const std::size_t size : test_sizes()) {
      auto in = normal_values(size, size);
      Bytes bytes(encoded_bytes(codec, Dtype::kF32, size));
      encode(codec, Dtype::kF32, in.data(), size, bytes.data());
      std::vector<float> sent(size), rest(size);
      decode(codec, Dtype::kF32, bytes.data(), size, sent.data());
      residual(codec, Dtype::kF32, in.data(), size, rest.data());
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(rest[i], in[i] - sent[i]);
      residual(codec, Dtype::kF32, in.data(), size, in.data());
      ASSERT_TRUE(size == 0 || std::memcmp(in.data(), rest.data(), 4 * size) == 0) << "in place";
    }
  }
}

TEST(RoundtripTest, a_residual_of_f64_holds_what_f32_cannot_and_bf16_is_rounded_once) {
  const std::vector<double> in = {1.0 + 0x1p-40, 3.0, -0x1p-60};
  std::vector<double> rest(3);
  residual(CodecId::kTopK, Dtype::kF64, in.data(), 3, rest.data());
  EXPECT_EQ(rest, (std::vector<double>{0x1p-40, 0, 0}));
  const Bytes half = leaf_of(Dtype::kBf16, normal_values(500, 5));
  std::vector<float> values(500), sent(500);
  Bytes bytes(encoded_bytes(CodecId::kInt8, Dtype::kBf16, 500)), out(1000), expected(1000);
  encode(CodecId::kInt8, Dtype::kBf16, half.data(), 500, bytes.data());
  decode_f32(CodecId::kInt8, Dtype::kBf16, bytes.data(), 500, sent.data());
  decode_f32(CodecId::kNone, Dtype::kBf16, half.data(), 500, values.data());
  for (std::size_t i = 0; i < 500; ++i) values[i] -= sent[i];
  encode_f32(CodecId::kNone, Dtype::kBf16, values.data(), 500, expected.data());
  residual(CodecId::kInt8, Dtype::kBf16, half.data(), 500, out.data());
  EXPECT_EQ(out, expected);
}

// What error feedback is for: what a round leaves out is added to the next, so nothing is lost.
TEST(RoundtripTest, with_feedback_the_sum_of_what_is_sent_follows_the_sum_of_what_was_wanted) {
  for (const Codec& codec : lossy_codecs()) {
    const std::size_t size = 4096;
    std::vector<double> wanted(size), got(size);
    std::vector<float> left(size), sent(size);
    for (std::uint64_t round = 0; round < 20; ++round) {
      const auto x = normal_values(size, round);
      for (std::size_t i = 0; i < size; ++i) {
        wanted[i] += x[i];
        left[i] += x[i];
      }
      roundtrip(codec, Dtype::kF32, left.data(), size, sent.data());
      residual(codec, Dtype::kF32, left.data(), size, left.data());
      for (std::size_t i = 0; i < size; ++i) got[i] += sent[i];
    }
    for (std::size_t i = 0; i < size; ++i) ASSERT_NEAR(wanted[i] - got[i], left[i], 1e-4);
  }
}

}  // namespace
}  // namespace jccl::codec
