// Written with the functions of the mathematical library rather than with bit tricks, so that an
// error in one form is not repeated in the other.
#include "codec/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace jccl::codec::reference {
namespace {

// Nearest multiple of 2^(exponent of value - digits + 1), but not finer than 2^last, ties to even.
double rounded(double value, int digits, int last) {
  if (value == 0) return value;
  const int unit = std::max(std::ilogb(value) - digits + 1, last);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float limited(float value, float magnitude_max) {
  return std::isfinite(value) ? std::clamp(value, -magnitude_max, magnitude_max) : value;
}

// One of the two neighbours of value with so many digits; of the bits between them `lost` count.
float moved(float value, int digits, int last, int lost, std::uint32_t chance) {
  if (value == 0) return value;
  const int unit = std::max(std::ilogb(value) - digits + 1, last);
  const double position = std::nearbyint(std::ldexp(std::fabs(value), lost - unit));
  const double up = std::floor(std::ldexp(position + (chance >> (16 - lost)), -lost));
  return std::copysign(static_cast<float>(std::ldexp(up, unit)), value);
}

}  // namespace

std::uint16_t bf16_of_f32(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return sign | 0x7FC0;
  const double near = std::isinf(value) ? HUGE_VAL : rounded(std::fabs(value), 8, -133);
  if (near >= 0x1p128) return sign | 0x7F80;
  return sign | static_cast<std::uint16_t>(bits_of(static_cast<float>(near)) >> 16);
}

std::uint16_t f16_of_f32(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return sign | 0x7E00;
  const double near = std::isinf(value) ? HUGE_VAL : rounded(std::fabs(value), 11, -24);
  if (near >= 65536) return sign | 0x7C00;
  if (near < 0x1p-14) return sign | static_cast<std::uint16_t>(std::ldexp(near, 24));
  const int exponent = std::ilogb(near);
  const double fraction = std::ldexp(near, 10 - exponent) - 1024;
  return static_cast<std::uint16_t>(sign | ((exponent + 15) << 10) | static_cast<int>(fraction));
}

float f32_of_bf16(std::uint16_t value) { return float_of(static_cast<std::uint32_t>(value) << 16); }

float f32_of_f16(std::uint16_t value) {
  const int exponent = (value >> 10) & 0x1F;
  const int fraction = value & 0x3FF;
  double magnitude = std::ldexp(fraction, -24);
  if (exponent > 0) magnitude = std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) magnitude = HUGE_VAL;
  const std::uint32_t sign = (value & 0x8000U) << 16;
  if (exponent == 31 && fraction != 0) return float_of(sign | 0x7F800000U | (value & 0x3FFU) << 13);
  return float_of(sign | bits_of(static_cast<float>(magnitude)));
}

std::uint16_t finite_bf16(float value, bool noisy, std::uint32_t chance) {
  const float kept = limited(value, 0x1.FEp127F);
  const bool moves = noisy && std::isfinite(value);
  return bf16_of_f32(moves ? moved(kept, 8, -133, 16, chance) : kept);
}

std::uint16_t finite_f16(float value, bool noisy, std::uint32_t chance) {
  const float kept = limited(value, 65504.0F);
  const bool moves = noisy && std::isfinite(value);
  return f16_of_f32(moves ? moved(kept, 11, -24, 13, chance) : kept);
}

}  // namespace jccl::codec::reference
