// The source of all variants of the codec loops; a kernels_*.cc defines JCCL_KERNELS and includes
// it. Nothing here may be an inline function with external linkage, nor come from a header that has
// them: the linker would keep one copy for all variants, maybe one this processor cannot run.
#include <cstddef>
#include <cstdint>

#include "codec/kernels.h"

namespace jccl::codec {
namespace {

// An element at any address; may alias anything, like a char.
template <typename T>
struct __attribute__((packed, may_alias)) Loose {
  T v;
};

using F32 = Loose<float>;
using F64 = Loose<double>;
using U16 = Loose<std::uint16_t>;
using U32 = Loose<std::uint32_t>;
using U64 = Loose<std::uint64_t>;

constexpr std::int32_t kMagnitude = 0x7FFFFFFF;
constexpr std::int32_t kInfinity = 0x7F800000;
constexpr std::int32_t kFloatMax = 0x7F7FFFFF;
constexpr std::int32_t kBf16Max = 0x7F7F0000;  // as f32 bits
constexpr std::int32_t kF16Max = 0x477FE000;   // 65504 as f32 bits

inline std::int32_t bits_of(float v) { return __builtin_bit_cast(std::int32_t, v); }
inline float float_of(std::int32_t v) { return __builtin_bit_cast(float, v); }

// Round to nearest even; a NaN becomes the quiet one of its sign.
inline std::uint16_t bf16_of(std::int32_t bits) {
  const auto u = static_cast<std::uint32_t>(bits);
  const std::uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16;
  const std::uint32_t nan = ((u >> 16) & 0x8000) | 0x7FC0;
  return static_cast<std::uint16_t>((bits & kMagnitude) > kInfinity ? nan : rounded);
}

// Round to nearest even. Results below 2^-14 are rounded by an addition that puts their last bit
// at the last bit of 0.5f.
inline std::uint16_t f16_of(std::int32_t bits) {
  const std::int32_t magnitude = bits & kMagnitude;
  const std::int32_t normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const std::int32_t small = bits_of(float_of(magnitude) + 0.5F) - 0x3F000000;
  const std::int32_t huge = magnitude > kInfinity ? 0x7E00 : 0x7C00;
  const std::int32_t finite = magnitude < 0x38800000 ? small : normal;
  const std::int32_t value = magnitude >= 0x47800000 ? huge : finite;
  return static_cast<std::uint16_t>(value | ((bits >> 16) & 0x8000));
}

inline float f32_of_f16(std::uint16_t half) {
  const std::int32_t shifted = (half & 0x7FFF) << 13;
  const std::int32_t exponent = shifted & 0x0F800000;
  const std::int32_t normal = shifted + 0x38000000;
  const std::int32_t special = shifted + 0x70000000;
  const std::int32_t small = bits_of(float_of(shifted + 0x38800000) - 0x1p-14F);
  const std::int32_t large = exponent == 0x0F800000 ? special : normal;
  const std::int32_t magnitude = exponent == 0 ? small : large;
  return float_of(magnitude | ((half & 0x8000) << 16));
}

inline std::int32_t limited(std::int32_t bits, std::int32_t magnitude_max) {
  const std::int32_t magnitude = bits & kMagnitude;
  const std::int32_t kept = magnitude > magnitude_max ? magnitude_max : magnitude;
  return magnitude >= kInfinity ? bits : (kept | (bits & ~kMagnitude));
}

void bf16_to_f32(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const U16*>(in);
  auto* __restrict y = static_cast<U32*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = static_cast<std::uint32_t>(x[i].v) << 16;
}

void f16_to_f32(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const U16*>(in);
  auto* __restrict y = static_cast<F32*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = f32_of_f16(x[i].v);
}

void f64_to_f32(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const F64*>(in);
  auto* __restrict y = static_cast<F32*>(out);
  constexpr double kMax = 0x1.fffffep127;
  constexpr double kInf = __builtin_inf();
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const double v = x[i].v;
    const double low = (v < -kMax && v != -kInf) ? -kMax : v;
    y[i].v = static_cast<float>((low > kMax && low != kInf) ? kMax : low);
  }
}

void f32_to_f64(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const F32*>(in);
  auto* __restrict y = static_cast<F64*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = static_cast<double>(x[i].v);
}

void f32_to_bf16(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const F32*>(in);
  auto* __restrict y = static_cast<U16*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = bf16_of(bits_of(x[i].v));
}

void f32_to_f16(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const F32*>(in);
  auto* __restrict y = static_cast<U16*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = f16_of(bits_of(x[i].v));
}

void f32_to_bf16_finite(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const F32*>(in);
  auto* __restrict y = static_cast<U16*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = bf16_of(limited(bits_of(x[i].v), kBf16Max));
}

void f32_to_f16_finite(const void* in, std::size_t count, void* out) {
  const auto* __restrict x = static_cast<const F32*>(in);
  auto* __restrict y = static_cast<U16*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = f16_of(limited(bits_of(x[i].v), kF16Max));
}

constexpr std::size_t kBlock = 256;
constexpr std::int32_t kScaleMin = 0x00800000;  // 2^-126: its inverse is finite
constexpr std::int32_t kScaleMax = 0x7C010200;  // largest of 16 bits whose 127-fold is finite

// The scale has 16 significant bits, so code * scale is exact: decoding never rounds, and encoding
// decoded values gives the same bytes again.
inline float scale_of(std::int32_t magnitude_max) {
  const float ideal = float_of(magnitude_max > kFloatMax ? kFloatMax : magnitude_max) / 127.0F;
  const std::int32_t up = (bits_of(ideal) + 0xFF) & ~0xFF;
  const std::int32_t above = up < kScaleMin ? kScaleMin : up;
  return float_of(above > kScaleMax ? kScaleMax : above);
}

inline void int8_encode_block(const F32* __restrict x, std::size_t count,
                              std::uint8_t* __restrict out) {
  std::int32_t magnitude_max = 0;
#pragma omp simd reduction(max : magnitude_max)
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = bits_of(x[i].v) & kMagnitude;
    magnitude_max = magnitude > magnitude_max ? magnitude : magnitude_max;
  }
  const float scale = scale_of(magnitude_max);
  const float inverse = 1.0F / scale;
  reinterpret_cast<F32*>(out)->v = scale;
  std::uint8_t* __restrict codes = out + 4;
  // Adding 1.5·2^23 rounds to nearest even and leaves the integer in the low bits.
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(bits_of(x[i].v * inverse + 0x1.8p23F));
  }
}

void int8_encode(const void* in, std::size_t count, std::uint8_t* out) {
  const auto* x = static_cast<const F32*>(in);
  for (; count >= kBlock; count -= kBlock, x += kBlock, out += 4 + kBlock) {
    int8_encode_block(x, kBlock, out);
  }
  if (count > 0) int8_encode_block(x, count, out);
}

inline void int8_decode_block(const std::uint8_t* __restrict in, std::size_t count,
                              F32* __restrict y) {
  const float scale = reinterpret_cast<const F32*>(in)->v;
  const std::uint8_t* __restrict codes = in + 4;
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    y[i].v = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
  }
}

void int8_decode(const std::uint8_t* in, std::size_t count, void* out) {
  auto* y = static_cast<F32*>(out);
  for (; count >= kBlock; count -= kBlock, y += kBlock, in += 4 + kBlock) {
    int8_decode_block(in, kBlock, y);
  }
  if (count > 0) int8_decode_block(in, count, y);
}

void scan_f32(const void* in, std::size_t count, ScanLanes* lanes) {
  const auto* x = static_cast<const F32*>(in);
  double squares[kScanLanes];
  std::int32_t magnitudes[kScanLanes];
  for (std::size_t l = 0; l < kScanLanes; ++l) squares[l] = lanes->squares[l];
  for (std::size_t l = 0; l < kScanLanes; ++l) magnitudes[l] = 0;
  const std::size_t whole = count - count % kScanLanes;
  for (std::size_t i = 0; i < whole; i += kScanLanes) {
#pragma omp simd
    for (std::size_t l = 0; l < kScanLanes; ++l) {
      const float v = x[i + l].v;
      const std::int32_t magnitude = bits_of(v) & kMagnitude;
      magnitudes[l] = magnitude > magnitudes[l] ? magnitude : magnitudes[l];
      squares[l] += static_cast<double>(v) * static_cast<double>(v);
    }
  }
  for (std::size_t l = 0; l < count - whole; ++l) {
    const float v = x[whole + l].v;
    const std::int32_t magnitude = bits_of(v) & kMagnitude;
    magnitudes[l] = magnitude > magnitudes[l] ? magnitude : magnitudes[l];
    squares[l] += static_cast<double>(v) * static_cast<double>(v);
  }
  for (std::size_t l = 0; l < kScanLanes; ++l) {
    const auto magnitude = static_cast<std::uint64_t>(magnitudes[l]);
    if (magnitude > lanes->magnitude_max) lanes->magnitude_max = magnitude;
    lanes->squares[l] = squares[l];
  }
}

void scan_f64(const void* in, std::size_t count, ScanLanes* lanes) {
  const auto* x = static_cast<const F64*>(in);
  double squares[kScanLanes];
  for (std::size_t l = 0; l < kScanLanes; ++l) squares[l] = lanes->squares[l];
  std::int64_t magnitude_max = 0;
  const std::size_t whole = count - count % kScanLanes;
  for (std::size_t i = 0; i < whole; i += kScanLanes) {
#pragma omp simd
    for (std::size_t l = 0; l < kScanLanes; ++l) squares[l] += x[i + l].v * x[i + l].v;
  }
  for (std::size_t l = 0; l < count - whole; ++l) squares[l] += x[whole + l].v * x[whole + l].v;
#pragma omp simd reduction(max : magnitude_max)
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = __builtin_bit_cast(std::int64_t, x[i].v) & INT64_MAX;
    magnitude_max = magnitude > magnitude_max ? magnitude : magnitude_max;
  }
  for (std::size_t l = 0; l < kScanLanes; ++l) lanes->squares[l] = squares[l];
  const auto magnitude = static_cast<std::uint64_t>(magnitude_max);
  if (magnitude > lanes->magnitude_max) lanes->magnitude_max = magnitude;
}

}  // namespace

extern const Kernels JCCL_KERNELS;
constinit const Kernels JCCL_KERNELS = {
    bf16_to_f32,        f16_to_f32,        f64_to_f32,  f32_to_f64,  f32_to_bf16, f32_to_f16,
    f32_to_bf16_finite, f32_to_f16_finite, int8_encode, int8_decode, scan_f32,    scan_f64};

}  // namespace jccl::codec
