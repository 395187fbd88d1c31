// Bounds on everything that others could otherwise make grow without end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace jccl::base {

inline constexpr std::uint32_t kHelloBytesMax = 1024;         // frame before authentication
inline constexpr std::uint32_t kControlBytesMax = 64 * 1024;  // any control frame to the master
inline constexpr std::uint32_t kRosterBytesMax = 2 * 1024 * 1024;  // same, from the master
inline constexpr std::size_t kUnreadBytesMax = 8 * 1024 * 1024;    // queued for one member
inline constexpr std::size_t kMemoryBytesMax = 40 * 1024 * 1024;   // arriving and queued, of all
inline constexpr std::size_t kMemberBytesMax = 256 * 1024;         // besides, of each member
inline constexpr std::size_t kCopiesBytesMax = 16 * 1024 * 1024;   // for peers that do not read
inline constexpr std::uint32_t kManifestBytesMax = 1024 * 1024;    // one manifest part
inline constexpr std::size_t kPendingSocketsMax = 256;             // before the hello
inline constexpr Duration kHandshakeMax = 5 * kSecond;
inline constexpr std::size_t kTagBytesMax = 64;
inline constexpr std::size_t kSiteNameBytesMax = 64;
inline constexpr std::size_t kTokenNameBytesMax = 64;
inline constexpr std::size_t kAddressesMax = 8;
inline constexpr std::size_t kAddressBytesMax = 128;
inline constexpr std::size_t kStatusBytesMax = 60 * 1024;
inline constexpr std::size_t kTextBytesMax = 512;
inline constexpr std::size_t kSummaryBytesMax = 2048;
inline constexpr std::size_t kGroupsMax = 64;           // of a run, open at once
inline constexpr std::size_t kGroupJournalsMax = 1024;  // of a run, of all groups that it ever had
inline constexpr std::size_t kPeersMax = 1024;
inline constexpr std::ptrdiff_t kLivesOfKeyMax = 64;  // processes of one key at a time
inline constexpr std::size_t kSharesMax = 64;         // of a result, told one by one
inline constexpr std::size_t kUnresolvedMax = 256;
inline constexpr std::size_t kTagsMax = 256;
inline constexpr std::size_t kLeavesMax = 65536;
inline constexpr std::uint64_t kRoundBytesMax = std::uint64_t{1} << 40;
inline constexpr std::size_t kPlanBytesMax = 16 * 1024;
inline constexpr std::uint32_t kChunkBytesMax = 1024 * 1024;
inline constexpr std::uint32_t kStripesMax = 64;
inline constexpr double kRateMin = 10e3;  // of max_rate: half a minute for a chunk
inline constexpr double kRateMax = 1e15;  // bytes per second
// Of day_bytes: less would be slower than that when it is used up (net::Throttle).
inline constexpr double kDayBytesMin = kRateMin * 90'000;
inline constexpr double kDayBytesMax = 1e18;
// Of two such bounds that which holds; 0 is none.
inline constexpr std::uint64_t tighter(std::uint64_t one, std::uint64_t other) {
  return one == 0 || other == 0 ? one + other : one < other ? one : other;
}
// A weight is 0 or between these. Sums of f32 hold w·x: what lies further apart is no share of a
// mean but a way to overflow it.
inline constexpr double kWeightMin = 1e-12, kWeightMax = 1e12;

// Of what a flight recorder keeps in memory, unless the machine's own state is more than a fourth
// of it.
inline constexpr std::size_t kRecordBytesMax = std::size_t{128} << 20;  // a reader takes twice that
// Compared when all calls of a round are there. The first is of a contribution that announces its
// peer and has nothing to count.
inline constexpr double kWeightAnnounced = 0x1p-20;
inline constexpr double kWeightRatioMax = 1e6;  // times the median, unless the master says another

constexpr bool is_usable_weight(double weight) {  // false for NaN too
  return weight == 0 || (weight >= kWeightMin && weight <= kWeightMax);
}

}  // namespace jccl::base
