// One tile holds the values as f32, one their bytes, one what comes back.
#include "codec/roundtrip.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/planted.h"
#include "codec/f32_form.h"
#include "codec/kernels/isa.h"
#include "codec/kernels/kernels.h"

namespace jccl::codec {
namespace {

// No codec makes an f32 longer, but for the scales of short blocks.
constexpr std::size_t kTileBytes = kTileMax * sizeof(float) + 64;

struct Tiles {
  float values[kTileMax];
  float back[kTileMax];
  double wide[kTileMax];
  std::uint8_t bytes[kTileBytes];
};

const float* as_f32(const Kernels& k, Dtype dtype, const void* in, std::size_t count, float* tile) {
  if (dtype == Dtype::kF32) return static_cast<const float*>(in);
  if (dtype == Dtype::kBf16) k.bf16_to_f32(in, count, tile);
  if (dtype == Dtype::kF16) k.f16_to_f32(in, count, tile);
  if (dtype == Dtype::kF64) k.f64_to_f32(in, count, tile);
  return tile;
}

void from_f32(const Kernels& k, Dtype dtype, const float* in, std::size_t count, void* out) {
  if (dtype == Dtype::kF32) std::memcpy(out, in, count * sizeof(float));
  if (dtype == Dtype::kBf16) k.f32_to_bf16(in, count, out);
  if (dtype == Dtype::kF16) k.f32_to_f16(in, count, out);
  if (dtype == Dtype::kF64) k.f32_to_f64(in, count, out);
}

enum class Wanted { kValue, kDifference };

void run(const Codec& codec, Dtype dtype, const void* in, std::size_t count, void* out,
         const Noise& noise, Wanted wanted) {
  JCCL_CHECK(is_float(dtype) && is_lossy(codec));
  const FloatMode mode;
  const Kernels& k = kernels();
  Tiles t;
  const std::size_t step = tile_elements(codec);
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    const auto* from = static_cast<const std::uint8_t*>(in) + at * size;
    auto* to = static_cast<std::uint8_t*>(out) + at * size;
    const float* x = as_f32(k, dtype, from, n, t.values);
    encode_f32(codec, dtype, x, n, t.bytes, {noise.seed, noise.first_element + at});
    decode_f32(codec, dtype, t.bytes, n, t.back);
    if (wanted == Wanted::kValue) {
      from_f32(k, dtype, t.back, n, to);
    } else if (dtype == Dtype::kF64) {
      k.f32_to_f64(t.back, n, t.wide);
      k.subtract_f64(from, t.wide, n, to);
    } else {
      k.subtract_f32(x, t.back, n - (JCCL_PLANTED("residual-keeps-last-tile") && at > 0 ? 1 : 0),
                     t.back);
      from_f32(k, dtype, t.back, n, to);
    }
  }
}

}  // namespace

void roundtrip(const Codec& codec, Dtype dtype, const void* in, std::size_t count, void* out,
               const Noise& noise) {
  if (is_lossy(codec)) return run(codec, dtype, in, count, out, noise, Wanted::kValue);
  if (in != out && count > 0) std::memcpy(out, in, count * size_of(dtype));
}

void residual(const Codec& codec, Dtype dtype, const void* in, std::size_t count, void* out) {
  JCCL_CHECK(!codec.stochastic);
  if (is_lossy(codec)) return run(codec, dtype, in, count, out, {}, Wanted::kDifference);
  if (count > 0 && !JCCL_PLANTED("residual-of-none-left"))
    std::memset(out, 0, count * size_of(dtype));
}

}  // namespace jccl::codec
