// Inputs for the tests of codecs and kernels: random over many magnitudes, and every awkward
// value. Test-only; seeded, so equal everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "codec/codec.h"

namespace jccl::codec {

// One of each row, and the sparse ones at several densities.
inline const std::vector<Codec>& lossy_codecs() {
  static const std::vector<Codec> kAll = [] {
    std::vector<Codec> all;
    for (const CodecSpec& spec : kCodecs) {
      if (spec.id != CodecId::kNone) all.emplace_back(spec.id);
    }
    for (const std::uint32_t kept : {1, 2731}) all.push_back(top_k(kept));
    for (const std::uint32_t kept : {5, 704}) all.push_back(top_k(kept, CodecId::kTopK2));
    return all;
  }();
  return kAll;
}

inline const std::vector<Codec>& all_codecs() {
  static const std::vector<Codec> kCodecs = [] {
    std::vector<Codec> all = lossy_codecs();
    all.insert(all.begin(), Codec{});
    return all;
  }();
  return kCodecs;
}

inline const std::vector<Codec>& stochastic_codecs() {
  static const std::vector<Codec> kAll = [] {
    std::vector<Codec> all;
    for (const CodecSpec& spec : kCodecs) {
      if (is_rounding(spec.id)) all.push_back(stochastic(spec.id, all.size() + 1));
    }
    return all;
  }();
  return kAll;
}

inline constexpr Dtype kFloats[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16};

inline base::Bytes encoded(const Codec& codec, const std::vector<float>& in) {
  base::Bytes out(encoded_bytes(codec, Dtype::kF32, in.size()));
  encode(codec, Dtype::kF32, in.data(), in.size(), out.data());
  return out;
}

inline std::vector<float> decoded(const Codec& codec, const base::Bytes& in, std::size_t count) {
  std::vector<float> out(count);
  decode(codec, Dtype::kF32, in.data(), count, out.data());
  return out;
}

// One leaf of `dtype` with these values, as near as 16 bits come.
inline base::Bytes leaf_of(Dtype dtype, const std::vector<float>& values) {
  const CodecId via = dtype == Dtype::kF16 ? CodecId::kFp16 : CodecId::kBf16;
  base::Bytes half(2 * values.size());
  encode(via, Dtype::kF32, values.data(), values.size(), half.data());
  base::Bytes out(values.size() * size_of(dtype));
  decode(via, dtype, half.data(), values.size(), out.data());
  return out;
}

// Sizes around the grid of every codec and the width of every loop.
inline const std::vector<std::size_t>& test_sizes() {
  static const std::vector<std::size_t> kSizes = {
      0,   1,   2,   3,   15,  16,  17,   31,   33,   63,   64,   65,   127,  255,
      256, 257, 511, 512, 513, 777, 1023, 1025, 4095, 4096, 4097, 5000, 20011};
  return kSizes;
}

inline double normal(base::Rng& rng) {  // near enough: sum of uniforms
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.unit();
  return sum;
}

inline std::vector<float> normal_values(std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(normal(rng));
  return values;
}

// Any finite bit pattern, in runs of like magnitude so that blocks differ.
inline std::vector<float> wild_values(std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<float> values(count);
  int exponent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 97 == 0) exponent = static_cast<int>(rng.below(278)) - 150;
    values[i] = std::ldexp(static_cast<float>(normal(rng)) / 8, exponent);
    if (rng.chance(0.02)) values[i] = 0;
    if (rng.chance(0.01)) values[i] = -0.0F;
    if (rng.chance(0.002)) values[i] = std::numeric_limits<float>::denorm_min();
    if (rng.chance(0.002)) values[i] = -std::numeric_limits<float>::max();
    if (rng.chance(0.002)) values[i] = std::ldexp(1.0F, -126);
  }
  return values;
}

}  // namespace jccl::codec
