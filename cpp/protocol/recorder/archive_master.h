// The master's state, its events and its effects, field by field: see archive.h. Private to
// master_archive.cc. A field that these structs get is named in the row of its struct here, in its
// place; nothing else has to know of it.
#pragma once

#include "protocol/master/master_state.h"
#include "protocol/recorder/archive.h"

namespace jccl::protocol {

template <>
inline constexpr std::uint64_t kValuesOf<Straggler> = 3;
template <>
inline constexpr std::uint64_t kValuesOf<Admission> = 2;
template <>
inline constexpr std::uint64_t kValuesOf<wire::FindingPolicy> = 3;
template <>
inline constexpr std::uint64_t kValuesOf<AttemptPhase> =
    static_cast<std::uint64_t>(AttemptPhase::kCount);

template <>
struct Blank<MasterAttempt> {
  static MasterAttempt make() {
    Participant part;  // an attempt without anybody who contributes is none
    part.weight = 1;
    return MasterAttempt({}, {}, {part}, 1);
  }
};
template <>
struct Blank<Poll> {
  static Poll make() { return Poll{0, 0, Election({}), base::kNever, {}}; }
};

// Classes whose fields are their own.
struct Archived {
  using Account = Blame::Account;
  using Broken = Blame::Broken;

  template <typename Io>
  static void of(Io& io, wire::In<Io, Visits> whole) {
    auto& [paid_at, counted_at] = whole;
    all(io, paid_at, counted_at);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Held> whole) {
    auto& [paid_at, counted, total] = whole;
    all(io, paid_at, counted, total);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Broken> whole) {
    auto& [at, times, forgiven] = whole;
    all(io, at, times, forgiven);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Account> whole) {
    auto& [sum, at, token, counts, departures, out_until, departed_at, in_vain, accusers, witnesses,
           broken, yielded, held, served] = whole;
    all(io, sum, at, token, counts, departures, out_until, departed_at, in_vain, accusers,
        witnesses, broken, yielded, held, served);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Blame> whole) {
    auto& [accounts] = whole;
    all(io, accounts);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Election> whole) {
    auto& [boxes, count, votes] = whole;
    all(io, boxes, count, votes);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Claims> whole) {
    auto& [sites, differed] = whole;
    all(io, sites, differed);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, MasterAttempt> whole) {
    auto& [starts, since, deadline, last_done, avoided, refusals, silent, judged_at, heard_out,
           askers, audit, limited, lacks, got, starves, attempt, round, parts, ids, sites_min,
           world, sites_left, open, agreed, phase, edges, reason] = whole;
    all(io, starts, since, deadline, last_done, avoided, refusals, silent, judged_at, heard_out,
        askers, audit, limited, lacks, got, starves, attempt, round, parts, ids, sites_min, world,
        sites_left, open, agreed, phase, edges, reason);
  }
  // The planner is the driver's: what it answered is kept with the event that asked it, as what the
  // auditor did. Effects are gone between two events.
  template <typename Io>
  static void of(Io& io, wire::In<Io, MasterMachine::State> whole) {
    static_assert(no_fields<WaitCharges, OperatorOrders, Stragglers, Withheld, Audits, StateBirth,
                            StateRestore, StateVotes>);
    auto& [options, planner, ledger, now, last, wake, started_at, next_tick, before, woke_at,
           doomed, processes, rounds, touched, settled, ticking, fx] = room<Frame>(whole);
    auto& [conns, left, links, sites, of_key, processes_due, order, processes_changed,
           left_in_order, probed_last] = room<Connections>(whole);
    auto& [begun, took_over, gone, told, departures, roster_dirty, established] =
        room<Membership>(whole);
    auto& [kept_seats] = room<Seats>(whole);
    auto& [blame, guilty, holders, throttles] = room<Conduct>(whole);
    auto& [cuts] = room<LinkFaults>(whole);
    auto& [audited] = room<Findings>(whole);
    auto& [counter, states_crossed_since] = room<Forming>(whole);
    auto& [pauses_due, running, edges_seen] = room<RunningAttempts>(whole);
    auto& [holds, hold_began, holds_rest_until] = room<StateSync>(whole);
    auto& [crossed_since] = room<Wording>(whole);
    all(io, options, ledger, now, last, wake, started_at, next_tick, before, woke_at, begun,
        took_over, pauses_due, counter, order, conns, left, left_in_order, links, gone, doomed,
        processes, sites, of_key, processes_due, probed_last, rounds, established, running, cuts,
        blame, guilty, holders, throttles, holds, hold_began, kept_seats, holds_rest_until,
        crossed_since, states_crossed_since, touched, edges_seen, settled, processes_changed,
        ticking, roster_dirty, told, departures, audited);
    (void)planner, (void)fx;
  }
  template <typename... Rooms>
  static constexpr bool no_fields = (std::is_empty_v<Rooms> && ...);
  template <typename Of, typename Whole>
  static auto& room(Whole& whole) {
    return static_cast<std::conditional_t<std::is_const_v<Whole>, const Of, Of>&>(whole);
  }
  template <typename Io>
  static void of(Io& io, wire::In<Io, Ledger> whole) {
    auto& [history, has_run, begun, any_born, run, epoch, next_id, members, sites, former, fenced,
           fenced_order, bans, tokens, token_of, let_in, known, known_order, tags, commits] = whole;
    all(io, history, has_run, begun, any_born, run, epoch, next_id, members, sites, former, fenced,
        fenced_order, bans, tokens, token_of, let_in, known, known_order, tags, commits);
  }
};

#define JCCL_ARCHIVED_CLASS(Type)                 \
  template <typename Io>                          \
  void fields(Io& io, wire::In<Io, Type> whole) { \
    Archived::of(io, whole);                      \
  }
JCCL_ARCHIVED_CLASS(Visits)
JCCL_ARCHIVED_CLASS(Held)
JCCL_ARCHIVED_CLASS(Archived::Broken)
JCCL_ARCHIVED_CLASS(Archived::Account)
JCCL_ARCHIVED_CLASS(Blame)
JCCL_ARCHIVED_CLASS(Election)
JCCL_ARCHIVED_CLASS(MasterAttempt)
JCCL_ARCHIVED(Word, brings, of, at, source)
JCCL_ARCHIVED_CLASS(Claims)
JCCL_ARCHIVED_CLASS(Ledger)
#undef JCCL_ARCHIVED_CLASS

// ---- the journal's words -----------------------------------------------------------------------

JCCL_ARCHIVED(Taker, incarnation, key)
JCCL_ARCHIVED(Ban, until_unix_ms, times, site, reason)
JCCL_ARCHIVED(TokenUse, revoked, shards, of, order)
JCCL_ARCHIVED(Revision, number, digests)
JCCL_ARCHIVED(Standing, born, site, first, sources, descriptors, summary, committed, digests, weak,
              recent, takers, decided, restores)

// ---- what the machine remembers besides --------------------------------------------------------

// The auditor is the driver's, as the planner is.
template <typename Io>
void fields(Io& io, wire::In<Io, MasterOptions> whole) {
  auto& [run, start_peers, min_peers, heartbeat, silence, reset_grace, restart_grace, restore_after,
         straggler, straggler_after, sites_max, members_max, history, ban, ban_max, out_max,
         admission, listed, source, weight_max, max_rate, audit, auditor, unix_ahead] = whole;
  all(io, run, start_peers, min_peers, heartbeat, silence, reset_grace, restart_grace,
      restore_after, straggler, straggler_after, sites_max, members_max, history, ban, ban_max,
      out_max, admission, listed, source, weight_max, max_rate, audit, unix_ahead);
  (void)auditor;
}
JCCL_ARCHIVED(AskedSync, sync, deadline, fetching, holders, matches, told, noted)
JCCL_ARCHIVED(ProcessRecord, incarnation, site, shard, shards, start_peers, max_rate, day_bytes,
              addresses, key, token, gate_passed, uses, may_order, in_commit, served_since,
              served_to, waited_since, id, conn, resumed, roster_epoch, told_as_member, seen,
              said_held, order, since, jumped, heard, gone, progress, moving, beat, moving_before,
              beat_before, syncs, asked, held, fetched, behind, may_hold, told_back, knocking,
              spoilt, edit_noted, missed, drain, accuses)
JCCL_ARCHIVED(OpenReady, ready, deadline, since, called, time, told)
JCCL_ARCHIVED(Participant, id, incarnation, site, shard, weight, call, deadline, called, time,
              evicted, failed, told_again, done, shares, audit)

JCCL_ARCHIVED(Told, result, root, cells)
JCCL_ARCHIVED(CellName, shard, cell)
JCCL_ARCHIVED(AuditedCell, parts, result)
JCCL_ARCHIVED(Audit, drawn, cells, asked, open, batch, batches, since, took, pieces, shown)
JCCL_ARCHIVED(Lack, of, since, first, left, is_sum)
JCCL_ARCHIVED(AbortedAttempt, outcome, otherwise)
JCCL_ARCHIVED(LinkFailures, attempts, since)
JCCL_ARCHIVED(RoundMemory, link_failures, named, cut, began_late, corrupt, refusal, guarded,
              aborted, tries, paused_until, failed_since, failed_at, left, ended)
JCCL_ARCHIVED(Departed, site, key, token, since, at, stays)
JCCL_ARCHIVED(Poll, revision, tier, election, doubt_since, dispute)
JCCL_ARCHIVED(Round, ready, running, running_told, memory, entered, assumed, poll, without, skipped,
              quorum_since, asks_quorum, quorum, met_since, late, lost_since, unasked_since,
              unborn_since, claims, unclaimed_at, claims_due, half_since, unheld_since, brought,
              brought_at, opened_by, before, asking, ready_due, sync_due, commits, aborts,
              contributed, audit, audited, audit_bytes, usual, cut_short, needed, held_since, held,
              took, took_before, spared, weight)
JCCL_ARCHIVED(Cut, until, times, rounds)
JCCL_ARCHIVED(Findings::Said, tag, round, differs, worst, policy, at)
JCCL_ARCHIVED(Findings::Audited, site, said, convicted, at)
JCCL_ARCHIVED(Throttle, bans, banned_at, next_at, in_vain, held, held_until, open, for_faults)
JCCL_ARCHIVED(KeptSeat, until, keys)

template <typename Io>
void fields(Io& io, wire::In<Io, MasterMachine::State> whole) {
  Archived::of(io, whole);
}

// ---- events and effects ------------------------------------------------------------------------

JCCL_ARCHIVED(Shown, key, token, uses, may_order)
// By what a connection came in matters with its first word alone, and is longer than most others.
template <typename Io>
void fields(Io& io, wire::In<Io, ConnMessage> whole) {
  auto& [conn, message, shown] = whole;
  all(io, conn, message);
  const bool first =
      std::holds_alternative<wire::Hello>(message) || std::holds_alternative<wire::Order>(message);
  if (first && !JCCL_PLANTED("shown-not-recorded")) value(io, shown);
}
JCCL_ARCHIVED(ConnClosed, conn, nonsense)
JCCL_ARCHIVED(ProbeAnswer, incarnation, refused)
JCCL_ARCHIVED(EvictSite, site)
JCCL_ARCHIVED_EMPTY(Tick)

JCCL_ARCHIVED(MasterSend, conn, message)
JCCL_ARCHIVED(HistoryLine, kind, named)

}  // namespace jccl::protocol
