// Integers modulo 65497, the largest prime below 2^16 that TOPLOC's proofs are polynomials over
// (arXiv 2501.16007, section 4.2). Products of two fit 32 bits. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace jccl::proof {

inline constexpr std::uint32_t kPrime = 65497;

inline std::uint32_t add(std::uint32_t a, std::uint32_t b) {
  return a + b < kPrime ? a + b : a + b - kPrime;
}
inline std::uint32_t subtract(std::uint32_t a, std::uint32_t b) {
  return a >= b ? a - b : a + kPrime - b;
}
inline std::uint32_t multiply(std::uint32_t a, std::uint32_t b) { return a * b % kPrime; }

// By number; that of 0 is 0. 131 kB, made at first use: 8,128 of them in a proof of 128 points.
using Inverses = std::array<std::uint16_t, kPrime>;
const Inverses& inverses();

}  // namespace jccl::proof
