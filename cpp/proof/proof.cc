// See proof.h. The polynomial is the only one of degree below k through the points, so the order of
// the points doesn't matter, nor how it is found.
#include "proof/proof.h"

#include <algorithm>
#include <bitset>
#include <functional>

#include "base/planted.h"
#include "base/text.h"
#include "proof/field.h"

namespace jccl::proof {
namespace {

using base::cat;
using base::Code;
using base::Result;
using base::Status;

using Numbers = std::vector<std::uint32_t>;

bool keeps_apart(std::span<const Point> points, std::uint32_t modulus) {
  std::bitset<kPrime> seen;
  for (const Point& point : points) {
    const std::uint32_t at = point.index % modulus;
    if (seen[at]) return false;
    seen.set(at);
  }
  return true;
}

std::uint32_t modulus_of(std::span<const Point> points) {
  for (std::uint32_t m = kPrime; m >= points.size(); --m) {
    if (keeps_apart(points, m)) return m;
  }
  return 0;
}

// Newton's form: y[i] becomes the divided difference of the points 0 to i.
void divide_differences(const Numbers& x, Numbers* y) {
  const Inverses& inverse = inverses();
  for (std::size_t k = 1; k < x.size(); ++k) {
    for (std::size_t i = x.size() - 1; i >= k; --i) {
      const std::uint32_t over = inverse[subtract(x[i], x[i - k])];
      (*y)[i] = multiply(subtract((*y)[i], (*y)[i - 1]), over);
    }
  }
}

// From the last difference inwards: p ← p · (t - x[i]) + d[i].
std::vector<std::uint16_t> expand(const Numbers& x, const Numbers& differences) {
  std::vector<std::uint16_t> out(x.size());
  for (std::size_t i = x.size(); i-- > 0;) {
    const std::uint32_t minus = subtract(0, x[i]);
    for (std::size_t j = x.size() - 1 - i; j > 0; --j) {
      out[j] = static_cast<std::uint16_t>(add(multiply(out[j], minus), out[j - 1]));
    }
    out[0] = static_cast<std::uint16_t>(add(multiply(out[0], minus), differences[i]));
  }
  return out;
}

struct Fields {
  std::uint32_t mantissa_bits;
  std::uint32_t mantissa(std::uint32_t bits) const { return bits & ((1u << mantissa_bits) - 1); }
  std::uint32_t exponent(std::uint32_t bits) const { return (bits & 0x7FFF) >> mantissa_bits; }
};

Fields fields_of(Format format) { return {format == Format::kBf16 ? 7u : 10u}; }

constexpr std::size_t kBlock = 32;

std::uint32_t magnitude(std::uint16_t bits) { return bits & 0x7FFFu; }

// One pass over all values, without a branch.
std::vector<std::uint16_t> largest_of_blocks(std::span<const std::uint16_t> values) {
  std::vector<std::uint16_t> out((values.size() + kBlock - 1) / kBlock);
  const std::size_t whole = values.size() / kBlock;
  for (std::size_t block = 0; block < whole; ++block) {
    std::uint16_t top = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto here = static_cast<std::uint16_t>(values[block * kBlock + i] & 0x7FFF);
      top = here > top ? here : top;
    }
    out[block] = top;
  }
  if (JCCL_PLANTED("proof-block-cut-short")) return out;
  for (const std::uint16_t bits : values.subspan(whole * kBlock)) {
    out.back() = std::max(out.back(), static_cast<std::uint16_t>(bits & 0x7FFF));
  }
  return out;
}

double median_of(Numbers* numbers) {
  std::sort(numbers->begin(), numbers->end());
  const std::size_t half = numbers->size() / 2;
  const double upper = (*numbers)[half];
  if (numbers->size() % 2 == 1 || JCCL_PLANTED("proof-median-is-the-upper")) return upper;
  return (upper + (*numbers)[half - 1]) / 2;
}

}  // namespace

const Inverses& inverses() {
  // p = a·q + r, so 1/a = -q · 1/r.
  static const Inverses table = [] {
    Inverses out{};
    out[1] = 1;
    for (std::uint32_t a = 2; a < kPrime; ++a) {
      out[a] = static_cast<std::uint16_t>(multiply(kPrime - kPrime / a, out[kPrime % a]));
    }
    return out;
  }();
  return table;
}

Result<std::vector<Point>> largest(std::span<const std::uint16_t> values, std::size_t k,
                                   Format format) {
  if (k == 0 || k > kPointsMax) {
    return Status{Code::kInvalid, cat("a proof has 1 to ", kPointsMax, " points, not ", k)};
  }
  if (values.size() < k || values.size() > UINT32_MAX) {
    return Status{Code::kInvalid, cat("a chunk of ", values.size(), " values has no ", k,
                                      " largest: give it more rows, or ask for fewer points")};
  }
  std::vector<std::uint16_t> tops = largest_of_blocks(values);
  const std::uint32_t mantissa = fields_of(format).mantissa(0x7FFF);
  if (*std::max_element(tops.begin(), tops.end()) >= (0x7FFF & ~mantissa) &&
      !JCCL_PLANTED("proof-infinity-taken")) {
    return Status{Code::kGuard, "a chunk that holds NaN or Inf proves nothing"};
  }
  // k blocks have a value of at least `least`, so the k largest values do.
  std::vector<std::uint16_t> sorted = tops;
  std::uint32_t least = 0;
  if (tops.size() >= k) {
    const auto kth = sorted.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
    least = *kth;
  }
  std::vector<Point> out;
  for (std::size_t block = 0; block < tops.size(); ++block) {
    if (tops[block] < least) continue;
    const std::size_t end = std::min(values.size(), (block + 1) * kBlock);
    for (std::size_t i = block * kBlock; i < end; ++i) {
      if (magnitude(values[i]) >= least) out.push_back({static_cast<std::uint32_t>(i), values[i]});
    }
  }
  const auto larger = [](const Point& a, const Point& b) {
    const std::uint32_t of_a = magnitude(a.bits), of_b = magnitude(b.bits);
    if (of_a != of_b) return of_a > of_b;
    return JCCL_PLANTED("proof-equal-ones-by-chance") ? a.index > b.index : a.index < b.index;
  };
  std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k - 1), out.end(),
                   larger);
  out.resize(k);
  std::sort(out.begin(), out.end(),
            [](const Point& a, const Point& b) { return a.index < b.index; });
  return out;
}

Result<Proof> build(std::span<const Point> points) {
  if (points.empty() || points.size() > kPointsMax) {
    return Status{Code::kInvalid,
                  cat("a proof has 1 to ", kPointsMax, " points, not ", points.size())};
  }
  Proof out;
  out.modulus = modulus_of(points);
  if (out.modulus == 0) {
    return Status{Code::kInvalid,
                  "no modulus keeps the points of a proof apart: an index is twice"};
  }
  Numbers x, y;
  for (const Point& point : points) {
    if (point.bits >= kPrime) return Status{Code::kGuard, "a NaN can't be a point of a proof"};
    x.push_back(point.index % out.modulus);
    y.push_back(point.bits);
  }
  divide_differences(x, &y);
  out.coefficients = expand(x, y);
  return out;
}

base::Bytes print(const Proof& proof) {
  base::Bytes out;
  out.reserve(2 + 2 * proof.coefficients.size());
  const auto put = [&out](std::uint32_t number) {
    out.push_back(static_cast<std::uint8_t>(number >> 8));
    out.push_back(static_cast<std::uint8_t>(number));
  };
  put(proof.modulus);
  for (const std::uint16_t coefficient : proof.coefficients) put(coefficient);
  return out;
}

Result<Proof> parse(base::ByteView bytes) {
  const std::size_t points = bytes.size() / 2 - (bytes.size() >= 2);
  if (bytes.size() % 2 != 0 || points == 0 || points > kPointsMax) {
    return Status{Code::kInvalid, cat("a proof has 2 bytes and 2 for each of 1 to ", kPointsMax,
                                      " points, not ", bytes.size(), " bytes")};
  }
  const auto number = [&](std::size_t i) { return bytes[2 * i] * 256u + bytes[2 * i + 1]; };
  Proof out;
  out.modulus = number(0);
  // The null proof, which some write where they failed, has modulus 0.
  if ((out.modulus < points && !JCCL_PLANTED("proof-modulus-not-looked-at")) ||
      out.modulus > kPrime) {
    return Status{Code::kInvalid, cat("the modulus of a proof of ", points, " points is ", points,
                                      " to ", kPrime, ", not ", out.modulus)};
  }
  for (std::size_t i = 1; i <= points; ++i) {
    if (number(i) >= kPrime) {
      return Status{Code::kInvalid, cat("coefficient ", i - 1, " of a proof is ", number(i),
                                        ", which is not below ", kPrime)};
    }
    out.coefficients.push_back(static_cast<std::uint16_t>(number(i)));
  }
  return out;
}

std::uint32_t evaluate(const Proof& proof, std::uint32_t index) {
  const std::uint32_t x =
      JCCL_PLANTED("proof-index-not-reduced") ? index % kPrime : index % proof.modulus;
  std::uint32_t out = 0;
  for (std::size_t i = proof.coefficients.size(); i-- > 0;) {
    out = add(multiply(out, x), proof.coefficients[i]);
  }
  return out;
}

Comparison compare(const Proof& proof, std::span<const Point> points, Format format) {
  const Fields fields = fields_of(format);
  Comparison out;
  Numbers errors;
  double sum = 0;
  for (const Point& point : points) {
    const std::uint32_t said = evaluate(proof, point.index);
    if (fields.exponent(said) != fields.exponent(point.bits)) {
      ++out.exponents;
      continue;
    }
    if (((said ^ point.bits) & 0x8000) != 0 && !JCCL_PLANTED("proof-signs-not-compared")) {
      ++out.signs;
    }
    const std::uint32_t a = fields.mantissa(said), b = fields.mantissa(point.bits);
    errors.push_back(a > b ? a - b : b - a);
    sum += errors.back();
  }
  if (errors.empty()) {
    out.mean = out.median = kNothingAlike;
    return out;
  }
  out.mean = sum / static_cast<double>(errors.size());
  out.median = median_of(&errors);
  return out;
}

}  // namespace jccl::proof
