// P6 one history: a revision of a state tag has one digest, whoever holds, journals or reports it.
#include <algorithm>

#include "protocol/master/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

void p6_state(History& history, const std::string& who, std::uint32_t shard,
              const wire::Held& held) {
  const auto [known, fresh] =
      history.states.emplace(std::tuple(held.tag, shard, held.revision), held.digest);
  if (fresh || known->second == held.digest) return;
  if (history.forged.count({held.tag, held.revision}) > 0) return;  // it will hear so
  history.fail("P6", base::cat(who, " has another digest for ", held.tag, " revision ",
                               held.revision, ", shard ", shard, ": ", to_hex(held.digest), " not ",
                               to_hex(known->second)));
}

// Of those who contributed to the round before, no honest one is a member any more; or, if the
// decision is weak, none of them has voted for another: they are behind, or cut off, for longer
// than anybody is waited for. Then the revision is what the hostile one says, as it would be in a
// run of its own. Whoever has no vote, an evicted maker's next life or a receiver, may know better
// and is not asked while a maker is there.
bool History::liars_decide(const wire::Held& held, bool weak) const {
  const auto commit = commits.find({held.tag, held.revision});
  if (liars.empty() || commit == commits.end()) return false;
  if (weak && !contradicted) return true;
  for (const wire::Contributor& contributor : commit->second.record.contributors) {
    const auto member = members.find(contributor.id);
    if (contributor.weight > 0 && member != members.end() &&
        liars.count(member->second.incarnation) == 0) {
      return false;
    }
  }
  return true;
}

// What an honest voter has said to the master that decides. While that waits for its disk it takes
// no event, so it has heard no more since.
bool World::contradicted(const wire::Record& record) {
  const auto* state = std::get_if<wire::StateRecord>(&record);
  const SimMaster* master = active();
  if (state == nullptr || master == nullptr) return false;
  const auto commit = history.commits.find({state->tag, state->revision});
  if (commit == history.commits.end()) return false;
  const auto& makers = commit->second.record.contributors;
  return std::any_of(makers.begin(), makers.end(), [&](const wire::Contributor& maker) {
    const auto member = history.members.find(maker.id);
    if (member == history.members.end()) return false;
    const wire::Incarnation incarnation = member->second.incarnation;
    const protocol::ProcessRecord* life = master->machine->state().record_of(incarnation);
    if (life == nullptr || history.liars.count(incarnation) > 0) return false;
    const auto held = life->held.find(state->tag);
    return held != life->held.end() && held->second.revision == state->revision &&
           held->second.digest != state->digests.at(life->shard);
  });
}

// Whoever forgot to synchronise its state has no part in a round.
void p6_all_synced(History& history, const wire::CommitRecord& record) {
  const auto attempt = history.attempts.find(record.attempt);
  if (attempt == history.attempts.end()) return;
  for (const wire::Contributor& contributor : record.contributors) {
    const auto part = attempt->second.parts.find(contributor.id);
    if (part == attempt->second.parts.end() || part->second.call == 0) continue;
    const CallRecord& call = history.call(part->second.call);
    if (!call.unsynced) continue;
    history.fail(
        "P6", base::cat("call ", call.id, " of slot ", call.slot, " is in ", record.round.tag, " ",
                        record.round.n, ", and its state was never synchronised"));
  }
}

// Whose user says that the run begins with its state is not given another first one with OK, unless
// it sits where the first one came from: a later life of the source. After the first commit the
// word means nothing.
void SimPeer::check_source(const UserTag& tag) {
  const auto born = world.history.births.find(tag.tag);
  if (!tag.claimed || tag.revision > 0 || *tag.claimed == tag.digest) return;
  if (born == world.history.births.end() || born->second == site) return;
  world.history.fail("P6", base::cat("slot ", slot, " is named source of ", tag.tag,
                                     " and was given the state of ", born->second, " with OK"));
}

// Who contributed stood at the revision before, and all of one shard at one digest.
void p6_contributors_agree(History& history, const wire::CommitRecord& record) {
  const auto attempt = history.attempts.find(record.attempt);
  if (!record.is_state || attempt == history.attempts.end()) return;
  for (const wire::Contributor& contributor : record.contributors) {
    const auto part = attempt->second.parts.find(contributor.id);
    if (part == attempt->second.parts.end()) continue;
    if (history.liars.count(history.everybody.at(contributor.id).incarnation) > 0) continue;
    const AttemptInfo::Part& at = part->second;
    const auto due = history.states.find({record.round.tag, at.shard, record.round.n - 1});
    const bool same = due != history.states.end() && due->second == at.state;
    if (same && at.revision == record.round.n - 1) continue;
    history.fail("P6", base::cat("contributor ", contributor.id, " of ", record.round.tag, " ",
                                 record.round.n, " stood at revision ", at.revision, ", ",
                                 to_hex(at.state)));
  }
}

// What the run goes back to was a revision of it, the newest that somebody brings being the
// master's to find; it is not what the run has anyway.
void p6_restored(History& history, const wire::RestoreRecord& record) {
  const auto last = history.last.find(record.tag);
  const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
  if (record.revision != newest + 1 || record.of == 0 || record.of >= newest) {
    history.fail("P6", base::cat(record.tag, " went back from revision ", newest, " to ", record.of,
                                 " as ", record.revision));
  }
  for (std::size_t shard = 0; shard < record.digests.size(); ++shard) {
    const auto was =
        history.states.find({record.tag, static_cast<std::uint32_t>(shard), record.of});
    if (was != history.states.end() && was->second == record.digests[shard]) continue;
    history.fail("P6", base::cat(record.tag, " went back to what was never revision ", record.of));
  }
}

// A process's state never goes back.
void p6_never_back(History& history, std::uint32_t slot, const wire::Held& held) {
  std::uint64_t& stood = history.stood[{slot, held.tag}];
  if (held.revision < stood) {
    history.fail("P6", base::cat("slot ", slot, " went back from revision ", stood, " of ",
                                 held.tag, " to ", held.revision));
  }
  stood = held.revision;
}

// STATE_LOST is true when it is said: of some shard no member's process has the newest revision,
// not even one that has just got it, by a fetch or a late outcome, and not said so yet. (A site
// whose one shard lost its part has lost the whole. And who loads what it fetched for longer than
// `restore_after` after the last holder went is not waited for: that it fetches is its word alone.
// It is told the same, and says what it has when it synchronises again.)
void World::check_lost(const protocol::MasterMachine& machine, std::uint32_t asker,
                       const wire::Tag& tag) {
  const auto last = history.last.find(tag);
  const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
  std::map<std::uint32_t, wire::PeerId> holders;  // by shard
  const protocol::MasterMachine::State& state = machine.state();
  const auto round = state.rounds_.find(tag);
  const bool long_ago =
      round != state.rounds_.end() && state.now_ >= state.awaited_until(round->second);
  for (const auto& [id, member] : history.members) {
    const SimPeer& peer = peers[slots.at(member.incarnation)];
    if (!peer.alive || peer.incarnation != member.incarnation) continue;
    // Who goes by what the master writes before it says this.
    if (state.ledger_.members().count(id) == 0) continue;
    if (long_ago && peer.data.loads(tag)) continue;
    const auto due = history.states.find({tag, member.shard, newest});
    for (const UserTag& own : peer.tags) {
      if (long_ago && own.lost) continue;
      const bool holds = own.tag == tag && own.revision == newest && due != history.states.end() &&
                         due->second == own.digest;
      if (holds) holders[member.shard] = id;
    }
  }
  if (holders.size() < mix.shards) return;
  history.fail("P6", base::cat("slot ", asker, " is told that revision ", newest, " of ", tag,
                               " is lost, member ", holders.begin()->second, " of slot ",
                               slots.at(history.members.at(holders.begin()->second).incarnation),
                               " has it"));
}

}  // namespace jccl::sim
