#include "collective/kernels/aggregate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/rng.h"
#include "codec/kernels/isa.h"
#include "codec/test_values.h"
#include "collective/kernels/kernels.h"
#include "collective/layout.h"

namespace jccl::collective {
namespace {

using base::Bytes;
using codec::Codec;
using codec::CodecId;
using codec::Dtype;

const Aggregator kTrimmed{AggregatorId::kTrimmedMean, 0.25};
const Aggregator kMedian{AggregatorId::kMedian, 0};
const Aggregator kClip{AggregatorId::kCenteredClip, 1};
const Aggregator kLimit{AggregatorId::kNormLimit, 2};
const Aggregator kRobust[] = {kTrimmed, kMedian, kClip, kLimit};

template <typename T>
using Matrix = std::vector<std::vector<T>>;  // by contributor

// By value, -0 before +0: what std::sort needs an order for.
template <typename T>
bool goes_before(T a, T b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

// The mean of what stays of a column, added from the lowest up.
template <typename T>
std::vector<double> ranked(const Matrix<T>& x, std::size_t drop, std::size_t at,
                           std::size_t count) {
  std::vector<double> out;
  for (std::size_t i = at; i < at + count; ++i) {
    std::vector<T> column;
    for (const auto& row : x) column.push_back(row[i]);
    std::sort(column.begin(), column.end(), goes_before<T>);
    double sum = column[drop];
    for (std::size_t k = drop + 1; k + drop < column.size(); ++k) sum += column[k];
    out.push_back(sum / static_cast<double>(column.size() - 2 * drop));
  }
  return out;
}

template <typename T>
double length_of(const std::vector<T>& x, std::size_t at, const std::vector<double>& centre) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < centre.size(); ++i) {
    const double d = static_cast<double>(x[at + i]) - centre[i];
    lanes[i % 16] += d * d;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return std::sqrt(lanes[0]);
}

template <typename T>
void clip(const Matrix<T>& x, std::size_t at, double times, std::vector<double>& centre) {
  std::vector<double> lengths;
  for (const auto& row : x) lengths.push_back(length_of(row, at, centre));
  std::vector<double> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  const double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  std::vector<double> sum(centre.size());
  for (std::size_t p = 0; p < n; ++p) {
    if (!std::isfinite(lengths[p])) continue;
    const double factor = lengths[p] <= times * median ? 1 : times * median / lengths[p];
    for (std::size_t i = 0; i < centre.size(); ++i) {
      sum[i] += factor * (static_cast<double>(x[p][at + i]) - centre[i]);
    }
  }
  for (std::size_t i = 0; i < centre.size(); ++i) centre[i] += sum[i] / static_cast<double>(n);
}

// The formulas of ALGORITHMS.md, one element at a time.
template <typename T>
std::vector<T> reference(const Aggregator& aggregator, const Matrix<T>& x) {
  const std::size_t n = x.size(), all = x[0].size(), middle = (n - 1) / 2;
  std::vector<T> out;
  for (std::size_t at = 0; at < all; at += 4096) {
    const std::size_t count = std::min<std::size_t>(4096, all - at);
    std::size_t drop = middle;
    if (aggregator.id == AggregatorId::kTrimmedMean) {
      drop = static_cast<std::size_t>(aggregator.parameter * static_cast<double>(n));
      if (n >= 3) drop = std::max<std::size_t>(drop, 1);
    }
    std::vector<double> centre = ranked(x, drop, at, count);
    if (aggregator.id == AggregatorId::kNormLimit) centre.assign(count, 0);
    const int clips = aggregator.id == AggregatorId::kCenteredClip ? 3
                      : aggregator.id == AggregatorId::kNormLimit  ? 1
                                                                   : 0;
    for (int i = 0; i < clips; ++i) clip(x, at, aggregator.parameter, centre);
    for (const double v : centre) out.push_back(static_cast<T>(v));
  }
  return out;
}

template <typename T>
constexpr Dtype dtype_of() {
  return sizeof(T) == 8 ? Dtype::kF64 : Dtype::kF32;
}

template <typename T>
std::vector<T> aggregated(const Aggregator& aggregator, const Matrix<T>& x) {
  Contributions all{dtype_of<T>(), CodecId::kNone, {}, x[0].size()};
  for (const auto& row : x) {
    all.encoded.push_back(reinterpret_cast<const std::uint8_t*>(row.data()));
  }
  std::vector<T> out(x[0].size());
  AggregateScratch scratch;
  aggregate(aggregator, all, &scratch, out.data());
  return out;
}

// Normal values, and now and then a tie, a zero of either sign, a subnormal or a huge one.
template <typename T>
Matrix<T> contributions(std::size_t n, std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  constexpr T kOdd[] = {T{0},
                        -T{0},
                        T{1},
                        std::numeric_limits<T>::denorm_min(),
                        -std::numeric_limits<T>::denorm_min(),
                        std::numeric_limits<T>::min(),
                        T(1e30),
                        T(-1e30)};
  Matrix<T> x;
  for (std::size_t p = 0; p < n; ++p) {
    const auto values = codec::normal_values(count, seed * 100 + p);
    x.emplace_back(values.begin(), values.end());
    for (std::size_t i = 0; i < count; ++i) {
      if (rng.below(4) == 0) x[p][i] = kOdd[rng.below(std::size(kOdd))];
      if (p > 0 && rng.below(8) == 0) x[p][i] = x[p - 1][i];
    }
  }
  return x;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
void expect_the_formulas_bits(const Aggregator& aggregator) {
  const codec::Isa before = codec::active_isa();
  for (std::size_t n = 1; n <= 9; ++n) {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{7}, std::size_t{300}, std::size_t{4096}, std::size_t{9000}}) {
      const auto x = contributions<T>(n, count, n * 10 + count);
      const std::vector<T> wanted = reference(aggregator, x);
      for (const codec::Isa isa : codec::available_isas()) {
        codec::force_isa(isa);
        EXPECT_TRUE(same_bits(aggregated(aggregator, x), wanted))
            << name_of(aggregator) << " n " << n << " count " << count << " isa "
            << static_cast<int>(isa) << " bytes " << sizeof(T);
      }
    }
  }
  codec::force_isa(before);
}

TEST(AggregateTest, every_aggregator_gives_its_formulas_bits_on_every_instruction_set) {
  for (const Aggregator& aggregator : kRobust) {
    expect_the_formulas_bits<float>(aggregator);
    expect_the_formulas_bits<double>(aggregator);
  }
}

TEST(AggregateTest, worlds_that_are_no_power_of_two_are_sorted_whole) {
  for (const std::size_t n : {11, 16, 17, 31, 64, 100}) {
    const auto x = contributions<float>(n, 50, n);
    EXPECT_TRUE(same_bits(aggregated(kMedian, x), reference(kMedian, x))) << n;
    const Aggregator trimmed_40{AggregatorId::kTrimmedMean, 0.4};
    EXPECT_TRUE(same_bits(aggregated(trimmed_40, x), reference(trimmed_40, x))) << n;
  }
}

TEST(AggregateTest, ranks_do_not_depend_on_who_says_what) {
  auto x = contributions<float>(7, 500, 3);
  const auto trimmed_mean = aggregated(kTrimmed, x), median = aggregated(kMedian, x);
  std::reverse(x.begin(), x.end());
  EXPECT_TRUE(same_bits(aggregated(kTrimmed, x), trimmed_mean));
  EXPECT_TRUE(same_bits(aggregated(kMedian, x), median));
}

TEST(AggregateTest, a_cut_at_blocks_changes_no_bit) {
  const auto x = contributions<float>(5, 3 * 4096 + 100, 8);
  for (const Aggregator& aggregator : kRobust) {
    const auto whole = aggregated(aggregator, x);
    std::vector<float> parts;
    for (const auto& [first, end] : {std::pair<std::size_t, std::size_t>{0, 4096},
                                     {4096, 3 * 4096},
                                     {3 * 4096, 3 * 4096 + 100}}) {
      Matrix<float> part;
      for (const auto& row : x) {
        part.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(first),
                          row.begin() + static_cast<std::ptrdiff_t>(end));
      }
      const auto result = aggregated(aggregator, part);
      parts.insert(parts.end(), result.begin(), result.end());
    }
    EXPECT_TRUE(same_bits(parts, whole)) << name_of(aggregator);
  }
}

TEST(AggregateTest, encoded_contributions_are_aggregated_as_what_they_stand_for) {
  constexpr std::size_t kCount = 4096 + 777;
  for (const CodecId id : {CodecId::kBf16, CodecId::kInt8, CodecId::kInt4, CodecId::kStat2}) {
    const auto x = contributions<float>(5, kCount, 21);
    Matrix<float> decoded;
    std::vector<Bytes> bytes;
    Contributions all{Dtype::kF32, id, {}, kCount};
    for (const auto& row : x) {
      bytes.emplace_back(codec::encoded_bytes(id, Dtype::kF32, kCount));
      codec::encode(id, Dtype::kF32, row.data(), kCount, bytes.back().data());
      decoded.emplace_back(kCount);
      codec::decode(id, Dtype::kF32, bytes.back().data(), kCount, decoded.back().data());
    }
    for (const Bytes& b : bytes) all.encoded.push_back(b.data());
    for (const Aggregator& aggregator : kRobust) {
      std::vector<float> out(kCount);
      AggregateScratch scratch;
      aggregate(aggregator, all, &scratch, out.data());
      EXPECT_TRUE(same_bits(out, reference(aggregator, decoded)))
          << name_of(aggregator) << " " << codec::name_of(id);
    }
  }
}

// What honest ones say lies between 0.9 and 1.1; two of seven say anything.
TEST(AggregateTest, two_of_seven_cannot_move_a_result_far) {
  for (const float lie : {-1e30F, 1e30F, std::numeric_limits<float>::max(), -100.0F}) {
    Matrix<float> x(7, std::vector<float>(100));
    base::Rng rng(5);
    for (auto& row : x) {
      for (float& v : row) v = 0.9F + 0.2F * static_cast<float>(rng.unit());
    }
    x[2].assign(100, lie);
    x[5].assign(100, lie);
    for (const Aggregator& aggregator : {kTrimmed, kMedian, kClip}) {
      const Aggregator two{
          aggregator.id, aggregator.id == AggregatorId::kTrimmedMean ? 0.3 : aggregator.parameter};
      for (const float v : aggregated(two, x)) {
        ASSERT_GT(v, 0.8F) << name_of(two) << " lie " << lie;
        ASSERT_LT(v, 1.2F) << name_of(two) << " lie " << lie;
      }
    }
    for (const float v : aggregated(kLimit, x)) EXPECT_LT(std::abs(v), 2.0F) << lie;
  }
}

TEST(AggregateTest, what_is_not_finite_pulls_no_centre_and_has_no_middle_rank) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, -nan, inf, -inf}) {
    const Matrix<float> x = {{1, 2}, {1, 2}, {bad, bad}, {3, 4}, {3, 4}};
    for (const Aggregator& aggregator : kRobust) {
      for (const float v : aggregated(aggregator, x)) {
        EXPECT_TRUE(std::isfinite(v)) << name_of(aggregator) << " " << bad;
      }
    }
  }
}

// A chunk's accumulator has no padding between an f32 leaf and one of f64.
TEST(AggregateTest, contributions_and_results_may_lie_at_any_address) {
  const auto x = contributions<double>(5, 700, 77);
  const std::vector<double> wanted = reference(kMedian, x);
  std::vector<Bytes> bytes;
  Contributions all{Dtype::kF64, CodecId::kNone, {}, 700};
  for (const auto& row : x) {
    bytes.emplace_back(1 + 700 * sizeof(double));
    std::memcpy(bytes.back().data() + 1, row.data(), 700 * sizeof(double));
  }
  for (const Bytes& b : bytes) all.encoded.push_back(b.data() + 1);
  Bytes out(4 + 700 * sizeof(double));
  AggregateScratch scratch;
  aggregate(kMedian, all, &scratch, out.data() + 4);
  EXPECT_EQ(std::memcmp(out.data() + 4, wanted.data(), 700 * sizeof(double)), 0);
}

TEST(AggregateTest, three_of_whom_one_lies_are_trimmed_too) {
  const Matrix<float> x = {{1}, {1e20F}, {2}};
  EXPECT_EQ(aggregated(kTrimmed, x)[0], 2);
  EXPECT_EQ(trimmed(0.25, 2), 0U);
  EXPECT_EQ(trimmed(0.25, 3), 1U);
  EXPECT_EQ(trimmed(0.25, 8), 2U);
  EXPECT_EQ(trimmed(0.499, 1024), 510U);
  const double most = std::nextafter(0.5, 0.0);
  EXPECT_TRUE(check({AggregatorId::kTrimmedMean, most}).ok());
  for (std::size_t n = 1; n <= 1024; ++n) EXPECT_EQ(trimmed(most, n), (n - 1) / 2) << n;
}

TEST(AggregateTest, its_memory_has_the_bound_that_the_header_says) {
  const auto x = contributions<double>(9, 9000, 1);
  Contributions all{Dtype::kF64, CodecId::kNone, {}, 9000};
  for (const auto& row : x) {
    all.encoded.push_back(reinterpret_cast<const std::uint8_t*>(row.data()));
  }
  std::vector<double> out(9000);
  AggregateScratch scratch;
  for (const Aggregator& aggregator : kRobust) aggregate(aggregator, all, &scratch, out.data());
  EXPECT_LE(scratch.bytes(), (17 * 9 / 16 + 3) * kAggregateBlock * 8);
}

TEST(AggregatorTest, names_are_read_as_they_are_written) {
  for (const Aggregator& aggregator :
       {Aggregator{}, kTrimmed, kMedian, kClip, kLimit, Aggregator{kTrimmed.id, 0.1},
        Aggregator{kClip.id, 1.0 / 3}, Aggregator{kLimit.id, 1e6}}) {
    const auto read = aggregator_from_name(name_of(aggregator));
    ASSERT_TRUE(read) << name_of(aggregator);
    EXPECT_EQ(*read, aggregator);
  }
  EXPECT_EQ(name_of(kTrimmed), "trimmed_mean:trim=0.25");
  EXPECT_EQ(name_of(kMedian), "median");
  EXPECT_EQ(aggregator_from_name("centered_clip"), kClip);
  for (const char* bad :
       {"", "krum", "median:", "median:trim=0.1", "trimmed_mean:trim=0.5", "trimmed_mean:trim=0",
        "trimmed_mean:trim=nan", "trimmed_mean:trim=0.2x", "trimmed_mean:radius=0.2",
        "centered_clip:radius=-1", "centered_clip:radius=inf", "norm_limit:times=1e7",
        "mean:times=1", "trimmed_mean:trim=0.25:trim=0.25"}) {
    EXPECT_FALSE(aggregator_from_name(bad)) << bad;
  }
  EXPECT_FALSE(check({static_cast<AggregatorId>(5), 0}).ok());
}

TEST(AggregatorTest, what_no_aggregator_is_defined_for_is_refused_with_a_way_out) {
  const auto text = [](Op op, Dtype dtype, const Codec& codec) {
    return check_aggregator(kMedian, op, dtype, codec).text;
  };
  EXPECT_EQ(text(Op::kMean, Dtype::kBf16, CodecId::kStat2), "");
  EXPECT_EQ(text(Op::kSum, Dtype::kF32, CodecId::kNone),
            "aggregator median: it takes the place of op mean, not of sum");
  EXPECT_EQ(text(Op::kMean, Dtype::kI32, CodecId::kNone),
            "aggregator median: it applies to floating-point leaves, not to i32");
  EXPECT_EQ(text(Op::kMean, Dtype::kF32, CodecId::kTopK),
            "aggregator median: with codec topk most peers leave each element out, so its median "
            "is 0; use a dense codec, for example int8, int4 or stat2");
  EXPECT_TRUE(check_aggregator(Aggregator{}, Op::kSum, Dtype::kI32, CodecId::kNone).ok());
  for (const PlanKind kind : {PlanKind::kRing, PlanKind::kGather, PlanKind::kScatter}) {
    EXPECT_FALSE(check_aggregator(kMedian, kind).ok());
    EXPECT_TRUE(check_aggregator(Aggregator{}, kind).ok());
  }
  EXPECT_TRUE(check_aggregator(kMedian, PlanKind::kDirect).ok());
  EXPECT_TRUE(check_aggregator(kMedian, PlanKind::kExchange).ok());
}

}  // namespace
}  // namespace jccl::collective
