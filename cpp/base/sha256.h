// SHA-256 as OpenSSL computes it, for what somebody may be held to later: a hash that its maker
// cannot make two things fit. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace jccl::base {

using Sha256 = std::array<std::uint8_t, 32>;

Sha256 sha256(ByteView bytes);

}  // namespace jccl::base
