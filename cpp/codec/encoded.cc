// One pass over the bytes: a table of what each scaled format allows, and a walk over its blocks.
#include "codec/encoded.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"

namespace jccl::codec {
namespace {

using base::cat;
using base::Code;
using base::Status;

constexpr float kScaleMin = 0x1p-126F;

struct Format {
  std::size_t scale_bytes;
  std::uint32_t scale_lost;  // bits of the scale, as f32, that must be 0
  std::size_t code_bits;
  float top;            // largest magnitude of a code
  std::uint8_t masked;  // a code whose bits under `mask` are these is never written; 0: all are
  std::uint8_t mask;
  std::size_t codes_each() const { return 8 / code_bits; }  // in a byte
  std::size_t code_bytes(std::size_t count) const {
    return (count + codes_each() - 1) / codes_each();
  }
};

std::optional<Format> scaled_format(CodecId id) {
  switch (id) {
    case CodecId::kInt8:
      return Format{4, 0xFF, 8, 127, 0x80, 0xFF};
    case CodecId::kFp8:
      return Format{2, 0xFFFF, 8, 448, 0x7F, 0x7F};
    case CodecId::kInt4:
      return Format{2, 0xFFFF, 4, 7, 0x8, 0xF};
    case CodecId::kE3m0:
      return Format{2, 0xFFFF, 4, 64, 0, 0};
    case CodecId::kInt2:
      return Format{2, 0xFFFF, 2, 1, 0x2, 0x3};
    default:
      return std::nullopt;
  }
}

std::uint32_t scale_bits(const Format& format, const std::uint8_t* in) {
  std::uint8_t bytes[4] = {};
  std::memcpy(bytes + 4 - format.scale_bytes, in, format.scale_bytes);  // bf16: the upper half
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes, 4);
  return bits;
}

bool is_finite(std::uint32_t bits) { return (bits & 0x7F800000) != 0x7F800000; }

bool good_scale(const Format& format, std::uint32_t bits) {
  if (!is_finite(bits)) return true;
  float scale = 0;
  std::memcpy(&scale, &bits, 4);
  return (bits & format.scale_lost) == 0 && scale >= kScaleMin && std::isfinite(scale * format.top);
}

// Element i is in byte i mod n of the n bytes of codes, above those before it in that byte.
bool good_codes(const Format& format, const std::uint8_t* codes, std::size_t count) {
  const std::size_t bytes = format.code_bytes(count);
  const auto code_mask = static_cast<std::uint8_t>((1U << format.code_bits) - 1);
  bool bad = false;
  for (std::size_t at = 0; at < format.codes_each(); ++at) {
    const std::size_t shift = at * format.code_bits;
    const std::size_t held = std::min(bytes, count - std::min(count, at * bytes));
    for (std::size_t i = 0; i < held && format.mask != 0; ++i) {
      bad |= (codes[i] >> shift & format.mask) == format.masked;
    }
    for (std::size_t i = held; i < bytes; ++i) bad |= (codes[i] >> shift & code_mask) != 0;
  }
  return !bad;
}

// visit(index, scale's bits, codes, their count) for every block; false ends the walk.
template <typename Visit>
void each_block(const Codec& codec, const Format& format, const std::uint8_t* in, std::size_t count,
                const Visit& visit) {
  const std::size_t block = block_elements(codec);
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t n = std::min(block, count - at);
    if (!visit(at / block, scale_bits(format, in), in + format.scale_bytes, n)) return;
    in += format.scale_bytes + format.code_bytes(n);
  }
}

}  // namespace

Status check_encoded_size(const Codec& codec, Dtype dtype, std::size_t bytes, std::size_t count) {
  if (!is_rounding(codec.id)) {
    return {Code::kInvalid,
            cat("codec ", name_of(codec.id), " takes no encoded values; pass the values")};
  }
  const std::size_t wanted = encoded_bytes(codec, dtype, count);
  if (bytes != wanted) {
    return {Code::kInvalid, cat(bytes, " encoded bytes; ", count, " elements of ",
                                name_of(codec.id), " have ", wanted)};
  }
  return {};
}

Status check_encoded(const Codec& codec, Dtype dtype, const std::uint8_t* in, std::size_t bytes,
                     std::size_t count) {
  if (Status size = check_encoded_size(codec, dtype, bytes, count); !size.ok()) return size;
  const auto format = scaled_format(codec.id);
  if (!format) return {};  // every pattern of 16 bits is a value
  Status status;
  each_block(codec, *format, in, count,
             [&](std::size_t index, std::uint32_t bits, const std::uint8_t* codes, std::size_t n) {
               const char* wrong = nullptr;
               if (!good_scale(*format, bits)) wrong = " has a scale";
               if (!wrong && !good_codes(*format, codes, n)) wrong = " has a code";
               if (!wrong) return true;
               status = {Code::kInvalid, cat("block ", index, wrong, " that no encoder of ",
                                             name_of(codec.id), " writes")};
               return false;
             });
  return status;
}

bool finite_encoded(const Codec& codec, const std::uint8_t* in, std::size_t count) {
  bool finite = true;
  if (const auto format = scaled_format(codec.id)) {
    each_block(codec, *format, in, count,
               [&](std::size_t, std::uint32_t bits, const std::uint8_t*, std::size_t) {
                 finite = is_finite(bits);
                 return finite;
               });
    return finite;
  }
  const std::uint16_t exponent = codec.id == CodecId::kBf16 ? 0x7F80 : 0x7C00;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in + 2 * i, 2);
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

}  // namespace jccl::codec
