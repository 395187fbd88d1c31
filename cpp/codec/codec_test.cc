#include "codec/codec.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/bytes.h"
#include "codec/f32_form.h"
#include "codec/isa.h"
#include "codec/kernels.h"
#include "codec/reference.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

using base::Bytes;

constexpr CodecId kCodecs[] = {CodecId::kNone, CodecId::kBf16, CodecId::kFp16, CodecId::kInt8};
constexpr CodecId kLossy[] = {CodecId::kBf16, CodecId::kFp16, CodecId::kInt8};
constexpr Dtype kFloats[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16};

// Runs the test once per instruction set of this processor.
class CodecTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(available_isas().back()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, CodecTest, ::testing::ValuesIn(available_isas()));

Bytes encoded(CodecId codec, const std::vector<float>& in) {
  Bytes out(encoded_bytes(codec, Dtype::kF32, in.size()));
  encode(codec, Dtype::kF32, in.data(), in.size(), out.data());
  return out;
}

std::vector<float> decoded(CodecId codec, const Bytes& in, std::size_t count) {
  std::vector<float> out(count);
  decode(codec, Dtype::kF32, in.data(), count, out.data());
  return out;
}

Bytes reference_encoded(CodecId codec, const std::vector<float>& in) {
  Bytes out(encoded_bytes(codec, Dtype::kF32, in.size()));
  reference::encode(codec, in.data(), in.size(), out.data());
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

Bytes file(const std::string& name) {
  std::ifstream in(std::string(JCCL_TEST_DATA) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST_P(CodecTest, bytes_and_values_are_those_of_the_reference) {
  for (const CodecId codec : kCodecs) {
    for (const std::size_t size : test_sizes()) {
      for (const auto& in : {normal_values(size, size + 1), wild_values(size, size + 2)}) {
        const Bytes bytes = encoded(codec, in);
        ASSERT_EQ(bytes, reference_encoded(codec, in)) << name_of(codec) << " " << size;
        std::vector<float> expected(size);
        reference::decode(codec, bytes.data(), size, expected.data());
        ASSERT_TRUE(same_bits(decoded(codec, bytes, size), expected)) << name_of(codec);
      }
    }
  }
}

TEST_P(CodecTest, golden_vectors_made_by_numpy_come_out) {
  const Bytes raw = file("codec_input_f32.bin");
  ASSERT_EQ(raw.size() % 4, 0U);
  ASSERT_GT(raw.size(), 4000U);
  std::vector<float> in(raw.size() / 4);
  std::memcpy(in.data(), raw.data(), raw.size());
  EXPECT_EQ(encoded(CodecId::kBf16, in), file("codec_bf16.bin"));
  EXPECT_EQ(encoded(CodecId::kFp16, in), file("codec_fp16.bin"));
  EXPECT_EQ(encoded(CodecId::kInt8, in), file("codec_int8.bin"));
}

TEST_P(CodecTest, all_16_bit_patterns_convert_like_the_reference_both_ways) {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(patterns.data());
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    std::vector<float> values(65536);
    std::vector<float> expected(65536);
    decode_f32(CodecId::kNone, dtype, bytes, 65536, values.data());
    for (std::size_t i = 0; i < 65536; ++i) {
      expected[i] = dtype == Dtype::kBf16 ? reference::f32_of_bf16(patterns[i])
                                          : reference::f32_of_f16(patterns[i]);
    }
    ASSERT_TRUE(same_bits(values, expected)) << name_of(dtype);
    // The neighbours of every value and of every midpoint between two.
    for (const int step : {-1, 0, 1}) {
      for (const std::uint32_t middle : {0U, dtype == Dtype::kBf16 ? 0x8000U : 0x1000U}) {
        std::vector<float> near(65536);
        std::vector<std::uint16_t> back(65536);
        for (std::size_t i = 0; i < 65536; ++i) {
          std::uint32_t bits = 0;
          std::memcpy(&bits, &expected[i], 4);
          bits += middle + static_cast<std::uint32_t>(step);
          std::memcpy(&near[i], &bits, 4);
        }
        encode_f32(CodecId::kNone, dtype, near.data(), 65536,
                   reinterpret_cast<std::uint8_t*>(back.data()));
        for (std::size_t i = 0; i < 65536; ++i) {
          ASSERT_EQ(back[i], dtype == Dtype::kBf16 ? reference::bf16_of_f32(near[i])
                                                   : reference::f16_of_f32(near[i]))
              << name_of(dtype) << " " << near[i];
        }
      }
    }
  }
}

TEST_P(CodecTest, encoding_decoded_values_gives_the_same_bytes) {
  for (const CodecId codec : kLossy) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const auto in = seed % 2 == 0 ? normal_values(999, seed) : wild_values(999, seed);
      const Bytes once = encoded(codec, in);
      ASSERT_EQ(encoded(codec, decoded(codec, once, in.size())), once) << name_of(codec);
    }
  }
}

TEST_P(CodecTest, errors_stay_within_the_documented_bounds) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto in = seed % 2 == 0 ? normal_values(1300, seed) : wild_values(1300, seed);
    for (const CodecId codec : kLossy) {
      const auto out = decoded(codec, encoded(codec, in), in.size());
      for (std::size_t i = 0; i < in.size(); ++i) {
        const double x = in[i];
        const double error = std::fabs(x - out[i]);
        double bound = std::fabs(x) * 0x1p-8 + 0x1p-134;  // bf16
        if (codec == CodecId::kFp16) {
          bound = std::fabs(x) > 65504 ? std::fabs(x) - 65504 : std::fabs(x) * 0x1p-11 + 0x1p-25;
        }
        if (codec == CodecId::kInt8) {
          double absmax = 0;
          const std::size_t first = i - i % kInt8Block;
          for (std::size_t j = first; j < std::min(first + kInt8Block, in.size()); ++j) {
            absmax = std::max(absmax, std::fabs(static_cast<double>(in[j])));
          }
          bound = std::max(absmax / 254 * (1 + 0x1p-14), 0x1p-127);
        }
        ASSERT_LE(error, bound) << name_of(codec) << " of " << x;
      }
    }
  }
}

TEST_P(CodecTest, a_whole_is_the_concatenation_of_its_parts) {
  for (const CodecId codec : kCodecs) {
    for (const Dtype dtype : kFloats) {
      const auto f32 = normal_values(3000, 7);
      Bytes in(3000 * size_of(dtype));
      decode(CodecId::kBf16, dtype, encoded(CodecId::kBf16, f32).data(), 3000, in.data());
      Bytes whole(encoded_bytes(codec, dtype, 3000));
      encode(codec, dtype, in.data(), 3000, whole.data());
      Bytes parts;
      for (const std::size_t cut : {std::size_t{0}, kInt8Block, 3 * kInt8Block, 11 * kInt8Block}) {
        const std::size_t next = cut == 0                ? kInt8Block
                                 : cut == kInt8Block     ? 3 * kInt8Block
                                 : cut == 3 * kInt8Block ? 11 * kInt8Block
                                                         : 3000;
        Bytes part(encoded_bytes(codec, dtype, next - cut));
        encode(codec, dtype, in.data() + cut * size_of(dtype), next - cut, part.data());
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(parts, whole) << name_of(codec) << " " << name_of(dtype);
    }
  }
}

TEST_P(CodecTest, other_float_leaves_travel_like_their_f32_values) {
  for (const CodecId codec : kLossy) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16, Dtype::kF64}) {
      for (const std::size_t size : test_sizes()) {
        auto f32 = normal_values(size, size);
        const CodecId same = dtype == Dtype::kF16 ? CodecId::kFp16 : CodecId::kBf16;
        f32 = decoded(same, encoded(same, f32), size);  // exact in f32 and in the leaf's type
        Bytes leaf(size * size_of(dtype) + 1);
        decode(same, dtype, encoded(same, f32).data(), size, leaf.data() + 1);  // misaligned
        Bytes out(encoded_bytes(codec, dtype, size));
        encode(codec, dtype, leaf.data() + 1, size, out.data());
        ASSERT_EQ(out, encoded(codec, f32)) << name_of(codec) << " " << name_of(dtype);
      }
    }
  }
}

TEST_P(CodecTest, the_floating_point_mode_of_the_thread_changes_nothing) {
#if defined(__x86_64__)
  const auto in = wild_values(5000, 3);
  for (const CodecId codec : kLossy) {
    const Bytes expected = encoded(codec, in);
    const auto values = decoded(codec, expected, in.size());
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0xE040);  // flush to zero, round toward zero
    const Bytes bytes = encoded(codec, in);
    const auto back = decoded(codec, expected, in.size());
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    EXPECT_EQ(after & 0xE040, 0xE040U) << "the mode must be left as it was";
    EXPECT_EQ(bytes, expected) << name_of(codec);
    EXPECT_TRUE(same_bits(back, values)) << name_of(codec);
  }
#endif
}

TEST_P(CodecTest, special_blocks_are_well_defined) {
  const std::vector<float> zeros(300, 0.0F);
  EXPECT_TRUE(same_bits(decoded(CodecId::kInt8, encoded(CodecId::kInt8, zeros), 300), zeros));
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> huge = {kMax, -kMax, kMax / 2, 0};
  for (const float v : decoded(CodecId::kInt8, encoded(CodecId::kInt8, huge), 4)) {
    EXPECT_TRUE(std::isfinite(v));
  }
  EXPECT_GE(decoded(CodecId::kInt8, encoded(CodecId::kInt8, huge), 4)[0], 0.999F * kMax);
  const std::vector<float> above = {1e6F, -1e6F, 65519.0F, kMax};
  EXPECT_EQ(decoded(CodecId::kFp16, encoded(CodecId::kFp16, above), 4),
            (std::vector<float>{65504, -65504, 65504, 65504}));
  EXPECT_TRUE(std::isfinite(decoded(CodecId::kBf16, encoded(CodecId::kBf16, above), 4)[3]));
  const std::vector<double> wide = {1e300, -1e300, 1.0};
  Bytes bytes(encoded_bytes(CodecId::kInt8, Dtype::kF64, 3));
  encode(CodecId::kInt8, Dtype::kF64, wide.data(), 3, bytes.data());
  EXPECT_EQ(bytes, encoded(CodecId::kInt8, {kMax, -kMax, 1.0F}));
}

TEST_P(CodecTest, nan_and_infinity_do_no_harm_to_their_neighbours_memory) {
  auto in = normal_values(600, 5);
  in[3] = std::numeric_limits<float>::quiet_NaN();
  in[300] = std::numeric_limits<float>::infinity();
  for (const CodecId codec : kLossy) {
    const auto out = decoded(codec, encoded(codec, in), in.size());
    EXPECT_EQ(out.size(), in.size());
    if (codec != CodecId::kInt8) {
      EXPECT_TRUE(std::isnan(out[3]) && std::isinf(out[300]));
    }
  }
}

TEST_P(CodecTest, integers_travel_as_they_are) {
  const Bytes in = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  for (std::uint8_t n = 5; n <= kDtypeNumberMax; ++n) {
    const auto dtype = static_cast<Dtype>(n);
    const std::size_t count = in.size() / size_of(dtype);
    Bytes out(encoded_bytes(CodecId::kNone, dtype, count));
    encode(CodecId::kNone, dtype, in.data(), count, out.data());
    EXPECT_EQ(out, in);
  }
}

TEST(CodecNamesTest, names_and_numbers_lead_back_to_the_value) {
  for (const CodecId codec : kCodecs) {
    EXPECT_EQ(codec_from_name(name_of(codec)), codec);
    EXPECT_EQ(codec_from_number(static_cast<std::uint8_t>(codec)), codec);
  }
  for (std::uint8_t n = 1; n <= kDtypeNumberMax; ++n) {
    EXPECT_EQ(dtype_from_name(name_of(static_cast<Dtype>(n))), static_cast<Dtype>(n));
    EXPECT_EQ(dtype_from_number(n), static_cast<Dtype>(n));
  }
  EXPECT_FALSE(codec_from_number(4).has_value());
  EXPECT_FALSE(codec_from_name("int9").has_value());
  EXPECT_FALSE(dtype_from_number(0).has_value());
  EXPECT_FALSE(dtype_from_number(13).has_value());
  EXPECT_FALSE(dtype_from_name("complex64").has_value());
}

TEST(CodecNamesTest, int8_moves_3_94_times_fewer_bytes) {
  const double ratio =
      4e6 / static_cast<double>(encoded_bytes(CodecId::kInt8, Dtype::kF32, 1000000));
  EXPECT_NEAR(ratio, 3.938, 0.001);
}

}  // namespace
}  // namespace jccl::codec
