// Chooses the loop for an (op, dtype, codec). What is not f32 on the wire passes through a tile
// that stays in the first-level cache; int8 and f32 are added in one pass.
#include "collective/kernels/kernels.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/planted.h"
#include "codec/f32_form.h"
#include "codec/kernels/isa.h"
#include "collective/kernels/loops.h"

namespace jccl::collective {
namespace {

using codec::Codec;
using codec::CodecId;
using codec::Dtype;

const Loops& loops() {
#if defined(__x86_64__)
  switch (codec::active_isa()) {
    case codec::Isa::kV4:
      return kLoopsV4;
    case codec::Isa::kV3:
      return kLoopsV3;
    case codec::Isa::kBaseline:
      break;
  }
#endif
  return kLoopsBaseline;
}

const IntegerLoops& integer_loops(Dtype dtype) {
  JCCL_CHECK(!codec::is_float(dtype));
  return loops().integers[static_cast<std::size_t>(dtype) - static_cast<std::size_t>(Dtype::kI8)];
}

// acc := acc (op) weight·x, all of one float type.
void combine(const FloatLoops& f, Op op, const void* x, std::size_t count, double weight,
             void* acc) {
  switch (op) {
    case Op::kSum:
    case Op::kMean:
      return weight == 1 || JCCL_PLANTED("second-weight-left-out")
                 ? f.add(x, count, acc)
                 : f.add_scaled(x, count, weight, acc);
    case Op::kMin:
      return f.min(x, count, acc);
    case Op::kMax:
      return f.max(x, count, acc);
    case Op::kProd:
      return f.prod(x, count, acc);
  }
}

void accumulate_f64(Op op, const Codec& codec, bool first, const std::uint8_t* encoded,
                    std::size_t count, double weight, void* acc) {
  const FloatLoops& f = loops().f64;
  if (first) {
    codec::decode(codec, Dtype::kF64, encoded, count, acc);
    if (weight != 1 && !JCCL_PLANTED("first-weight-left-out-f64")) f.scale(acc, count, weight, acc);
    return;
  }
  if (codec.id == CodecId::kNone) return combine(f, op, encoded, count, weight, acc);
  double tile[codec::kTileMax];
  const std::size_t step = codec::tile_elements(codec);
  auto* out = static_cast<std::uint8_t*>(acc);
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    codec::decode(codec, Dtype::kF64, encoded + encoded_bytes(codec, Dtype::kF64, at), n, tile);
    combine(f, op, tile, n, weight, out + at * sizeof(double));
  }
}

void accumulate_f32(Op op, Dtype dtype, const Codec& codec, bool first, const std::uint8_t* encoded,
                    std::size_t count, double weight, void* acc) {
  const Loops& all = loops();
  if (first) {
    codec::decode_f32(codec, dtype, encoded, count, static_cast<float*>(acc));
    if (weight != 1) all.f32.scale(acc, count, weight, acc);
    return;
  }
  if (codec.id == CodecId::kInt8) {
    return weight == 1 || JCCL_PLANTED("int8-weight-left-out")
               ? all.add_int8(encoded, count, acc)
               : all.add_int8_scaled(encoded, count, weight, acc);
  }
  if (codec.id == CodecId::kNone && dtype == Dtype::kF32) {
    return combine(all.f32, op, encoded, count, weight, acc);
  }
  float tile[codec::kTileMax];
  const std::size_t step = codec::tile_elements(codec);
  auto* out = static_cast<std::uint8_t*>(acc);
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    codec::decode_f32(codec, dtype, encoded + encoded_bytes(codec, dtype, at), n, tile);
    combine(all.f32, op, tile, n, weight, out + at * sizeof(float));
  }
}

void finish_part(const FloatLoops& f, Op op, const void* acc, std::size_t count, double weight_sum,
                 void* out) {
  const bool divides = op == Op::kMean && weight_sum != 1 && !JCCL_PLANTED("mean-is-sum");
  return divides ? f.divide(acc, count, weight_sum, out) : f.tidy(acc, count, out);
}

}  // namespace

std::size_t accumulator_bytes(Dtype dtype, std::size_t count) {
  if (dtype == Dtype::kF64) return count * sizeof(double);
  if (codec::is_float(dtype)) return count * sizeof(float);
  return count * integer_loops(dtype).accumulator_bytes;
}

void accumulate(Op op, Dtype dtype, const Codec& codec, bool first, const std::uint8_t* encoded,
                std::size_t count, double weight, void* acc) {
  JCCL_CHECK(is_supported(op, dtype, codec));
  JCCL_CHECK(is_weight(op, dtype, weight));
  if (count == 0) return;
  if (!codec::is_float(dtype)) {
    return integer_loops(dtype).combine(op, first, encoded, count, acc);
  }
  const codec::FloatMode mode;
  if (dtype == Dtype::kF64) return accumulate_f64(op, codec, first, encoded, count, weight, acc);
  accumulate_f32(op, dtype, codec, first, encoded, count, weight, acc);
}

void add_partial(Op op, Dtype dtype, const void* partial, std::size_t count, void* acc) {
  if (count == 0) return;
  if (!codec::is_float(dtype)) return integer_loops(dtype).merge(op, partial, count, acc);
  std::optional<codec::FloatMode> mode;
  if (!JCCL_PLANTED("partials-in-the-threads-mode")) mode.emplace();
  const FloatLoops& f = dtype == Dtype::kF64 ? loops().f64 : loops().f32;
  combine(f, op, partial, count, 1, acc);
}

void finish(Op op, Dtype dtype, const Codec& codec, void* acc, std::size_t count, double weight_sum,
            std::uint8_t* encoded_out, const codec::Noise& noise) {
  JCCL_CHECK(is_supported(op, dtype, codec));
  JCCL_CHECK(op != Op::kMean || weight_sum > 0);
  if (count == 0) return;
  if (!codec::is_float(dtype)) {
    JCCL_CHECK(op != Op::kMean || (weight_sum >= 1 && weight_sum <= 0x1p20));
    const auto contributors = static_cast<std::uint32_t>(
        op == Op::kMean && !JCCL_PLANTED("integers-divided-by-weight-of-one") ? weight_sum : 1);
    return integer_loops(dtype).finish(op, acc, count, contributors, encoded_out);
  }
  const codec::FloatMode mode;
  const bool wide = dtype == Dtype::kF64;
  const FloatLoops& f = wide ? loops().f64 : loops().f32;
  if (codec.id == CodecId::kNone && (wide || dtype == Dtype::kF32)) {
    return finish_part(f, op, acc, count, weight_sum, encoded_out);
  }
  alignas(double) std::uint8_t tile[codec::kTileMax * sizeof(double)];
  const std::size_t step = codec::tile_elements(codec);
  const auto* in = static_cast<const std::uint8_t*>(acc);
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    finish_part(f, op, in + accumulator_bytes(dtype, at), n, weight_sum, tile);
    std::uint8_t* out = encoded_out + encoded_bytes(codec, dtype, at);
    const codec::Noise here{noise.seed,
                            noise.first_element + (JCCL_PLANTED("noise-of-result-alike") ? 0 : at)};
    if (wide) {
      codec::encode(codec, dtype, tile, n, out, here);
    } else {
      codec::encode_f32(codec, dtype, reinterpret_cast<const float*>(tile), n, out, here);
    }
  }
}

bool reduce2(Op op, Dtype dtype, const void* a, double wa, const void* b, double wb,
             std::size_t count, double weight_sum, void* out) {
  const bool adds = op == Op::kSum || op == Op::kMean;
  if (!adds || (dtype != Dtype::kF32 && dtype != Dtype::kF64)) return false;
  JCCL_CHECK(is_weight(op, dtype, wa));
  JCCL_CHECK(is_weight(op, dtype, wb));
  JCCL_CHECK(op != Op::kMean || weight_sum > 0);
  std::optional<codec::FloatMode> mode;
  if (!JCCL_PLANTED("pairs-in-the-threads-mode")) mode.emplace();
  const Sum2 terms{a, wa, b, wb, op == Op::kMean ? weight_sum : 1};
  const FloatLoops& f = dtype == Dtype::kF64 ? loops().f64 : loops().f32;
  if (count > 0) f.sum2(terms, count, out);
  return true;
}

}  // namespace jccl::collective
