// A keyed MAC of bytes: AES-128-GMAC (NIST SP 800-38D) by OpenSSL, 8 GB/s on a core. Who did not
// know the key when they chose the bytes can't have others with the same MAC: of 1 MiB by chance
// 2^-112. For keys that are drawn at random and used for one number of bytes each. Any thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace jccl::net {

using MacKey = std::array<std::uint8_t, 16>;
using Mac = std::array<std::uint8_t, 16>;

Mac mac_of(const MacKey& key, base::ByteView bytes);
base::Result<MacKey> draw_mac_key();

}  // namespace jccl::net
