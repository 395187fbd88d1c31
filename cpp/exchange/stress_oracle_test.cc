// The stress peers' own arithmetic against the definition of the codecs, and that it would notice.
#include "exchange/stress_oracle.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "codec/reference.h"
#include "collective/plan.h"

namespace jccl::exchange::stress {
namespace {

constexpr std::uint64_t kCounts[] = {1, 63, 65, 300, 2039, 4099, 9001};

std::vector<float> by_reference(const codec::Codec& codec, const std::vector<float>& x) {
  std::vector<std::uint8_t> bytes(codec::encoded_bytes(codec, codec::Dtype::kF32, x.size()));
  std::vector<float> out(x.size());
  codec::reference::encode(codec, x.data(), x.size(), bytes.data());
  codec::reference::decode(codec, bytes.data(), x.size(), out.data());
  return out;
}

// Integers with many ties, halves, and values of every size.
std::vector<std::vector<float>> inputs(std::uint64_t count) {
  base::Rng rng(count);
  std::vector<std::vector<float>> all{input_of<float>(200.25, count), std::vector<float>(count)};
  all.emplace_back();
  all.emplace_back();
  for (std::uint64_t k = 0; k < count; ++k) {
    all[2].push_back(static_cast<float>(rng.below(2001)) / 2 - 500);
    const int size = static_cast<int>(rng.below(60)) - 30;
    all[3].push_back(std::ldexp(static_cast<float>(rng.unit()) - 0.5F, size));
  }
  return all;
}

TEST(StressOracleTest, each_codec_is_as_it_is_defined) {
  for (std::uint8_t number = 0; number <= codec::kCodecNumberMax; ++number) {
    const auto id = static_cast<CodecId>(number);
    const std::size_t kepts[] = {kKept, 3, 640};
    for (const std::size_t kept : kepts) {
      codec::Codec codec = id;
      if (codec::is_sparse(id)) codec.kept = static_cast<std::uint16_t>(kept);
      for (const std::uint64_t count : kCounts) {
        for (const std::vector<float>& x : inputs(count)) {
          ASSERT_EQ(travelled(id, kept, x), by_reference(codec, x))
              << codec::name_of(codec) << " of " << count;
        }
      }
    }
  }
}

TEST(StressOracleTest, results_travel_under_the_codec_that_the_plan_says) {
  std::vector<float> sum = input_of<float>(1234.5, 4099);
  for (float& v : sum) v *= 1.25F;
  for (std::uint8_t number = 0; number <= codec::kCodecNumberMax; ++number) {
    const codec::Codec codec = static_cast<CodecId>(number);
    for (const std::uint32_t world : {1U, 2U, 5U, 80U}) {
      ASSERT_EQ(result_travelled(codec.id, world, sum),
                by_reference(collective::result_codec(codec, world), sum))
          << codec::name_of(codec) << ", " << world << " contributors";
    }
  }
}

TEST(StressOracleTest, no_two_calls_have_one_weight_and_as_f32_it_is_an_integer) {
  base::Rng rng(3);
  std::set<double> seen;
  for (std::uint64_t process = 1; process <= 40; ++process) {
    for (std::uint64_t call = 0; call < 2000; ++call) {
      const double weight = weight_of(process, call, rng);
      ASSERT_TRUE(seen.insert(weight).second) << process << " " << call;
      ASSERT_GE(weight, 128);
      ASSERT_LT(weight, 4096);
      ASSERT_EQ(static_cast<float>(weight), std::floor(weight));
    }
  }
}

// One contribution left out, counted twice, under another's weight, unscaled, or nothing at all:
// each is another result, whatever the codec.
TEST(StressOracleTest, a_wrong_result_differs_under_every_codec) {
  base::Rng rng(4);
  std::vector<double> weights;
  for (std::uint64_t process = 1; process <= 4; ++process) {
    weights.push_back(weight_of(process, process, rng));
  }
  std::vector<double> fewer(weights.begin(), weights.end() - 1), twice = weights;
  twice.push_back(weights[0]);
  for (std::uint8_t number = 0; number <= codec::kCodecNumberMax; ++number) {
    for (const bool mean : {false, true}) {
      const Formula formula{mean, static_cast<CodecId>(number)};
      const std::vector<float> right = result_of<float>(formula, weights, 2039);
      EXPECT_NE(right, result_of<float>(formula, fewer, 2039)) << int{number};
      EXPECT_NE(right, result_of<float>(formula, twice, 2039)) << int{number};
      EXPECT_NE(right, std::vector<float>(2039)) << int{number};
      std::vector<float> bent = right;
      for (float& v : bent) v = -v;
      EXPECT_NE(right, bent) << int{number};
      EXPECT_NE(right, result_of<float>({!mean, formula.codec}, weights, 2039)) << int{number};
    }
  }
}

TEST(StressOracleTest, sums_of_f32_are_exact_in_any_order) {
  base::Rng rng(5);
  std::vector<double> weights;
  for (std::uint64_t process = 1; process <= 40; ++process) {
    weights.push_back(weight_of(process, 7, rng));
  }
  const std::vector<float> up = result_of<float>({}, weights, 2039);
  std::reverse(weights.begin(), weights.end());
  EXPECT_EQ(up, result_of<float>({}, weights, 2039));
}

}  // namespace
}  // namespace jccl::exchange::stress
