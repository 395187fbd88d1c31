// How the elements of a leaf travel; the codecs are the rows of spec.h. The byte layouts and error
// bounds are in collective/ALGORITHMS.md; the same input gives the same bytes on every processor.
// Refuses (JCCL_CHECK) a lossy codec on an integer leaf: callers ask collective/op.h first.
// NaN and Inf should not reach a lossy codec (guard.h finds them); what they turn into is
// unspecified but harmless. Pure; runs on any thread; pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "codec/dtype.h"
#include "codec/spec.h"

namespace jccl::codec {

inline constexpr std::size_t kInt8Block = 256;
inline constexpr std::size_t kTopKBlock = 4096;
inline constexpr std::uint16_t kTopKKept = 64;  // unless said otherwise: 1.6 %

// Of an unknown one, which check() refuses, that of none.
constexpr const CodecSpec& spec_of(CodecId id) {
  const auto number = static_cast<std::size_t>(id);
  return kCodecs[number <= kCodecNumberMax ? number : 0];
}

constexpr bool is_sparse(CodecId id) { return spec_of(id).form == CodecForm::kSparse; }

// Whether each element is rounded by itself, to 16 bits or within its block's scale.
constexpr bool is_rounding(CodecId id) {
  return spec_of(id).form == CodecForm::kHalf || spec_of(id).form == CodecForm::kScaled;
}

// A codec with its parameters. All peers of a round must agree on all of them.
struct Codec {
  CodecId id = CodecId::kNone;
  bool stochastic = false;  // round up or down by chance, so that the mean of many is exact
  std::uint16_t kept = 0;   // sparse only: entries per block
  std::uint64_t seed = 0;   // stochastic only

  constexpr Codec() = default;
  constexpr Codec(CodecId codec)  // NOLINT(google-explicit-constructor): a codec is one by its id
      : id(codec), kept(is_sparse(codec) ? kTopKKept : std::uint16_t{0}) {}
  bool operator==(const Codec&) const = default;
};

constexpr Codec top_k(std::uint32_t kept, CodecId id = CodecId::kTopK) {
  Codec codec = id;
  codec.kept = static_cast<std::uint16_t>(kept < kTopKBlock ? kept : kTopKBlock);
  return codec;
}

constexpr Codec stochastic(CodecId id, std::uint64_t seed) {
  Codec codec = id;
  codec.stochastic = true;
  codec.seed = seed;
  return codec;
}

// kInvalid: a parameter that this codec does not have, or out of its range.
base::Status check(const Codec& codec);

constexpr bool is_lossy(const Codec& codec) { return codec.id != CodecId::kNone; }
std::string_view name_of(CodecId codec);  // "none", "bf16", "fp16", "int8", "fp8", ...
std::optional<CodecId> codec_from_number(std::uint8_t number);

// With its parameters: "int8", "int8:stochastic:seed=7", "topk:kept=64". codec_from_name() reads
// what name_of() writes; parameters may be left out.
std::string name_of(const Codec& codec);
std::optional<Codec> codec_from_name(std::string_view name);

// A leaf may be cut only at multiples of this many elements.
std::size_t block_elements(const Codec& codec);

// Bytes of `count` elements that start on a block boundary; the last block may be short.
std::size_t encoded_bytes(const Codec& codec, Dtype dtype, std::size_t count);

// The chance of stochastic rounding: a function of a seed (noise.h makes one from the names of
// round, peer and leaf) and of the element's index in its leaf, so that cuts change nothing.
struct Noise {
  std::uint64_t seed = 0;
  std::uint64_t first_element = 0;  // index of the first element of the call
};

// `in` starts on a block boundary of its leaf. The encoding of a whole is the concatenation of the
// encodings of its parts, wherever it was cut. `in` and `out` must not overlap. `noise` is only
// looked at if the codec is stochastic.
void encode(const Codec& codec, Dtype dtype, const void* in, std::size_t count, std::uint8_t* out,
            const Noise& noise = {});
void decode(const Codec& codec, Dtype dtype, const std::uint8_t* in, std::size_t count, void* out);

// Likewise, and says whether every element was finite: encoding looks at each anyway.
[[nodiscard]] bool encode_checked(const Codec& codec, Dtype dtype, const void* in,
                                  std::size_t count, std::uint8_t* out, const Noise& noise = {});

}  // namespace jccl::codec
