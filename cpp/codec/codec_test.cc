#include "codec/codec.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/bytes.h"
#include "codec/f32_form.h"
#include "codec/kernels/isa.h"
#include "codec/kernels/kernels.h"
#include "codec/reference.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

using base::Bytes;

// Runs the test once per instruction set of this processor.
class CodecTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(available_isas().back()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, CodecTest, ::testing::ValuesIn(available_isas()));

Bytes reference_encoded(const Codec& codec, const std::vector<float>& in) {
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
  for (const Codec& codec : all_codecs()) {
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
  EXPECT_EQ(encoded(CodecId::kFp8, in), file("codec_fp8.bin"));
  EXPECT_EQ(encoded(CodecId::kInt4, in), file("codec_int4.bin"));
  EXPECT_EQ(encoded(CodecId::kE3m0, in), file("codec_e3m0.bin"));
  EXPECT_EQ(encoded(CodecId::kInt2, in), file("codec_int2.bin"));
  EXPECT_EQ(encoded(top_k(100), in), file("codec_topk_100.bin"));
  EXPECT_EQ(encoded(CodecId::kStat2, in), file("codec_stat2.bin"));
  EXPECT_EQ(encoded(top_k(100, CodecId::kTopK2), in), file("codec_topk2_100.bin"));
  for (const CodecId id :
       {CodecId::kInt8, CodecId::kFp8, CodecId::kInt4, CodecId::kE3m0, CodecId::kInt2}) {
    Bytes bytes(encoded_bytes(id, Dtype::kF32, in.size()));
    encode(stochastic(id, 1), Dtype::kF32, in.data(), in.size(), bytes.data(), {5, 0});
    EXPECT_EQ(bytes, file("codec_" + std::string(name_of(id)) + "_seed_5.bin")) << name_of(id);
  }
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
  for (const Codec& codec : lossy_codecs()) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const auto in = seed % 2 == 0 ? normal_values(999, seed) : wild_values(999, seed);
      const Bytes once = encoded(codec, in);
      ASSERT_EQ(encoded(codec, decoded(codec, once, in.size())), once) << name_of(codec);
    }
  }
}

double absmax_of_block(const Codec& codec, const std::vector<float>& in, std::size_t i) {
  const std::size_t block = block_elements(codec);
  double absmax = 0;
  for (std::size_t j = i - i % block; j < std::min(i - i % block + block, in.size()); ++j) {
    absmax = std::max(absmax, std::fabs(static_cast<double>(in[j])));
  }
  return absmax;
}

TEST_P(CodecTest, errors_stay_within_the_documented_bounds) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto in = seed % 2 == 0 ? normal_values(1300, seed) : wild_values(1300, seed);
    for (const Codec& codec : lossy_codecs()) {
      const auto out = decoded(codec, encoded(codec, in), in.size());
      for (std::size_t i = 0; i < in.size(); ++i) {
        const double error = std::fabs(static_cast<double>(in[i]) - out[i]);
        const double absmax = codec.id == CodecId::kTopK ? 0 : absmax_of_block(codec, in, i);
        ASSERT_LE(error, reference::error_bound(codec, in[i], absmax))
            << name_of(codec) << " of " << in[i];
      }
    }
  }
}

TEST_P(CodecTest, top_k_keeps_the_largest_exactly_and_ties_go_to_the_lower_index) {
  for (const std::uint16_t kept : {1, 2, 63, 64, 500}) {
    for (const std::size_t size : {800, 4096, 5000}) {
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        auto in = normal_values(size, seed);
        if (seed % 3 == 1) in = wild_values(size, seed);
        if (seed % 3 == 2) {  // many ties, in the upper half of the bits and in all of them
          for (float& v : in) v = std::round(v * 2) / 2 * (1 + 0x1p-20F);
        }
        if (seed == 3) std::fill(in.begin(), in.end(), 0.0F);
        if (seed == 4) std::fill(in.begin() + 100, in.end(), 0.0F);  // fewer than kept are not 0
        const Codec codec = top_k(kept);
        const Bytes bytes = encoded(codec, in);
        ASSERT_EQ(bytes, reference_encoded(codec, in)) << kept << " of " << size << " " << seed;
        const auto out = decoded(codec, bytes, size);
        for (std::size_t i = 0; i < size; ++i) ASSERT_TRUE(out[i] == 0 || out[i] == in[i]);
        ASSERT_EQ(encoded(codec, out), bytes);
      }
    }
  }
}

TEST_P(CodecTest, topk2_keeps_the_elements_of_topk_with_two_bits_each) {
  for (const std::uint16_t kept : {1, 63, 64, 65, 704}) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      auto in = seed % 3 == 1 ? wild_values(5000, seed) : normal_values(5000, seed);
      if (seed == 3) std::fill(in.begin() + 100, in.end(), 0.0F);  // fewer than kept are not 0
      const Codec codec = top_k(kept, CodecId::kTopK2);
      const Bytes bytes = encoded(codec, in);
      ASSERT_EQ(bytes, reference_encoded(codec, in)) << kept << " " << seed;
      const auto out = decoded(codec, bytes, in.size());
      const auto exact = decoded(top_k(kept), encoded(top_k(kept), in), 4096);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        ASSERT_TRUE(exact[i] != 0 || out[i] == 0 || in[i] == 0) << "was not kept";
        ASSERT_TRUE(exact[i] == 0 || out[i] == 0 || (out[i] < 0) == (in[i] < 0)) << i;
      }
      ASSERT_EQ(encoded(codec, out), bytes);
    }
  }
}

TEST_P(CodecTest, stat2_sends_the_means_of_the_magnitudes_below_and_above_the_rms) {
  const std::vector<float> in = {1, -1, 2, -2, 0, 8, -10, 6};  // rms 5.1
  const std::vector<float> expected = {1.203125F, -1.203125F, 1.203125F, -1.203125F,
                                       1.203125F, 8,          -8,        8};
  EXPECT_EQ(decoded(CodecId::kStat2, encoded(CodecId::kStat2, in), in.size()), expected);
  const std::vector<float> alike = {3, -3, 3, 3};
  EXPECT_EQ(decoded(CodecId::kStat2, encoded(CodecId::kStat2, alike), 4), alike);
}

TEST_P(CodecTest, indexes_from_elsewhere_beyond_their_block_are_passed_over) {
  const Codec codec = top_k(4);
  Bytes bytes = encoded(codec, normal_values(100, 1));
  std::memset(bytes.data(), 0xFF, 2 * 4);
  EXPECT_TRUE(same_bits(decoded(codec, bytes, 100), std::vector<float>(100, 0.0F)));
  const Codec packed = top_k(4, CodecId::kTopK2);
  bytes = encoded(packed, normal_values(100, 1));
  std::memset(bytes.data(), 0xFF, 6);
  EXPECT_TRUE(same_bits(decoded(packed, bytes, 100), std::vector<float>(100, 0.0F)));
}

TEST_P(CodecTest, any_bytes_decode_like_the_reference) {
  base::Rng rng(11);
  for (const Codec& codec : all_codecs()) {
    Bytes bytes(encoded_bytes(codec, Dtype::kF32, 5000));
    for (auto& b : bytes) b = static_cast<std::uint8_t>(rng.next());
    std::vector<float> expected(5000);
    reference::decode(codec, bytes.data(), 5000, expected.data());
    const auto out = decoded(codec, bytes, 5000);
    for (std::size_t i = 0; i < 5000; ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(out[i])) << name_of(codec) << " " << i;
      } else {
        ASSERT_EQ(std::memcmp(&out[i], &expected[i], 4), 0) << name_of(codec) << " " << i;
      }
    }
  }
}

TEST_P(CodecTest, encoding_tells_whether_everything_was_finite) {
  for (const Codec& codec : all_codecs()) {
    for (const Dtype dtype : kFloats) {
      for (const std::size_t size : {1, 63, 257, 4097, 5000}) {
        Bytes in(size * size_of(dtype));
        Bytes out(encoded_bytes(codec, dtype, size));
        const CodecId via = dtype == Dtype::kF16 ? CodecId::kFp16 : CodecId::kBf16;
        auto values = normal_values(size, size);
        const auto write = [&] {
          decode(via, dtype, encoded(via, values).data(), size, in.data());
          return encode_checked(codec, dtype, in.data(), size, out.data());
        };
        ASSERT_TRUE(write()) << name_of(codec);
        values[size / 2] = std::numeric_limits<float>::infinity();
        ASSERT_FALSE(write()) << name_of(codec) << name_of(dtype) << size;
        values[size / 2] = 0;
        values[size - 1] = -std::numeric_limits<float>::quiet_NaN();
        ASSERT_FALSE(write()) << name_of(codec) << name_of(dtype) << size;
      }
    }
  }
}

TEST_P(CodecTest, a_whole_is_the_concatenation_of_its_parts) {
  for (const Codec& codec : all_codecs()) {
    for (const Dtype dtype : kFloats) {
      const auto f32 = normal_values(9000, 7);
      Bytes in(9000 * size_of(dtype));
      decode(CodecId::kBf16, dtype, encoded(CodecId::kBf16, f32).data(), 9000, in.data());
      Bytes whole(encoded_bytes(codec, dtype, 9000));
      encode(codec, dtype, in.data(), 9000, whole.data());
      Bytes parts;
      const std::size_t block = std::max<std::size_t>(block_elements(codec), 16);
      for (std::size_t cut = 0, next = 0; cut < 9000; cut = next) {
        next = std::min<std::size_t>(9000, cut + block * (1 + cut / block % 3));
        Bytes part(encoded_bytes(codec, dtype, next - cut));
        encode(codec, dtype, in.data() + cut * size_of(dtype), next - cut, part.data());
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(parts, whole) << name_of(codec) << " " << name_of(dtype);
    }
  }
}

TEST_P(CodecTest, other_float_leaves_travel_like_their_f32_values) {
  for (const Codec& codec : lossy_codecs()) {
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
  for (const Codec& codec : lossy_codecs()) {
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
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> huge = {kMax, -kMax, kMax / 2, 0};
  const std::vector<float> tiny = {0x1p-149F, -0x1p-149F, 0x1p-126F, 0};
  for (const Codec& codec : lossy_codecs()) {
    EXPECT_TRUE(same_bits(decoded(codec, encoded(codec, zeros), 300), zeros)) << name_of(codec);
    const auto back = decoded(codec, encoded(codec, huge), 4);
    for (const float v : back) EXPECT_TRUE(std::isfinite(v)) << name_of(codec);
    EXPECT_GE(back[0], codec.id == CodecId::kFp16 ? 65504.0F : 0.99F * kMax) << name_of(codec);
    for (const float v : decoded(codec, encoded(codec, tiny), 4)) EXPECT_LE(v, 0x1p-125F);
  }
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
  for (const Codec& codec : lossy_codecs()) {
    const auto out = decoded(codec, encoded(codec, in), in.size());
    EXPECT_EQ(out.size(), in.size());
    if (codec.id <= CodecId::kFp16) {
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

}  // namespace
}  // namespace jccl::codec
