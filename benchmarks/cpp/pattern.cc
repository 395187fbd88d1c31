#include "pattern.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/spec.h"

namespace jccl::bench {
namespace {

constexpr std::size_t kPeriod = 251;
constexpr double kLargest = 125.0 / 64;

double value(std::size_t k) { return (static_cast<double>(k) - 125) / 64; }

}  // namespace

std::optional<ErrorBound> bound_of(const std::string& codec) {
  for (const codec::CodecSpec& spec : codec::kCodecs) {
    if (codec == spec.name && spec.form != codec::CodecForm::kSparse) {
      return ErrorBound{spec.relative, spec.of_largest};
    }
  }
  return std::nullopt;
}

void fill_contribution(std::uint32_t peer, float* out, std::size_t count) {
  std::array<float, kPeriod> pattern;
  for (std::size_t k = 0; k < kPeriod; ++k) {
    pattern[k] = static_cast<float>(value(k) * (1.0 + peer));
  }
  for (std::size_t first = 0; first < count; first += kPeriod) {
    std::copy_n(pattern.data(), std::min(kPeriod, count - first), out + first);
  }
}

std::uint64_t count_wrong(const float* out, std::size_t count,
                          const std::vector<std::uint32_t>& contributors, bool mean,
                          const ErrorBound& bound) {
  double factors = 0;
  for (const std::uint32_t peer : contributors) factors += 1.0 + peer;
  const double scale = mean ? factors / static_cast<double>(contributors.size()) : factors;
  const auto encoding = [&](double x, double largest) {
    return bound.relative * std::abs(x) + bound.of_largest * largest;
  };
  std::array<float, kPeriod> low, high;
  const double spread = scale * encoding(kLargest, kLargest);
  for (std::size_t k = 0; k < kPeriod; ++k) {
    const double exact = scale * value(k);
    const double error = scale * encoding(value(k), kLargest);
    // The additions themselves: a few roundings in f32 of magnitudes up to the largest sum.
    const double rounding =
        0x1p-22 * static_cast<double>(contributors.size() + 2) * scale * kLargest;
    const double all =
        error + encoding(std::abs(exact) + error, scale * kLargest + spread) + rounding;
    low[k] = static_cast<float>(exact - all * 1.0001);
    high[k] = static_cast<float>(exact + all * 1.0001);
  }
  std::uint64_t wrong = 0;
  for (std::size_t first = 0; first < count; first += kPeriod) {
    const std::size_t length = std::min(kPeriod, count - first);
    for (std::size_t k = 0; k < length; ++k) {
      const float x = out[first + k];
      wrong += !(x >= low[k] && x <= high[k]);
    }
  }
  return wrong;
}

}  // namespace jccl::bench
