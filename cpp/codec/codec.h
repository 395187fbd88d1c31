// How the elements of a leaf travel. The byte layouts and error bounds are in
// collective/ALGORITHMS.md; the same input gives the same bytes on every processor.
// Refuses (JCCL_CHECK) a lossy codec on an integer leaf: callers ask collective/op.h first.
// NaN and Inf should not reach a lossy codec (guard.h finds them); what they turn into is
// unspecified but harmless. Pure; runs on any thread; pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "codec/dtype.h"

namespace jccl::codec {

// The numbers travel in descriptors and plans and are never reused.
enum class CodecId : std::uint8_t {
  kNone = 0,  // travels as the dtype it is
  kBf16 = 1,  // 16 bits, round to nearest even, finite values stay finite
  kFp16 = 2,  // likewise; magnitudes above 65504 become 65504
  kInt8 = 3,  // blocks of 256 elements: f32 scale, then one byte each
};

inline constexpr std::size_t kInt8Block = 256;

constexpr bool is_lossy(CodecId codec) { return codec != CodecId::kNone; }
std::string_view name_of(CodecId codec);  // "none", "bf16", "fp16", "int8"
std::optional<CodecId> codec_from_number(std::uint8_t number);
std::optional<CodecId> codec_from_name(std::string_view name);

// A leaf may be cut only at multiples of this many elements.
std::size_t block_elements(CodecId codec);

// Bytes of `count` elements that start on a block boundary; the last block may be short.
std::size_t encoded_bytes(CodecId codec, Dtype dtype, std::size_t count);

// `in` starts on a block boundary of its leaf. The encoding of a whole is the concatenation of the
// encodings of its parts, wherever it was cut. `in` and `out` must not overlap.
void encode(CodecId codec, Dtype dtype, const void* in, std::size_t count, std::uint8_t* out);
void decode(CodecId codec, Dtype dtype, const std::uint8_t* in, std::size_t count, void* out);

}  // namespace jccl::codec
