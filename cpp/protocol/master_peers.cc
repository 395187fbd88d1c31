// The master's lives: hello, resume, loss, eviction and admission, and the epochs they make. Every
// change of the membership is journaled here and nowhere else. Pure; one event at a time.
#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/rng.h"
#include "base/text.h"
#include "protocol/master_state.h"
#include "protocol/mutants.h"
#include "protocol/roster.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;
using State = MasterMachine::State;

namespace {

const std::set<wire::Incarnation> kNobody;
constexpr std::size_t kProbesMax = 64;  // at once: each is a socket

}  // namespace

std::optional<Status> State::objection(const wire::Hello& hello) const {
  if (hello.version != wire::kVersion) {
    return Status{Code::kVersion, cat("the master speaks protocol version ", wire::kVersion,
                                      ", this peer ", hello.version)};
  }
  if (hello.run != wire::RunId{} && hello.run != ledger_.run()) {
    return Status{Code::kWrongRun, cat("this master has run ", base::to_hex(ledger_.run()),
                                       ", the peer wants ", base::to_hex(hello.run))};
  }
  if (hello.incarnation == 0 || hello.site.empty() || hello.shards == 0 ||
      hello.shards > base::kPeersMax || hello.shard >= hello.shards) {
    return Status{Code::kInvalid, cat("shard ", hello.shard, " of ", hello.shards, " of site \"",
                                      hello.site, "\" is no valid peer")};
  }
  const Life* known = life_of(hello.incarnation);
  if (known != nullptr &&
      (known->site != hello.site || known->shard != hello.shard || known->shards != hello.shards)) {
    return Status{Code::kInvalid, cat("this incarnation is ", name(*known))};
  }
  const Life* other = nullptr;  // that disagrees about the number of shards
  bool replaces = false;        // a member's seat: then the whole site goes
  const auto site = sites_.find(hello.site);
  for (const wire::Incarnation incarnation : site == sites_.end() ? kNobody : site->second) {
    const Life& life = lives_.at(incarnation);
    if (incarnation == hello.incarnation) continue;
    replaces = replaces || (life.id != 0 && life.shard == hello.shard);
    const bool differs = life.shards != hello.shards && life.shard != hello.shard;
    if (differs && life.connected()) other = &life;
  }
  if (other != nullptr && !replaces) {
    return Status{Code::kInvalid, cat("site ", hello.site, " has ", other->shards,
                                      " shards, this peer says ", hello.shards)};
  }
  if (site == sites_.end() && sites_.size() >= options_.sites_max) {
    return Status{Code::kLimit, cat("the run has ", sites_.size(), " sites, the most it takes")};
  }
  if (known == nullptr && lives_.size() >= 2 * base::kPeersMax) {
    return Status{Code::kLimit, cat("the run has ", lives_.size(), " peers, the most it takes")};
  }
  return std::nullopt;
}

void State::on_hello(ConnId conn, const wire::Hello& hello) {
  if (const auto refused = objection(hello)) {
    return refuse(conn, refused->code, refused->text);
  }
  if (ledger_.fenced(hello.incarnation) && !JCCL_MUTANT(kFenceNotChecked)) {
    send(conn, wire::Evicted{cat("the run went on without this life of ", hello.site)});
    return close(conn);
  }
  std::vector<wire::Incarnation> replaced;
  for (const Life* other : shards_of(hello.site)) {
    if (other->incarnation == hello.incarnation || JCCL_MUTANT(kGhostKeepsItsSeat)) continue;
    if (other->shard != hello.shard && other->shards == hello.shards) continue;
    replaced.push_back(other->incarnation);
  }
  for (const wire::Incarnation incarnation : replaced) {
    const Life* other = life_of(incarnation);
    if (other == nullptr) continue;  // went with its site
    if (other->id == 0)
      drop_observer(incarnation);
    else
      evict(hello.site, came_back(*other), "evict");
  }
  attach(conn, hello);
}

void State::attach(ConnId conn, const wire::Hello& hello) {
  Life& life = lives_[hello.incarnation];
  if (life.connected()) {  // the old connection broke and nobody told us
    const ConnId old = life.conn;
    life.conn = 0;
    conns_.erase(old);
    fx_.close.push_back(old);
    doomed_.insert(old);
  }
  detach(life);
  sites_[hello.site].insert(hello.incarnation);
  life.incarnation = hello.incarnation;
  life.site = hello.site;
  life.shard = hello.shard;
  life.shards = hello.shards;
  life.addresses = hello.addresses;
  life.conn = conn;
  life.resumed = false;
  life.roster_epoch = 0;
  life.seen = true;
  life.order = ++order_;
  life.heard = now_;
  lives_due_ = std::min(lives_due_, now_ + options_.silence);
  conns_[conn] = hello.incarnation;
  start_peers_asked_ = std::max(start_peers_asked_, hello.start_peers);
  send(life, wire::Welcome{ledger_.run(), ledger_.epoch(), options_.heartbeat, options_.silence});
}

// Outcomes first, so that the peer knows what it holds before it hears what others do now.
void State::on_resume(Life& life, const wire::Resume& resume) {
  life.resumed = true;
  for (const wire::Held& held : resume.held) report(life, held);
  std::set<wire::Attempt> listed;
  for (const wire::Unresolved& about : resume.unresolved) {
    listed.insert(about.attempt);
    answer(life, about);
  }
  send(life, roster());
  life.roster_epoch = ledger_.epoch();
  // STARTs that were lost on their way, in the order of their attempts: a data plane that has run
  // a later one takes frames of an earlier one for leftovers.
  std::map<wire::Attempt, RunningAttempt*> unheard;
  for (auto& [tag, round] : rounds_) {
    if (!round.running.has_value() || listed.count(round.running->attempt()) > 0) continue;
    const Part* part = round.running->part_of(life.incarnation);
    if (part != nullptr && !part->done.has_value())
      unheard[round.running->attempt()] = &*round.running;
  }
  for (const auto& [attempt, running] : unheard) {
    send_start(life, *running->part_of(life.incarnation), *running);
  }
  lives_changed_ = true;
}

void State::on_closed(ConnId conn) {
  if (doomed_.erase(conn) > 0) return;
  lose(conn);
}

void State::lose(ConnId conn) {
  const auto found = conns_.find(conn);
  if (found == conns_.end()) return;
  const wire::Incarnation incarnation = found->second;
  conns_.erase(found);
  Life* life = incarnation == 0 ? nullptr : life_of(incarnation);
  if (life == nullptr || life->conn != conn) return;
  life->conn = 0;
  detach(*life);
  if (life->id == 0) {
    forget(incarnation);
  } else if (!life->addresses.empty()) {
    fx_.probe.emplace_back(incarnation, life->addresses);
  }
}

// What was said on a lost connection is said again on the next one, or not meant any more.
void State::detach(Life& life) {
  JCCL_CHECK(!life.connected());
  life.resumed = false;
  life.gone = now_;
  lives_due_ = std::min(lives_due_, now_ + options_.reset_grace);
  life.syncs.clear();
  for (auto& [tag, round] : rounds_) round.ready.erase(life.incarnation);
  lives_changed_ = true;
}

void State::drop_observer(wire::Incarnation incarnation) {
  Life* life = life_of(incarnation);
  JCCL_CHECK(life != nullptr && life->id == 0);
  ledger_.fence(incarnation);
  send(*life, wire::Evicted{came_back(*life)});
  if (life->connected()) close(life->conn);  // forgets the life
}

void State::on_leave(Life& life) {
  const std::string text = cat(name(life), " left");
  if (life.id != 0) return evict(life.site, text, "leave");
  const ConnId conn = life.conn;
  ledger_.fence(life.incarnation);
  send(conn, wire::Evicted{text});
  close(conn);
}

void State::evict(std::string site, const std::string& reason, const std::string& kind) {
  std::vector<wire::Member> left;
  for (const auto& [id, member] : ledger_.members()) {
    if (member.site != site) left.push_back(member);
  }
  if (left.size() != ledger_.members().size()) {
    write_epoch(std::move(left), ledger_.next_id(), reason);
    note(kind, {{"site", site}, {"reason", reason}});
  }
  for (auto& [tag, round] : rounds_) {
    if (round.running.has_value()) round.running->gone(site);
  }
  for (Life* life : shards_of(site)) {
    const wire::Incarnation incarnation = life->incarnation;
    ledger_.fence(incarnation);
    if (life->connected()) {
      const ConnId conn = life->conn;
      send(conn, wire::Evicted{reason});
      life->id = 0;
      close(conn);
    } else {
      detach(*life);
      forget(incarnation);
    }
  }
  // Decided by this loss, before the next one can change what the decision rests on.
  std::vector<wire::Tag> tags;
  for (const auto& [tag, round] : rounds_) tags.push_back(tag);
  if (JCCL_MUTANT(kDecisionLeftForLater)) return touch_all();
  for (const wire::Tag& tag : tags) conclude(tag);
}

void State::expire_lives() {
  if (now_ < lives_due_) return;
  lives_due_ = now_ + options_.silence;
  std::vector<wire::Incarnation> due;
  for (const auto& [incarnation, life] : lives_) {
    if (JCCL_MUTANT(kSilenceIsNoDeath) && life.connected()) continue;
    const base::Time end = life.connected() ? life.heard + options_.silence
                           : life.seen || JCCL_MUTANT(kRestartGivesNoGrace)
                               ? life.gone + options_.reset_grace
                               : started_at_ + options_.restart_grace;
    if (now_ >= end)
      due.push_back(incarnation);
    else
      lives_due_ = std::min(lives_due_, end);
  }
  for (const wire::Incarnation incarnation : due) {
    Life* life = life_of(incarnation);
    if (life == nullptr) continue;  // went with its site
    if (life->id != 0) {
      const char* why = life->connected() ? " was silent for too long"
                        : life->seen      ? " lost its connection and did not come back"
                                          : " did not come back after the master's restart";
      evict(life->site, cat(name(*life), why), "evict");
    } else {
      close(life->conn);
    }
  }
}

// After a restart: those that are not back yet are asked whether they still listen, a few at a time
// and again each heartbeat. Who refuses is gone, and is not waited for.
void State::probe_absent() {
  if (now_ >= started_at_ + options_.restart_grace) return;
  std::size_t asked = 0;
  const auto& members = ledger_.members();
  for (auto it = members.upper_bound(probed_last_); it != members.end(); ++it) {
    const wire::Member& member = it->second;
    if (lives_.at(member.incarnation).seen || member.addresses.empty()) continue;
    if (asked++ == kProbesMax) return;
    probed_last_ = it->first;
    fx_.probe.emplace_back(member.incarnation, member.addresses);
  }
  probed_last_ = 0;
}

bool State::complete(const std::string& site) const {
  std::uint32_t present = 0, shards = 0;
  const auto found = sites_.find(site);
  for (const wire::Incarnation incarnation : found == sites_.end() ? kNobody : found->second) {
    const Life& life = lives_.at(incarnation);
    shards = life.shards;
    present += life.connected() && life.resumed;
  }
  return shards > 0 && present == shards;
}

bool State::wants_in(const std::string& site) const {
  if (!complete(site)) return false;
  // A Sync on a tag that is not born can't match, and its birth may wait for this very site.
  const bool any_born = ledger_.any_born();
  bool ready = false, all_sync = true;
  for (const wire::Incarnation incarnation : sites_.at(site)) {
    const Life& life = lives_.at(incarnation);
    if (life.id != 0) return false;
    all_sync = all_sync && !life.syncs.empty();
    for (const auto& [tag, asked] : life.syncs) {
      const bool behind = JCCL_MUTANT(kJoinerOneBehind) &&
                          asked.sync.revision + 1 == ledger_.standing(tag).committed;
      if (any_born && (!(asked.matches || behind) || !door_open(tag))) return false;
    }
    for (const auto& [tag, round] : rounds_) ready = ready || round.ready.count(incarnation) > 0;
  }
  return any_born ? all_sync : ready;
}

// Each admission is an epoch, and a roster for everybody. Those of a crowd are put off until a
// round can start with them, or to the next heartbeat: else n peers that arrive one by one cost n
// rosters of n members for n peers. Joiners with state have a door to catch, so they are not put
// off.
bool State::gathers() const {
  if (ledger_.members().size() < kCrowd || ticking_) return false;
  const std::size_t sites_needed = std::max(options_.min_peers, start_peers());
  return std::none_of(rounds_.begin(), rounds_.end(), [&](const auto& entry) {
    const Round& round = entry.second;
    if (!round.asking.empty()) return true;
    if (round.running.has_value() || round.ready.size() < ledger_.members().size()) return false;
    const std::size_t others = round.ready.size() - ledger_.members().size();
    return ledger_.sites() + others >= sites_needed;
  });
}

bool State::admit_some() {
  if (observers() == 0 || gathers()) return false;
  std::map<std::uint64_t, std::string> by_order;  // who connected first gets the lower ids
  for (const auto& [site, shards] : sites_) {
    if (lives_.at(*shards.begin()).id != 0 || !wants_in(site)) continue;
    std::uint64_t order = UINT64_MAX;
    for (const wire::Incarnation shard : shards) order = std::min(order, lives_.at(shard).order);
    by_order[order] = site;
  }
  if (by_order.empty()) return false;
  std::vector<std::string> sites;
  for (const auto& [order, site] : by_order) sites.push_back(site);
  admit(sites);
  return true;
}

void State::admit(const std::vector<std::string>& sites) {
  std::vector<wire::Member> members;
  for (const auto& [id, member] : ledger_.members()) members.push_back(member);
  wire::PeerId next = ledger_.next_id();
  std::string reason;
  std::vector<wire::Incarnation> current;
  for (const std::string& site : sites) {
    for (Life* life : shards_of(site)) {
      life->id = next++;
      wire::Member member = member_of(*life);
      member.ticket = 0;
      members.push_back(std::move(member));
      current.push_back(life->incarnation);
    }
    reason += cat(reason.empty() ? "" : ", ", site);
    note("admit", {{"site", site}});
  }
  write_epoch(std::move(members), next, cat("admitted ", reason));
  for (const wire::Incarnation incarnation : current) {
    Life* life = life_of(incarnation);
    std::vector<wire::Tag> tags;
    for (const auto& [tag, asked] : life->syncs) {
      if (ledger_.standing(tag).born) tags.push_back(tag);
    }
    for (const wire::Tag& tag : tags) reply_current(*life, tag);
  }
}

void State::write_epoch(std::vector<wire::Member> members, wire::PeerId next_id,
                        std::string reason) {
  wire::EpochRecord record;
  record.epoch = ledger_.epoch() + 1;
  record.next_id = next_id;
  if (JCCL_MUTANT(kIdsGivenAgain) && !members.empty()) record.next_id = members.back().id + 1;
  record.members = std::move(members);
  for (wire::Member& member : record.members) {
    const Life* life = life_of(member.incarnation);
    if (life != nullptr && life->seen) member.addresses = life->addresses;
  }
  record.reason = std::move(reason);
  std::string names;
  for (const auto& member : record.members) {
    names += cat(names.empty() ? "" : " ", member.site);
    if (member.shards > 1) names += cat("/", member.shard);
  }
  std::set<wire::PeerId> ids;
  for (const wire::Member& member : record.members) ids.insert(member.id);
  std::erase_if(cuts_, [&](const auto& entry) {
    return ids.count(entry.first.first) == 0 || ids.count(entry.first.second) == 0;
  });
  note("epoch", {{"epoch", cat(record.epoch)}, {"members", names}, {"reason", record.reason}});
  journal(std::move(record));
  roster_dirty_ = lives_changed_ = true;
}

wire::Member State::member_of(const Life& life) const {
  // The ticket is of the member it names: whoever shows it was sent by this master.
  const std::uint64_t ticket = base::Rng(options_.seed ^ life.incarnation).next();
  return {life.id, life.incarnation, life.site, life.shard, life.shards, life.addresses, ticket};
}

wire::Roster State::roster() const {
  wire::Roster roster;
  roster.epoch = ledger_.epoch();
  for (const auto& [id, member] : ledger_.members()) {
    roster.members.push_back(member_of(lives_.at(member.incarnation)));
  }
  std::set<wire::Tag> tags;
  for (const auto& [tag, standing] : ledger_.tags()) tags.insert(tag);
  for (const auto& tag : tags) {
    roster.tags.push_back({tag, ledger_.standing(tag).committed, is_state(tag)});
  }
  return roster;
}

void State::flush_roster() {
  if (!roster_dirty_) return;
  roster_dirty_ = false;
  const wire::Roster whole = roster();
  const wire::Roster change = change_of(told_, whole);
  for (auto& [incarnation, life] : lives_) {
    if (!life.connected() || !life.resumed) continue;
    const bool follows = told_.epoch != 0 && life.roster_epoch == told_.epoch;
    send(life, follows ? change : whole);
    life.roster_epoch = whole.epoch;
  }
  told_ = whole;
}

Life* State::life_of(wire::Incarnation incarnation) {
  const auto found = lives_.find(incarnation);
  return found == lives_.end() ? nullptr : &found->second;
}

const Life* State::life_of(wire::Incarnation incarnation) const {
  const auto found = lives_.find(incarnation);
  return found == lives_.end() ? nullptr : &found->second;
}

std::vector<Life*> State::shards_of(const std::string& site) {
  std::vector<Life*> shards;
  const auto found = sites_.find(site);
  for (const wire::Incarnation incarnation : found == sites_.end() ? kNobody : found->second) {
    shards.push_back(&lives_.at(incarnation));
  }
  std::sort(shards.begin(), shards.end(),
            [](const Life* a, const Life* b) { return a->shard < b->shard; });
  return shards;
}

void State::forget(wire::Incarnation incarnation) {
  const auto found = lives_.find(incarnation);
  JCCL_CHECK(found != lives_.end());
  const auto site = sites_.find(found->second.site);
  site->second.erase(incarnation);
  if (site->second.empty()) sites_.erase(site);
  lives_.erase(found);
}

std::set<std::string> State::member_sites() const {
  std::set<std::string> sites;
  for (const auto& [id, member] : ledger_.members()) sites.insert(member.site);
  return sites;
}

std::uint32_t State::start_peers() const {
  return begun_ ? 0 : std::max(options_.start_peers, start_peers_asked_);
}

}  // namespace jccl::protocol
