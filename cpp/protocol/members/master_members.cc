// The master's members: who is let in, who is waited for in which tag, and the epochs and rosters
// that say so. Every change of the membership is journaled here and nowhere else. Pure; one event
// at a time.
#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"
#include "protocol/members/roster.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

constexpr std::size_t kEpochNamesMax = 2048;  // bytes, of one line of the history

}  // namespace

bool Membership::complete(const std::string& site) const {
  std::uint32_t present = 0, shards = 0;
  for (const wire::Incarnation incarnation : connections().processes_at(site)) {
    const ProcessRecord& process = processes().at(incarnation);
    shards = process.shards;
    present += process.connected() && process.resumed;
  }
  return shards > 0 && present == shards;
}

// A call on a tag without state is a reason by itself, when all its shards made it: one that calls
// while another still fetches would be waited for in vain. (Of the first members one is enough:
// what their shards wait for is told best to members.) With a state to synchronise, all of them
// must match at one moment. (A Sync on a tag that is not born can't match, and its birth may wait
// for this very site.)
bool Membership::wants_in(const std::string& site) const {
  if (!complete(site) || !conduct().kept_outside(site).empty()) return false;
  const auto& shards = connections().sites_.at(site);
  bool all_match = true;
  for (const wire::Incarnation incarnation : shards) {
    const ProcessRecord& process = processes().at(incarnation);
    if (process.id != 0) return false;
    all_match = all_match && !process.syncs.empty();
    for (const auto& [tag, asked] : process.syncs) {
      const bool behind = JCCL_PLANTED("joiner-one-behind") &&
                          asked.sync.revision + 1 == ledger().standing(tag).committed;
      all_match = all_match && (asked.matches || behind) && state_sync().admission_open(tag, site);
    }
  }
  const bool one_is_enough = established_.empty() || JCCL_PLANTED("let-in-by-one-shard");
  const std::size_t needed = one_is_enough ? 1 : shards.size();
  const auto called = [&](const auto& entry) {
    const auto made_it = [&](wire::Incarnation one) { return entry.second.ready.count(one) > 0; };
    return static_cast<std::size_t>(std::count_if(shards.begin(), shards.end(), made_it)) >= needed;
  };
  return all_match || std::any_of(rounds().begin(), rounds().end(), called);
}

// Each admission is an epoch, and a roster for everybody. Those of a crowd are put off until a
// round can start with them, or to the next heartbeat: else n peers that arrive one by one cost n
// rosters of n members for n peers. Joiners with state have a door to catch, so they are not put
// off.
bool Membership::gathers() const {
  if (ledger().members().size() < kCrowd || all().ticking_) return false;
  const std::size_t sites_needed = std::max(options().min_peers, start_peers());
  return std::none_of(rounds().begin(), rounds().end(), [&](const auto& entry) {
    const Round& round = entry.second;
    if (!round.asking.empty()) return true;
    const std::size_t awaited = owing(entry.first);
    if (round.running.has_value() || round.ready.size() < awaited) return false;
    const std::size_t others = round.ready.size() - awaited;
    return ledger().sites() + others >= sites_needed;
  });
}

bool Membership::admit_some() {
  if (connections().observers() == 0 || gathers()) return false;
  std::map<std::uint64_t, std::string> by_order;  // who connected first gets the lower ids
  for (const auto& [site, shards] : connections().sites_) {
    if (processes().at(*shards.begin()).id != 0 || !wants_in(site)) continue;
    std::uint64_t order = UINT64_MAX;
    for (const wire::Incarnation shard : shards)
      order = std::min(order, processes().at(shard).order);
    by_order[order] = site;
  }
  if (by_order.empty()) return false;
  std::vector<std::string> sites;
  std::size_t members = ledger().members().size();
  for (const auto& [order, site] : by_order) {
    const std::size_t shards = connections().sites_.at(site).size();
    if (members + shards > options().members_max) {
      turn_away(site);
      continue;
    }
    members += shards;
    sites.push_back(site);
  }
  if (sites.empty()) return false;
  admit(sites);
  return true;
}

// There is no room for all its shards.
void Membership::turn_away(const std::string& site) {
  const std::string text =
      cat("the run has ", ledger().members().size(), " members and takes ", options().members_max,
          "; there is no room for the ", connections().sites_.at(site).size(), " of ", site);
  for (ProcessRecord* process : connections().shards_of(site)) {
    std::vector<wire::Tag> asked;
    for (const auto& [tag, sync] : process->syncs) asked.push_back(tag);
    for (const wire::Tag& tag : asked)
      state_sync().reply_refused(*process, tag, Code::kLimit, text);
    for (auto& [tag, round] : rounds()) {
      if (round.ready.count(process->incarnation) > 0) {
        forming().reject(tag, process->incarnation, Code::kLimit, text);
      }
    }
  }
}

void Membership::admit(const std::vector<std::string>& sites) {
  std::vector<wire::Member> members;
  for (const auto& [id, member] : ledger().members()) members.push_back(member);
  wire::PeerId next = ledger().next_id();
  std::string reason;
  std::vector<wire::Incarnation> current;
  for (const std::string& site : sites) {
    for (ProcessRecord* process : connections().shards_of(site)) {
      process->id = next++;
      members.push_back(member_of(*process));
      current.push_back(process->incarnation);
      conduct().note_entry(*process);
    }
    reason += cat(reason.empty() ? "" : ", ", site);
    note("admit", {{"site", site}});
  }
  write_epoch(std::move(members), next, cat("admitted ", reason));
  for (const wire::Incarnation incarnation : current) {
    ProcessRecord* process = connections().record_of(incarnation);
    std::vector<wire::Tag> tags;
    for (const auto& [tag, asked] : process->syncs) {
      const bool behind = JCCL_PLANTED("joiner-one-behind") && ledger().standing(tag).born;
      // A call elsewhere may be why it is let in: members that are READY here don't wait for it.
      if ((asked.matches && state_sync().may_enter(*process, tag)) || behind) tags.push_back(tag);
    }
    for (const wire::Tag& tag : tags) state_sync().reply_current(*process, tag);
    for (const auto& [tag, round] : rounds()) {
      if (round.ready.count(incarnation) > 0) enter(tag, process->site);
    }
  }
}

// Who has been in a round of the run, or shares its state, runs the same program: it is waited for
// in all tags, as calls come in one order on all. A newcomer is waited for where it has called or
// synchronised alone, or its mistake would be everybody's. (Before the first round nobody is new.)
bool Membership::owes(const wire::Tag& tag, wire::PeerId id) const {
  const auto round = rounds().find(tag);
  const bool entered = round != rounds().end() && round->second.entered.count(id) > 0;
  return entered || established_.count(id) > 0 || nobody_is_new(tag) ||
         JCCL_PLANTED("newcomers-owe-all-tags");
}

bool Membership::nobody_is_new(const wire::Tag& tag) const {
  const Standing& at = ledger().standing(tag);
  return !at.born && at.committed == 0 && !ledger().begun();
}

void Membership::enter(const wire::Tag& tag, const std::string& site) {
  Round& round = rounds().at(tag);
  for (const ProcessRecord* process : connections().shards_of(site)) {
    if (process->id != 0 && established_.count(process->id) == 0) round.entered.insert(process->id);
  }
  if (!ledger().standing(tag).born) return;
  std::set<std::string> sharing;
  bool with_known = established_.empty() || JCCL_PLANTED("strangers-vouch-for-each-other");
  for (const auto& [id, member] : ledger().members()) {
    const bool other = established_.count(id) > 0 &&
                       state_votes().holds_newest(processes().at(member.incarnation), tag);
    with_known = with_known || other;
    if (other || round.entered.count(id) > 0) sharing.insert(member.site);
  }
  // A state that it shares with nobody who was in a round may be a mistake, too.
  if (!with_known || (sharing.size() < 2 && ledger().sites() > 1)) return;
  const std::set<wire::PeerId> entered = round.entered;
  for (const wire::PeerId id : entered) settle_in(id);
}

void Membership::settle_in(wire::PeerId id) {
  if (!established_.insert(id).second) return;
  for (auto& [tag, round] : rounds()) round.entered.erase(id);
  touch_all();  // who is waited for has changed
}

std::size_t Membership::owing(const wire::Tag& tag) const {
  if (nobody_is_new(tag)) return ledger().members().size();
  return established_.size() + rounds().at(tag).entered.size();
}

std::size_t Membership::sites_in(const wire::Tag& tag) const {
  if (owing(tag) == ledger().members().size()) return ledger().sites();
  std::set<std::string> sites;
  for (const auto& [id, member] : ledger().members()) {
    if (owes(tag, id)) sites.insert(member.site);
  }
  return sites.size();
}

// After a restart: who was in a tag's last round is known. Who synchronised a state after that says
// so when it comes back; until then all may have.
void Membership::know_participants() {
  for (const auto& [tag, standing] : ledger().tags()) {
    rounds()[tag];
    if (standing.recent.empty()) continue;
    std::vector<wire::PeerId> ids = standing.recent.back().receivers;
    for (const auto& one : standing.recent.back().contributors) ids.push_back(one.id);
    for (const wire::PeerId id : ids) {
      if (ledger().members().count(id) > 0) established_.insert(id);
    }
  }
  for (const auto& [tag, standing] : ledger().tags()) {
    for (const auto& [id, member] : ledger().members()) {
      if (!standing.born || established_.count(id) > 0) continue;
      rounds().at(tag).entered.insert(id);
      rounds().at(tag).assumed.insert(id);
    }
  }
}

// A site is in a round with all its shards or not at all: it stays if any of them holds the state.
void Membership::leave_what_it_does_not_hold(const ProcessRecord& process) {
  const std::vector<ProcessRecord*> shards = connections().shards_of(process.site);
  for (auto& [tag, round] : rounds()) {
    if (round.assumed.erase(process.id) == 0) continue;
    const bool stays = state_votes().holds_newest(process, tag);
    bool last = true;
    for (const ProcessRecord* one : shards) {
      if (stays) round.assumed.erase(one->id);
      last = last && round.assumed.count(one->id) == 0;
    }
    for (const ProcessRecord* one : shards) {
      if (!stays && last) round.entered.erase(one->id);
    }
  }
}

void Membership::write_epoch(std::vector<wire::Member> members, wire::PeerId next_id,
                             std::string reason) {
  wire::EpochRecord record;
  record.epoch = ledger().epoch() + 1;
  record.next_id = next_id;
  if (JCCL_PLANTED("ids-given-again") && !members.empty()) record.next_id = members.back().id + 1;
  record.members = std::move(members);
  for (wire::Member& member : record.members) {
    const ProcessRecord* process = connections().record_of(member.incarnation);
    if (process != nullptr && process->seen) member.addresses = process->addresses;
  }
  record.reason = std::move(reason);
  std::string names;
  for (const auto& member : record.members) {
    if (names.size() > kEpochNamesMax) {
      names += " …";
      break;
    }
    names += cat(names.empty() ? "" : " ", member.site);
    if (member.shards > 1) names += cat("/", member.shard);
  }
  std::set<wire::PeerId> ids;
  for (const wire::Member& member : record.members) ids.insert(member.id);
  const auto left = [&](wire::PeerId id) { return ids.count(id) == 0; };
  std::erase_if(established_, left);
  for (auto& [tag, round] : rounds()) {
    std::erase_if(round.entered, left);
    std::erase_if(round.assumed, left);
  }
  note("epoch", {{"epoch", cat(record.epoch)}, {"members", names}, {"reason", record.reason}});
  journal(std::move(record));
  roster_dirty_ = connections().processes_changed_ = true;
}

wire::Member Membership::member_of(const ProcessRecord& process) const {
  return {process.id,     process.incarnation, process.site, process.shard,
          process.shards, process.addresses,   process.key};
}

wire::Roster Membership::roster() const {
  wire::Roster roster;
  roster.epoch = ledger().epoch();
  roster.links.generation = connections().links_;
  for (const auto& [id, member] : ledger().members()) {
    roster.members.push_back(member_of(processes().at(member.incarnation)));
  }
  std::set<wire::Tag> tags;
  for (const auto& [tag, standing] : ledger().tags()) tags.insert(tag);
  for (const auto& tag : tags) {
    roster.tags.push_back({tag, ledger().standing(tag).committed, state_sync().is_state(tag)});
  }
  return roster;
}

void Membership::flush_roster() {
  if (!roster_dirty_) return;
  roster_dirty_ = false;
  const wire::Roster whole = roster();
  wire::Roster change = change_of(told_, whole);
  change.why = std::exchange(departures_, {});
  for (auto& [incarnation, process] : processes()) {
    if (!process.connected() || !process.resumed) continue;
    const bool follows = told_.epoch != 0 && process.roster_epoch == told_.epoch &&
                         process.told_as_member == (process.id != 0);
    tell(process, follows ? change : whole);
  }
  told_ = whole;
}

// Who is no member hears where the tags stand, and of nobody: not where they are, nor how to link.
void Membership::tell(ProcessRecord& process, wire::Roster roster) {
  process.roster_epoch = roster.epoch;
  process.told_as_member = process.id != 0;
  if (process.id == 0 && !JCCL_PLANTED("observers-hear-of-members")) {
    roster.members.clear(), roster.left.clear(), roster.why.clear();
    const bool fetches = std::any_of(process.syncs.begin(), process.syncs.end(),
                                     [](const auto& sync) { return sync.second.fetching; });
    if (!fetches) roster.links = {};  // else its holders have the newest secret, too
  }
  send(process, std::move(roster));
}

std::set<std::string> Membership::member_sites() const {
  std::set<std::string> sites;
  for (const auto& [id, member] : ledger().members()) sites.insert(member.site);
  return sites;
}

std::uint32_t Membership::start_peers() const {
  if (begun_) return 0;
  const bool said_by_the_operator = options().start_peers > 1;
  if (said_by_the_operator && !JCCL_PLANTED("the-highest-wish-counts")) {
    return options().start_peers;
  }
  const ProcessRecord* process = patient();
  return std::max(options().start_peers, process == nullptr ? 0 : process->start_peers);
}

// A wish ends with the life that has it. What most of those wish for counts, or less: one alone
// would keep a run from starting.
const ProcessRecord* Membership::patient() const {
  std::vector<const ProcessRecord*> wishes;
  for (const auto& [incarnation, process] : processes()) {
    if (process.start_peers > 0) wishes.push_back(&process);
  }
  if (wishes.empty()) return nullptr;
  const auto middle = JCCL_PLANTED("the-highest-wish-counts")
                          ? std::prev(wishes.end())
                          : wishes.begin() + static_cast<std::ptrdiff_t>((wishes.size() - 1) / 2);
  std::nth_element(
      wishes.begin(), middle, wishes.end(), [](const ProcessRecord* a, const ProcessRecord* b) {
        return std::tie(a->start_peers, a->incarnation) < std::tie(b->start_peers, b->incarnation);
      });
  return *middle;
}

// For those who wait for the first sites: one that was there and ended is hardly still to come.
void Membership::note_gone(const std::string& site, std::string why) {
  constexpr std::size_t kNamed = 8;
  if (begun_) return;
  gone_[site] = std::move(why);
  if (gone_.size() > kNamed) gone_.erase(gone_.begin());
}

std::string Membership::gone_text() const {
  std::string text;
  for (const auto& [site, why] : gone_) text += cat("; ", why);
  return text;
}

// The sole contributor is not done, and others wait, who can't come in before the attempt ends. It
// has no data to wait for; beside them it is as slow as others may be. True: the attempt has ended.
bool Membership::open_the_door(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  const bool agreed = running.phase() == AttemptPhase::kAgreed;
  if (!all().ticking_ || agreed || now() < running.since + options().silence) return false;
  const auto& parts = running.parts();
  const bool alone = std::all_of(parts.begin(), parts.end(), [&](const auto& entry) {
    const Participant& part = entry.second;
    return part.site == parts.begin()->second.site && part.contributes() && !part.done.has_value();
  });
  if (!alone || JCCL_PLANTED("a-sole-member-shuts-the-door")) return false;
  const bool waited = std::any_of(processes().begin(), processes().end(), [&](const auto& entry) {
    const auto& [incarnation, process] = entry;
    const bool calls = round.ready.count(incarnation) > 0;
    if (process.id != 0) return calls && running.part_of(incarnation) == nullptr;
    const auto asked = process.syncs.find(tag);
    const bool current = asked != process.syncs.end() && asked->second.matches;
    const bool waits = process.connected() && (calls || current);
    return waits && complete(process.site) && conduct().kept_outside(process.site).empty();
  });
  if (waited) attempts().abort(tag, base::Code::kAborted, "others wait to come in", true);
  return waited;
}

}  // namespace jccl::protocol
