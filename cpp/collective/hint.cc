// One byte so far: the kind.
#include "collective/hint.h"

#include "base/text.h"

namespace jccl::collective {

base::Bytes encode_hint(const Hint& hint) { return {static_cast<std::uint8_t>(hint.kind)}; }

base::Result<Hint> decode_hint(base::ByteView bytes) {
  if (bytes.size() != 1 || bytes[0] > static_cast<std::uint8_t>(HintKind::kExchange)) {
    return base::Status{base::Code::kInvalid,
                        base::cat("plan hint of ", bytes.size(), " bytes is not one of ours")};
  }
  return Hint{static_cast<HintKind>(bytes[0])};
}

}  // namespace jccl::collective
