// Part of kernels_body.h: 16 bits of chance per element, a function of seed and index alone.
// Elements 256·g + j and 256·g + 128 + j share a hash: its low and its high half.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels/kernels.h"

namespace jccl::codec {
namespace {

constexpr std::size_t kNoiseGroup = 256;
constexpr std::uint64_t kGroupStep = 0x9E3779B97F4A7C15;
constexpr std::uint32_t kElementStep = 0x9E3779B9;

inline std::uint64_t group_key(std::uint64_t seed, std::uint64_t group) {
  std::uint64_t x = seed + group * kGroupStep;  // splitmix64 (S. Vigna)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline void fill_group(std::uint64_t key, std::uint16_t* __restrict out) {
  const auto low = static_cast<std::uint32_t>(key);
  const auto high = static_cast<std::uint32_t>(key >> 32);
#pragma omp simd
  for (std::uint32_t j = 0; j < kNoiseGroup / 2; ++j) {
    std::uint32_t x = low + j * kElementStep;  // then lowbias32 (C. Wellons), keyed in its middle
    x = (x ^ (x >> 16)) * 0x7FEB352D;
    x = ((x ^ (x >> 15)) + high) * 0x846CA68B;
    x ^= x >> 16;
    out[j] = static_cast<std::uint16_t>(x);
    out[j + kNoiseGroup / 2] = static_cast<std::uint16_t>(x >> 16);
  }
}

// The chance of elements [at, at + count) of a call; count is at most a group.
inline void fill_noise(const LoopSettings& with, std::size_t at, std::size_t count,
                       std::uint16_t* out) {
  const std::uint64_t first = with.first_element + at;
  const std::size_t within = first % kNoiseGroup;
  if (within == 0) return fill_group(group_key(with.seed, first / kNoiseGroup), out);
  std::uint16_t two[2 * kNoiseGroup];
  fill_group(group_key(with.seed, first / kNoiseGroup), two);
  if (within + count > kNoiseGroup) {
    fill_group(group_key(with.seed, first / kNoiseGroup + 1), two + kNoiseGroup);
  }
  for (std::size_t i = 0; i < count; ++i) out[i] = two[within + i];
}

}  // namespace
}  // namespace jccl::codec
