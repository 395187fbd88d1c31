// Part of kernels_body.h: codecs that scale a block by its largest magnitude and keep few bits per
// element. A format says how many elements make a block, where its codes end, how many bits the
// scale keeps, and how f = x / scale becomes a code: to nearest, or up or down by chance.
namespace jccl::codec {
namespace {

constexpr std::int32_t kScaleMin = 0x00800000;  // 2^-126: its inverse is finite
constexpr float kRounds =
    0x1.8p23F;  // adding it rounds to nearest even, the integer in the low bits

// Of NaN, whose code nobody specifies, the sum may wrap.
inline std::int32_t plus(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

inline std::int32_t integer_near(float f) { return bits_of(f + kRounds); }

// The magnitude goes up by chance. It keeps 14 bits after the point: so few that a decoded value,
// times the rounded inverse of its scale, is its own code again and no chance moves it.
inline std::int32_t integer_noisy(float f, std::int32_t noise, std::int32_t top) {
  const std::int32_t bits = bits_of(f);
  const std::int32_t q =
      bits_of(float_of(bits & kMagnitude) * 0x1p14F + kRounds) - bits_of(kRounds);
  const std::int32_t end = top << 14;
  const std::int32_t magnitude = ((q > end ? end : q) + (noise >> 2)) >> 14;
  const std::int32_t sign = bits >> 31;
  return (magnitude ^ sign) - sign;
}

struct Int8 {
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kScaleBytes = 4;
  static constexpr std::size_t kPerByte = 1;
  static constexpr float kTop = 127;
  static constexpr std::int32_t kScaleLost = 0xFF;       // low bits of the scale that are 0
  static constexpr std::int32_t kScaleMax = 0x7C010200;  // largest whose kTop-fold is finite
  static std::int32_t near(float f) { return integer_near(f); }
  static std::int32_t noisy(float f, std::int32_t noise) { return integer_noisy(f, noise, 127); }
  static float value(std::int32_t code) {
    return static_cast<float>(static_cast<std::int8_t>(code));
  }
};

struct Fp8 {  // e4m3: bias 7, no infinity, 448 the largest
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::size_t kPerByte = 1;
  static constexpr float kTop = 448;
  static constexpr std::int32_t kScaleLost = 0xFFFF;
  static constexpr std::int32_t kScaleMax = 0x7B120000;
  static constexpr std::int32_t kNormalMin = 0x3C800000;  // 2^-6
  static std::int32_t limited_code(std::int32_t code, std::int32_t bits) {
    return (code > 0x7E ? 0x7E : code) | ((bits >> 24) & 0x80);
  }
  static std::int32_t near(float f) {
    const std::int32_t bits = bits_of(f);
    const std::int32_t magnitude = bits & kMagnitude;
    const std::int32_t normal =
        (plus(magnitude, 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3);
    const std::int32_t small = bits_of(float_of(magnitude) + 0x1p14F) - bits_of(0x1p14F);
    return limited_code(magnitude < kNormalMin ? small : normal, bits);
  }
  static std::int32_t noisy(float f, std::int32_t noise) {
    const std::int32_t bits = bits_of(f);
    const std::int32_t magnitude = bits & kMagnitude;
    const std::int32_t chance = noise >> 2;
    const std::int32_t kept = plus(magnitude, 0x1F + ((magnitude >> 6) & 1)) >> 6;
    const std::int32_t normal = ((kept + chance) >> 14) - (120 << 3);
    const std::int32_t fine = bits_of(float_of(magnitude) + 1.0F) - bits_of(1.0F);  // 2^-23
    return limited_code(magnitude < kNormalMin ? (fine + chance) >> 14 : normal, bits);
  }
  static float value(std::int32_t code) {
    const std::int32_t magnitude = code & 0x7F;
    const std::int32_t normal = (magnitude << 20) + (120 << 23);
    const std::int32_t small = bits_of(static_cast<float>(magnitude) * 0x1p-9F);
    return float_of((magnitude < 8 ? small : normal) | ((code & 0x80) << 24));
  }
};

// Integers in two's complement, kPer of them in a byte, from -kLargest to kLargest.
template <std::size_t kPer, std::int32_t kLargest, std::int32_t kFinite>
struct FewBits {
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::size_t kPerByte = kPer;
  static constexpr float kTop = kLargest;
  static constexpr std::int32_t kScaleLost = 0xFFFF;
  static constexpr std::int32_t kScaleMax = kFinite;
  static std::int32_t near(float f) { return integer_near(f); }
  static std::int32_t noisy(float f, std::int32_t noise) {
    return integer_noisy(f, noise, kLargest);
  }
  static float value(std::int32_t code) {
    constexpr int kAbove = 32 - 8 / static_cast<int>(kPer);
    return static_cast<float>(
        static_cast<std::int32_t>(static_cast<std::uint32_t>(code) << kAbove) >> kAbove);
  }
};
using Int4 = FewBits<2, 7, 0x7E120000>;
using Int2 = FewBits<4, 1, 0x7F7F0000>;

struct E3m0 {  // 0 and 1, 2, 4, ... 64, with sign; ties to the larger magnitude
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kScaleBytes = 2;
  static constexpr std::size_t kPerByte = 2;
  static constexpr float kTop = 64;
  static constexpr std::int32_t kScaleLost = 0xFFFF;
  static constexpr std::int32_t kScaleMax = 0x7C7F0000;
  static std::int32_t limited_code(std::int32_t code, std::int32_t bits) {
    return (code > 7 ? 7 : code) | ((bits >> 28) & 8);
  }
  static std::int32_t near(float f) {
    const std::int32_t bits = bits_of(f);
    const std::int32_t magnitude = bits & kMagnitude;
    const std::int32_t exponent = (plus(magnitude, 0x400000) >> 23) - 126;
    const std::int32_t small = magnitude < 0x3F000000 ? 0 : 1;
    return limited_code(exponent > small ? exponent : small, bits);
  }
  static std::int32_t noisy(float f, std::int32_t noise) {
    const std::int32_t bits = bits_of(f);
    const std::int32_t magnitude = bits & kMagnitude;
    const std::int32_t chance = noise >> 2;
    const std::int32_t kept = plus(magnitude, 0xFF + ((magnitude >> 9) & 1)) >> 9;
    const std::int32_t normal = ((kept + chance) >> 14) - 126;
    const std::int32_t fine = bits_of(float_of(magnitude) + 0x1p9F) - bits_of(0x1p9F);  // 2^-14
    return limited_code(magnitude < 0x3F800000 ? (fine + chance) >> 14 : normal, bits);
  }
  static float value(std::int32_t code) {
    const std::int32_t exponent = code & 7;
    const std::int32_t magnitude = exponent == 0 ? 0 : (exponent + 126) << 23;
    return float_of(magnitude | ((code & 8) << 28));
  }
};

// Upward to the bits that are kept: then code · scale is exact, decoding never rounds, and encoding
// decoded values gives the same bytes again.
template <typename Format>
inline float scale_of(std::int32_t magnitude_max) {
  const float ideal =
      float_of(magnitude_max > kFloatMax ? kFloatMax : magnitude_max) / Format::kTop;
  const std::int32_t up = (bits_of(ideal) + Format::kScaleLost) & ~Format::kScaleLost;
  const std::int32_t above = up < kScaleMin ? kScaleMin : up;
  return float_of(above > Format::kScaleMax ? Format::kScaleMax : above);
}

template <typename Format>
inline void put_scale(float scale, std::uint8_t* out) {
  if constexpr (Format::kScaleBytes == 4) {
    reinterpret_cast<F32*>(out)->v = scale;
  } else {
    reinterpret_cast<U16*>(out)->v = static_cast<std::uint16_t>(bits_of(scale) >> 16);
  }
}

template <typename Format>
inline float scale_at(const std::uint8_t* in) {
  if constexpr (Format::kScaleBytes == 4) return reinterpret_cast<const F32*>(in)->v;
  return float_of(static_cast<std::int32_t>(reinterpret_cast<const U16*>(in)->v) << 16);
}

template <typename Format, bool kNoisy>
inline std::int32_t code_of(float f, const std::uint16_t* noise, std::size_t i) {
  if constexpr (kNoisy) return Format::noisy(f, noise[i]);
  return Format::near(f);
}

// Element i, of b = ⌈count/4⌉ bytes, in the lowest bits of byte i, then b + i, 2b + i, 3b + i.
template <typename Format, bool kNoisy>
inline void encode_quarters(const F32* __restrict x, std::size_t count, float inverse,
                            const std::uint16_t* __restrict noise, std::uint8_t* __restrict codes) {
  const std::size_t bytes = (count + 3) / 4;
  for (std::size_t i = 0; i < bytes; ++i) codes[i] = 0;
  for (std::size_t part = 0; part * bytes < count; ++part) {
    const std::size_t at = part * bytes;
    const std::size_t n = count - at < bytes ? count - at : bytes;
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t code = code_of<Format, kNoisy>(x[at + i].v * inverse, noise, at + i);
      codes[i] = static_cast<std::uint8_t>(codes[i] | (code & 3) << (2 * part));
    }
  }
}

template <typename Format, bool kNoisy>
inline void encode_with(float scale, float inverse, const F32* __restrict x, std::size_t count,
                        const std::uint16_t* __restrict noise, std::uint8_t* __restrict out) {
  put_scale<Format>(scale, out);
  std::uint8_t* __restrict codes = out + Format::kScaleBytes;
  if constexpr (Format::kPerByte == 1) {
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) {
      codes[i] = static_cast<std::uint8_t>(code_of<Format, kNoisy>(x[i].v * inverse, noise, i));
    }
  } else if constexpr (Format::kPerByte == 4) {
    encode_quarters<Format, kNoisy>(x, count, inverse, noise, codes);
  } else {  // element i in the low half of byte i, element ⌈count/2⌉ + i in the high half
    const std::size_t half = count / 2;
    const std::size_t bytes = count - half;
#pragma omp simd
    for (std::size_t i = 0; i < half; ++i) {
      const std::int32_t low = code_of<Format, kNoisy>(x[i].v * inverse, noise, i);
      const std::int32_t high = code_of<Format, kNoisy>(x[bytes + i].v * inverse, noise, bytes + i);
      codes[i] = static_cast<std::uint8_t>((low & 15) | (high << 4));
    }
    if (bytes > half) {
      const std::int32_t low = code_of<Format, kNoisy>(x[half].v * inverse, noise, half);
      codes[half] = static_cast<std::uint8_t>(low & 15);
    }
  }
}

template <typename Format, bool kNoisy>
inline std::int32_t encode_block(const F32* __restrict x, std::size_t count,
                                 const std::uint16_t* __restrict noise,
                                 std::uint8_t* __restrict out) {
  const std::int32_t magnitude_max = largest_magnitude(x, count);
  const float scale = scale_of<Format>(magnitude_max);
  encode_with<Format, kNoisy>(scale, 1.0F / scale, x, count, noise, out);
  return magnitude_max;
}

template <typename Format>
constexpr std::size_t kBlockBytes = Format::kScaleBytes + Format::kBlock / Format::kPerByte;

template <typename Format>
std::uint32_t encode_scaled(const LoopSettings&, const void* in, std::size_t count,
                            std::uint8_t* out) {
  constexpr std::size_t kBlock = Format::kBlock;
  const auto* x = static_cast<const F32*>(in);
  std::int32_t all_max = 0;
  // A scale waits for all its block and for two divisions: of several short blocks they go on at
  // once. Of long ones that read memory in bursts, and were slower from there.
  constexpr std::size_t kTogether = 256 / kBlock;
  for (; count >= kTogether * kBlock; count -= kTogether * kBlock) {
    std::int32_t most[kTogether];
    for (std::size_t b = 0; b < kTogether; ++b) most[b] = largest_magnitude(x + b * kBlock, kBlock);
    float scale[kTogether], inverse[kTogether];
    for (std::size_t b = 0; b < kTogether; ++b) {
      all_max = most[b] > all_max ? most[b] : all_max;
      scale[b] = scale_of<Format>(most[b]);
      inverse[b] = 1.0F / scale[b];
    }
    for (std::size_t b = 0; b < kTogether; ++b, x += kBlock, out += kBlockBytes<Format>) {
      encode_with<Format, false>(scale[b], inverse[b], x, kBlock, nullptr, out);
    }
  }
  for (; count >= kBlock; count -= kBlock, x += kBlock, out += kBlockBytes<Format>) {
    const std::int32_t most = encode_block<Format, false>(x, kBlock, nullptr, out);
    all_max = most > all_max ? most : all_max;
  }
  if (count > 0) {
    const std::int32_t most = encode_block<Format, false>(x, count, nullptr, out);
    all_max = most > all_max ? most : all_max;
  }
  return static_cast<std::uint32_t>(all_max);
}

template <typename Format>
std::uint32_t encode_scaled_noisy(const LoopSettings& with, const void* in, std::size_t count,
                                  std::uint8_t* out) {
  constexpr std::size_t kBlock = Format::kBlock;
  const auto* x = static_cast<const F32*>(in);
  std::int32_t all_max = 0;
  std::uint16_t noise[kNoiseGroup];
  for (std::size_t at = 0; at < count; at += kBlock, out += kBlockBytes<Format>) {
    const std::size_t group_at = at % kNoiseGroup;
    if (group_at == 0) {
      fill_noise(with, at, count - at < kNoiseGroup ? count - at : kNoiseGroup, noise);
    }
    const std::size_t n = count - at < kBlock ? count - at : kBlock;
    const std::int32_t most = encode_block<Format, true>(x + at, n, noise + group_at, out);
    all_max = most > all_max ? most : all_max;
  }
  return static_cast<std::uint32_t>(all_max);
}

template <typename Format>
inline void decode_block(const std::uint8_t* __restrict in, std::size_t count, F32* __restrict y) {
  const float scale = scale_at<Format>(in);
  const std::uint8_t* __restrict codes = in + Format::kScaleBytes;
  if constexpr (Format::kPerByte == 1) {
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) y[i].v = Format::value(codes[i]) * scale;
  } else if constexpr (Format::kPerByte == 4) {
    const std::size_t bytes = (count + 3) / 4;
    for (std::size_t part = 0; part * bytes < count; ++part) {
      const std::size_t at = part * bytes;
      const std::size_t n = count - at < bytes ? count - at : bytes;
#pragma omp simd
      for (std::size_t i = 0; i < n; ++i) {
        y[at + i].v = Format::value(codes[i] >> (2 * part)) * scale;
      }
    }
  } else {
    const std::size_t half = count / 2;
    const std::size_t bytes = count - half;
#pragma omp simd
    for (std::size_t i = 0; i < bytes; ++i) y[i].v = Format::value(codes[i]) * scale;
#pragma omp simd
    for (std::size_t i = 0; i < half; ++i) y[bytes + i].v = Format::value(codes[i] >> 4) * scale;
  }
}

template <typename Format>
void decode_scaled(const LoopSettings&, const std::uint8_t* in, std::size_t count, void* out) {
  constexpr std::size_t kBlock = Format::kBlock;
  auto* y = static_cast<F32*>(out);
  for (; count >= kBlock; count -= kBlock, y += kBlock, in += kBlockBytes<Format>) {
    decode_block<Format>(in, kBlock, y);
  }
  if (count > 0) decode_block<Format>(in, count, y);
}

}  // namespace
}  // namespace jccl::codec
