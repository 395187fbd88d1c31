// CRC-32C (Castagnoli, reflected, as in iSCSI and RFC 3720): the checksum of every plain frame and
// journal record. Uses the processor's instruction where there is one, else tables; both give the
// same number. Pure; runs on any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace jccl::base {

// `seed` is the CRC of what came before: crc32c(b, crc32c(a)) == crc32c(a then b).
std::uint32_t crc32c(ByteView bytes, std::uint32_t seed = 0);

// The table form alone: the reference in tests, and the path of processors without SSE4.2.
std::uint32_t crc32c_tables(ByteView bytes, std::uint32_t seed = 0);

}  // namespace jccl::base
