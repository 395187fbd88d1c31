// CRC-32C (Castagnoli, reflected, as in iSCSI and RFC 3720): the checksum of control frames, of the
// headers of data frames, and of journal records. Pure; runs on any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace jccl::base {

// `seed` is the CRC of what came before: crc32c(b, crc32c(a)) == crc32c(a then b).
std::uint32_t crc32c(ByteView bytes, std::uint32_t seed = 0);

// By the table alone, as on processors without SSE 4.2; the same number.
std::uint32_t crc32c_table(ByteView bytes, std::uint32_t seed = 0);

}  // namespace jccl::base
