// P7 joining disturbs nobody. In every run: a site is admitted only where the run stands; not while
// members are ready that would have to wait for it; a round is held for one for a second at most;
// and an attempt ends only for what befell its contributors. In runs where nothing happens but
// that joiners come and fall behind, no attempt is aborted, no member is lost and every call ends
// well.
#include "protocol/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;
using protocol::MasterMachine;

namespace {

constexpr Duration kHoldMax = kSecond;
constexpr Duration kSlack = 700 * kMillisecond;  // of timers, and of a slow disk

// A round could start with those who are there, and is held for nobody.
bool needs_nobody(const MasterMachine::State& at, std::size_t sites) {
  return at.holds_.empty() && at.ledger_.any_born() &&
         sites >= std::max({1U, at.options_.min_peers, at.start_peers()});
}

std::size_t members_ready(const MasterMachine::State& at, const protocol::Round& round) {
  std::size_t count = 0;
  for (const auto& [incarnation, open] : round.ready) {
    const protocol::Life* life = at.life_of(incarnation);
    count += life != nullptr && life->id != 0;
  }
  return count;
}

bool digests_differ(const AttemptInfo& attempt) {
  std::map<std::uint32_t, wire::Digest> results;
  for (const wire::PeerId id : attempt.contributors) {
    const auto part = attempt.parts.find(id);
    if (part == attempt.parts.end() || !part->second.done) continue;
    const auto [first, fresh] = results.emplace(part->second.shard, part->second.result);
    if (first->second != part->second.result) return true;
  }
  return false;
}

}  // namespace

void World::check_admission(const wire::Member& member) {
  const SimPeer& peer = peers[slots.at(member.incarnation)];
  if (!peer.alive || peer.incarnation != member.incarnation) return;
  if (mix.tags > 1) return;  // the master may not have heard of all its Syncs
  for (const UserTag& tag : peer.tags) {
    if (!tag.syncing) continue;
    const auto last = history.last.find(tag.tag);
    const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
    const auto state = history.states.find({tag.tag, member.shard, newest});
    if (state != history.states.end() && state->second == tag.digest) continue;
    history.fail("P7", cat("slot ", peer.slot, " is admitted with revision ", tag.revision, " of ",
                           tag.tag, ", the run is at ", newest, " or has another digest"));
  }
}

// Nobody may come in once members are ready.
bool World::door_shut(const MasterMachine& machine) const {
  const MasterMachine::State& at = machine.state();
  return mix.tags == 1 && mix.straggler == 0 && needs_nobody(at, at.ledger_.sites());
}

void World::check_door(const MasterMachine& machine, const protocol::MasterEffects& effects) {
  // What one writes that another has followed is refused by the store.
  const SimMaster* master = active();
  if (master == nullptr || &*master->machine != &machine) return;
  const MasterMachine::State& at = machine.state();
  std::map<wire::PeerId, std::string> fresh;
  std::set<std::string> fresh_sites;
  for (const wire::Record& record : effects.journal) {
    const auto* epoch = std::get_if<wire::EpochRecord>(&record);
    if (epoch == nullptr) continue;
    for (const wire::Member& member : epoch->members) {
      if (history.members.count(member.id) > 0) continue;
      fresh[member.id] = member.site;
      fresh_sites.insert(member.site);
    }
  }
  if (fresh.empty() || !needs_nobody(at, at.ledger_.sites() - fresh_sites.size())) return;
  for (const auto& [tag, round] : at.rounds_) {
    if (round.running.has_value() || members_ready(at, round) == 0) continue;
    for (const auto& [id, site] : fresh) {
      if (!at.owes(tag, id) || !at.ledger_.standing(tag).born) continue;
      history.fail("P7", cat("site ", site, " is let in while members are ready for the ",
                             "next round of ", tag, " and have to wait for it"));
    }
  }
}

// While the master serves without any trouble.
void World::check_holds() {
  const SimMaster* master = active();
  if (master == nullptr || !master->running() || now <= master_disturbed_until_) return;
  const MasterMachine::State& at = master->machine->state();
  const Time clock = master->clock();
  for (const auto& [site, until] : at.holds_) {
    if (until <= clock + kHoldMax && clock <= until + kSlack) continue;
    history.fail(
        "P7", cat("rounds are held for ", site, " for more than ", kHoldMax / kMillisecond, " ms"));
  }
}

// The master ended an attempt that it had begun itself.
void World::check_abort(const MasterMachine& machine, const wire::Outcome& outcome) {
  const auto found = history.attempts.find(outcome.attempt);
  if (found == history.attempts.end() || found->second.judged) return;
  AttemptInfo& attempt = found->second;
  attempt.judged = true;
  if (attempt.contributors.empty() || outcome.attempt.epoch < served_epoch_) return;
  if (outcome.code == base::Code::kDeadline || says(outcome.text, " is slow: ")) return;
  if (says(outcome.text, " after all others, who have nothing left for it")) return;
  if (digests_differ(attempt)) return;
  const auto& members = machine.state().ledger_.members();
  for (const wire::PeerId id : attempt.contributors) {
    const auto part = attempt.parts.find(id);
    if (members.count(id) == 0 || part == attempt.parts.end() || part->second.failed) return;
    const std::uint64_t call = part->second.call;
    if (call == 0 || !history.call(call).open) return;
    const wire::Incarnation life = history.everybody.at(id).incarnation;
    if (peers[slots.at(life)].incarnation != life) return;
  }
  history.fail(
      "P7", cat("attempt ", to_text(outcome.attempt), " of ", outcome.round.tag, " ",
                outcome.round.n, " was ended though nothing befell a contributor: ", outcome.text));
}

void p7_nothing_aborts(History& history, const wire::Outcome& outcome) {
  if (!history.joins_only || outcome.verdict != wire::Verdict::kAborted) return;
  if (outcome.code == base::Code::kDeadline) return;  // began when little time was left
  history.fail(
      "P7", cat("attempt ", to_text(outcome.attempt), " of ", outcome.round.tag, " ",
                outcome.round.n, " was aborted though only joiners come and go: ", outcome.text));
}

void p7_members_stay(History& history, const wire::EpochRecord& record) {
  if (!history.joins_only) return;
  for (const auto& [id, member] : history.members) {
    bool stays = false;
    for (const wire::Member& other : record.members) stays = stays || other.id == id;
    if (stays) continue;
    history.fail("P7", cat("member ", id, " is out in epoch ", record.epoch,
                           " though only joiners come and go: ", record.reason));
  }
}

void p7_calls_end_well(History& history, const CallRecord& call) {
  using base::Code;
  if (!history.joins_only || call.success || call.code == Code::kEmpty) return;
  // Of an observer's call; and of calls whose time is short.
  if (call.code == Code::kResync || call.code == Code::kDeadline) return;
  if (call.code == Code::kWrongRun) return;  // the user's mistake
  history.fail("P7", cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " ended ",
                         name_of(call.code), " though only joiners come and go"));
}

}  // namespace jccl::sim
