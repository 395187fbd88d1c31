#include "codec/encoded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
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

// Of every codec, as contribution and as result; what an overflow makes of a result is no lie.
TEST(EncodedTest, what_our_encoders_write_is_taken_from_others_too) {
  const float inf = std::numeric_limits<float>::infinity();
  for (std::vector<Codec> codecs : {lossy_codecs(), stochastic_codecs()}) {
    for (const Codec& codec : codecs) {
      for (const std::size_t count : test_sizes()) {
        for (std::vector<float> in : {wild_values(count, count), values(count, 0, 1)}) {
          Bytes bytes = encoded(codec, in);
          const base::Status status = check_received(codec, bytes.data(), count, true);
          EXPECT_TRUE(status.ok()) << name_of(codec) << " " << count << ": " << status.text;
          for (const float odd : {inf, -inf, std::nanf("")}) {
            if (count > 0) in[count / 2] = odd;
            bytes = encoded(codec, in);
            const base::Status passed = check_received(codec, bytes.data(), count, false);
            EXPECT_TRUE(passed.ok()) << name_of(codec) << " " << count << ": " << passed.text;
          }
        }
      }
    }
  }
}

TEST(EncodedTest, of_what_others_sent_wrong_blocks_are_refused) {
  const std::size_t count = 9000;
  const struct {
    Codec codec;
    std::size_t at;
    Bytes bytes;
    const char* text;
  } cases[] = {
      {CodecId::kInt8, 3, {0x7F, 0x80}, "block 0 of int8 is not finite"},
      {CodecId::kInt8, 0, {0, 0, 0, 0x80}, "a scale"},
      {CodecId::kInt8, 260 + 100, {0x80}, "block 1 of int8 has a code"},
      {CodecId::kFp8, 100, {0xFF}, "a code"},
      {CodecId::kInt4, 20, {0x08}, "a code"},
      {CodecId::kInt4, 20, {0x80}, "a code"},
      {CodecId::kInt2, 9, {0x20}, "a code"},
      {CodecId::kBf16, 500, {0x80, 0x7F}, "not finite"},
      {CodecId::kFp16, 500, {0x00, 0xFC}, "not finite"},
      {CodecId::kStat2, 0, {0x80, 0x7F}, "not finite"},
      {CodecId::kStat2, 2, {0x80, 0xBF}, "below 0"},
      {CodecId::kTopK, 0, {0xFF, 0xFF}, "indexes"},
      {CodecId::kTopK, 126, {0, 0}, "indexes"},  // the last, after others
      {CodecId::kTopK, 2 * 384 + 126, {0xFF, 0x0F}, "block 2 of topk has indexes"},
      {CodecId::kTopK, 130, {0x80, 0x7F}, "not finite"},
      {CodecId::kTopK2, 0, {0xFF, 0xFF, 0xFF}, "indexes"},
  };
  for (const auto& at : cases) {
    Bytes bytes = encoded(at.codec, normal_values(count, 1));
    std::copy(at.bytes.begin(), at.bytes.end(), bytes.begin() + static_cast<long>(at.at));
    const base::Status status = check_received(at.codec, bytes.data(), count, true);
    EXPECT_EQ(status.code, base::Code::kCorrupt) << name_of(at.codec);
    EXPECT_NE(status.text.find(at.text), std::string::npos) << status.text;
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

TEST(EncodedTest, two_values_for_one_element_are_refused) {
  const std::size_t count = 5000;
  for (const CodecId id : {CodecId::kTopK, CodecId::kTopK2}) {
    Bytes bytes = encoded(id, normal_values(count, 1));
    ASSERT_TRUE(check_received(id, bytes.data(), count, true).ok());
    if (id == CodecId::kTopK) {
      bytes[2] = bytes[0], bytes[3] = bytes[1];
    } else {  // twelve bits each
      const unsigned first = bytes[0] | (bytes[1] & 15U) << 8;
      bytes[1] = static_cast<std::uint8_t>(first >> 8 | (first & 15) << 4);
      bytes[2] = static_cast<std::uint8_t>(first >> 4);
    }
    const base::Status status = check_received(id, bytes.data(), count, true);
    EXPECT_EQ(status.code, base::Code::kCorrupt) << name_of(id);
    EXPECT_NE(status.text.find("block 0"), std::string::npos) << status.text;
    EXPECT_NE(status.text.find("indexes"), std::string::npos) << status.text;
  }
}

}  // namespace
}  // namespace jccl::codec
