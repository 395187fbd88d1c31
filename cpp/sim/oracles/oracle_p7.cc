// P7 joining disturbs nobody. In every run: a site is admitted only where the run stands; not while
// members are ready that would have to wait for it; a round is held for one for a second at most;
// and an attempt ends only for what befell its contributors. In runs where nothing happens but
// that joiners come and fall behind, no attempt is aborted, no member is lost and every call ends
// well.
#include <algorithm>

#include "protocol/master/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;
using protocol::MasterMachine;

namespace {

constexpr Duration kHoldMax = kSecond;
constexpr Duration kHoldLongest = 32 * kSecond;
constexpr Duration kSlack = 700 * kMillisecond;  // of timers, and of a slow disk

// A round could start with those who are there, and is held for nobody.
bool needs_nobody(const MasterMachine::State& at, std::size_t sites) {
  return at.holds_.empty() && at.ledger_.any_born() &&
         sites >= std::max({1U, at.options_.min_peers, at.start_peers()});
}

std::size_t members_ready(const MasterMachine::State& at, const protocol::Round& round) {
  std::size_t count = 0;
  for (const auto& [incarnation, open] : round.ready) {
    const protocol::ProcessRecord* life = at.record_of(incarnation);
    count += life != nullptr && life->id != 0;
  }
  return count;
}

// Those that owe the tag's next round, without who has just come, are enough for it.
bool enough_for(const MasterMachine::State& at, const wire::Tag& tag,
                const std::map<wire::PeerId, wire::Member>& fresh) {
  std::set<std::string> sites;
  for (const auto& [id, member] : at.ledger_.members()) {
    if (fresh.count(id) == 0 && at.owes(tag, id)) sites.insert(member.site);
  }
  return needs_nobody(at, sites.size());
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

// Whether the tag is how it came in. Who shares another state is waited for in all tags (DECISIONS,
// Known limits): one that it did not ask for, or beside one whose door is open, to any shard of it.
bool enters_by(const MasterMachine::State& at, const Turn::Asked& asked, const wire::Member& member,
               const wire::Tag& tag) {
  const auto own = asked.find(member.incarnation);
  if (own == asked.end() || own->second.count(tag) == 0) return false;
  const auto open = [&](const wire::Tag& other) {
    const auto round = at.rounds_.find(other);
    return other != tag && round != at.rounds_.end() && !round->second.running.has_value() &&
           members_ready(at, round->second) == 0;
  };
  return std::none_of(asked.begin(), asked.end(), [&](const auto& entry) {
    const protocol::ProcessRecord* life = at.record_of(entry.first);
    return life != nullptr && life->site == member.site &&
           std::any_of(entry.second.begin(), entry.second.end(), open);
  });
}

}  // namespace

// Not somebody else by the number of its life, nor a life that is over.
bool World::is_itself(const wire::Member& member) {
  const SimPeer& peer = peers[slots.at(member.incarnation)];
  return peer.incarnation == member.incarnation &&
         member.key == key_of(peer.slot, peer.incarnation);
}

// Of a site that one sits on who isn't itself: it may have called for all of them.
void World::check_admission(const wire::Member& member, const std::vector<wire::Member>& members) {
  for (const wire::Member& other : members) {
    if (other.site == member.site && !is_itself(other)) return;
  }
  const SimPeer& peer = peers[slots.at(member.incarnation)];
  if (!peer.alive) return;
  const auto asked = asked_.find(member.incarnation);
  for (const UserTag& tag : peer.tags) {
    if (!tag.syncing || tag.sync_begun > decided_at_) continue;  // that one is over, or another
    // Of several the master may not have heard of all, and a call is a reason by itself.
    const bool heard = asked != asked_.end() && asked->second.count(tag.tag) > 0;
    if (mix.tags > 1 && !heard) continue;
    const auto last = history.last.find(tag.tag);
    const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
    const auto state = history.states.find({tag.tag, member.shard, newest});
    if (state != history.states.end() && state->second == tag.digest) continue;
    history.fail("P7", cat("slot ", peer.slot, " is admitted with revision ", tag.revision, " of ",
                           tag.tag, ", the run is at ", newest, " or has another digest"));
  }
}

// Nobody may come in once members are ready.
Turn World::before_turn(const MasterMachine& machine, const protocol::MasterEvent& event,
                        Time clock) const {
  const MasterMachine::State& at = machine.state();
  Turn turn;
  turn.door_shut = needs_nobody(at, at.ledger_.sites());
  if (mix.tags == 1 || at.observers() == 0) return turn;
  for (const auto& [tag, round] : at.rounds_) {
    for (const auto& [incarnation, open] : round.ready) {
      const protocol::ProcessRecord* life = at.record_of(incarnation);
      if (life != nullptr) turn.calling.insert(life->site);
    }
  }
  const auto* said = std::get_if<protocol::ConnMessage>(&event);
  const auto of = said == nullptr ? at.conns_.end() : at.conns_.find(said->conn);
  const protocol::ProcessRecord* speaker =
      of == at.conns_.end() ? nullptr : at.record_of(of->second);
  if (speaker != nullptr && std::holds_alternative<wire::Ready>(said->message)) {
    turn.calling.insert(speaker->site);
  }
  for (const auto& [incarnation, life] : at.processes_) {
    if (life.id != 0) continue;
    for (const auto& [tag, sync] : life.syncs) {
      if (sync.deadline > clock) turn.asked[incarnation].insert(tag);
    }
  }
  if (speaker != nullptr && speaker->id == 0) {
    const auto* sync = std::get_if<wire::Sync>(&said->message);
    if (sync != nullptr) turn.asked[speaker->incarnation].insert(sync->tag);
  }
  return turn;
}

// What is refused (a lost state) is not asked for any more; and a call is a reason to let a site
// in, whatever it synchronises.
Turn::Asked World::still_asked(Turn turn, const protocol::MasterEffects& effects) {
  Turn::Asked asked = std::move(turn.asked);
  std::erase_if(asked, [&](const auto& entry) {
    return turn.calling.count(peers[slots.at(entry.first)].site) > 0;
  });
  for (const protocol::MasterSend& sent : effects.send) {
    const auto* reply = std::get_if<wire::SyncReply>(&sent.message);
    if (reply == nullptr || reply->verdict != wire::SyncVerdict::kRefused) continue;
    const auto of = asked.find(peers[conn(sent.conn).slot].incarnation);
    if (of != asked.end()) of->second.erase(reply->tag);
  }
  return asked;
}

// What one writes that another has followed is refused by the store.
bool World::writes(const MasterMachine& machine) {
  const SimMaster* master = active();
  if (master == nullptr || &*master->machine != &machine) return false;
  return mix.masters == 1 || store.holder == master->index;  // the other is dead by now
}

void World::check_door(const MasterMachine& machine, const protocol::MasterEffects& effects,
                       const Turn::Asked& asked) {
  const MasterMachine::State& at = machine.state();
  std::map<wire::PeerId, wire::Member> fresh;
  std::set<std::string> fresh_sites;
  for (const wire::Record& record : effects.journal) {
    const auto* epoch = std::get_if<wire::EpochRecord>(&record);
    if (epoch == nullptr) continue;
    for (const wire::Member& member : epoch->members) {
      if (history.members.count(member.id) > 0) continue;
      fresh[member.id] = member;
      fresh_sites.insert(member.site);
    }
  }
  if (fresh.empty() || !needs_nobody(at, at.ledger_.sites() - fresh_sites.size())) return;
  for (const auto& [tag, round] : at.rounds_) {
    if (round.running.has_value() || members_ready(at, round) == 0) continue;
    if (!enough_for(at, tag, fresh)) continue;
    for (const auto& [id, member] : fresh) {
      if (!at.owes(tag, id) || !at.ledger_.standing(tag).born) continue;
      if (mix.tags > 1 && !enters_by(at, asked, member, tag)) continue;
      history.fail("P7", cat("site ", member.site, " is let in while members are ready for the ",
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
  // Not for longer than half of what any call has that waits for its round.
  Time calls = base::kNever;
  for (const auto& [tag, round] : at.rounds_) {
    if (!at.ledger_.standing(tag).born) continue;
    for (const auto& [incarnation, open] : round.ready) {
      calls = std::min(calls, open.since + (open.deadline - open.since) / 2);
    }
  }
  for (const auto& [site, until] : at.holds_) {
    const Time latest = std::min(at.hold_began_ + kHoldLongest, calls);
    const bool in_time = until <= at.hold_began_ + kHoldLongest && clock <= until + kSlack;
    if (in_time && clock <= std::max(latest, at.hold_began_ + kHoldMax) + kSlack) continue;
    history.fail("P7", cat("rounds are held for ", site, " for ",
                           (clock - at.hold_began_) / kMillisecond, " ms"));
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
  if (says(outcome.text, ", which says that it has nothing left for it")) return;
  if (says(outcome.text, "others wait to come in")) {
    std::set<std::string> sites;
    for (const wire::PeerId id : attempt.contributors) {
      const auto found = history.everybody.find(id);
      sites.insert(found == history.everybody.end() ? "" : found->second.site);
    }
    if (sites.size() == 1) return;
  }
  const bool starved = says(outcome.text, " has not got what ");
  for (const auto& [id, member] : history.everybody) {
    if (history.liars.count(member.incarnation) == 0) continue;
    if (says(outcome.text, cat(member.site, " sent what no plan allows"))) return;
  }
  if (digests_differ(attempt) || attempt.audit_lied) return;
  const auto& members = machine.state().ledger_.members();
  for (const wire::PeerId id : attempt.contributors) {
    const auto part = attempt.parts.find(id);
    if (members.count(id) == 0 || part == attempt.parts.end() || part->second.failed) return;
    const std::uint64_t call = part->second.call;
    if (call == 0 || !history.call(call).open) return;
    const std::string& site = history.everybody.at(id).site;
    const bool lies = history.liars.count(history.everybody.at(id).incarnation) > 0;
    if (starved && (lies || hampered(site) || stripe_stood(site))) return;
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

namespace {

// Its last START came in the last eighth of its time, by which the master ends calls sooner: a
// joiner's that has waited for its turn since, or one whose attempt another's deadline ended. Of a
// READY that is said again the master takes an eighth of what is left then.
bool began_late(const History& history, const CallRecord& call) {
  Time last = 0;
  for (const auto& [attempt, info] : history.attempts) {
    for (const auto& [id, part] : info.parts) {
      if (part.call == call.id) last = std::max(last, part.begun);
    }
  }
  return last > 0 && 8 * (call.deadline - last) < call.deadline - call.begun;
}

}  // namespace

void p7_calls_end_well(History& history, const CallRecord& call) {
  using base::Code;
  if (!history.joins_only || call.success || call.code == Code::kEmpty) return;
  // Of an observer's call; and of calls whose time is short.
  if (call.code == Code::kResync || call.code == Code::kDeadline) return;
  if (call.code == Code::kInDoubt && began_late(history, call)) return;
  if (call.code == Code::kWrongRun || call.unsynced) return;  // the user's mistake
  history.fail("P7", cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " ended ",
                         name_of(call.code), " though only joiners come and go"));
}

}  // namespace jccl::sim
