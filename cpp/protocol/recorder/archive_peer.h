// A peer's state, its events and its effects, field by field: see archive.h and archive_master.h.
// Private to peer_archive.cc.
#pragma once

#include "protocol/peer/peer_state.h"
#include "protocol/recorder/archive.h"

namespace jccl::protocol {

template <>
inline constexpr std::uint64_t kValuesOf<MasterConnection> = 6;
template <>
inline constexpr std::uint64_t kValuesOf<CallPhase> = 4;

JCCL_ARCHIVED(PeerOptions, run, site, shard, shards, addresses, start_peers, max_rate, day_bytes,
              master_grace, reconnect_pause)
JCCL_ARCHIVED(Call, tag, descriptor, summary, hint, contributors_max, unit_weights, quorum, weight,
              is_state, fingerprint, deadline, before)
JCCL_ARCHIVED(SyncCall, tag, source, restore, user_has, revision, digest, descriptor, summary,
              deadline)
JCCL_ARCHIVED(OpenCall, call, number, n, phase, weight, left_out, left_out_why, receiver, orphan,
              attempts, attempt, beats, own, shares, audit, failed, outcome, waiting)
JCCL_ARCHIVED(Doubt, about, is_state, kept, report)
JCCL_ARCHIVED(OpenSync, call, went_back, fetching, disputed, current, again, waiting)

template <typename Io>
void fields(Io& io, wire::In<Io, PeerMachine::State> whole) {
  auto& [options, incarnation, run, now, last, wake, link, heartbeat, silence, run_rate, heard,
         lost_at, refused, dial_at, pause, unwelcome, life_pause, next_beat, next_ask, sequence,
         progress, moving, measured, id, epoch, departing, departed_by, broken, roster, calls,
         calls_made, doubts, syncs, committed, held, resync, changed, fx] = whole;
  all(io, options, incarnation, run, now, last, wake, link, heartbeat, silence, run_rate, heard,
      lost_at, refused, dial_at, pause, unwelcome, life_pause, next_beat, next_ask, sequence,
      progress, moving, measured, id, epoch, departing, departed_by, broken, roster, calls,
      calls_made, doubts, syncs, committed, held, resync, changed);
  (void)fx;  // gone between two events
}

// ---- events and effects ------------------------------------------------------------------------

JCCL_ARCHIVED_EMPTY(Connected)
JCCL_ARCHIVED(Disconnected, cause)
JCCL_ARCHIVED(FromMaster, message)
JCCL_ARCHIVED(CancelCall, tag)
JCCL_ARCHIVED(AttemptDone, attempt, result, shares, audit)
JCCL_ARCHIVED(AuditAnswer, attempt, parts)
JCCL_ARCHIVED(AttemptFailed, attempt, cause, peer, text)
JCCL_ARCHIVED(FetchDone, held)
JCCL_ARCHIVED(FetchFailed, tag, text, disputed)
JCCL_ARCHIVED(HolderOutvoted, said)
JCCL_ARCHIVED(WorkRepeated, said)
JCCL_ARCHIVED(FrameViolation, said)
JCCL_ARCHIVED(PublishState, held)
JCCL_ARCHIVED(StateChanged, tag, why)
JCCL_ARCHIVED_EMPTY(Depart)
JCCL_ARCHIVED(NewLife, incarnation)
JCCL_ARCHIVED(Progress, bytes, moving)
JCCL_ARCHIVED(NewMeasures, measured)
JCCL_ARCHIVED_EMPTY(PeerTick)

JCCL_ARCHIVED(RunAttempt, start, receiver)
JCCL_ARCHIVED(CompleteCall, tag, n, status, world, epoch, attempts, contributors)
JCCL_ARCHIVED(FetchSnapshot, want, holders, links)
JCCL_ARCHIVED(CompleteSync, tag, status, held, went_back)

}  // namespace jccl::protocol
