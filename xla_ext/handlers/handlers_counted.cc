// Who is in the result of a tag's last round, as data for the program that had it: its caller keeps
// account of what each peer brought, see jccl/data. Without effects: XLA may drop the call or make
// it again, so it is ordered by the status of the round. Runs on XLA's threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/planted.h"
#include "calls.h"
#include "handlers/handlers.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;

namespace {

// A weight that counts things: the nearest whole number.
std::uint32_t whole(double weight) {
  constexpr double kLargest = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(std::round(weight), kLargest));
}

// Operands: u32[1 + k,2] of which only the size is used, status s32[4] of the round.
// Result: u32[1 + k,2]: how many are in the result and the round's number (its low 32 bits), then
// id and weight of each, ascending by id, as far as there is room; zeros after that.
ffi::Error counted_call(ffi::RemainingArgs args, ffi::RemainingRets rets,
                        ffi::Dictionary attributes) {
  const auto like = operand(args, 0);
  const auto code = round_code(args, 1);
  const auto out = result(rets, 0);
  if (!like || !code || !out || rets.size() != 1 || out->dtype != codec::Dtype::kU32 ||
      out->count < 2 || out->count % 2 != 0 || like->count != out->count) {
    return malformed("jccl_counted");
  }
  Counted counted;
  if (const auto entry = entry_of(attributes); entry && holds_result(*code)) {
    counted = entry->counted(text_attribute(attributes, "tag"));
  }
  auto* words = static_cast<std::uint32_t*>(out->data);
  std::fill_n(words, out->count, 0U);
  words[0] = static_cast<std::uint32_t>(counted.ids.size());
  words[1] = static_cast<std::uint32_t>(counted.n);
  const std::size_t shown = std::min<std::size_t>(counted.ids.size(), out->count / 2 - 1);
  for (std::size_t i = 0; i < shown; ++i) {
    words[2 * i + 2] = counted.ids[i];
    words[2 * i + 3] = JCCL_PLANTED("counted-as-one") ? 1U : whole(counted.weights[i]);
  }
  return ffi::Error::Success();
}

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclCounted, jccl::xla_ext::counted_call,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
