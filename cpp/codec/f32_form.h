// The codecs seen from f32 values, for code that accumulates in f32: a contribution is decoded
// without rounding to the leaf's type, and a result is encoded without rounding twice.
// Refuses (JCCL_CHECK) integer leaves, and f64 leaves that travel as f64. Pure; any thread.
#pragma once

#include "codec/codec.h"

namespace jccl::codec {

// Code that works by tiles takes this many elements at a time: whole blocks that fit the
// first-level cache.
inline constexpr std::size_t kTileMax = kTopKBlock;
constexpr std::size_t tile_elements(const Codec& codec) {
  return is_sparse(codec.id) ? kTopKBlock : 4 * kInt8Block;
}

void encode_f32(const Codec& codec, Dtype dtype, const float* in, std::size_t count,
                std::uint8_t* out, const Noise& noise = {});
void decode_f32(const Codec& codec, Dtype dtype, const std::uint8_t* in, std::size_t count,
                float* out);

}  // namespace jccl::codec
