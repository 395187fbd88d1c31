// The definition of each codec, one element at a time and as plainly as it can be said. The fast
// loops must give the same bytes; tests compare them. f32 values only, as codec/f32_form.h.
// Needs the default rounding mode. Pure; runs on any thread.
#pragma once

#include "codec/codec.h"

namespace jccl::codec::reference {

void encode(const Codec& codec, const float* in, std::size_t count, std::uint8_t* out,
            const Noise& noise = {});
void decode(const Codec& codec, const std::uint8_t* in, std::size_t count, float* out);

// The documented bound of |decode(encode(x)) − x|, x in a block whose largest magnitude is absmax.
double error_bound(const Codec& codec, double x, double absmax);

// The 16 bits of chance of one element, 0 to 65535.
std::uint32_t chance_of(std::uint64_t seed, std::uint64_t element);

float f32_of_bf16(std::uint16_t value);
float f32_of_f16(std::uint16_t value);
std::uint16_t bf16_of_f32(float value);
std::uint16_t f16_of_f32(float value);

// As codecs: finite stays finite; noisy: the magnitude goes up by chance.
std::uint16_t finite_bf16(float value, bool noisy, std::uint32_t chance);
std::uint16_t finite_f16(float value, bool noisy, std::uint32_t chance);

}  // namespace jccl::codec::reference
