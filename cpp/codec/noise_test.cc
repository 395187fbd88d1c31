#include "codec/noise.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "codec/f32_form.h"
#include "codec/kernels/isa.h"
#include "codec/reference.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

using base::Bytes;

class NoiseTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(available_isas().back()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, NoiseTest, ::testing::ValuesIn(available_isas()));

Bytes encoded(const Codec& codec, const std::vector<float>& in, const Noise& noise) {
  Bytes out(encoded_bytes(codec, Dtype::kF32, in.size()));
  encode(codec, Dtype::kF32, in.data(), in.size(), out.data(), noise);
  return out;
}

TEST_P(NoiseTest, bytes_are_those_of_the_reference_wherever_the_elements_lie) {
  for (const Codec& codec : stochastic_codecs()) {
    for (const std::size_t size : test_sizes()) {
      for (const auto& in : {normal_values(size, size + 1), wild_values(size, size + 2)}) {
        for (const std::uint64_t first :
             {std::uint64_t{0}, std::uint64_t{777}, std::uint64_t{1} << 40}) {
          const Noise noise{size + 99, first};
          Bytes expected(encoded_bytes(codec, Dtype::kF32, size));
          reference::encode(codec, in.data(), size, expected.data(), noise);
          ASSERT_EQ(encoded(codec, in, noise), expected) << name_of(codec) << " " << size;
        }
      }
    }
  }
}

TEST_P(NoiseTest, cuts_change_nothing) {
  for (const Codec& codec : stochastic_codecs()) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kBf16}) {
      const auto f32 = normal_values(9000, 7);
      Bytes in(9000 * size_of(dtype));
      const Bytes half = encoded(CodecId::kBf16, f32, {});
      decode(CodecId::kBf16, dtype, half.data(), 9000, in.data());
      Bytes whole(encoded_bytes(codec, dtype, 9000));
      encode(codec, dtype, in.data(), 9000, whole.data(), {5, 0});
      Bytes parts;
      for (std::size_t cut = 0, next = 0; cut < 9000; cut = next) {
        next = std::min<std::size_t>(9000, cut + 256 * (1 + cut / 256 % 3));
        Bytes part(encoded_bytes(codec, dtype, next - cut));
        encode(codec, dtype, in.data() + cut * size_of(dtype), next - cut, part.data(), {5, cut});
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(parts, whole) << name_of(codec) << " " << name_of(dtype);
    }
  }
}

TEST_P(NoiseTest, errors_stay_within_a_step) {
  for (const Codec& codec : stochastic_codecs()) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const auto in = seed % 2 == 0 ? normal_values(1300, seed) : wild_values(1300, seed);
      const Bytes bytes = encoded(codec, in, {seed, 0});
      const auto out = decoded(codec, bytes, in.size());
      const std::size_t block = block_elements(codec);
      for (std::size_t i = 0; i < in.size(); ++i) {
        double absmax = 0;
        for (std::size_t j = i - i % block; j < std::min(i - i % block + block, in.size()); ++j) {
          absmax = std::max(absmax, std::fabs(static_cast<double>(in[j])));
        }
        ASSERT_LE(std::fabs(static_cast<double>(in[i]) - out[i]),
                  reference::error_bound(codec, in[i], absmax))
            << name_of(codec) << " of " << in[i];
      }
      // A block whose largest moved down gets another scale; without a scale nothing moves.
      if (block == 1) {
        ASSERT_EQ(encoded(codec, out, {seed + 1, 0}), bytes) << name_of(codec);
      }
    }
  }
}

// The mean of n encodings of x has a standard deviation of at most step/2/sqrt(n): 6 of them, and
// the documented bias, bound its distance from x.
TEST(NoiseMeanTest, the_mean_of_many_encodings_is_the_value) {
  constexpr int kTimes = 4096;
  const auto in = normal_values(256, 3);
  double absmax = 0;
  for (const float v : in) absmax = std::max(absmax, std::fabs(static_cast<double>(v)));
  for (const Codec& codec : stochastic_codecs()) {
    std::vector<double> sum(in.size());
    for (int t = 0; t < kTimes; ++t) {
      const auto seed = noise_seed(codec, {static_cast<std::uint64_t>(t), 1, 0});
      const auto out = decoded(codec, encoded(codec, in, {seed, 0}), in.size());
      for (std::size_t i = 0; i < in.size(); ++i) sum[i] += out[i];
    }
    double all = 0;
    double all_bound = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double away = sum[i] / kTimes - in[i];
      const double step = reference::error_bound(codec, in[i], absmax);
      ASSERT_LE(std::fabs(away), step * (6 * 0.5 / 64 + 0x1p-14)) << name_of(codec) << " " << in[i];
      all += away;
      all_bound += step * step / 4 / kTimes;
    }
    ASSERT_LE(std::fabs(all), 6 * std::sqrt(all_bound) + 256 * 0x1p-14) << name_of(codec);
  }
}

TEST(NoiseMeanTest, chance_is_even_and_elements_do_not_hang_together) {
  constexpr std::size_t kCount = 1 << 20;
  double sum = 0, next = 0, half = 0, other_seed = 0;
  std::vector<int> bins(16);
  const auto unit = [](std::uint64_t seed, std::uint64_t i) {
    return reference::chance_of(seed, i) / 65536.0 - 0.5 + 0x1p-17;
  };
  for (std::size_t i = 0; i < kCount; ++i) {
    const double u = unit(1, i);
    sum += u;
    next += u * unit(1, i + 1);
    half += u * unit(1, i + 128);
    other_seed += u * unit(2, i);
    ++bins[reference::chance_of(1, i) >> 12];
  }
  const double root = std::sqrt(static_cast<double>(kCount));
  EXPECT_LE(std::fabs(sum), 5 * std::sqrt(1 / 12.0) * root);
  for (const double product : {next, half, other_seed})
    EXPECT_LE(std::fabs(product), 5 / 12.0 * root);
  for (const int n : bins) EXPECT_NEAR(n, kCount / 16, 5 * std::sqrt(kCount / 16.0));
}

TEST(NoiseSeedTest, every_name_has_its_own) {
  const Codec codec = stochastic(CodecId::kInt8, 7);
  const std::uint64_t plain = noise_seed(codec, {1, 2, 3});
  EXPECT_EQ(plain, noise_seed(codec, {1, 2, 3}));
  EXPECT_NE(plain, noise_seed(codec, {2, 2, 3}));
  EXPECT_NE(plain, noise_seed(codec, {1, 0, 3}));
  EXPECT_NE(plain, noise_seed(codec, {1, 2, 4}));
  EXPECT_NE(plain, noise_seed(stochastic(CodecId::kInt8, 8), {1, 2, 3}));
  EXPECT_EQ(plain, 16860246889822268962U) << "peers of other builds have this one";
}

}  // namespace
}  // namespace jccl::codec
