// Chooses the loop for a (codec, dtype). Leaves that are not f32 pass through a tile of f32 that
// stays in the first-level cache.
#include "codec/codec.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/planted.h"
#include "codec/f32_form.h"
#include "codec/guard.h"
#include "codec/isa.h"
#include "codec/kernels.h"

namespace jccl::codec {
namespace {

static_assert(kLossyCodecs == kCodecNumberMax && kStatBlock == kInt4Block);

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

std::size_t block_elements(const Codec& codec) {
  switch (codec.id) {
    case CodecId::kNone:
    case CodecId::kBf16:
    case CodecId::kFp16:
      return 1;
    case CodecId::kInt8:
    case CodecId::kFp8:
      return kInt8Block;
    case CodecId::kInt4:
    case CodecId::kE3m0:
    case CodecId::kInt2:
    case CodecId::kStat2:
      return kInt4Block;
    case CodecId::kTopK:
    case CodecId::kTopK2:
      return kTopKBlock;
  }
  JCCL_CHECK(!"known codec");
  return 1;
}

std::size_t encoded_bytes(const Codec& codec, Dtype dtype, std::size_t count) {
  const std::size_t block = block_elements(codec);
  const std::size_t blocks = (count + block - 1) / block;
  switch (codec.id) {
    case CodecId::kNone:
      return count * size_of(dtype);
    case CodecId::kBf16:
    case CodecId::kFp16:
      return count * 2;
    case CodecId::kInt8:
      return count + 4 * blocks;
    case CodecId::kFp8:
      return count + 2 * blocks;
    case CodecId::kInt4:
    case CodecId::kE3m0:  // only the last block can end in a part of a byte
      return (count + 1) / 2 + 2 * blocks;
    case CodecId::kInt2:
      return (count + 3) / 4 + 2 * blocks;
    case CodecId::kStat2:
      return stat_bytes(count);
    case CodecId::kTopK:
    case CodecId::kTopK2: {
      const std::size_t kept = codec.kept;
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
