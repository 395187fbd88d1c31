// The outer optimizer's step inside a compiled program: see outer.h for the arithmetic. Nothing
// advances unless the status operand says that the round's result is in the delta.
// Operands: anchors…, momenta… (none for sgd), deltas…, lr f32, mu f32, status s32[4].
// Results: anchors…, momenta… (both aliased to their operands where XLA allows).
#include <cstring>

#include "handlers/handlers.h"
#include "operands.h"
#include "outer.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;

namespace {

ffi::Error refuse(const char* why) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string("jccl_outer: ") + why);
}

void keep(const View& in, const View& out) {
  if (in.data != out.data && out.bytes() != 0) std::memcpy(out.data, in.data, out.bytes());
}

ffi::Error outer_call(ffi::RemainingArgs args, ffi::RemainingRets rets,
                      ffi::Dictionary attributes) {
  const auto kind = static_cast<OuterKind>(attribute<std::int32_t>(attributes, "kind", 0));
  const std::size_t groups = kind == OuterKind::kSgd ? 1 : 2;
  if (rets.size() % groups != 0 || args.size() != rets.size() + rets.size() / groups + 3) {
    return refuse("wrong number of operands");
  }
  const std::size_t n = rets.size() / groups;
  std::vector<View> in, out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const auto view = operand(args, i);
    if (!view) return refuse("operand of an unknown type");
    in.push_back(*view);
  }
  for (std::size_t i = 0; i < rets.size(); ++i) {
    const auto view = result(rets, i);
    if (!view || view->count != in[i].count) return refuse("results and operands differ");
    out.push_back(*view);
  }
  for (std::size_t i = 0; i < n * (groups + 1); ++i) {
    if (in[i].dtype != codec::Dtype::kF32 || in[i].count != in[i % n].count) {
      return refuse("anchors, momenta and deltas must be f32 of one shape");
    }
  }
  const View& lr = in[in.size() - 3];
  const View& mu = in[in.size() - 2];
  const View& status = in[in.size() - 1];
  if (lr.bytes() != 4 || mu.bytes() != 4 || status.bytes() != 16) return refuse("wrong scalars");
  std::int32_t code = 0;
  std::memcpy(&code, status.data, 4);
  if (!base::is_code(code) || !holds_result(static_cast<base::Code>(code))) {
    for (std::size_t i = 0; i < out.size(); ++i) keep(in[i], out[i]);
    return ffi::Error::Success();
  }
  OuterRates rates;
  std::memcpy(&rates.learning_rate, lr.data, 4);
  std::memcpy(&rates.momentum, mu.data, 4);
  for (std::size_t i = 0; i < n; ++i) {
    OuterLeaf leaf;
    leaf.anchor = static_cast<const float*>(in[i].data);
    leaf.delta = static_cast<const float*>(in[n * groups + i].data);
    leaf.anchor_out = static_cast<float*>(out[i].data);
    if (groups == 2) {
      leaf.momentum = static_cast<const float*>(in[n + i].data);
      leaf.momentum_out = static_cast<float*>(out[n + i].data);
    }
    leaf.count = in[i].count;
    outer_step(kind, rates, leaf);
  }
  return ffi::Error::Success();
}

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclOuter, jccl::xla_ext::outer_call,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
