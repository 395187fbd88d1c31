// Chooses the loop for a (codec, dtype). Leaves that are not f32 pass through a tile of f32 that
// stays in the first-level cache.
#include "codec/codec.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/planted.h"
#include "codec/f32_form.h"
#include "codec/guard.h"
#include "codec/kernels/isa.h"
#include "codec/kernels/kernels.h"

namespace jccl::codec {
namespace {

constexpr bool numbered() {
  for (std::size_t n = 0; n <= kCodecNumberMax; ++n) {
    if (static_cast<std::size_t>(kCodecs[n].id) != n) return false;
  }
  return true;
}
static_assert(numbered() && kLossyCodecs == kCodecNumberMax);
static_assert(spec_of(CodecId::kStat2).block == kStatBlock);
static_assert(spec_of(CodecId::kInt8).block == kInt8Block);
static_assert(spec_of(CodecId::kTopK).block == kTopKBlock);

constexpr std::uint32_t kInfinity = 0x7F800000;

const CodecLoops& loops_of(const Kernels& k, CodecId id) {
  return k.codecs[static_cast<std::size_t>(id) - 1];
}

// The largest magnitude, as bits.
std::uint32_t encode_lossy(const Kernels& k, const Codec& codec, const float* in, std::size_t count,
                           const Noise& noise, std::uint8_t* out) {
  const LoopSettings with{codec.kept, noise.seed, noise.first_element};
  const CodecLoops& loops = loops_of(k, codec.id);
  return codec.stochastic ? loops.encode_noisy(with, in, count, out)
                          : loops.encode(with, in, count, out);
}

void decode_lossy(const Kernels& k, const Codec& codec, const std::uint8_t* in, std::size_t count,
                  float* out) {
  loops_of(k, codec.id).decode({codec.kept, 0, 0}, in, count, out);
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

// The largest magnitude seen as f32, as bits.
std::uint32_t encode_any(const Codec& codec, Dtype dtype, const void* in, std::size_t count,
                         const Noise& noise, std::uint8_t* out) {
  JCCL_CHECK(is_float(dtype));
  const FloatMode mode;
  const Kernels& k = kernels();
  if (dtype == Dtype::kF32) {
    return encode_lossy(k, codec, static_cast<const float*>(in), count, noise, out);
  }
  float tile[kTileMax];
  const std::size_t step = tile_elements(codec);
  const auto* bytes = static_cast<const std::uint8_t*>(in);
  std::uint32_t most = 0;
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    widen(k, dtype, bytes + at * size_of(dtype), n, tile);
    most = std::max(
        JCCL_PLANTED("largest-magnitude-forgotten") ? 0U : most,
        encode_lossy(k, codec, tile, n,
                     {noise.seed,
                      noise.first_element + (JCCL_PLANTED("noise-of-every-tile-alike") ? 0 : at)},
                     out + encoded_bytes(codec, dtype, at)));
  }
  return most;
}

}  // namespace

std::size_t block_elements(const Codec& codec) { return spec_of(codec.id).block; }

std::size_t encoded_bytes(const Codec& codec, Dtype dtype, std::size_t count) {
  const CodecSpec& spec = spec_of(codec.id);
  switch (spec.form) {
    case CodecForm::kWhole:
      return count * size_of(dtype);
    case CodecForm::kHalf:
      return count * 2;
    case CodecForm::kScaled:  // only the last block can end in a part of a byte
      return (count * spec.code_bits + 7) / 8 +
             spec.scale_bytes * ((count + spec.block - 1) / spec.block);
    case CodecForm::kStat:
      return stat_bytes(count);
    case CodecForm::kSparse: {
      const std::size_t kept = codec.kept, block = spec.block;
      const auto bytes_of = [&](std::size_t elements) {
        if (codec.id == CodecId::kTopK) return std::min(6 * kept, 4 * elements);
        return elements <= kept ? stat_bytes(elements) : (3 * kept + 1) / 2 + stat_bytes(kept);
      };
      return count / block * bytes_of(block) +
             bytes_of(JCCL_PLANTED("short-top-k-block") && count > block ? block : count % block);
    }
  }
  JCCL_CHECK(!"known codec");
  return 0;
}

void encode_f32(const Codec& codec, Dtype dtype, const float* in, std::size_t count,
                std::uint8_t* out, const Noise& noise) {
  if (count == 0) return;
  const FloatMode mode;
  const Kernels& k = kernels();
  if (is_lossy(codec)) {
    encode_lossy(k, codec, in, count, noise, out);
    return;
  }
  JCCL_CHECK(dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16);
  if (dtype != Dtype::kF32) return narrow(k, dtype, in, count, out);
  std::memcpy(out, in, count * sizeof(float));
}

void decode_f32(const Codec& codec, Dtype dtype, const std::uint8_t* in, std::size_t count,
                float* out) {
  if (count == 0) return;
  const FloatMode mode;
  const Kernels& k = kernels();
  if (is_lossy(codec)) return decode_lossy(k, codec, in, count, out);
  JCCL_CHECK(dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16);
  if (dtype != Dtype::kF32) return widen(k, dtype, in, count, out);
  std::memcpy(out, in, count * sizeof(float));
}

void encode(const Codec& codec, Dtype dtype, const void* in, std::size_t count, std::uint8_t* out,
            const Noise& noise) {
  if (count == 0) return;
  if (is_lossy(codec)) {
    encode_any(codec, dtype, in, count, noise, out);
  } else {
    std::memcpy(out, in, count * size_of(dtype));
  }
}

bool encode_checked(const Codec& codec, Dtype dtype, const void* in, std::size_t count,
                    std::uint8_t* out, const Noise& noise) {
  if (count == 0) return true;
  if (is_lossy(codec)) return encode_any(codec, dtype, in, count, noise, out) < kInfinity;
  std::memcpy(out, in, count * size_of(dtype));
  return all_finite(dtype, in, count);
}

void decode(const Codec& codec, Dtype dtype, const std::uint8_t* in, std::size_t count, void* out) {
  if (count == 0) return;
  if (!is_lossy(codec)) {
    std::memcpy(out, in, count * size_of(dtype));
    return;
  }
  JCCL_CHECK(is_float(dtype));
  const FloatMode mode;
  const Kernels& k = kernels();
  if (dtype == Dtype::kF32) return decode_lossy(k, codec, in, count, static_cast<float*>(out));
  float tile[kTileMax];
  const std::size_t step = tile_elements(codec);
  auto* bytes = static_cast<std::uint8_t*>(out);
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    decode_lossy(k, codec, in + encoded_bytes(codec, dtype, at), n, tile);
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
