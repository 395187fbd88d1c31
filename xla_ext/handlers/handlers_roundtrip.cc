// What a codec makes of values, inside a compiled program: no communicator, no effect, the same
// bits as outside. Operands: arrays…; results: arrays like them. Attributes: codec (its name with
// parameters), residual (1: in − decode(encode(in)), else decode(encode(in))).
#include "codec/roundtrip.h"
#include "float_mode.h"
#include "handlers/handlers.h"
#include "operands.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;

namespace {

ffi::Error refuse_roundtrip(const std::string& why) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jccl_roundtrip: " + why);
}

ffi::Error roundtrip_call(ffi::RemainingArgs args, ffi::RemainingRets rets,
                          ffi::Dictionary attributes) {
  const auto codec = codec::codec_from_name(text_attribute(attributes, "codec"));
  if (!codec || codec->stochastic) return refuse_roundtrip("no such codec here");
  if (args.size() != rets.size()) return refuse_roundtrip("wrong number of operands");
  const bool residual = attribute<std::int32_t>(attributes, "residual", 0) != 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const auto in = operand(args, i);
    const auto out = result(rets, i);
    if (!in || !out || in->dtype != out->dtype || in->count != out->count) {
      return refuse_roundtrip("results and operands differ");
    }
    if (codec::is_lossy(*codec) && !codec::is_float(in->dtype))
      return refuse_roundtrip("floats only");
    if (residual) {
      codec::residual(*codec, in->dtype, in->data, in->count, out->data);
    } else {
      codec::roundtrip(*codec, in->dtype, in->data, in->count, out->data);
    }
  }
  return ffi::Error::Success();
}

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclRoundtrip, jccl::xla_ext::roundtrip_call,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
