// The codecs seen from f32 values, for code that accumulates in f32: a contribution is decoded
// without rounding to the leaf's type, and a result is encoded without rounding twice.
// Refuses (JCCL_CHECK) integer leaves, and f64 leaves that travel as f64. Pure; any thread.
#pragma once

#include "codec/codec.h"

namespace jccl::codec {

void encode_f32(CodecId codec, Dtype dtype, const float* in, std::size_t count, std::uint8_t* out);
void decode_f32(CodecId codec, Dtype dtype, const std::uint8_t* in, std::size_t count, float* out);

}  // namespace jccl::codec
