// The fields of every message and record, each named once in the order of its bytes; both
// directions are made from this (field_io.h). PROTOCOL.md shows the same as tables.
// A change here changes the golden bytes and must bump kVersion.
#pragma once

#include "base/audit_limits.h"
#include "base/merkle.h"
#include "wire/part_fields.h"

namespace jccl::wire {

// ---- peer to master ----------------------------------------------------------------------------

// The versions come first for good. A hello without a common version is nothing else: what follows
// may look different there, and they alone decide the answer. It looks as `oldest` has it.
template <typename Io>
void fields(Io& io, In<Io, Hello> m) {
  io.u16(m.version);
  if constexpr (Io::kDecodes) {
    m.oldest = m.version;
    if (m.version < kVersionRanges) return;
  }
  io.u16(m.oldest);
  if constexpr (Io::kDecodes) {
    if (!has_common_version(m)) return;
  }
  io.run(m.run);
  io.u64(m.incarnation);
  io.name(m.site, base::kSiteNameBytesMax, "site");
  io.u32(m.shard);
  io.u32(m.shards);
  addresses(io, m.addresses);
  io.u32(m.start_peers);
  io.u64(m.max_rate);
  io.u64(m.day_bytes);
}

template <typename Io>
void fields(Io& io, In<Io, Resume> m) {
  io.list(m.unresolved, base::kUnresolvedMax, "unresolved attempts",
          [&](auto& one) { fields(io, one); });
  held(io, m.held);
}

template <typename Io>
void fields(Io& io, In<Io, Ready> m) {
  fields(io, m.round);
  io.digest(m.descriptor);
  io.text(m.summary, base::kSummaryBytesMax);
  io.blob(m.hint, base::kPlanBytesMax, "plan hint");
  io.u32(m.contributors_max);
  io.flag(m.unit_weights);
  io.weight(m.weight);
  io.flag(m.has_state);
  io.u64(m.revision);
  io.digest(m.state);
  io.digest(m.fingerprint);
  io.i64(m.deadline);
  io.u64(m.call);
  io.text(m.before, base::kTagBytesMax);
  io.u32(m.quorum.share);
  io.i64(m.quorum.grace);
}

template <typename Io>
void fields(Io& io, In<Io, Share> m) {
  io.u32(m.owner);
  io.u32(m.from);
  io.digest(m.digest);
}

template <typename Io>
void fields(Io& io, In<Io, PartsRoot> m) {
  io.u32(m.cells);
  io.raw(m.root);
}

template <typename Io>
void fields(Io& io, In<Io, AuditRoots> m) {
  io.u32(m.cells);
  io.raw(m.result);
  io.list(m.parts, base::kAuditPeersMax, "roots of parts", [&](auto& one) { fields(io, one); });
  io.list(m.receipts, base::kAuditPeersMax, "roots of receipts", [&](auto& one) { io.raw(one); });
}

template <typename Io>
void fields(Io& io, In<Io, Done> m) {
  io.attempt(m.attempt);
  io.digest(m.result);
  io.list(m.shares, base::kSharesMax, "shares", [&](auto& one) { fields(io, one); });
  io.require(ascending(m.shares, [](const Share& s) { return s.owner; }),
             "shares are not in ascending order of owner");
  fields(io, m.audit);
}

template <typename Io>
void fields(Io& io, In<Io, Fail> m) {
  io.attempt(m.attempt);
  io.one_of(m.cause, valid_code);
  io.u32(m.peer);
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Withdraw> m) {
  fields(io, m.round);
}

template <typename Io>
void fields(Io& io, In<Io, Query> m) {
  fields(io, m.about);
}

template <typename Io>
void fields(Io& io, In<Io, Moving> m) {
  io.attempt(m.attempt);
  io.u64(m.left);
  io.u64(m.all);
  io.u32(m.waits_on);
  io.u32(m.lacking);
}

template <typename Io>
void fields(Io& io, In<Io, Heartbeat> m) {
  io.u64(m.sequence);
  io.u64(m.progress);
  io.list(m.moving, base::kTagsMax, "moving attempts", [&](auto& one) { fields(io, one); });
}

template <typename Io>
void fields(Io&, In<Io, Leave>) {}

template <typename Io>
void fields(Io& io, In<Io, Sync> m) {
  io.tag(m.tag);
  io.flag(m.source);
  io.flag(m.fetching);
  io.flag(m.changed);
  io.one_of(m.restore, valid_wish);
  io.u64(m.revision);
  io.digest(m.digest);
  io.digest(m.descriptor);
  io.text(m.summary, base::kSummaryBytesMax);
  io.i64(m.deadline);
}

template <typename Io>
void fields(Io& io, In<Io, LinkMeasured> m) {
  io.u32(m.peer);
  io.u32(m.rtt_us);
  io.u64(m.bytes_per_s);
}

template <typename Io>
void fields(Io& io, In<Io, Measured> m) {
  io.u64(m.up_bytes_per_s);
  io.list(m.links, base::kPeersMax, "measured links", [&](auto& one) { fields(io, one); });
  io.require(ascending(m.links, [](const LinkMeasured& l) { return l.peer; }),
             "measured links are not in ascending order of id");
  io.u32(m.core);
}

template <typename Io>
void fields(Io& io, In<Io, Published> m) {
  fields(io, m.held);
}

template <typename Io>
void fields(Io& io, In<Io, Outvoted> m) {
  fields(io, m.held);
  io.u64(m.holder);
  io.u32(m.part);
}

template <typename Io>
void fields(Io& io, In<Io, Violation> m) {
  io.attempt(m.attempt);
  io.u32(m.peer);
  io.one_of(m.kind, valid_violation);
}

template <typename Io>
void fields(Io& io, In<Io, Finding> m) {
  io.tag(m.tag);
  io.u64(m.round);
  io.u32(m.peer);
  io.flag(m.differs);
  io.u32(m.worst);
  io.one_of(m.policy, valid_finding_policy);
}

template <typename Io>
void fields(Io& io, In<Io, AuditPart> m) {
  io.attempt(m.attempt);
  io.u32(m.cell);
  io.flag(m.result);
  io.blob(m.terms, base::kCellTermsMax, "terms of a cell");
  io.list(m.path, base::kMerklePathMax, "hashes", [&](auto& one) { io.raw(one); });
  io.payload(m.bytes, base::kCellBytesMax, "cell");
}

// ---- master to peer ----------------------------------------------------------------------------

template <typename Io>
void fields(Io& io, In<Io, Welcome> m) {
  io.u16(m.version);
  io.run(m.run);
  io.u64(m.epoch);
  io.i64(m.heartbeat);
  io.i64(m.silence);
  io.u64(m.max_rate);
}

// Never changes with the version: a peer of any version must be able to read why.
template <typename Io>
void fields(Io& io, In<Io, Refuse> m) {
  io.one_of(m.code, valid_code);
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Roster> m) {
  io.u64(m.epoch);
  io.u64(m.base);
  io.list(m.members, base::kPeersMax, "members", [&](auto& one) { fields(io, one); });
  io.require(ids_ascend(m.members), "members are not in ascending order of id");
  io.list(m.left, base::kPeersMax, "members that left", [&](auto& one) { io.u32(one); });
  io.require(ascending(m.left, [](PeerId id) { return id; }),
             "members that left are not in ascending order of id");
  io.list(m.tags, base::kTagsMax, "tags", [&](auto& one) { fields(io, one); });
  fields(io, m.links);
  io.text(m.why, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Start> m) {
  io.attempt(m.attempt);
  fields(io, m.round);
  contributors(io, m.contributors);
  io.list(m.receivers, base::kPeersMax, "receivers", [&](auto& one) { io.u32(one); });
  io.require(ascending(m.receivers, [](PeerId id) { return id; }),
             "receivers are not in ascending order of id");
  io.blob(m.plan, base::kPlanBytesMax, "plan");
  io.u64(m.call);
  io.flag(m.has_state);
  io.u64(m.revision);
  io.digest(m.state);
  io.run(m.audit);
}

template <typename Io>
void fields(Io& io, In<Io, Outcome> m) {
  io.attempt(m.attempt);
  fields(io, m.round);
  io.one_of(m.verdict, valid_verdict);
  contributors(io, m.contributors);
  io.u32(m.world);
  io.digest(m.result);
  io.flag(m.retry);
  io.one_of(m.code, valid_code);
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Reject> m) {
  fields(io, m.round);
  io.one_of(m.code, valid_code);
  io.text(m.text, base::kSummaryBytesMax);  // may list who sent what
  io.u64(m.call);
}

template <typename Io>
void fields(Io& io, In<Io, Moved> m) {
  fields(io, m.round);
  io.u64(m.committed);
}

template <typename Io>
void fields(Io& io, In<Io, Waiting> m) {
  fields(io, m.round);
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Evicted> m) {
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Drain> m) {
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, Notice> m) {
  io.text(m.text, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, AuditAsk> m) {
  io.attempt(m.attempt);
  io.list(m.cells, base::kCellsAskedMax, "cells", [&](auto& one) { io.u32(one); });
  io.require(ascending(m.cells, [](std::uint32_t cell) { return cell; }),
             "cells are not in ascending order");
}

template <typename Io>
void fields(Io& io, In<Io, HeartbeatAck> m) {
  io.u64(m.sequence);
}

template <typename Io>
void fields(Io& io, In<Io, SyncReply> m) {
  io.tag(m.tag);
  io.one_of(m.verdict, valid_sync_verdict);
  io.u64(m.revision);
  io.u64(m.restored);
  io.digest(m.digest);
  io.list(m.holders, base::kPeersMax, "holders", [&](auto& one) { fields(io, one); });
  io.one_of(m.code, valid_code);
  io.text(m.text, base::kSummaryBytesMax);  // may list who sent what
  fields(io, m.links);
}

// ---- anybody who may connect -------------------------------------------------------------------

template <typename Io>
void fields(Io&, In<Io, StatusAsk>) {}

template <typename Io>
void fields(Io& io, In<Io, StatusReply> m) {
  io.blob(m.json, base::kStatusBytesMax, "status");
}

template <typename Io>
void fields(Io& io, In<Io, Order> m) {
  io.one_of(m.verb, valid_order_verb);
  io.name(m.subject, base::kSiteNameBytesMax, "subject of an order");
  io.i64(m.span);
  io.text(m.reason, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, OrderReply> m) {
  io.one_of(m.code, valid_code);
  io.text(m.text, base::kTextBytesMax);
}

// ---- journal records ---------------------------------------------------------------------------

template <typename Io>
void fields(Io& io, In<Io, RunRecord> m) {
  io.run(m.run);
  io.u16(m.version);
}

template <typename Io>
void fields(Io& io, In<Io, EpochRecord> m) {
  io.u64(m.epoch);
  io.u32(m.next_id);
  io.list(m.members, base::kPeersMax, "members", [&](auto& one) { fields(io, one); });
  io.require(ids_ascend(m.members), "members are not in ascending order of id");
  io.text(m.reason, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, BirthRecord> m) {
  io.tag(m.tag);
  io.name(m.site, base::kSiteNameBytesMax, "site");
  io.list(m.sources, base::kPeersMax, "sources", [&](auto& one) { io.u64(one); });
  io.list(m.digests, base::kPeersMax, "digests", [&](auto& one) { io.digest(one); });
  io.list(m.descriptors, base::kPeersMax, "descriptors", [&](auto& one) { io.digest(one); });
  io.text(m.summary, base::kSummaryBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, CommitRecord> m) {
  io.attempt(m.attempt);
  fields(io, m.round);
  contributors(io, m.contributors);
  io.u32(m.world);
  io.digest(m.result);
  io.flag(m.is_state);
  io.digest(m.state);
  io.blob(m.plan, base::kPlanBytesMax, "plan");
  io.list(m.shard_results, base::kPeersMax, "shard results", [&](auto& one) { io.digest(one); });
  io.list(m.receivers, base::kPeersMax, "receivers", [&](auto& one) { io.u32(one); });
  io.require(ascending(m.receivers, [](PeerId id) { return id; }),
             "receivers are not in ascending order of id");
}

template <typename Io>
void fields(Io& io, In<Io, StateRecord> m) {
  io.tag(m.tag);
  io.u64(m.revision);
  io.flag(m.weak);
  io.list(m.digests, base::kPeersMax, "digests", [&](auto& one) { io.digest(one); });
}

template <typename Io>
void fields(Io& io, In<Io, RestoreRecord> m) {
  io.tag(m.tag);
  io.u64(m.revision);
  io.u64(m.of);
  io.flag(m.wished);
  io.name(m.site, base::kSiteNameBytesMax, "site");
  io.list(m.digests, base::kPeersMax, "digests", [&](auto& one) { io.digest(one); });
}

template <typename Io>
void fields(Io& io, In<Io, BanRecord> m) {
  io.raw(m.key);
  io.u64(m.until_unix_ms);
  io.name(m.site, base::kSiteNameBytesMax, "site");
  io.text(m.reason, base::kTextBytesMax);
}

template <typename Io>
void fields(Io& io, In<Io, AdmitRecord> m) {
  io.raw(m.key);
}

template <typename Io>
void fields(Io& io, In<Io, TokenRecord> m) {
  io.name(m.token, base::kTokenNameBytesMax, "name of a token");
  io.flag(m.revoked);
  io.raw(m.key);
  io.u32(m.shard);
}

}  // namespace jccl::wire
