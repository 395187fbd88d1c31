// The reductions, and the table of what can be combined with what. Everything outside the table is
// refused with a text for the user; the kernels only check that it was asked. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "codec/codec.h"

namespace jccl::collective {

// The numbers travel in descriptors and are never reused.
enum class Op : std::uint8_t { kSum = 1, kMean = 2, kMin = 3, kMax = 4, kProd = 5 };

inline constexpr std::uint8_t kOpNumberMax = 5;

std::string_view name_of(Op op);
std::optional<Op> op_from_number(std::uint8_t number);
std::optional<Op> op_from_name(std::string_view name);

// Lossy codecs: sum and mean of floats. Travelling as the dtype: every op of every dtype.
constexpr bool is_supported(Op op, codec::Dtype dtype, const codec::Codec& codec) {
  const bool adds = op == Op::kSum || op == Op::kMean;
  return !codec::is_lossy(codec) || (adds && codec::is_float(dtype));
}

// Whether weights apply: to sum and mean of floats.
constexpr bool is_weighted(Op op, codec::Dtype dtype) {
  return (op == Op::kSum || op == Op::kMean) && codec::is_float(dtype);
}
// Other ones than 1 are finite and not negative. 0 contributes nothing.
constexpr bool is_weight(Op op, codec::Dtype dtype, double weight) {
  return weight == 1 || (is_weighted(op, dtype) && weight >= 0 && weight <= 0x1p100);
}

// Code::kInvalid with what to use instead.
base::Status check_supported(Op op, codec::Dtype dtype, const codec::Codec& codec);
base::Status check_weight(Op op, codec::Dtype dtype, double weight);

}  // namespace jccl::collective
