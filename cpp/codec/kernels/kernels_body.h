// The source of all variants of the codec loops; a kernels_*.cc defines JCCL_KERNELS and includes
// it: conversions between types here, the codecs in body_*.h. Nothing there or here may be an
// inline function with external linkage, nor come from a header that has them: the linker would
// keep one copy for all variants, maybe one this processor cannot run.
#include <cstddef>
#include <cstdint>

#include "codec/kernels/body_noise.h"
#include "codec/kernels/kernels.h"
#include "codec/spec.h"

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

// The largest magnitude of few elements, as bits. SSE2 has no maximum of integers; that of floats
// passes over NaN, which is found apart, and waits so long that four of them take turns.
inline std::int32_t largest_magnitude(const F32* __restrict x, std::size_t count) {
  std::int32_t all = 0;
  std::size_t done = 0;
#if defined(__x86_64__) && !defined(__SSE4_1__)
  constexpr std::size_t kLanes = 16;
  float most[kLanes] = {};
  std::int32_t unordered[kLanes] = {};
  for (const std::size_t whole = count - count % kLanes; done < whole; done += kLanes) {
#pragma omp simd
    for (std::size_t l = 0; l < kLanes; ++l) {
      const float v = float_of(bits_of(x[done + l].v) & kMagnitude);
      most[l] = v > most[l] ? v : most[l];
      unordered[l] |= v != v ? -1 : 0;
    }
  }
  std::int32_t found = 0;
  for (std::size_t l = 0; l < kLanes; ++l) {
    all = bits_of(most[l]) > all ? bits_of(most[l]) : all;
    found |= unordered[l];
  }
  if (found != 0) all = kMagnitude;
#endif
#pragma omp simd reduction(max : all)
  for (std::size_t i = done; i < count; ++i) {
    const std::int32_t magnitude = bits_of(x[i].v) & kMagnitude;
    all = magnitude > all ? magnitude : all;
  }
  return all;
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

// Pointers may be equal.
template <typename T>
void subtract(const void* a, const void* b, std::size_t count, void* out) {
  const auto* x = static_cast<const Loose<T>*>(a);
  const auto* y = static_cast<const Loose<T>*>(b);
  auto* z = static_cast<Loose<T>*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) z[i].v = x[i].v - y[i].v;
}

bool finite_16(const void* in, std::size_t count, std::uint16_t mask) {
  const auto* x = static_cast<const U16*>(in);
  std::uint16_t found = 0;
#pragma omp simd reduction(| : found)
  for (std::size_t i = 0; i < count; ++i) {
    found = static_cast<std::uint16_t>(found | ((x[i].v & mask) == mask ? 1 : 0));
  }
  return found == 0;
}

bool finite_32(const void* in, std::size_t count) {
  const auto* x = static_cast<const U32*>(in);
  std::int32_t magnitude_max = 0;
#pragma omp simd reduction(max : magnitude_max)
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int32_t>(x[i].v) & kMagnitude;
    magnitude_max = magnitude > magnitude_max ? magnitude : magnitude_max;
  }
  return magnitude_max < kInfinity;
}

bool finite_64(const void* in, std::size_t count) {
  const auto* x = static_cast<const U64*>(in);
  std::int64_t magnitude_max = 0;
#pragma omp simd reduction(max : magnitude_max)
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int64_t>(x[i].v) & INT64_MAX;
    magnitude_max = magnitude > magnitude_max ? magnitude : magnitude_max;
  }
  return magnitude_max < 0x7FF0000000000000;
}

}  // namespace
}  // namespace jccl::codec

#include "codec/kernels/body_16_bits.h"
#include "codec/kernels/body_scaled.h"
#include "codec/kernels/body_stat2.h"
#include "codec/kernels/body_top_k.h"

namespace jccl::codec {
namespace {

template <typename Format>
constexpr bool is_as(CodecId id) {
  const CodecSpec& spec = kCodecs[static_cast<std::size_t>(id)];
  return Format::kBlock == spec.block && Format::kScaleBytes == spec.scale_bytes &&
         Format::kPerByte * spec.code_bits == 8 && Format::kTop == spec.code_most;
}
static_assert(is_as<Int8>(CodecId::kInt8) && is_as<Fp8>(CodecId::kFp8) &&
              is_as<Int4>(CodecId::kInt4) && is_as<E3m0>(CodecId::kE3m0) &&
              is_as<Int2>(CodecId::kInt2));

}  // namespace

extern const Kernels JCCL_KERNELS;
constinit const Kernels JCCL_KERNELS = {
    bf16_to_f32,
    f16_to_f32,
    f64_to_f32,
    f32_to_f64,
    f32_to_bf16,
    f32_to_f16,
    subtract<float>,
    subtract<double>,
    scan_f32,
    scan_f64,
    finite_16,
    finite_32,
    finite_64,
    {{encode_16<Bf16>, encode_16_noisy<Bf16>, decode_16<bf16_to_f32>},
     {encode_16<Fp16>, encode_16_noisy<Fp16>, decode_16<f16_to_f32>},
     {encode_scaled<Int8>, encode_scaled_noisy<Int8>, decode_scaled<Int8>},
     {encode_scaled<Fp8>, encode_scaled_noisy<Fp8>, decode_scaled<Fp8>},
     {encode_scaled<Int4>, encode_scaled_noisy<Int4>, decode_scaled<Int4>},
     {encode_scaled<E3m0>, encode_scaled_noisy<E3m0>, decode_scaled<E3m0>},
     {encode_top_k, nullptr, decode_top_k},
     {encode_scaled<Int2>, encode_scaled_noisy<Int2>, decode_scaled<Int2>},
     {encode_stat2, nullptr, decode_stat2},
     {encode_top_k_2, nullptr, decode_top_k_2}}};

}  // namespace jccl::codec
