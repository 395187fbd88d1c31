// Adds up the lanes of the scan loops in one fixed tree.
#include "codec/guard.h"

#include <algorithm>

#include "base/planted.h"
#include "codec/kernels/isa.h"
#include "codec/kernels/kernels.h"

namespace jccl::codec {
namespace {

constexpr std::size_t kTile = 1024;  // elements; a multiple of kScanLanes
constexpr std::uint64_t kInfinity32 = 0x7F800000;
constexpr std::uint64_t kInfinity64 = 0x7FF0000000000000;

double sum_of(ScanLanes lanes) {
  for (std::size_t half = kScanLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes.squares[l] += lanes.squares[l + half];
  }
  return lanes.squares[0];
}

}  // namespace

GuardResult scan(Dtype dtype, const void* in, std::size_t count) {
  if (!is_float(dtype) || count == 0) return {};
  const FloatMode mode;
  const Kernels& k = kernels();
  ScanLanes lanes{};
  if (dtype == Dtype::kF64) {
    k.scan_f64(in, count, &lanes);
    return {lanes.magnitude_max <= kInfinity64 - (JCCL_PLANTED("guard-f64-as-f32") ? 0 : 1),
            sum_of(lanes)};
  }
  if (dtype == Dtype::kF32) {
    k.scan_f32(in, count, &lanes);
    return {lanes.magnitude_max < kInfinity32, sum_of(lanes)};
  }
  float tile[kTile];
  const auto* bytes = static_cast<const std::uint8_t*>(in);
  for (std::size_t at = 0; at < count; at += kTile) {
    if (JCCL_PLANTED("guard-last-tile-unseen") && at > 0 && at + kTile >= count) break;
    const std::size_t n = std::min(kTile, count - at);
    const auto widen = dtype == Dtype::kBf16 ? k.bf16_to_f32 : k.f16_to_f32;
    widen(bytes + at * size_of(dtype), n, tile);
    k.scan_f32(tile, n, &lanes);
  }
  return {lanes.magnitude_max < kInfinity32, sum_of(lanes)};
}

bool all_finite(Dtype dtype, const void* in, std::size_t count) {
  if (!is_float(dtype) || count == 0) return true;
  const Kernels& k = kernels();
  if (dtype == Dtype::kF64) return k.finite_64(in, count);
  if (dtype == Dtype::kF32)
    return k.finite_32(in, count - (JCCL_PLANTED("guard-last-element-unseen") ? 1 : 0));
  return k.finite_16(
      in, count,
      dtype == Dtype::kBf16 || JCCL_PLANTED("guard-f16-with-mask-of-bf16") ? 0x7F80 : 0x7C00);
}

}  // namespace jccl::codec
