// The attacks of one member, by name: what each does, and what the run promises of it. A table;
// nothing here acts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace jccl::attack {

enum class Row : std::uint8_t {
  kNone,  // an honest member: what is usual
  kDescriptor,
  kHint,
  kFingerprint,
  kState,
  kWeightHuge,
  kWeightNegative,
  kWeightNan,
  kDeadline,
  kWithdraw,
  kFailInvalid,
  kFailLimit,
  kFailGuard,
  kFailLink,
  kFailLinkOnce,
  kFailPeer,
  kFailAborted,
  kFailResync,
  kDoneWrong,
  kDoneNever,
  kPublished,
  kSync,
  kResume,
  kSyncs,
  kHalfSite,
  kChurn,
  kStatusFlood,
  kHoldLeave,
  kHoldFresh,
  kHoard,
  kMixture,
  kFreshKeys,
  kFailCorrupt,
  kFailCorruptNamed,
  kFailDeadline,
  kWeightless,
  kFreshKeysEarly,
  kImpostor,
  kFormer,
  kUnread,
  kUnreadNone,
  kMadeUpLinks,
  kSameLife,
  kCrowded,
  kStatusCrowd,
  kElsewhere,
  kNames,
  kOneByte,
  kFrameBent,
  kFrameNan,
  kFrameChunk,
  kFrameLength,
  kFrameKind,
  kFrameNone,
  kFrameNoneOne,
  kFrameDrip,
  kFrameDripOne,
  kFrameTwice,
  kFrameDropped,
  kAddsWrong,
  kAuditRoots,
  kAuditParts,
  kAuditSilent,
  kCount
};

struct RowInfo {
  Row row;
  std::string_view name;
  std::string_view does;
  bool lies;   // in what it says of rounds; a mixture takes those by turns that need no audit
  bool named;  // it costs the others something, so status or history must name its key
  bool evict;  // the master evicts stragglers after a second
  bool audit = false;  // the master audits all that is added up
};

const std::vector<RowInfo>& all_rows();
std::optional<RowInfo> row_named(std::string_view name);

}  // namespace jccl::attack
