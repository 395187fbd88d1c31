// Names of the reductions, and the texts of the refusals.
#include "collective/op.h"

#include <algorithm>
#include <iterator>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::collective {
namespace {

constexpr std::string_view kOpNames[] = {"?", "sum", "mean", "min", "max", "prod"};

}  // namespace

std::string_view name_of(Op op) {
  const auto number = static_cast<std::size_t>(op);
  return number <= kOpNumberMax ? kOpNames[number] : kOpNames[0];
}

std::optional<Op> op_from_number(std::uint8_t number) {
  if (number < 1 || number > kOpNumberMax) return std::nullopt;
  return static_cast<Op>(number);
}

std::optional<Op> op_from_name(std::string_view name) {
  const auto* at = std::find(std::begin(kOpNames) + 1, std::end(kOpNames), name);
  if (at == std::end(kOpNames)) return std::nullopt;
  return static_cast<Op>(at - std::begin(kOpNames));
}

base::Status check_supported(Op op, codec::Dtype dtype, const codec::Codec& codec) {
  if (is_supported(op, dtype, codec)) return base::ok_status();
  const std::string_view why = codec::is_float(dtype)
                                   ? " quantises, so it applies to sum and mean only"
                                   : " applies to floating-point leaves only";
  return {base::Code::kInvalid,
          base::cat(name_of(op), " of ", codec::name_of(dtype), " with codec ",
                    codec::name_of(codec.id), ": the codec", why, "; use codec none")};
}

base::Status check_weight(Op op, codec::Dtype dtype, double weight) {
  if (is_weight(op, dtype, weight) || JCCL_PLANTED("weight-not-bounded")) return base::ok_status();
  if (is_weighted(op, dtype)) {
    return {base::Code::kInvalid,
            base::cat("weight ", weight, ": a weight is a number from 0 to 2^100")};
  }
  return {base::Code::kInvalid,
          base::cat("weight ", weight, " for ", name_of(op), " of ", codec::name_of(dtype),
                    ": weights apply to sum and mean of floating-point leaves")};
}

}  // namespace jccl::collective
