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

// Upward to 16 significant bits, within [2^-126, largest whose 127-fold is finite].
float scale_of(float magnitude_max) {
  const double ideal = static_cast<double>(magnitude_max / 127.0F);
  if (ideal < 0x1p-126) return 0x1p-126F;
  const int unit = std::ilogb(ideal) - 15;
  const double up = std::ldexp(std::ceil(std::ldexp(ideal, -unit)), unit);
  return static_cast<float>(std::min(up, 33026.0 * 0x1p106));
}

void encode_block(const float* in, std::size_t count, std::uint8_t* out) {
  float magnitude_max = 0;
  for (std::size_t i = 0; i < count; ++i) magnitude_max = std::max(magnitude_max, std::fabs(in[i]));
  const float scale = scale_of(magnitude_max);
  const float inverse = 1.0F / scale;
  std::memcpy(out, &scale, 4);
  for (std::size_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::int8_t>(std::nearbyintf(in[i] * inverse));
    out[4 + i] = static_cast<std::uint8_t>(code);
  }
}

float limited(float value, float magnitude_max) {
  return std::isfinite(value) ? std::clamp(value, -magnitude_max, magnitude_max) : value;
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

void encode(CodecId codec, const float* in, std::size_t count, std::uint8_t* out) {
  if (codec == CodecId::kInt8) {
    for (std::size_t at = 0; at < count; at += kInt8Block, out += 4 + kInt8Block) {
      encode_block(in + at, std::min(kInt8Block, count - at), out);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (codec == CodecId::kNone) std::memcpy(out + 4 * i, &in[i], 4);
    std::uint16_t half = 0;
    if (codec == CodecId::kBf16) half = bf16_of_f32(limited(in[i], 0x1.FEp127F));
    if (codec == CodecId::kFp16) half = f16_of_f32(limited(in[i], 65504.0F));
    if (codec != CodecId::kNone) std::memcpy(out + 2 * i, &half, 2);
  }
}

void decode(CodecId codec, const std::uint8_t* in, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    if (codec == CodecId::kInt8) {
      const std::uint8_t* block = in + (i / kInt8Block) * (4 + kInt8Block);
      float scale = 0;
      std::memcpy(&scale, block, 4);
      out[i] = static_cast<float>(static_cast<std::int8_t>(block[4 + i % kInt8Block])) * scale;
      continue;
    }
    std::uint16_t half = 0;
    if (codec == CodecId::kNone) std::memcpy(&out[i], in + 4 * i, 4);
    if (codec != CodecId::kNone) std::memcpy(&half, in + 2 * i, 2);
    if (codec == CodecId::kBf16) out[i] = f32_of_bf16(half);
    if (codec == CodecId::kFp16) out[i] = f32_of_f16(half);
  }
}

}  // namespace jccl::codec::reference
