// The machines as values: copied, and hashed over everything that decides what they do next. What
// only words say (texts for people, counters for views) is left out, so that states that differ in
// nothing else are one. Not used by the drivers. Pure.
#include <algorithm>
#include <concepts>

#include "base/hash64.h"
#include "protocol/master/master_state.h"
#include "protocol/peer/peer_state.h"
#include "wire/serialize.h"

namespace jccl::protocol {
namespace {

// Options, the planner, the clock of the event being handled and its effects are no state.
template <typename... T>
void same_for_all(const T&...) {}

class Canon {
 public:
  template <typename T>
    requires std::integral<T> || std::is_enum_v<T>
  void put(T value) {
    out_.u64(static_cast<std::uint64_t>(value));
  }
  void put(double value) { put(static_cast<std::int64_t>(value * 1024)); }
  void put(const std::string& text) {
    put(text.size());
    out_.raw(text.data(), text.size());
  }
  void put(const base::Digest& digest) { put(digest.low), put(digest.high); }
  void put(const wire::PublicKey& key) {
    for (const std::uint8_t byte : key) put(byte);
  }
  void put(const wire::Attempt& attempt) { put(attempt.epoch), put(attempt.counter); }
  void put(const wire::RoundName& round) { put(round.tag), put(round.n); }
  void put(const wire::Held& held) { put(held.tag), put(held.revision), put(held.digest); }
  void put(const wire::Message& message) {
    const base::Bytes bytes = wire::encode(message);
    put(bytes.size());
    out_.raw(bytes.data(), bytes.size());
  }
  template <typename A, typename B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first), put(pair.second);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value.has_value()) put(*value);
  }
  template <typename... T>
  void put(const std::map<T...>& values) {
    put(values.size());
    for (const auto& [key, value] : values) put(key), put(value);
  }
  template <typename T>
  void put(const std::set<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
  }

  // Each takes its struct apart by name: a new field does not compile here until it is put, or
  // named among those that decide nothing.
  void put(wire::Outcome outcome) {
    outcome.text.clear();
    put(wire::Message(std::move(outcome)));
  }
  void put(const wire::Sync& sync) { put(wire::Message(sync)); }
  void put(const AskedSync& asked) {
    const auto& [sync, deadline, fetching, holders, matches, told, noted] = asked;
    put(noted), put(sync), put(deadline), put(fetching), put(holders), put(matches), words(told);
  }
  void put(const OpenReady& open) {
    const auto& [ready, deadline, since, called, time, told] = open;
    put(wire::Message(ready)), put(deadline), put(since), put(called), put(time), words(told);
  }
  void put(const Cut& cut) {
    const auto& [until, times, rounds] = cut;
    put(until), put(times), put(rounds);
  }
  void put(const Word& word) {
    const auto& [brings, of, at, source] = word;
    put(of), put(brings), put(at), put(source);
  }
  void put(const Claims& claims) { put(claims.sites()), put(claims.differed()); }
  void put(const Participant& part) {
    const auto& [id, incarnation, site, shard, weight, call, deadline, called, time, evicted,
                 failed, told_again, done, shares, audit] = part;
    put(called), put(time), put(told_again);
    put(id), put(incarnation), put(site), put(shard), put(weight), put(call), put(deadline);
    put(evicted), put(failed), put(done), put(wire::Message(wire::Done{{}, {}, shares, audit}));
  }
  void put(const Told& told) {
    put(told.result);
    for (const std::uint8_t byte : told.root) put(byte);
    put(told.cells.size());
    for (const std::uint32_t cells : told.cells) put(cells);
  }
  void put(const CellName& name) { put(name.shard), put(name.cell); }
  void put(const AuditedCell& cell) {
    const auto& [parts, result] = cell;
    put(parts.size()), put(result.has_value());
    for (const auto& [id, part] : parts) put(id), put(wire::Message(part));
    if (result.has_value()) put(wire::Message(*result));
  }
  void put(const Audit& audit) {
    const auto& [drawn, cells, asked, open, batch, batches, since, took, pieces, shown] = audit;
    put(drawn), put(cells.size()), put(asked), put(open), put(batch), put(batches), put(since);
    put(took), put(pieces), put(shown);
    for (const CellName& name : cells) put(name);
  }
  void put(const Lack& lack) {
    const auto& [of, since, first, left, is_sum] = lack;
    put(of), put(since), put(first), put(left), put(is_sum);
  }
  void put(const MasterAttempt& running) { running.each_field(*this); }
  void put(const AbortedAttempt& aborted) {
    const auto& [outcome, otherwise] = aborted;
    put(outcome), put(otherwise);
  }
  void put(const Departed& departed) {
    const auto& [site, key, token, since, at, stays] = departed;
    put(site), put(key), put(token), put(since), put(at), put(stays);
  }
  void put(const LinkFailures& failures) {
    const auto& [attempts, since] = failures;
    put(attempts), put(since);
  }
  void put(const RoundMemory& memory) {
    const auto& [link_failures, named, cut, began_late, corrupt, refusal, guarded, aborted, tries,
                 paused_until, failed_since, failed_at, left, ended] = memory;
    words(refusal);
    put(tries), put(paused_until);
    put(failed_since), put(failed_at), put(left), put(ended);
    put(link_failures), put(cut), put(named), put(began_late), put(corrupt), put(aborted);
    put(guarded.empty()), words(guarded);
  }
  void put(const Round& round) {
    const auto& [ready, running, told, memory, entered, assumed, poll, without, skipped,
                 quorum_since, asks_quorum, quorum, met_since, late, lost_since, unasked_since,
                 unborn_since, claims, unclaimed_at, claims_due, half_since, unheld_since, brought,
                 brought_at, opened_by, before, asking, ready_due, sync_due, commits, aborts,
                 contributed, audit, audited, audit_bytes, usual, cut_short, needed, held_since,
                 held, took, took_before, spared, weight] = round;
    put(ready), put(running), put(memory), put(without), put(skipped), put(quorum_since), put(late);
    put(asks_quorum), put(quorum.share), put(quorum.grace), put(met_since);
    put(lost_since), put(unasked_since), put(unborn_since), put(claims), put(unclaimed_at),
        put(claims_due), put(half_since), put(unheld_since), put(brought), put(brought_at),
        put(asking), put(ready_due), put(sync_due);
    put(contributed), put(usual), put(cut_short), put(needed), put(held_since), put(held),
        put(took), put(took_before), put(spared), put(weight), put(opened_by), put(before),
        put(entered), put(assumed), put(poll.has_value());
    if (poll.has_value()) {
      const auto& [revision, tier, election, doubt_since, dispute] = *poll;
      put(revision), put(tier), put(doubt_since), put(dispute.empty());
      election.each_field(*this);
    }
    words(told), words(audit), counted(commits), counted(aborts), counted(audited),
        counted(audit_bytes);
  }
  void put(const Call& call) {
    const auto& [tag, descriptor, summary, hint, contributors_max, unit_weights, quorum, weight,
                 is_state, fingerprint, deadline, before] = call;
    put(contributors_max), put(unit_weights), put(quorum.share), put(quorum.grace);
    put(tag), put(descriptor), put(weight), put(is_state), put(deadline), put(fingerprint);
    put(before);
    put(hint.size()), words(summary);
  }
  void put(const OpenCall& open) {
    const auto& [call, number, n, phase, weight, left_out, why, receiver, orphan, attempts, attempt,
                 beats, own, shares, audit, failed, outcome, waiting] = open;
    put(beats), put(call), put(number), put(n), put(phase), put(weight), put(left_out),
        put(receiver);
    put(orphan), put(attempt), put(own), put(outcome), put(failed.has_value());
    put(wire::Message(wire::Done{{}, {}, shares, audit}));
    if (failed.has_value()) put(failed->cause), put(failed->peer);
    words(why), words(waiting), counted(attempts);
  }
  void put(const Doubt& doubt) {
    const auto& [about, is_state, kept, report] = doubt;
    put(about.attempt), put(about.round), put(is_state), put(kept), put(report.has_value());
    if (report.has_value()) put(report->index());  // a Done, whose digest is kept, or a Fail
  }
  void put(const OpenSync& open) {
    const auto& [call, went_back, fetching, disputed, current, again, waiting] = open;
    const auto& [tag, source, restore, user_has, revision, digest, descriptor, summary, deadline] =
        call;
    put(tag), put(source), put(restore), put(user_has), put(revision), put(digest), put(descriptor),
        put(deadline);
    put(went_back), put(fetching), put(disputed), put(current), put(again);
    words(summary), words(waiting);
  }
  void put(const ProcessRecord& process, std::size_t place) {
    const auto& [incarnation, site, shard, shards, start_peers, max_rate, day_bytes, addresses, key,
                 token, gate_passed, uses, may_order, in_commit, served_since, served_to,
                 waited_since, id, conn, resumed, roster_epoch, told_as_member, seen, said_held,
                 order, since, jumped, heard, gone, progress, moving, beat, moving_before,
                 beat_before, syncs, asked, held, fetched, behind, may_hold, told_back, knocking,
                 spoilt, edit_noted, missed, drain, accuses] = process;
    put(incarnation), put(site), put(shard), put(shards), put(start_peers), put(addresses.size());
    put(max_rate), put(day_bytes);
    put(token), put(gate_passed), put(uses), put(may_order), put(in_commit), put(served_since),
        put(served_to), put(waited_since);
    put(id), put(conn), put(resumed), put(roster_epoch), put(told_as_member), put(seen),
        put(said_held), put(place), put(jumped);
    put(process.connected() ? heard : gone), put(key), put(syncs), put(asked), put(held),
        put(fetched), put(behind), put(may_hold), put(told_back), put(knocking), put(spoilt),
        put(edit_noted);
    put(missed), put(wire::Message(wire::Heartbeat{0, 0, moving})), put(beat), put(accuses);
    put(drain.empty()), words(drain);
    put(wire::Message(wire::Heartbeat{0, 0, moving_before})), put(beat_before);
    counted(progress), counted(order);  // only who came before whom matters
    same_for_all(since);                // in a run that is full
  }

  // What says something to people, and what is counted for them.
  void words(const std::string&) {}
  void counted(std::uint64_t) {}

  base::Digest digest() {
    const base::Bytes bytes = out_.take();
    return {base::hash64(bytes, 1), base::hash64(bytes, 2)};
  }

 private:
  base::Writer out_;
};

}  // namespace

MasterMachine::MasterMachine(std::unique_ptr<State> state) : state_(std::move(state)) {}

MasterMachine MasterMachine::clone() const {
  return MasterMachine(std::make_unique<State>(*state_));
}

// What the journal says is not in it: whoever holds the journal adds that.
base::Digest MasterMachine::digest() const {
  const State& all = *state_;
  const auto& [options, planner, ledger, now, last, wake, started_at, next_tick, before, woke_at,
               doomed, processes, rounds, touched, settled, ticking, fx] =
      static_cast<const Frame&>(all);
  const auto& [conns, left, links, sites, of_key, processes_due, order, processes_changed,
               left_in_order, probed_last] = static_cast<const Connections&>(all);
  const auto& [begun, took_over, gone, told, departures, roster_dirty, established] =
      static_cast<const Membership&>(all);
  const auto& [kept] = static_cast<const Seats&>(all);
  const auto& [blame, guilty, holders, throttles] = static_cast<const Conduct&>(all);
  const auto& [cuts] = static_cast<const LinkFaults&>(all);
  const auto& [audited] = static_cast<const Findings&>(all);
  const auto& [counter, states_crossed] = static_cast<const Forming&>(all);
  const auto& [pauses_due, running, edges_seen] = static_cast<const RunningAttempts&>(all);
  const auto& [holds, hold_began, holds_rest] = static_cast<const StateSync&>(all);
  const auto& [crossed_since] = static_cast<const Wording&>(all);
  same_for_all(options, planner, now, fx, touched, processes_changed,
               ticking);  // done with the event
  same_for_all(pauses_due, holds_rest);
  same_for_all(left_in_order);
  same_for_all(before, settled);
  same_for_all(links);  // an epoch that is told, and decides nothing here
  same_for_all(sites, of_key, running, order, edges_seen,
               crossed_since);     // follow from the rest, or words
  same_for_all(guilty, holders);   // punished by the end of the event
  same_for_all(departures, gone);  // words
  Canon canon;
  blame.each_field(canon);
  canon.put(audited.size());
  for (const auto& [key, one] : audited) {
    canon.put(key), canon.put(one.said.size());
    for (const auto& [by, said] : one.said) {
      canon.put(by), canon.put(said.round), canon.put(said.differs), canon.put(said.policy);
      canon.put(said.at);
    }
  }
  canon.put(throttles.size());
  for (const auto& [token, one] : throttles) {
    canon.put(token), canon.put(one.bans), canon.put(one.banned_at), canon.put(one.next_at),
        canon.put(one.open), canon.put(one.held_until), canon.put(one.for_faults);
    one.in_vain.each_field(canon), one.held.each_field(canon);
  }
  canon.put(kept.size());
  for (const auto& [site, seat] : kept) {
    canon.put(site), canon.put(seat.until), canon.put(seat.keys);
  }
  canon.put(ledger.epoch()), canon.put(ledger.fenced());
  canon.put(wake), canon.put(last), canon.put(started_at), canon.put(next_tick);
  canon.put(states_crossed);
  canon.put(begun), canon.put(took_over), canon.put(woke_at), canon.put(counter), canon.put(conns),
      canon.put(doomed);
  std::vector<std::uint64_t> orders;
  for (const auto& [incarnation, process] : processes) orders.push_back(process.order);
  std::sort(orders.begin(), orders.end());
  canon.put(processes.size());
  for (const auto& [incarnation, process] : processes) {
    const auto place = std::lower_bound(orders.begin(), orders.end(), process.order);
    canon.put(process, static_cast<std::size_t>(place - orders.begin()));
  }
  canon.put(processes_due), canon.put(rounds), canon.put(cuts);
  canon.put(holds), canon.put(holds.empty() ? 0 : hold_began);
  canon.put(probed_last), canon.put(established), canon.put(left), canon.put(roster_dirty);
  canon.put(wire::Message(told));
  return canon.digest();
}

PeerMachine::PeerMachine(std::unique_ptr<State> state) : state_(std::move(state)) {}

PeerMachine PeerMachine::clone() const { return PeerMachine(std::make_unique<State>(*state_)); }

base::Digest PeerMachine::digest() const {
  const auto& [options, incarnation, run, now, last, wake, link, heartbeat, silence, run_rate,
               heard, lost_at, refused, dial_at, pause, unwelcome, life_pause, next_beat, next_ask,
               sequence, progress, moving, measured, id, epoch, departing, departed_by, broken,
               roster, calls, calls_made, doubts, syncs, committed, held, resync, changed, fx] =
      *state_;
  same_for_all(options, now, fx, sequence, progress, refused);
  Canon canon;
  canon.put(incarnation), canon.put(run == wire::RunId{}), canon.put(last);
  canon.put(wake), canon.put(link), canon.put(link == MasterConnection::kUp ? heard : lost_at);
  canon.put(heartbeat), canon.put(silence), canon.put(run_rate);
  canon.put(dial_at), canon.put(pause), canon.put(unwelcome), canon.put(life_pause);
  canon.put(next_beat), canon.put(next_ask), canon.put(id), canon.put(epoch);
  canon.put(departing), canon.put(departed_by), canon.put(broken.has_value());
  canon.put(wire::Message(roster)), canon.put(measured.has_value());
  canon.put(wire::Message(wire::Heartbeat{0, 0, moving}));
  canon.put(calls), canon.put(calls_made), canon.put(doubts), canon.put(syncs);
  canon.put(committed), canon.put(held), canon.put(resync), canon.put(changed);
  return canon.digest();
}

}  // namespace jccl::protocol
