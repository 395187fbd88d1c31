// TOPLOC proofs (arXiv 2501.16007): which of a chunk's values are largest, and their 16 bits, as a
// polynomial over GF(65497) that goes through the points (index mod m, bits). A verifier evaluates
// it where its own values are largest. The bytes are those of the authors' implementation:
//
//   m ‖ c_0 … c_(k-1), each 2 bytes, big-endian; m is the largest number up to 65497 that keeps the
//   k indices apart; 258 bytes for k = 128.
//
// Three things differ from it, on purpose: nothing that is no proof is taken for one (258 zero
// bytes end its verifier), an index is reduced by m when it is looked up as when it was written,
// and signs are compared. Pure; refuses values that are not finite, and any bytes that `print`
// can't have written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace jccl::proof {

inline constexpr std::size_t kPointsMax = 512;

enum class Format { kBf16, kFp16 };

struct Point {
  std::uint32_t index = 0;
  std::uint16_t bits = 0;
  bool operator==(const Point&) const = default;
};

struct Proof {
  std::uint32_t modulus = 0;                // at most kPrime
  std::vector<std::uint16_t> coefficients;  // ascending, each below kPrime
  bool operator==(const Proof&) const = default;
};

// The k values of largest magnitude, by ascending index; of equal magnitudes the first. Refused:
// fewer than k values, and what is not finite.
base::Result<std::vector<Point>> largest(std::span<const std::uint16_t> values, std::size_t k,
                                         Format format);

// Refused: no point, more than kPointsMax, the same index twice, bits of a NaN that the field
// doesn't hold.
base::Result<Proof> build(std::span<const Point> points);

base::Bytes print(const Proof& proof);
base::Result<Proof> parse(base::ByteView bytes);

// The bits that the prover's value at `index` has, if it was one of its points.
std::uint32_t evaluate(const Proof& proof, std::uint32_t index);

struct Comparison {
  std::uint32_t exponents = 0;  // of so many points the exponents differ
  std::uint32_t signs = 0;      // of the others, the signs
  // |mantissa - mantissa| over the points of equal exponents; kNothingAlike if there are none.
  double mean = 0;
  double median = 0;  // of an even number: between the two in the middle
};
inline constexpr double kNothingAlike = 18446744073709551616.0;  // 2^64

Comparison compare(const Proof& proof, std::span<const Point> points, Format format);

}  // namespace jccl::proof
