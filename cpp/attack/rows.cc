#include "attack/rows.h"

namespace jccl::attack {

const std::vector<RowInfo>& all_rows() {
  static const std::vector<RowInfo> rows = {
      {Row::kNone, "none", "nothing: what is usual", false, false, false},
      {Row::kDescriptor, "descriptor", "READY for another call", true, true, false},
      {Row::kHint, "hint", "READY with another plan hint", true, true, false},
      {Row::kFingerprint, "fingerprint", "READY with another fingerprint", true, true, false},
      {Row::kState, "state", "READY with another digest of the state", true, true, false},
      {Row::kWeightHuge, "weight-huge", "READY with the weight 1e300", true, true, false},
      {Row::kWeightNegative, "weight-negative", "READY with a weight below 0", true, true, false},
      {Row::kWeightNan, "weight-nan", "READY with a weight that is NaN", true, true, false},
      {Row::kDeadline, "deadline", "READY with a deadline of 1 ms", true, true, false},
      {Row::kWithdraw, "withdraw", "takes READY back after START", true, true, false},
      {Row::kFailInvalid, "fail-invalid", "FAIL(INVALID) at START", true, true, false},
      {Row::kFailLimit, "fail-limit", "FAIL(LIMIT) at START", true, true, false},
      {Row::kFailGuard, "fail-guard", "FAIL(GUARD) at START", true, true, false},
      {Row::kFailLink, "fail-link", "FAIL(LINK_LOST) of one peer, each attempt", true, true, false},
      {Row::kFailLinkOnce, "fail-link-once", "… once a round", true, false, false},
      {Row::kFailPeer, "fail-peer", "FAIL(PEER_LOST) of each peer in turn", true, true, false},
      {Row::kFailAborted, "fail-aborted", "FAIL(ABORTED) at START", true, true, false},
      {Row::kFailResync, "fail-resync", "FAIL(RESYNC) at START", true, true, false},
      {Row::kDoneWrong, "done-wrong", "DONE with another digest", true, true, false},
      {Row::kDoneNever, "done-never", "no DONE; stragglers are evicted", true, true, true},
      {Row::kPublished, "published", "Published with another digest", true, true, false},
      {Row::kSync, "sync", "Syncs with another digest after each round", true, true, false},
      {Row::kResume, "resume", "nonsense, then Resume with other digests", true, true, false},
      {Row::kSyncs, "syncs", "200 Syncs with one deadline, again and again", true, false, false},
      {Row::kHalfSite, "half-site", "one shard of two synchronises and calls", false, false, false},
      {Row::kChurn, "churn", "fresh keys join and leave many times a second", false, false, false},
      {Row::kStatusFlood, "status-flood", "asks for the status all the time", false, false, false},
      {Row::kHoldLeave, "hold-leave", "holds rounds for 2.2 s, leaves, joins again by its key",
       false, true, false},
      {Row::kHoldFresh, "hold-fresh", "… until it is evicted, and again under a fresh key", false,
       true, false},
      {Row::kHoard, "hoard", "1,200 connections with 64 KiB under way each", false, false, false},
      {Row::kMixture, "mixture", "any lie, chosen anew for each call", false, true, false},
      {Row::kFreshKeys, "fresh-keys", "another call; after each ban a fresh key", false, true,
       false},
      {Row::kFailCorrupt, "fail-corrupt", "FAIL(CORRUPT) of nobody at START", true, true, false},
      {Row::kFailCorruptNamed, "fail-corrupt-named", "… of another contributor", true, true, false},
      {Row::kFailDeadline, "fail-deadline", "FAIL(DEADLINE) at START", true, true, false},
      {Row::kWeightless, "weightless", "weight 0, publishes first and another state", true, true,
       false},
      {Row::kFreshKeysEarly, "fresh-keys-early", "another call twice, then a fresh key", false,
       false, false},
      {Row::kImpostor, "impostor", "links in members' names and strangers', with made-up frames",
       false, false, false},
      {Row::kFormer, "former", "leaves, and goes on asking peers for the state", false, false,
       false},
      {Row::kUnread, "unread", "asks peers for the state and reads nothing", false, false, false},
      {Row::kUnreadNone, "unread-none", "… for one that nobody has", false, false, false},
      {Row::kMadeUpLinks, "made-up-links", "1,100 links to each peer by as many keys", false, false,
       false},
      {Row::kSameLife, "same-life", "hellos with members' lives and sites", false, false, false},
      {Row::kCrowded, "crowded", "1,023 observers that wish for 2^32-1 peers, one on 256 tags",
       false, false, false},
      {Row::kStatusCrowd, "status-crowd", "900 observers; asks for the status all the time", false,
       false, false},
      {Row::kElsewhere, "elsewhere", "advertises addresses that are not its own", false, false,
       false},
      {Row::kNames, "names", "sites, tags and texts with markup, line ends and escapes", false,
       false, false},
      {Row::kOneByte, "one-byte", "256 connections of one byte to the master, 256 to a peer", false,
       false, false},
      {Row::kFrameBent, "frame-bent", "sends one member other values than the rest", false, false,
       false},
      {Row::kFrameNan, "frame-nan", "frames with NaN", false, true, false},
      {Row::kFrameChunk, "frame-chunk", "frames of chunks that the plan has not", false, true,
       false},
      {Row::kFrameLength, "frame-length", "frames of another length than their chunks", false, true,
       false},
      {Row::kFrameKind, "frame-kind", "frames of a kind that the plan has not", false, true, false},
      {Row::kAddsWrong, "adds-wrong", "adds up wrong what it owns; rounds are audited", false, true,
       false, true},
      {Row::kAuditRoots, "audit-roots", "is bound by another result than it has", true, true, false,
       true},
      {Row::kAuditParts, "audit-parts", "shows an audit other bytes than it is bound by", true,
       true, false, true},
      {Row::kAuditSilent, "audit-silent", "shows an audit nothing", true, true, false, true},
  };
  return rows;
}

std::optional<RowInfo> row_named(std::string_view name) {
  for (const RowInfo& one : all_rows()) {
    if (one.name == name) return one;
  }
  return std::nullopt;
}

}  // namespace jccl::attack
