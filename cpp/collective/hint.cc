// Bytes: u8 kind | u64 data | u64 encoded | u64 accumulator | u8 auditable, little-endian.
#include "collective/hint.h"

#include "base/planted.h"
#include "base/text.h"

namespace jccl::collective {

base::Bytes encode_hint(const Hint& hint) {
  base::Writer w;
  w.u8(static_cast<std::uint8_t>(hint.kind));
  w.u64(hint.data_bytes);
  w.u64(hint.encoded_bytes);
  w.u64(hint.accumulator_bytes);
  w.u8(static_cast<std::uint8_t>(hint.audit));
  return w.take();
}

base::Result<Hint> decode_hint(base::ByteView bytes) {
  base::Reader r(bytes);
  Hint hint;
  const std::uint8_t kind = r.u8();
  hint.kind = static_cast<HintKind>(kind);
  hint.data_bytes = r.u64();
  hint.encoded_bytes = r.u64();
  hint.accumulator_bytes = r.u64();
  const std::uint8_t audit = r.u8();
  hint.audit = static_cast<Auditable>(audit);
  if (audit > static_cast<std::uint8_t>(Auditable::kWide) ||
      (!r.finished() && !(JCCL_PLANTED("hint-with-tail") && !r.failed())) ||
      kind > (JCCL_PLANTED("hint-of-unknown-kind") ? 1 : 0) +
                 static_cast<std::uint8_t>(HintKind::kFastest)) {
    return base::Status{base::Code::kInvalid,
                        base::cat("plan hint of ", bytes.size(), " bytes is not one of ours")};
  }
  return hint;
}

}  // namespace jccl::collective
