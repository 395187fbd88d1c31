// Bounds of audits (protocol/rounds/audit.h).
#pragma once

#include <cstddef>

namespace jccl::base {

inline constexpr std::size_t kAuditPeersMax = 512;       // contributors of a round that has one
inline constexpr std::size_t kCellBytesMax = 16 * 1024;  // encoded: it fits a frame with its proof
inline constexpr std::size_t kCellTermsMax = 128;        // what says what a cell is
inline constexpr std::size_t kCellsAskedMax = 1024;      // in one frame

}  // namespace jccl::base
