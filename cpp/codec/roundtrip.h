// What a codec makes of values, without bytes in between: for error feedback. Encodes and decodes
// tile by tile in the first-level cache. f32, f64, bf16 and f16 leaves; refuses (JCCL_CHECK)
// integers, and for the residual stochastic codecs, whose error belongs to one encoding only.
// `out` may be `in`. Pure; any thread.
#pragma once

#include "codec/codec.h"

namespace jccl::codec {

// out = decode(encode(in)), rounded to the leaf's type.
void roundtrip(const Codec& codec, Dtype dtype, const void* in, std::size_t count, void* out,
               const Noise& noise = {});

// out = in − decode(encode(in)): what a contribution of `in` leaves out. The difference is formed
// in f32 (f64 for f64) from the value that owners add, then rounded to the leaf's type.
void residual(const Codec& codec, Dtype dtype, const void* in, std::size_t count, void* out);

}  // namespace jccl::codec
