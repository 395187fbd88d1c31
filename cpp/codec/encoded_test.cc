#include "codec/encoded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

using base::Bytes;

constexpr CodecId kTaken[] = {CodecId::kBf16, CodecId::kFp16, CodecId::kInt8, CodecId::kFp8,
                              CodecId::kInt4, CodecId::kE3m0, CodecId::kInt2};

base::Status check(const Codec& codec, const Bytes& bytes, std::size_t count) {
  return check_encoded(codec, Dtype::kF32, bytes.data(), bytes.size(), count);
}

std::vector<float> values(std::size_t count, float scale, std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<float> out(count);
  for (float& x : out) x = scale * (static_cast<float>(rng.below(2'000'001)) / 1e6F - 1);
  return out;
}

TEST(EncodedTest, what_our_encoders_write_is_taken) {
  for (const CodecId id : kTaken) {
    for (const bool noisy : {false, true}) {
      const Codec codec = noisy ? stochastic(id, 7) : Codec(id);
      for (const std::size_t count : {0, 1, 63, 64, 65, 255, 256, 257, 1001}) {
        for (const float scale : {0.0F, 1e-44F, 1e-38F, 1.0F, 3.4e38F}) {
          const Bytes bytes = encoded(codec, values(count, scale, count));
          const base::Status status = check(codec, bytes, count);
          EXPECT_TRUE(status.ok()) << name_of(codec) << " " << count << ": " << status.text;
          EXPECT_TRUE(finite_encoded(codec, bytes.data(), count));
        }
      }
    }
  }
}

TEST(EncodedTest, another_size_is_refused) {
  for (const CodecId id : kTaken) {
    Bytes bytes = encoded(id, values(300, 1, 1));
    bytes.push_back(0);
    EXPECT_EQ(check(id, bytes, 300).code, base::Code::kInvalid);
  }
}

TEST(EncodedTest, codecs_without_a_check_are_refused) {
  const Bytes bytes = encoded(CodecId::kTopK, values(300, 1, 1));
  EXPECT_EQ(check(CodecId::kTopK, bytes, 300).code, base::Code::kInvalid);
  const Bytes two = encoded(CodecId::kStat2, values(300, 1, 1));
  EXPECT_EQ(check(CodecId::kStat2, two, 300).code, base::Code::kInvalid);
  EXPECT_EQ(check(CodecId::kNone, Bytes(1200), 300).code, base::Code::kInvalid);
}

// Any scale and any codes, by trying them.
TEST(EncodedTest, whatever_passes_decodes_to_finite_values) {
  base::Rng rng(11);
  int passed = 0;
  for (const CodecId id :
       {CodecId::kInt8, CodecId::kFp8, CodecId::kInt4, CodecId::kE3m0, CodecId::kInt2}) {
    for (int turn = 0; turn < 20'000; ++turn) {
      const std::size_t count = 1 + rng.below(5);
      Bytes bytes(encoded_bytes(id, Dtype::kF32, count));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(rng.below(256));
      if (id == CodecId::kInt8) bytes[0] = 0;  // else hardly a scale would pass
      if (!check(id, bytes, count).ok() || !finite_encoded(id, bytes.data(), count)) continue;
      ++passed;
      std::vector<float> decoded(count);
      decode(id, Dtype::kF32, bytes.data(), count, decoded.data());
      for (const float value : decoded) ASSERT_TRUE(std::isfinite(value)) << name_of(id);
    }
  }
  EXPECT_GT(passed, 1000);
}

TEST(EncodedTest, a_scale_that_is_not_finite_is_left_to_the_guard) {
  for (const CodecId id : {CodecId::kInt8, CodecId::kInt4}) {
    Bytes bytes = encoded(id, values(300, 1, 1));
    const std::size_t second = encoded_bytes(id, Dtype::kF32, block_elements(id));
    const std::size_t top = second + (id == CodecId::kInt8 ? 2 : 0);
    bytes[top] = 0x80;  // +Inf: 0x7F80 in the upper half
    bytes[top + 1] = 0x7F;
    if (id == CodecId::kInt8) bytes[second] = bytes[second + 1] = 0;
    EXPECT_TRUE(check(id, bytes, 300).ok());
    EXPECT_FALSE(finite_encoded(id, bytes.data(), 300));
  }
  Bytes halves = encoded(CodecId::kFp16, values(3, 1, 1));
  halves[3] = 0x7C;
  EXPECT_FALSE(finite_encoded(CodecId::kFp16, halves.data(), 3));
}

TEST(EncodedTest, scales_and_codes_that_no_encoder_writes_are_named_by_block) {
  Bytes bytes = encoded(CodecId::kInt8, values(600, 1, 1));
  const auto refused = [&](const Bytes& changed) {
    const base::Status status = check(CodecId::kInt8, changed, 600);
    return status.code == base::Code::kInvalid && status.text.find("block 1") != std::string::npos;
  };
  Bytes low = bytes, negative = bytes, code = bytes, tiny = bytes;
  low[260] = 1;  // a scale of more bits than decoding is exact for
  negative[263] |= 0x80;
  code[264] = 0x80;  // -128
  std::memset(&tiny[260], 0, 4);
  for (const Bytes& changed : {low, negative, code, tiny}) EXPECT_TRUE(refused(changed));
  Bytes odd = encoded(CodecId::kInt4, values(63, 1, 1));
  odd.back() |= 0x10;  // of an element that isn't there
  EXPECT_EQ(check(CodecId::kInt4, odd, 63).code, base::Code::kInvalid);
}

}  // namespace
}  // namespace jccl::codec
