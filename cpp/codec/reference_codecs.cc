// The codecs of reference.h. A scaled format is a list of the magnitudes it has, in code order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "codec/reference.h"

namespace jccl::codec::reference {
namespace {

struct Format {
  std::size_t block;
  int scale_digits;                // significant bits
  std::uint32_t bits;              // of a code
  bool ties_up;                    // else to the even code
  std::uint32_t sign;              // added to the code of a negative value; 0: two's complement
  std::vector<double> magnitudes;  // by code
  double top() const { return magnitudes.back(); }
  std::size_t scale_bytes() const { return scale_digits > 8 ? 4 : 2; }
};

std::vector<double> integers(int top) {
  std::vector<double> values(static_cast<std::size_t>(top) + 1);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::vector<double> e4m3() {
  std::vector<double> values;
  for (int code = 0; code <= 0x7E; ++code) {
    const int exponent = code >> 3;
    const int fraction = code & 7;
    values.push_back(exponent == 0 ? std::ldexp(fraction, -9)
                                   : std::ldexp(8 + fraction, exponent - 10));
  }
  return values;
}

Format format_of(CodecId id) {
  if (id == CodecId::kInt8) return {256, 16, 8, false, 0, integers(127)};
  if (id == CodecId::kFp8) return {256, 8, 8, false, 0x80, e4m3()};
  if (id == CodecId::kInt4) return {64, 8, 4, false, 0, integers(7)};
  if (id == CodecId::kInt2) return {64, 8, 2, false, 0, integers(1)};
  return {64, 8, 4, true, 8, {0, 1, 2, 4, 8, 16, 32, 64}};
}

// Upward to the format's digits, within [2^-126, the largest whose top-fold is finite].
float scale_of(const Format& format, float magnitude_max) {
  const auto ideal = static_cast<double>(magnitude_max / static_cast<float>(format.top()));
  if (ideal < 0x1p-126) return 0x1p-126F;
  const int unit = std::ilogb(ideal) - format.scale_digits + 1;
  const double up = std::ldexp(std::ceil(std::ldexp(ideal, -unit)), unit);
  const bool finite = std::isfinite(static_cast<float>(up * format.top()));
  return static_cast<float>(finite ? up : up - std::ldexp(1.0, unit));
}

int code_near(const Format& format, double f) {
  const double magnitude = std::min(std::fabs(f), format.top());
  int best = 0;
  for (std::size_t c = 1; c < format.magnitudes.size(); ++c) {
    const double away = std::fabs(magnitude - format.magnitudes[c]);
    const double before = std::fabs(magnitude - format.magnitudes[static_cast<std::size_t>(best)]);
    if (away < before || (away == before && (format.ties_up || c % 2 == 0))) {
      best = static_cast<int>(c);
    }
  }
  return best;
}

// Between two magnitudes the position keeps 14 bits, and the chance decides.
int code_noisy(const Format& format, double f, std::uint32_t chance) {
  const double magnitude = std::fabs(f);
  if (magnitude >= format.top()) return static_cast<int>(format.magnitudes.size()) - 1;
  const auto above =
      std::upper_bound(format.magnitudes.begin(), format.magnitudes.end(), magnitude);
  const double step = *above - *(above - 1);
  const double position = std::nearbyint((magnitude - *(above - 1)) / step * 16384);
  const bool up = position + (chance >> 2) >= 16384;
  return static_cast<int>(above - format.magnitudes.begin()) - (up ? 0 : 1);
}

std::uint32_t coded(const Format& format, float f, bool noisy, std::uint32_t chance) {
  const int code = noisy ? code_noisy(format, f, chance) : code_near(format, f);
  if (!std::signbit(f)) return static_cast<std::uint32_t>(code);
  return format.sign == 0 ? static_cast<std::uint32_t>(-code)
                          : static_cast<std::uint32_t>(code) | format.sign;
}

void encode_block(const Codec& codec, const Format& format, const float* in, std::size_t count,
                  const Noise& noise, std::uint8_t* out) {
  float magnitude_max = 0;
  for (std::size_t i = 0; i < count; ++i) magnitude_max = std::max(magnitude_max, std::fabs(in[i]));
  const float scale = scale_of(format, magnitude_max);
  const float inverse = 1.0F / scale;
  const std::size_t scale_bytes = format.scale_bytes();
  std::uint8_t bytes[4];
  std::memcpy(bytes, &scale, 4);
  std::memcpy(out, bytes + 4 - scale_bytes, scale_bytes);  // bf16: the upper half
  out += scale_bytes;
  const std::size_t filled = (count * format.bits + 7) / 8;
  std::memset(out, 0, filled);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t chance = chance_of(noise.seed, noise.first_element + i);
    const std::uint32_t code = coded(format, in[i] * inverse, codec.stochastic, chance);
    std::uint8_t& byte = out[i % filled];
    const std::uint32_t shift = static_cast<std::uint32_t>(i / filled) * format.bits;
    byte = static_cast<std::uint8_t>(byte | (code % (1U << format.bits)) << shift);
  }
}

double value_of(const Format& format, std::uint32_t code) {
  const std::uint32_t codes = 1U << format.bits;
  code %= codes;
  if (format.sign != 0) {
    const std::size_t at = code & (format.sign - 1);
    // The one e4m3 pattern without a number is never written; it counts as the next one would.
    const double magnitude = at < format.magnitudes.size() ? format.magnitudes[at] : 480;
    return (code & format.sign) != 0 ? -magnitude : magnitude;
  }
  return code < codes / 2 ? code : static_cast<double>(code) - codes;
}

void decode_block(const Format& format, const std::uint8_t* in, std::size_t count, float* out) {
  std::uint8_t bytes[4] = {};
  const std::size_t scale_bytes = format.scale_bytes();
  std::memcpy(bytes + 4 - scale_bytes, in, scale_bytes);
  float scale = 0;
  std::memcpy(&scale, bytes, 4);
  in += scale_bytes;
  const std::size_t filled = (count * format.bits + 7) / 8;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t shift = static_cast<std::uint32_t>(i / filled) * format.bits;
    const std::uint32_t code = static_cast<std::uint32_t>(in[i % filled]) >> shift;
    out[i] = static_cast<float>(value_of(format, code)) * scale;
  }
}

bool is_scaled(CodecId id) { return spec_of(id).form == CodecForm::kScaled; }

// The sum in the lanes i mod 16, which are then added up in halves.
double lane_sum(const std::vector<double>& terms) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 16] += terms[i];
  for (std::size_t step = 8; step > 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

// The mean as bf16: finite, and above 0 if it is; 0 of nothing.
std::uint16_t mean_magnitude(const std::vector<double>& terms, std::size_t count) {
  if (count == 0) return 0;
  const double mean = lane_sum(terms) / static_cast<double>(count);
  const std::uint16_t value = finite_bf16(static_cast<float>(mean), false, 0);
  return value == 0 && mean > 0 ? std::uint16_t{1} : value;
}

void encode_stat_block(const float* in, std::size_t count, std::uint8_t* out) {
  std::vector<double> squares, above(count), below(count);
  for (std::size_t i = 0; i < count; ++i) squares.push_back(static_cast<double>(in[i]) * in[i]);
  const auto least = static_cast<float>(std::sqrt(lane_sum(squares) / static_cast<double>(count)));
  std::size_t reached = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(in[i]);
    (magnitude >= least ? above : below)[i] = static_cast<double>(magnitude);
    reached += magnitude >= least ? 1 : 0;
  }
  std::uint16_t pair[] = {mean_magnitude(below, count - reached), mean_magnitude(above, reached)};
  const bool alike = pair[0] == pair[1];
  if (alike) pair[0] = 0;
  std::memcpy(out, pair, 4);
  const std::size_t filled = (count + 3) / 4;
  std::memset(out + 4, 0, filled);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_large = alike || std::fabs(in[i]) >= least;
    const int code = (std::signbit(in[i]) ? 2 : 0) + (is_large ? 1 : 0);
    std::uint8_t& byte = out[4 + i % filled];
    byte = static_cast<std::uint8_t>(byte | code << (2 * (i / filled)));
  }
}

void decode_stat_block(const std::uint8_t* in, std::size_t count, float* out) {
  std::uint16_t pair[2];
  std::memcpy(pair, in, 4);
  const std::size_t filled = (count + 3) / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const int code = in[4 + i % filled] >> (2 * (i / filled));
    const auto sign = static_cast<std::uint16_t>((code & 2) << 14);
    out[i] = f32_of_bf16(static_cast<std::uint16_t>(pair[code & 1] ^ sign));
  }
}

std::size_t values_bytes(std::size_t count) {
  return encoded_bytes(CodecId::kStat2, Dtype::kF32, count);
}

void encode_values(const float* in, std::size_t count, std::uint8_t* out) {
  for (std::size_t at = 0; at < count; at += 64) {
    encode_stat_block(in + at, std::min<std::size_t>(64, count - at), out + values_bytes(at));
  }
}

void decode_values(const std::uint8_t* in, std::size_t count, float* out) {
  for (std::size_t at = 0; at < count; at += 64) {
    decode_stat_block(in + values_bytes(at), std::min<std::size_t>(64, count - at), out + at);
  }
}

bool is_dense(const Codec& codec, std::size_t count) {
  if (codec.id == CodecId::kTopK) return std::size_t{6} * codec.kept >= 4 * count;
  return count <= codec.kept;
}

// Indexes of 12 bits, one after another from the lowest bit on, and then two bits a value.
void put_packed(const std::vector<std::uint16_t>& order, std::size_t kept, const float* in,
                std::uint8_t* out) {
  const std::size_t packed = (3 * kept + 1) / 2;
  std::memset(out, 0, packed);
  std::vector<float> values;
  for (std::size_t e = 0; e < kept; ++e) {
    for (std::size_t bit = 0; bit < 12; ++bit) {
      const std::size_t at = 12 * e + bit;
      out[at / 8] = static_cast<std::uint8_t>(out[at / 8] | (order[e] >> bit & 1) << at % 8);
    }
    values.push_back(in[order[e]]);
  }
  encode_values(values.data(), kept, out + packed);
}

void get_packed(const std::uint8_t* in, std::size_t kept, std::size_t count, float* out) {
  std::vector<float> values(kept);
  decode_values(in + (3 * kept + 1) / 2, kept, values.data());
  for (std::size_t e = 0; e < kept; ++e) {
    std::size_t index = 0;
    for (std::size_t bit = 0; bit < 12; ++bit) {
      const std::size_t at = 12 * e + bit;
      index |= static_cast<std::size_t>(in[at / 8] >> at % 8 & 1) << bit;
    }
    if (index < count) out[index] = values[e];
  }
}

void encode_largest(const Codec& codec, const float* in, std::size_t count, std::uint8_t* out) {
  if (is_dense(codec, count)) {
    if (codec.id == CodecId::kTopK2) return encode_values(in, count, out);
    std::memcpy(out, in, 4 * count);
    return;
  }
  std::vector<std::uint16_t> order(count);
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return std::fabs(in[a]) > std::fabs(in[b]); });
  std::sort(order.begin(), order.begin() + codec.kept);
  if (codec.id == CodecId::kTopK2) return put_packed(order, codec.kept, in, out);
  for (std::size_t e = 0; e < codec.kept; ++e) {
    std::memcpy(out + 2 * e, &order[e], 2);
    std::memcpy(out + std::size_t{2} * codec.kept + 4 * e, &in[order[e]], 4);
  }
}

void decode_largest(const Codec& codec, const std::uint8_t* in, std::size_t count, float* out) {
  if (is_dense(codec, count)) {
    if (codec.id == CodecId::kTopK2) return decode_values(in, count, out);
    std::memcpy(out, in, 4 * count);
    return;
  }
  std::fill_n(out, count, 0.0F);
  if (codec.id == CodecId::kTopK2) return get_packed(in, codec.kept, count, out);
  for (std::size_t e = 0; e < codec.kept; ++e) {
    std::uint16_t index = 0;
    std::memcpy(&index, in + 2 * e, 2);
    if (index < count) std::memcpy(out + index, in + std::size_t{2} * codec.kept + 4 * e, 4);
  }
}

}  // namespace

std::uint32_t chance_of(std::uint64_t seed, std::uint64_t element) {
  std::uint64_t key = seed + element / 256 * 0x9E3779B97F4A7C15;
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EB;
  key ^= key >> 31;
  const auto within = static_cast<std::uint32_t>(element % 256);
  std::uint32_t hash = static_cast<std::uint32_t>(key) + within % 128 * 0x9E3779B9;
  hash = (hash ^ (hash >> 16)) * 0x7FEB352D;
  hash = ((hash ^ (hash >> 15)) + static_cast<std::uint32_t>(key >> 32)) * 0x846CA68B;
  hash ^= hash >> 16;
  return within < 128 ? hash & 0xFFFF : hash >> 16;
}

void encode(const Codec& codec, const float* in, std::size_t count, std::uint8_t* out,
            const Noise& noise) {
  if (codec.id == CodecId::kStat2) return encode_values(in, count, out);
  const bool scaled = is_scaled(codec.id);
  if (scaled || is_sparse(codec.id)) {
    const Format format = format_of(codec.id);
    const std::size_t block = block_elements(codec);
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t n = std::min(block, count - at);
      const Noise here{noise.seed, noise.first_element + at};
      std::uint8_t* to = out + encoded_bytes(codec, Dtype::kF32, at);
      if (scaled) encode_block(codec, format, in + at, n, here, to);
      if (!scaled) encode_largest(codec, in + at, n, to);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (codec.id == CodecId::kNone) {
      std::memcpy(out + 4 * i, &in[i], 4);
      continue;
    }
    const std::uint32_t chance = chance_of(noise.seed, noise.first_element + i);
    std::uint16_t half = 0;
    if (codec.id == CodecId::kBf16) half = finite_bf16(in[i], codec.stochastic, chance);
    if (codec.id == CodecId::kFp16) half = finite_f16(in[i], codec.stochastic, chance);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void decode(const Codec& codec, const std::uint8_t* in, std::size_t count, float* out) {
  if (codec.id == CodecId::kStat2) return decode_values(in, count, out);
  const bool scaled = is_scaled(codec.id);
  if (scaled || is_sparse(codec.id)) {
    const Format format = format_of(codec.id);
    const std::size_t block = block_elements(codec);
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t n = std::min(block, count - at);
      const std::uint8_t* from = in + encoded_bytes(codec, Dtype::kF32, at);
      if (scaled) decode_block(format, from, n, out + at);
      if (!scaled) decode_largest(codec, from, n, out + at);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t half = 0;
    if (codec.id == CodecId::kNone) std::memcpy(&out[i], in + 4 * i, 4);
    if (codec.id != CodecId::kNone) std::memcpy(&half, in + 2 * i, 2);
    if (codec.id == CodecId::kBf16) out[i] = f32_of_bf16(half);
    if (codec.id == CodecId::kFp16) out[i] = f32_of_f16(half);
  }
}

double error_bound(const Codec& codec, double x, double absmax) {
  const double v = std::fabs(x);
  const double steps = codec.stochastic ? 2 : 1;  // in halves
  switch (codec.id) {
    case CodecId::kNone:
      return 0;
    case CodecId::kBf16:
      return steps * (v * 0x1p-8 + 0x1p-134);
    case CodecId::kFp16:
      return v > 65504 ? v - 65504 : steps * (v * 0x1p-11 + 0x1p-25);
    case CodecId::kInt8:
      return steps * std::max(absmax / 254 * (1 + 0x1p-14), 0x1p-127);
    case CodecId::kFp8:
      return steps * std::max({v * 0x1.0004p-4, absmax / 448 * 0x1.04p-10, 0x1p-136});
    case CodecId::kInt4:
      return steps * std::max(absmax / 14 * 0x1.04p0, 0x1p-127);
    case CodecId::kInt2:
      return steps * std::max(absmax / 2 * 0x1.04p0, 0x1p-127);
    case CodecId::kE3m0:
      return std::max({v * (codec.stochastic ? 1.0 : 0x1.0004p0 / 3),
                       steps * absmax / 128 * 0x1.04p0, steps * 0x1p-127});
    case CodecId::kTopK:
      return v;
    case CodecId::kStat2:
    case CodecId::kTopK2:
      return std::max(absmax * 0x1.01p0, 0x1p-133);
  }
  return 0;
}

}  // namespace jccl::codec::reference
