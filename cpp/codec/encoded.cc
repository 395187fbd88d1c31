// One pass over the bytes: what each scaled format allows, and a walk over its blocks.
#include "codec/encoded.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/planted.h"
#include "base/text.h"
#include "codec/guard.h"
#include "codec/kernels/kernels.h"

namespace jccl::codec {
namespace {

using base::cat;
using base::Code;
using base::Status;

constexpr float kScaleMin = 0x1p-126F;

struct Format {
  explicit Format(const CodecSpec& spec)
      : scale_bytes(spec.scale_bytes),
        scale_lost(spec.scale_bytes == 2 ? 0xFFFF : 0xFF),
        code_bits(spec.code_bits),
        top(spec.code_most),
        masked(spec.never),
        mask(spec.masked) {}
  std::size_t scale_bytes;
  std::uint32_t scale_lost;  // bits of the scale, as f32, that must be 0
  std::size_t code_bits;
  float top;
  std::uint8_t masked, mask;
  std::size_t codes_each() const { return 8 / code_bits; }  // in a byte
  std::size_t code_bytes(std::size_t count) const {
    return (count + codes_each() - 1) / codes_each();
  }
};

std::optional<Format> scaled_format(CodecId id) {
  if (spec_of(id).form != CodecForm::kScaled) return std::nullopt;
  return Format(spec_of(id));
}

std::uint32_t scale_bits(const Format& format, const std::uint8_t* in) {
  if (format.scale_bytes == 2) {  // bf16: the upper half
    std::uint16_t half = 0;
    std::memcpy(&half, in, 2);
    return std::uint32_t{half} << 16;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, in, 4);
  return bits;
}

bool is_finite(std::uint32_t bits) { return (bits & 0x7F800000) != 0x7F800000; }

bool good_scale(const Format& format, std::uint32_t bits) {
  if (!is_finite(bits)) return true;
  float scale = 0;
  std::memcpy(&scale, &bits, 4);
  return ((bits & format.scale_lost) == 0 || JCCL_PLANTED("scale-bits-not-compared")) &&
         scale >= kScaleMin &&
         (JCCL_PLANTED("scale-overflow-passes") || std::isfinite(scale * format.top));
}

// What is looked for in eight bytes of codes at once: a field that is 0 after the masked code was
// taken out is found by the borrow that it takes.
struct CodeMasks {
  explicit CodeMasks(const Format& format) : any(format.mask != 0) {
    for (std::size_t bit = 0; bit < 64; bit += format.code_bits) low |= std::uint64_t{1} << bit;
    high = low << (format.code_bits - 1);
    mask = low * format.mask;
    masked = low * format.masked;
  }
  std::uint64_t found_in(std::uint64_t word) const {
    const std::uint64_t other = (word & mask) ^ masked;
    return (other - low) & ~other & high;
  }
  bool any;
  std::uint64_t low = 0, high = 0, mask = 0, masked = 0;  // low, high: bits of each field
};

template <std::size_t kWords>
bool has_masked_in(const CodeMasks& masks, const std::uint8_t* codes) {
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, codes + 8 * i, 8);
    found |= masks.found_in(word);
  }
  return found != 0;
}

bool has_masked(const CodeMasks& masks, const std::uint8_t* codes, std::size_t bytes) {
  if (!masks.any) return false;
  if (bytes == 256) return has_masked_in<32>(masks, codes);  // whole blocks
  if (bytes == 32) return has_masked_in<4>(masks, codes);
  if (bytes == 16) return has_masked_in<2>(masks, codes);
  std::uint64_t found = 0;
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;  // a field of 0 is allowed
    std::memcpy(&word, codes + at, std::min<std::size_t>(8, bytes - at));
    found |= masks.found_in(word);
  }
  return found != 0;
}

// Element i is in byte i mod n of the n bytes of codes, above those before it in that byte; fields
// of no element are 0.
bool good_codes(const Format& format, const CodeMasks& masks, const std::uint8_t* codes,
                std::size_t bytes, std::size_t count) {
  if (has_masked(masks, codes, bytes)) return false;
  if (bytes * 8 == count * format.code_bits) return true;
  const auto code_mask = static_cast<std::uint8_t>((1U << format.code_bits) - 1);
  for (std::size_t at = 0; at < format.codes_each(); ++at) {
    const std::size_t held = std::min(bytes, count - std::min(count, at * bytes));
    for (std::size_t i = held; i < bytes; ++i) {
      if ((codes[i] >> (at * format.code_bits) & code_mask) != 0) return false;
    }
  }
  return true;
}

// visit(index, scale's bits, codes, their bytes and count) for every block; false ends the walk.
template <typename Visit>
void each_block(const Codec& codec, const Format& format, const std::uint8_t* in, std::size_t count,
                const Visit& visit) {
  const std::size_t block = block_elements(codec), whole = format.code_bytes(block);
  for (std::size_t index = 0; count > 0; ++index) {
    const std::size_t n = std::min(block, count);
    const std::size_t bytes = n == block ? whole : format.code_bytes(n);
    if (JCCL_PLANTED("last-scaled-block-unchecked") && index > 0 && n < block) return;
    if (!visit(index, scale_bits(format, in), in + format.scale_bytes, bytes, n)) return;
    in += format.scale_bytes + bytes;
    count -= n;
  }
}

// ---- what other peers sent -------------------------------------------------------------

const char* wrong_scaled(const Codec& codec, const std::uint8_t* in, std::size_t count, bool finite,
                         std::size_t* block) {
  const Format format = *scaled_format(codec.id);
  const CodeMasks masks(format);
  const char* wrong = nullptr;
  each_block(codec, format, in, count,
             [&](std::size_t index, std::uint32_t bits, const std::uint8_t* codes,
                 std::size_t bytes, std::size_t n) {
               *block = index;
               if (!is_finite(bits)) {
                 wrong = finite ? "is not finite" : nullptr;
               } else if (!good_scale(format, bits)) {
                 wrong = "has a scale that no encoder writes";
               } else if (!good_codes(format, masks, codes, bytes, n)) {
                 wrong = "has a code that no encoder writes";
               }
               return wrong == nullptr;
             });
  return wrong;
}

// Two magnitudes, bf16, at the head of each block of stat2.
const char* wrong_stats(const std::uint8_t* in, std::size_t count, bool finite) {
  for (std::size_t at = 0; at < count; at += kStatBlock) {
    std::uint16_t heads[2];
    std::memcpy(heads, in, sizeof(heads));
    for (const std::uint16_t head : heads) {
      if (JCCL_PLANTED("second-magnitude-unseen") && &head != heads) break;
      const bool infinite = (head & 0x7F80) == 0x7F80;
      if (infinite && finite) return "is not finite";
      if (!infinite && !JCCL_PLANTED("negative-magnitude-passes") && (head & 0x8000) != 0)
        return "has a magnitude below 0";
    }
    in += stat_bytes(std::min(kStatBlock, count - at));
  }
  return nullptr;
}

std::size_t index_of(const std::uint8_t* packed, std::size_t entry, bool packs) {
  if (!packs) return packed[2 * entry] | static_cast<std::size_t>(packed[2 * entry + 1]) << 8;
  const std::uint8_t* at = packed + entry / 2 * 3;
  if (entry % 2 == 0) return at[0] | static_cast<std::size_t>(at[1] & 15) << 8;
  return at[1] >> 4 | static_cast<std::size_t>(at[2]) << 4;
}

// Entries of a sparse block: ascending, and within it.
const char* wrong_indexes(const std::uint8_t* in, std::size_t kept, std::size_t count, bool packs) {
  std::size_t next = 0;
  for (std::size_t entry = 0; entry < kept; ++entry) {
    const std::size_t index = index_of(in, entry, packs);
    if (index < next || (index >= count && !JCCL_PLANTED("index-beyond-block")))
      return "has indexes that no encoder writes";
    next = index + (JCCL_PLANTED("equal-indexes-pass") ? 0 : 1);
  }
  return nullptr;
}

const char* wrong_sparse(const Codec& codec, const std::uint8_t* in, std::size_t count,
                         bool finite) {
  const std::size_t kept = codec.kept;
  const std::size_t bytes = encoded_bytes(codec, Dtype::kF32, count);
  if (codec.id == CodecId::kTopK2) {
    if (count <= kept) return wrong_stats(in, count, finite);
    const char* wrong = wrong_indexes(in, kept, count, true);
    return wrong != nullptr ? wrong : wrong_stats(in + (3 * kept + 1) / 2, kept, finite);
  }
  const bool dense = bytes == 4 * count;
  const std::uint8_t* values = dense ? in : in + 2 * kept;
  if (const char* wrong = dense ? nullptr : wrong_indexes(in, kept, count, false)) return wrong;
  const bool good = !finite || all_finite(Dtype::kF32, values, dense ? count : kept);
  return good ? nullptr : "is not finite";
}

}  // namespace

Status check_encoded_size(const Codec& codec, Dtype dtype, std::size_t bytes, std::size_t count) {
  if (!is_rounding(codec.id)) {
    return {Code::kInvalid,
            cat("codec ", name_of(codec.id), " takes no encoded values; pass the values")};
  }
  const std::size_t wanted = encoded_bytes(codec, dtype, count);
  if (bytes < wanted || (bytes != wanted && !JCCL_PLANTED("encoded-size-not-compared"))) {
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
  const CodeMasks masks(*format);
  Status status;
  each_block(codec, *format, in, count,
             [&](std::size_t index, std::uint32_t bits, const std::uint8_t* codes,
                 std::size_t code_bytes, std::size_t n) {
               const char* wrong = nullptr;
               if (!good_scale(*format, bits)) wrong = " has a scale";
               if (!wrong && !good_codes(*format, masks, codes, code_bytes, n))
                 wrong = " has a code";
               if (!wrong) return true;
               status = {Code::kInvalid, cat("block ", index, wrong, " that no encoder of ",
                                             name_of(codec.id), " writes")};
               return false;
             });
  return status;
}

Status check_received(const Codec& codec, const std::uint8_t* in, std::size_t count, bool finite) {
  const char* wrong = nullptr;
  std::size_t block = 0;
  if (codec.id == CodecId::kBf16 || codec.id == CodecId::kFp16) {
    const Dtype half = codec.id == CodecId::kBf16 ? Dtype::kBf16 : Dtype::kF16;
    if (finite && !all_finite(half, in, count)) wrong = "is not finite";
  } else if (codec.id == CodecId::kStat2) {
    wrong = wrong_stats(in, count, finite);
  } else if (is_sparse(codec.id)) {
    for (; block * kTopKBlock < count; ++block) {
      const std::size_t n = std::min(kTopKBlock, count - block * kTopKBlock);
      wrong = wrong_sparse(codec, in, n, finite);
      if (wrong != nullptr || JCCL_PLANTED("only-first-block-checked")) break;
      in += encoded_bytes(codec, Dtype::kF32, n);
    }
  } else {
    wrong = wrong_scaled(codec, in, count, finite, &block);
  }
  if (wrong == nullptr) return {};
  return {Code::kCorrupt, cat("block ", block, " of ", name_of(codec.id), " ", wrong)};
}

bool finite_encoded(const Codec& codec, const std::uint8_t* in, std::size_t count) {
  bool finite = true;
  if (const auto format = scaled_format(codec.id)) {
    each_block(codec, *format, in, count,
               [&](std::size_t, std::uint32_t bits, const std::uint8_t*, std::size_t, std::size_t) {
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
