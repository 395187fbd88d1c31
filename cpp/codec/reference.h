// The definition of each codec, one element at a time and as plainly as it can be said. The fast
// loops must give the same bytes; tests compare them. f32 values only, as codec/f32_form.h.
// Needs the default rounding mode. Pure; runs on any thread.
#pragma once

#include "codec/codec.h"

namespace jccl::codec::reference {

void encode(CodecId codec, const float* in, std::size_t count, std::uint8_t* out);
void decode(CodecId codec, const std::uint8_t* in, std::size_t count, float* out);

float f32_of_bf16(std::uint16_t value);
float f32_of_f16(std::uint16_t value);
std::uint16_t bf16_of_f32(float value);
std::uint16_t f16_of_f32(float value);

}  // namespace jccl::codec::reference
