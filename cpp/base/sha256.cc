#include "base/sha256.h"

#include <openssl/sha.h>

namespace jccl::base {

Sha256 sha256(ByteView bytes) {
  Sha256 out{};
  SHA256(bytes.data(), bytes.size(), out.data());
  return out;
}

}  // namespace jccl::base
