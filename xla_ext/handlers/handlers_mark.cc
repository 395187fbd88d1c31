// Marks of arrays where they lie in host memory; on devices XLA makes the same ones, see
// jccl/_marks.py. Without effects: XLA may drop the call or make it again. Runs on XLA's threads.
#include "calls.h"
#include "handlers/handlers.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;

namespace {

// Operands: leaves…. Result: u32[k,2].
ffi::Error mark_call(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  const auto data = inputs(args, args.size());
  const auto out = result(rets, 0);
  if (!data || rets.size() != 1 || !out || out->dtype != codec::Dtype::kU32 ||
      out->count != 2 * args.size()) {
    return malformed("jccl_mark");
  }
  auto* words = static_cast<std::uint32_t*>(out->data);
  for (const auto& mark : peer::marks_of(data->leaves(""))) {
    *words++ = mark.first;
    *words++ = mark.second;
  }
  return ffi::Error::Success();
}

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclMark, jccl::xla_ext::mark_call,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets());
