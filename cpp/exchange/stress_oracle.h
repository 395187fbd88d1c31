// What stress peers contribute, and what every result must then be. Nothing of it is shared with
// the transport: a mistake of its kernels or codecs is not repeated here. Values only, one element
// at a time, after collective/ALGORITHMS.md. Test-only; pure; runs on any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "codec/codec.h"

namespace jccl::exchange::stress {

using codec::CodecId;

// ---- contributions -----------------------------------------------------------------------------

// The weight of a process's call: 128 to 4095 and a fraction that names the call. No two calls of a
// tag have the same, so that whoever reads a weight in the journal knows whose call was counted. As
// f32, in which sums are formed, it is the integer: sums of weights times values() of 40 peers are
// exact in whatever order they are added.
inline double weight_of(std::uint64_t process, std::uint64_t call, base::Rng& rng) {
  constexpr std::uint64_t kMask = (1U << 30) - 1;
  std::uint64_t name = ((process << 18) | (call & 0x3FFFF)) & kMask;
  name = (name ^ (name >> 15)) * 0x2C1B3C6D & kMask;  // one to one: neighbours lie far apart
  name = (name ^ (name >> 12)) * 0x297A2D39 & kMask;
  const int more = static_cast<int>(rng.below(5));  // bits
  const std::uint64_t whole = ((128 + (name >> 23)) << more) + rng.below(1U << more);
  const std::uint64_t part = (name & 0x7FFFFF) + (rng.below(1U << more) << 23);
  return static_cast<double>(whole) + std::ldexp(static_cast<double>(part), -40);
}

// Element k of the contribution with this weight: an integer, of at most 1, 5, 25 or 100 by turns
// of 64, so that blocks differ in scale.
inline std::int32_t value_of(double weight, std::uint64_t k) {
  constexpr std::int32_t kLargest[] = {100, 5, 25, 1};
  std::uint64_t name = 0;
  std::memcpy(&name, &weight, sizeof name);
  base::Rng rng(name * 0x9E3779B97F4A7C15ULL + k);
  const std::int32_t largest = kLargest[k / 64 % 4];
  return static_cast<std::int32_t>(rng.below(2 * static_cast<std::uint64_t>(largest) + 1)) -
         largest;
}

template <typename T>
std::vector<T> input_of(double weight, std::uint64_t count) {
  std::vector<T> values(count);
  for (std::uint64_t k = 0; k < count; ++k) values[k] = static_cast<T>(value_of(weight, k));
  return values;
}

// ---- what a codec makes of values
// ----------------------------------------------------------------

// The multiple of `unit` that is nearest, ties to the even one.
inline double to_unit(double value, int unit) {
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

inline float as_bf16(float x) {
  return x == 0 ? x : static_cast<float>(to_unit(x, std::max(std::ilogb(x) - 7, -133)));
}

inline float as_fp16(float x) {
  const float within = std::clamp(x, -65504.0F, 65504.0F);
  return within == 0 ? x
                     : static_cast<float>(to_unit(within, std::max(std::ilogb(within), -14) - 10));
}

// The largest magnitude that a code has, and the code's magnitude nearest to m.
struct Scaled {
  std::size_t block;
  int scale_digits;
  double top;
  double (*nearest)(double m);
};

inline double nearest_integer(double m) { return std::nearbyint(m); }
inline double nearest_e4m3(double m) {
  return m == 0 ? 0 : to_unit(m, std::max(std::ilogb(m), -6) - 3);
}
inline double nearest_e3m0(double m) {
  if (m < 0.5) return 0;
  const double below = std::ldexp(1.0, std::max(std::ilogb(m), 0));
  return m >= 1.5 * below ? 2 * below : below;
}

inline Scaled scaled_format(CodecId id) {
  if (id == CodecId::kInt8) return {256, 16, 127, nearest_integer};
  if (id == CodecId::kFp8) return {256, 8, 448, nearest_e4m3};
  if (id == CodecId::kInt4) return {64, 8, 7, nearest_integer};
  if (id == CodecId::kInt2) return {64, 8, 1, nearest_integer};
  return {64, 8, 64, nearest_e3m0};
}

inline void scaled_block(const Scaled& format, float* x, std::size_t count) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  int exponent = 0;
  const double mantissa = std::frexp(largest / static_cast<float>(format.top), &exponent);
  const double digits = std::ceil(std::ldexp(mantissa, format.scale_digits));
  const auto scale =
      std::max(static_cast<float>(std::ldexp(digits, exponent - format.scale_digits)), 0x1p-126F);
  const float inverse = 1.0F / scale;
  for (std::size_t i = 0; i < count; ++i) {
    const float f = x[i] * inverse;
    const double magnitude = format.nearest(std::min<double>(std::fabs(f), format.top));
    x[i] = static_cast<float>(std::copysign(magnitude, f)) * scale;
  }
}

// In sixteen lanes that are added up in halves.
inline double sum_of_lanes(const std::vector<double>& terms) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 16] += terms[i];
  for (const int half : {8, 4, 2, 1}) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

inline float mean_of(const std::vector<double>& terms, double count) {
  const double mean = count == 0 ? 0 : sum_of_lanes(terms) / count;
  const float kept = as_bf16(static_cast<float>(mean));
  return kept == 0 && mean > 0 ? 0x1p-133F : kept;
}

inline void two_magnitudes(float* x, std::size_t count) {
  std::vector<double> squares(count), large(count), small(count);
  for (std::size_t i = 0; i < count; ++i) squares[i] = static_cast<double>(x[i]) * x[i];
  const double mean = sum_of_lanes(squares) / static_cast<double>(count);
  const auto limit = static_cast<float>(std::sqrt(mean));
  double many = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_large = std::fabs(x[i]) >= limit;
    (is_large ? large : small)[i] = std::fabs(x[i]);
    many += is_large;
  }
  const float of_large = mean_of(large, many);
  const float of_small = mean_of(small, static_cast<double>(count) - many);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_large = std::fabs(x[i]) >= limit;
    x[i] = std::copysign(is_large ? of_large : of_small, x[i]);
  }
}

template <typename Block>
void by_blocks(std::vector<float>& x, std::size_t block, const Block& each) {
  for (std::size_t at = 0; at < x.size(); at += block) {
    each(x.data() + at, std::min(block, x.size() - at));
  }
}

// The `kept` largest stay, of equal ones the first; `two_bits`: as two magnitudes.
inline void largest_of_block(float* x, std::size_t count, std::size_t kept, bool two_bits) {
  const bool all = two_bits ? count <= kept : 6 * kept >= 4 * count;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!all) {
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return std::fabs(x[a]) > std::fabs(x[b]); });
    order.resize(kept);
    std::sort(order.begin(), order.end());
  }
  std::vector<float> values;
  for (const std::size_t i : order) values.push_back(x[i]);
  if (two_bits) by_blocks(values, 64, two_magnitudes);
  std::fill_n(x, count, 0.0F);
  for (std::size_t e = 0; e < order.size(); ++e) x[order[e]] = values[e];
}

// What arrives of a leaf that is sent under this codec.
inline std::vector<float> travelled(CodecId id, std::size_t kept, std::vector<float> x) {
  if (id == CodecId::kBf16) std::transform(x.begin(), x.end(), x.begin(), as_bf16);
  if (id == CodecId::kFp16) std::transform(x.begin(), x.end(), x.begin(), as_fp16);
  if (id == CodecId::kStat2) by_blocks(x, 64, two_magnitudes);
  if (id == CodecId::kTopK || id == CodecId::kTopK2) {
    by_blocks(x, 4096, [&](float* block, std::size_t count) {
      largest_of_block(block, count, kept, id == CodecId::kTopK2);
    });
  }
  const bool is_scaled = codec::spec_of(id).form == codec::CodecForm::kScaled;
  if (is_scaled) {
    const Scaled format = scaled_format(id);
    by_blocks(x, format.block,
              [&](float* block, std::size_t count) { scaled_block(format, block, count); });
  }
  return x;
}

// ---- results
// -------------------------------------------------------------------------------------

struct Formula {
  bool mean = false;
  CodecId codec = CodecId::kNone;
  bool ring = false;  // contributions travel as sums, and only the result under the codec
};

inline constexpr std::size_t kKept = 64;  // of the sparse codecs, unless said otherwise

inline std::vector<float> result_travelled(CodecId id, std::size_t contributors,
                                           std::vector<float> sum) {
  if (id == CodecId::kStat2) return travelled(CodecId::kInt4, 0, std::move(sum));
  if (id != CodecId::kTopK && id != CodecId::kTopK2) return travelled(id, 0, std::move(sum));
  return travelled(CodecId::kTopK, std::min<std::size_t>(contributors * kKept, 4096),
                   std::move(sum));
}

// Of the contributions with these weights, added in this order, elements from `first` to `end`: of
// a scatter each range is encoded by itself. T is float, or double without codec.
template <typename T>
std::vector<T> result_of(const Formula& formula, const std::vector<double>& weights,
                         std::uint64_t end, std::uint64_t first = 0) {
  const std::uint64_t count = end - first;
  std::vector<T> sum(count, T{0});
  double all = 0;
  for (const double weight : weights) {
    std::vector<T> x = input_of<T>(weight, end);
    x.erase(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(first));
    if constexpr (sizeof(T) == sizeof(float)) {
      if (!formula.ring) x = travelled(formula.codec, kKept, std::move(x));
    }
    for (std::uint64_t k = 0; k < count; ++k) {
      const T product = static_cast<T>(weight) * x[k];
      sum[k] = sum[k] + product;
    }
    all += weight;
  }
  for (std::uint64_t k = 0; k < count && formula.mean; ++k) sum[k] = sum[k] / static_cast<T>(all);
  if constexpr (sizeof(T) == sizeof(float)) {
    return result_travelled(formula.codec, weights.size(), std::move(sum));
  } else {
    return sum;
  }
}

// Of f64, in which weights keep their fractions: equal but for the order of the sum.
inline bool nearly(const std::vector<double>& a, const std::vector<double>& b) {
  const auto close = [](double x, double y) { return std::fabs(x - y) <= 1e-6; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), close);
}

}  // namespace jccl::exchange::stress
