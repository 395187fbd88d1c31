// The master's lives: hello, resume, loss and eviction. Pure; one event at a time.
#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/master/master_state.h"
#include "protocol/members/roster.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr std::size_t kProbesMax = 64;  // at once: each is a socket
constexpr base::Duration kIdleMin = 10 * base::kSecond;
constexpr base::Duration kSeatMin = 60 * base::kSecond;  // a program compiles before it calls

template <typename Name>
void take_out(std::map<Name, std::set<wire::Incarnation>>* processes, const Name& of,
              wire::Incarnation process) {
  const auto found = processes->find(of);
  if (found == processes->end()) return;
  found->second.erase(process);
  if (found->second.empty()) processes->erase(found);
}

template <typename Keys>
void take_out_of_its_key(Keys* of_key, const ProcessRecord& process) {
  const auto found = of_key->find(process.key);
  if (found == of_key->end()) return;
  take_out(&found->second, process.site, process.incarnation);
  if (found->second.empty()) of_key->erase(found);
}

}  // namespace

std::optional<Status> Connections::objection(const wire::Hello& hello) const {
  if (!wire::has_common_version(hello)) {
    const bool newer = hello.oldest > wire::kVersion;
    return Status{Code::kVersion,
                  cat("the master speaks protocol version ", wire::kVersion, ", this peer ",
                      hello.oldest == hello.version ? "" : cat(hello.oldest, " to "), hello.version,
                      ": upgrade the ", newer ? "master" : "peer")};
  }
  if (hello.run != wire::RunId{} && hello.run != ledger().run()) {
    return Status{Code::kWrongRun, cat("this master has run ", base::to_hex(ledger().run()),
                                       ", the peer wants ", base::to_hex(hello.run))};
  }
  if (hello.incarnation == 0 || hello.site.empty() || hello.shards == 0 ||
      hello.shards > base::kPeersMax || hello.shard >= hello.shards) {
    return Status{Code::kInvalid, cat("shard ", hello.shard, " of ", hello.shards, " of site \"",
                                      hello.site, "\" is no valid peer")};
  }
  if (!base::is_one_line(hello.site)) {
    return Status{Code::kInvalid, "a site's name is one line, without control characters"};
  }
  if (hello.start_peers > options().sites_max) {
    return Status{Code::kInvalid, cat("start_peers = ", hello.start_peers, "; a run has at most ",
                                      options().sites_max, " sites")};
  }
  const ProcessRecord* known = record_of(hello.incarnation);
  if (known != nullptr &&
      (known->site != hello.site || known->shard != hello.shard || known->shards != hello.shards)) {
    return Status{Code::kInvalid, cat("this incarnation is ", wording().name(*known))};
  }
  const ProcessRecord* other = nullptr;  // that disagrees about the number of shards
  bool replaces = false;                 // a member's seat: then the whole site goes
  for (const wire::Incarnation incarnation : processes_at(hello.site)) {
    const ProcessRecord& process = processes().at(incarnation);
    if (incarnation == hello.incarnation) continue;
    replaces = replaces || (process.id != 0 && process.shard == hello.shard);
    const bool differs = process.shards != hello.shards && process.shard != hello.shard;
    if (differs && process.connected() && !gives_way(process)) other = &process;
  }
  if (other != nullptr && !replaces) {
    // Try again: the other may be somebody's who takes the name in vain.
    return Status{Code::kLinkLost, cat("site ", hello.site, " has ", other->shards,
                                       " shards, this peer says ", hello.shards)};
  }
  if (no_site_left(hello)) {
    return Status{Code::kLimit, cat("the run has ", sites_.size(), " sites, the most it takes")};
  }
  if (known == nullptr && processes().size() >= 2 * base::kPeersMax) {
    return Status{Code::kLimit,
                  cat("the run has ", processes().size(), " peers, the most it takes")};
  }
  return std::nullopt;
}

bool Connections::no_site_left(const wire::Hello& hello) const {
  return processes_at(hello.site).empty() && sites_.size() >= options().sites_max;
}

// An observer that calls and synchronises nothing. A name that somebody only sits on, for longer
// than programs take to begin, is no seat.
bool Connections::gives_way(const ProcessRecord& process) const {
  return now() - process.since >= kSeatMin && is_idle(process);
}

bool Connections::is_idle(const ProcessRecord& process) const {
  return process.id == 0 && process.syncs.empty() &&
         std::none_of(rounds().begin(), rounds().end(), [&](const auto& entry) {
           return entry.second.ready.count(process.incarnation) > 0;
         });
}

// A full run closes the connection of whoever has been an idle observer for longest; it may come
// back as others do. Places are for those that ask for something.
void Connections::make_room(const wire::Hello& hello) {
  if (record_of(hello.incarnation) != nullptr) return;
  const bool sites_full = no_site_left(hello);
  if (!sites_full && processes().size() < 2 * base::kPeersMax) return;
  const ProcessRecord* oldest = nullptr;
  for (const auto& [incarnation, process] : processes()) {
    const bool alone = sites_.at(process.site).size() == 1 || !sites_full;
    if (!is_idle(process) || !process.connected() || !alone || now() - process.since < kIdleMin)
      continue;
    if (oldest == nullptr || process.order < oldest->order) oldest = &process;
  }
  if (oldest != nullptr) close(oldest->conn);
}

void Connections::on_hello(ConnId conn, const wire::Hello& hello, const Shown& shown) {
  const wire::PublicKey& key = shown.key;
  if (const auto no = conduct().unwelcome(hello, shown)) return refuse(conn, no->code, no->text);
  make_room(hello);
  // Numbers of lives are no secret. Whoever has another key than the life it names is told to begin
  // one of its own: it may be the honest one, whose number another took while it was away.
  const ProcessRecord* known = record_of(hello.incarnation);
  if (known != nullptr && known->key != key && !JCCL_PLANTED("life-of-another-key")) {
    send(conn, wire::Evicted{cat("this life of ", wording().name(*known), " has another key")});
    return close(conn);
  }
  if (const auto refused = objection(hello)) {
    return refuse(conn, refused->code, refused->text);
  }
  const auto left = left_.find(hello.incarnation);  // as an observer
  const bool gone =
      ledger().fenced(hello.incarnation) || (left != left_.end() && left->second == key);
  if (gone && !JCCL_PLANTED("fence-not-checked")) {
    send(conn, wire::Evicted{cat("the run went on without this life of ", hello.site)});
    return close(conn);
  }
  if (const auto taken = seats().seat_taken(hello, key))
    return refuse(conn, taken->code, taken->text);
  std::vector<wire::Incarnation> replaced;
  for (const ProcessRecord* other : shards_of(hello.site)) {
    if (other->incarnation == hello.incarnation || JCCL_PLANTED("ghost-keeps-its-seat")) continue;
    if (other->shard != hello.shard && other->shards == hello.shards) continue;
    replaced.push_back(other->incarnation);
  }
  for (const wire::Incarnation incarnation : replaced) {
    const ProcessRecord* other = record_of(incarnation);
    if (other == nullptr) continue;  // went with its site
    if (other->id == 0)
      drop_observer(incarnation, wording().came_back(*other));
    else
      depart(hello.site, wording().came_back(*other), "evict");
  }
  attach(conn, hello, shown);
}

// Of a connection that broke without a word nothing is heard soon.
bool Connections::alive(const ProcessRecord& process) const {
  return process.connected() && now() - process.heard < 2 * options().heartbeat;
}

void Connections::attach(ConnId conn, const wire::Hello& hello, const Shown& shown) {
  ProcessRecord& process = processes()[hello.incarnation];
  if (process.connected()) {  // the old connection broke, and nobody told us
    const ConnId old = process.conn;
    process.conn = 0;
    conns_.erase(old);
    all().fx_.close.push_back(old);
    all().doomed_.insert(old);
  }
  detach(process);
  take_out_of_its_key(&of_key_, process);
  membership().gone_.erase(hello.site);
  sites_[hello.site].insert(hello.incarnation);
  process.incarnation = hello.incarnation;
  process.site = hello.site;
  process.shard = hello.shard;
  process.shards = hello.shards;
  process.addresses = hello.addresses;
  process.key = shown.key;
  of_key_[process.key][process.site].insert(process.incarnation);
  process.token = shown.token;
  process.uses = shown.uses;
  process.may_order = shown.may_order;
  process.conn = conn;
  process.resumed = false;
  process.roster_epoch = 0;
  if (process.id != 0 && !process.seen) stragglers().note_back();
  process.seen = true;
  process.order = ++order_;
  process.since = now();
  process.heard = now();
  processes_due_ = std::min(processes_due_, now() + options().silence);
  conns_[conn] = hello.incarnation;
  process.start_peers = hello.start_peers;
  process.max_rate = hello.max_rate, process.day_bytes = hello.day_bytes;
  send(process, wire::Welcome{ledger().run(), ledger().epoch(), options().heartbeat,
                              options().silence, options().max_rate});
}

// Outcomes first, so that the peer knows what it holds before it hears what others do now.
void Connections::on_resume(ProcessRecord& process, const wire::Resume& resume) {
  process.resumed = process.said_held = true;
  for (const wire::Held& held : resume.held) {
    state_votes().report(process, held);
    const Standing& at = ledger().standing(held.tag);
    if (process.id != 0 && at.born && held.revision == at.committed)
      membership().enter(held.tag, process.site);
  }
  if (process.id != 0) membership().leave_what_it_does_not_hold(process);
  std::set<wire::Attempt> listed;
  for (const wire::Unresolved& about : resume.unresolved) {
    listed.insert(about.attempt);
    attempts().answer(process, about);
  }
  membership().tell(process, membership().roster());
  if (!process.drain.empty() && !JCCL_PLANTED("drain-said-once"))
    send(process, wire::Drain{process.drain});
  // STARTs that were lost on their way, in the order of their attempts: a data plane that has run
  // a later one takes frames of an earlier one for leftovers.
  std::map<wire::Attempt, MasterAttempt*> unheard;
  for (auto& [tag, round] : rounds()) {
    if (!round.running.has_value() || listed.count(round.running->attempt()) > 0) continue;
    const Participant* part = round.running->part_of(process.incarnation);
    if (part != nullptr && !part->done.has_value())
      unheard[round.running->attempt()] = &*round.running;
  }
  for (const auto& [attempt, running] : unheard) {
    attempts().start_late(process, *running->part_of(process.incarnation), *running);
  }
  audits().ask_anew(process);
  processes_changed_ = true;
}

void Connections::on_closed(ConnId conn) {
  if (all().doomed_.erase(conn) > 0) return;
  const auto found = conns_.find(conn);
  if (found != conns_.end()) link_faults().forgive_links_with(found->second);
  lose(conn);
}

void Connections::lose(ConnId conn) {
  const auto found = conns_.find(conn);
  if (found == conns_.end()) return;
  const wire::Incarnation incarnation = found->second;
  conns_.erase(found);
  ProcessRecord* process = incarnation == 0 ? nullptr : record_of(incarnation);
  if (process == nullptr || process->conn != conn) return;
  process->conn = 0;
  detach(*process);
  if (process->id == 0) {
    forget(incarnation);
  } else if (!process->addresses.empty()) {
    all().fx_.probe.emplace_back(incarnation, process->addresses);
  }
}

// What was said on a lost connection is said again on the next one, or not meant any more.
void Connections::detach(ProcessRecord& process) {
  JCCL_CHECK(!process.connected());
  process.resumed = false;
  process.gone = now();
  processes_due_ = std::min(processes_due_, now() + options().reset_grace);
  process.syncs.clear();
  for (auto& [tag, round] : rounds()) round.ready.erase(process.incarnation);
  processes_changed_ = true;
}

void Connections::drop_observer(wire::Incarnation incarnation, const std::string& why) {
  ProcessRecord* process = record_of(incarnation);
  JCCL_CHECK(process != nullptr && process->id == 0);
  fence_observer(*process);
  send(*process, wire::Evicted{why});
  if (process->connected()) close(process->conn);  // forgets the life
}

// For its key: numbers of lives to come can be guessed, and whoever said one would fence it.
void Connections::fence_observer(const ProcessRecord& process) {
  if (!left_.emplace(process.incarnation, process.key).second) return;
  left_in_order_.push_back(process.incarnation);
  if (left_in_order_.size() <= kFencedMax) return;
  left_.erase(left_in_order_.front());
  left_in_order_.pop_front();
}

void Connections::on_leave(ProcessRecord& process) {
  const std::string text =
      cat(wording().name(process), " left", process.drain.empty() ? "" : cat(": ", process.drain));
  if (process.id != 0) return depart(std::string(process.site), text, "leave");
  drop_observer(process.incarnation, text);
}

// By its own doing or undoing, and not by an order.
void Connections::depart(const std::string& site, const std::string& reason,
                         const std::string& kind) {
  wait_charges().note_held(site, wait_charges().waited_since(site));
  wait_charges().note_left(site);
  for (const wire::Incarnation incarnation : processes_at(site))
    link_faults().forgive_links_with(incarnation);
  evict(site, reason, kind);
}

void Connections::evict(std::string site, const std::string& reason, const std::string& kind) {
  std::vector<wire::Member> left;
  for (const auto& [id, member] : ledger().members()) {
    if (member.site != site) left.push_back(member);
  }
  if (left.size() != ledger().members().size()) {
    conduct().note_departure(site);
    membership().write_epoch(std::move(left), ledger().next_id(), reason);
    if (!JCCL_PLANTED("link-secret-kept")) links_ = ledger().epoch();
    note(kind, {{"site", site}, {"reason", reason}});
    if (!JCCL_PLANTED("departures-without-a-word"))
      membership().departures_ += cat(membership().departures_.empty() ? "" : "; ", reason);
  }
  for (auto& [tag, round] : rounds()) {
    if (round.running.has_value()) round.running->gone(site);
    if (!round.poll.has_value()) continue;
    round.poll->election.leave(site);
    round.poll->dispute.clear();
  }
  for (ProcessRecord* process : shards_of(site)) {
    const wire::Incarnation incarnation = process->incarnation;
    ledger().fence(incarnation);
    if (process->connected()) {
      const ConnId conn = process->conn;
      send(conn, wire::Evicted{reason});
      process->id = 0;
      close(conn);
      holder_left(incarnation);
    } else {
      detach(*process);
      forget(incarnation);
    }
  }
  membership().note_gone(site, reason);
  // Decided by this loss, before the next one can change what the decision rests on.
  std::vector<wire::Tag> tags;
  for (const auto& [tag, round] : rounds()) tags.push_back(tag);
  if (JCCL_PLANTED("decision-left-for-later")) return touch_all();
  for (const wire::Tag& tag : tags) attempts().conclude(tag);
}

// When it is given up, unless it is heard of before.
base::Time Connections::lost_at(const ProcessRecord& process) const {
  const base::Time end = process.connected() ? process.heard + options().silence
                         : process.seen || JCCL_PLANTED("restart-gives-no-grace")
                             ? process.gone + options().reset_grace
                             : all().started_at_ + options().restart_grace;
  // It hung up on a master that stood still, and has not heard yet that this is over.
  const bool stood =
      !process.connected() && all().woke_at_ > 0 && !JCCL_PLANTED("own-pause-gives-no-grace");
  return stood ? std::max(end, all().woke_at_ + options().silence) : end;
}

void Connections::expire_processes() {
  if (now() < processes_due_) return;
  processes_due_ = now() + options().silence;
  std::vector<wire::Incarnation> due;
  for (const auto& [incarnation, process] : processes()) {
    if (JCCL_PLANTED("silence-is-no-death") && process.connected()) continue;
    const base::Time end = lost_at(process);
    if (now() >= end)
      due.push_back(incarnation);
    else
      processes_due_ = std::min(processes_due_, end);
  }
  for (const wire::Incarnation incarnation : due) {
    ProcessRecord* process = record_of(incarnation);
    if (process == nullptr) continue;  // went with its site
    if (process->id != 0) {
      const char* why = process->connected() ? " was silent for too long"
                        : process->seen      ? " lost its connection and did not come back"
                                             : " did not come back after the master's restart";
      depart(std::string(process->site), cat(wording().name(*process), why), "evict");
    } else {
      close(process->conn);
    }
  }
}

// After a restart: those that are not back yet are asked whether they still listen, a few at a time
// and again each heartbeat. Who refuses is gone, and is not waited for.
void Connections::probe_absent() {
  if (now() >= all().started_at_ + options().restart_grace) return;
  std::size_t asked = 0;
  const auto& members = ledger().members();
  for (auto it = members.upper_bound(probed_last_); it != members.end(); ++it) {
    const wire::Member& member = it->second;
    if (processes().at(member.incarnation).seen || member.addresses.empty()) continue;
    if (asked++ == kProbesMax) return;
    probed_last_ = it->first;
    all().fx_.probe.emplace_back(member.incarnation, member.addresses);
  }
  probed_last_ = 0;
}

ProcessRecord* Connections::record_of(wire::Incarnation incarnation) {
  const auto found = processes().find(incarnation);
  return found == processes().end() ? nullptr : &found->second;
}

const ProcessRecord* Connections::record_of(wire::Incarnation incarnation) const {
  const auto found = processes().find(incarnation);
  return found == processes().end() ? nullptr : &found->second;
}

const std::set<wire::Incarnation>& Connections::processes_at(const std::string& site) const {
  static const std::set<wire::Incarnation> nobody;
  const auto found = sites_.find(site);
  return found == sites_.end() ? nobody : found->second;
}

std::vector<ProcessRecord*> Connections::shards_of(const std::string& site) {
  std::vector<ProcessRecord*> shards;
  for (const wire::Incarnation incarnation : processes_at(site)) {
    shards.push_back(&processes().at(incarnation));
  }
  std::sort(shards.begin(), shards.end(),
            [](const ProcessRecord* a, const ProcessRecord* b) { return a->shard < b->shard; });
  return shards;
}

void Connections::forget(wire::Incarnation incarnation) {
  const auto found = processes().find(incarnation);
  JCCL_CHECK(found != processes().end());
  membership().note_gone(
      found->second.site,
      cat(wording().name(found->second),
          left_.count(incarnation) > 0 ? " was there and left" : " was there and is cut off"));
  take_out(&sites_, found->second.site, incarnation);
  const ProcessRecord& process = found->second;
  take_out_of_its_key(&of_key_, process);
  for (auto& [tag, round] : rounds())
    round.claims.left(process.site, process.shard, process.key, now());
  processes().erase(found);
  holder_left(incarnation);
}

// Who fetches from it may be no member, and hear of no roster. A link that is silent may be only
// slow: it would wait, and a majority of those that were named could not come about any more.
void Connections::holder_left(wire::Incarnation incarnation) {
  if (JCCL_PLANTED("fetcher-not-told-who-left")) return;
  for (auto& [other, process] : processes()) {
    for (auto& [tag, asked] : process.syncs) {
      if (!asked.fetching || asked.holders.erase(incarnation) == 0 || !process.connected())
        continue;
      const wire::Held& wanted = process.fetched.at(tag);
      wire::SyncReply reply;
      reply.tag = tag;
      reply.verdict = wire::SyncVerdict::kFetch;
      reply.revision = wanted.revision;
      reply.restored = ledger().standing(tag).restored();
      reply.digest = wanted.digest;
      reply.links.generation = links_;
      for (const wire::Incarnation holder : asked.holders) {
        if (const ProcessRecord* left = record_of(holder))
          reply.holders.push_back(membership().member_of(*left));
      }
      send(process, std::move(reply));
    }
  }
}

std::size_t Connections::observers() const {
  return processes().size() - ledger().members().size();
}

}  // namespace jccl::protocol
