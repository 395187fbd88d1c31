// Part of kernels_body.h: bf16 and fp16 as codecs. Finite stays finite.
namespace jccl::codec {
namespace {

inline std::int32_t limited(std::int32_t bits, std::int32_t magnitude_max) {
  const std::int32_t magnitude = bits & kMagnitude;
  const std::int32_t kept = magnitude > magnitude_max ? magnitude_max : magnitude;
  return magnitude >= kInfinity ? bits : (kept | (bits & ~kMagnitude));
}

inline std::uint16_t f16_noisy(std::int32_t bits, std::int32_t noise) {
  const std::int32_t magnitude = bits & kMagnitude;
  const std::int32_t chance = noise >> 3;  // 13 bits fall off
  const std::int32_t normal = (magnitude - 0x38000000 + chance) >> 13;
  // The last bit of 2^-14f is 2^-37, 13 bits below the last of an f16.
  const std::int32_t small =
      (bits_of(float_of(magnitude) + 0x1p-14F) - bits_of(0x1p-14F) + chance) >> 13;
  const std::int32_t value = magnitude < 0x38800000 ? small : normal;
  return static_cast<std::uint16_t>(value | ((bits >> 16) & 0x8000));
}

// `plain` is for magnitudes up to kMax.
struct Bf16 {
  static constexpr std::int32_t kMax = 0x7F7F0000;  // as f32 bits
  static std::uint16_t plain(std::int32_t bits) {
    return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
  static std::uint16_t near(std::int32_t bits) { return bf16_of(bits); }
  static std::uint16_t noisy(std::int32_t bits, std::int32_t noise) {
    return static_cast<std::uint16_t>((bits + noise) >> 16);
  }
};

struct Fp16 {
  static constexpr std::int32_t kMax = 0x477FE000;  // 65504
  static std::uint16_t plain(std::int32_t bits) {
    const std::int32_t magnitude = bits & kMagnitude;
    const std::int32_t normal = (magnitude - 0x38000000 + 0xFFF + ((bits >> 13) & 1)) >> 13;
    const std::int32_t small = bits_of(float_of(magnitude) + 0.5F) - 0x3F000000;
    const std::int32_t value = magnitude < 0x38800000 ? small : normal;
    return static_cast<std::uint16_t>(value | ((bits >> 16) & 0x8000));
  }
  static std::uint16_t near(std::int32_t bits) { return f16_of(bits); }
  static std::uint16_t noisy(std::int32_t bits, std::int32_t noise) {
    return f16_noisy(bits, noise);
  }
};

// In parts that stay in the first-level cache: most need no look at what is too large.
template <typename Format>
std::uint32_t encode_16(const LoopSettings&, const void* in, std::size_t count, std::uint8_t* out) {
  constexpr std::size_t kPart = 512;
  std::int32_t all = 0;
  for (std::size_t at = 0; at < count; at += kPart) {
    const std::size_t n = count - at < kPart ? count - at : kPart;
    const auto* __restrict x = static_cast<const F32*>(in) + at;
    auto* __restrict y = reinterpret_cast<U16*>(out) + at;
    const std::int32_t most = largest_magnitude(x, n);
    all = most > all ? most : all;
    if (most <= Format::kMax) {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) y[i].v = Format::plain(bits_of(x[i].v));
    } else {
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) {
        y[i].v = Format::near(limited(bits_of(x[i].v), Format::kMax));
      }
    }
  }
  return static_cast<std::uint32_t>(all);
}

template <typename Format>
std::uint32_t encode_16_noisy(const LoopSettings& with, const void* in, std::size_t count,
                              std::uint8_t* out) {
  const auto* x = static_cast<const F32*>(in);
  auto* y = reinterpret_cast<U16*>(out);
  std::int32_t magnitude_max = 0;
  std::uint16_t noise[kNoiseGroup];
  for (std::size_t at = 0; at < count; at += kNoiseGroup) {
    const std::size_t n = count - at < kNoiseGroup ? count - at : kNoiseGroup;
    fill_noise(with, at, n, noise);
#pragma omp simd reduction(max : magnitude_max)
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t bits = bits_of(x[at + i].v);
      const std::int32_t magnitude = bits & kMagnitude;
      magnitude_max = magnitude > magnitude_max ? magnitude : magnitude_max;
      const std::uint16_t value = Format::noisy(limited(bits, Format::kMax), noise[i]);
      y[at + i].v = magnitude < kInfinity ? value : Format::near(bits);
    }
  }
  return static_cast<std::uint32_t>(magnitude_max);
}

template <void (*kWiden)(const void*, std::size_t, void*)>
void decode_16(const LoopSettings&, const std::uint8_t* in, std::size_t count, void* out) {
  kWiden(in, count, out);
}

}  // namespace
}  // namespace jccl::codec
