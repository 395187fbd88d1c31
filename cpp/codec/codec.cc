// Chooses the loop for a (codec, dtype). Leaves that are not f32 pass through a tile of f32 that
// stays in the first-level cache.
#include "codec/codec.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "codec/f32_form.h"
#include "codec/isa.h"
#include "codec/kernels.h"

namespace jccl::codec {
namespace {

constexpr std::size_t kTile = 4 * kInt8Block;  // elements; a multiple of every block

constexpr std::string_view kNames[] = {"none", "bf16", "fp16", "int8"};

void encode_tile(const Kernels& k, CodecId codec, Dtype dtype, const float* in, std::size_t count,
                 std::uint8_t* out) {
  switch (codec) {
    case CodecId::kBf16:
      return k.f32_to_bf16_finite(in, count, out);
    case CodecId::kFp16:
      return k.f32_to_f16_finite(in, count, out);
    case CodecId::kInt8:
      return k.int8_encode(in, count, out);
    case CodecId::kNone:
      break;
  }
  JCCL_CHECK(dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16);
  if (dtype == Dtype::kBf16) return k.f32_to_bf16(in, count, out);
  if (dtype == Dtype::kF16) return k.f32_to_f16(in, count, out);
  std::memcpy(out, in, count * sizeof(float));
}

void decode_tile(const Kernels& k, CodecId codec, Dtype dtype, const std::uint8_t* in,
                 std::size_t count, float* out) {
  switch (codec) {
    case CodecId::kBf16:
      return k.bf16_to_f32(in, count, out);
    case CodecId::kFp16:
      return k.f16_to_f32(in, count, out);
    case CodecId::kInt8:
      return k.int8_decode(in, count, out);
    case CodecId::kNone:
      break;
  }
  JCCL_CHECK(dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16);
  if (dtype == Dtype::kBf16) return k.bf16_to_f32(in, count, out);
  if (dtype == Dtype::kF16) return k.f16_to_f32(in, count, out);
  std::memcpy(out, in, count * sizeof(float));
}

void widen(const Kernels& k, Dtype dtype, const void* in, std::size_t count, float* out) {
  if (dtype == Dtype::kBf16) return k.bf16_to_f32(in, count, out);
  if (dtype == Dtype::kF16) return k.f16_to_f32(in, count, out);
  JCCL_CHECK(dtype == Dtype::kF64);
  k.f64_to_f32(in, count, out);
}

void narrow(const Kernels& k, Dtype dtype, const float* in, std::size_t count, void* out) {
  if (dtype == Dtype::kBf16) return k.f32_to_bf16(in, count, out);
  if (dtype == Dtype::kF16) return k.f32_to_f16(in, count, out);
  JCCL_CHECK(dtype == Dtype::kF64);
  k.f32_to_f64(in, count, out);
}

}  // namespace

std::string_view name_of(CodecId codec) {
  const auto number = static_cast<std::size_t>(codec);
  return number < std::size(kNames) ? kNames[number] : "?";
}

std::optional<CodecId> codec_from_number(std::uint8_t number) {
  if (number >= std::size(kNames)) return std::nullopt;
  return static_cast<CodecId>(number);
}

std::optional<CodecId> codec_from_name(std::string_view name) {
  const auto* at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames)) return std::nullopt;
  return static_cast<CodecId>(at - std::begin(kNames));
}

std::size_t block_elements(CodecId codec) { return codec == CodecId::kInt8 ? kInt8Block : 1; }

std::size_t encoded_bytes(CodecId codec, Dtype dtype, std::size_t count) {
  switch (codec) {
    case CodecId::kNone:
      return count * size_of(dtype);
    case CodecId::kBf16:
    case CodecId::kFp16:
      return count * 2;
    case CodecId::kInt8:
      return count + 4 * ((count + kInt8Block - 1) / kInt8Block);
  }
  JCCL_CHECK(!"known codec");
  return 0;
}

void encode_f32(CodecId codec, Dtype dtype, const float* in, std::size_t count, std::uint8_t* out) {
  if (count == 0) return;
  const FloatMode mode;
  encode_tile(kernels(), codec, dtype, in, count, out);
}

void decode_f32(CodecId codec, Dtype dtype, const std::uint8_t* in, std::size_t count, float* out) {
  if (count == 0) return;
  const FloatMode mode;
  decode_tile(kernels(), codec, dtype, in, count, out);
}

void encode(CodecId codec, Dtype dtype, const void* in, std::size_t count, std::uint8_t* out) {
  if (count == 0) return;
  if (codec == CodecId::kNone) {
    std::memcpy(out, in, count * size_of(dtype));
    return;
  }
  JCCL_CHECK(is_float(dtype));
  const FloatMode mode;
  const Kernels& k = kernels();
  if (dtype == Dtype::kF32) {
    return encode_tile(k, codec, dtype, static_cast<const float*>(in), count, out);
  }
  float tile[kTile];
  const auto* bytes = static_cast<const std::uint8_t*>(in);
  for (std::size_t at = 0; at < count; at += kTile) {
    const std::size_t n = std::min(kTile, count - at);
    widen(k, dtype, bytes + at * size_of(dtype), n, tile);
    encode_tile(k, codec, dtype, tile, n, out + encoded_bytes(codec, dtype, at));
  }
}

void decode(CodecId codec, Dtype dtype, const std::uint8_t* in, std::size_t count, void* out) {
  if (count == 0) return;
  if (codec == CodecId::kNone) {
    std::memcpy(out, in, count * size_of(dtype));
    return;
  }
  JCCL_CHECK(is_float(dtype));
  const FloatMode mode;
  const Kernels& k = kernels();
  if (dtype == Dtype::kF32) {
    return decode_tile(k, codec, dtype, in, count, static_cast<float*>(out));
  }
  float tile[kTile];
  auto* bytes = static_cast<std::uint8_t*>(out);
  for (std::size_t at = 0; at < count; at += kTile) {
    const std::size_t n = std::min(kTile, count - at);
    decode_tile(k, codec, dtype, in + encoded_bytes(codec, dtype, at), n, tile);
    narrow(k, dtype, tile, n, bytes + at * size_of(dtype));
  }
}

const Kernels& kernels() {
#if defined(__x86_64__)
  switch (active_isa()) {
    case Isa::kV4:
      return kKernelsV4;
    case Isa::kV3:
      return kKernelsV3;
    case Isa::kBaseline:
      break;
  }
#endif
  return kKernelsBaseline;
}

}  // namespace jccl::codec
