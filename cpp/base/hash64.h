// XXH64: a 64-bit hash for integrity against accidents (torn writes, bit rot, mixed-up files).
// Not against attackers: collisions can be made on purpose.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace jccl::base {

std::uint64_t hash64(ByteView bytes, std::uint64_t seed = 0);

}  // namespace jccl::base
