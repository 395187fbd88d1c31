// The master's lives: hello, resume, loss and eviction. Pure; one event at a time.
#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/master_state.h"
#include "protocol/roster.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;
using State = MasterMachine::State;

namespace {

constexpr std::size_t kProbesMax = 64;  // at once: each is a socket
constexpr base::Duration kIdleMin = 10 * base::kSecond;
constexpr base::Duration kSeatMin = 60 * base::kSecond;  // a program compiles before it calls

template <typename Name>
void take_out(std::map<Name, std::set<wire::Incarnation>>* lives, const Name& of,
              wire::Incarnation life) {
  const auto found = lives->find(of);
  if (found == lives->end()) return;
  found->second.erase(life);
  if (found->second.empty()) lives->erase(found);
}

template <typename Keys>
void take_out_of_its_key(Keys* of_key, const Life& life) {
  const auto found = of_key->find(life.key);
  if (found == of_key->end()) return;
  take_out(&found->second, life.site, life.incarnation);
  if (found->second.empty()) of_key->erase(found);
}

}  // namespace

std::optional<Status> State::objection(const wire::Hello& hello) const {
  if (!wire::has_common_version(hello)) {
    const bool newer = hello.oldest > wire::kVersion;
    return Status{Code::kVersion,
                  cat("the master speaks protocol version ", wire::kVersion, ", this peer ",
                      hello.oldest == hello.version ? "" : cat(hello.oldest, " to "), hello.version,
                      ": upgrade the ", newer ? "master" : "peer")};
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
  if (!base::is_one_line(hello.site)) {
    return Status{Code::kInvalid, "a site's name is one line, without control characters"};
  }
  if (hello.start_peers > options_.sites_max) {
    return Status{Code::kInvalid, cat("start_peers = ", hello.start_peers, "; a run has at most ",
                                      options_.sites_max, " sites")};
  }
  const Life* known = life_of(hello.incarnation);
  if (known != nullptr &&
      (known->site != hello.site || known->shard != hello.shard || known->shards != hello.shards)) {
    return Status{Code::kInvalid, cat("this incarnation is ", name(*known))};
  }
  const Life* other = nullptr;  // that disagrees about the number of shards
  bool replaces = false;        // a member's seat: then the whole site goes
  for (const wire::Incarnation incarnation : lives_at(hello.site)) {
    const Life& life = lives_.at(incarnation);
    if (incarnation == hello.incarnation) continue;
    replaces = replaces || (life.id != 0 && life.shard == hello.shard);
    const bool differs = life.shards != hello.shards && life.shard != hello.shard;
    if (differs && life.connected() && !gives_way(life)) other = &life;
  }
  if (other != nullptr && !replaces) {
    // Try again: the other may be somebody's who takes the name in vain.
    return Status{Code::kLinkLost, cat("site ", hello.site, " has ", other->shards,
                                       " shards, this peer says ", hello.shards)};
  }
  if (no_site_left(hello)) {
    return Status{Code::kLimit, cat("the run has ", sites_.size(), " sites, the most it takes")};
  }
  if (known == nullptr && lives_.size() >= 2 * base::kPeersMax) {
    return Status{Code::kLimit, cat("the run has ", lives_.size(), " peers, the most it takes")};
  }
  return std::nullopt;
}

bool State::no_site_left(const wire::Hello& hello) const {
  return lives_at(hello.site).empty() && sites_.size() >= options_.sites_max;
}

// An observer that calls and synchronises nothing. A name that somebody only sits on, for longer
// than programs take to begin, is no seat.
bool State::gives_way(const Life& life) const {
  return now_ - life.since >= kSeatMin && is_idle(life);
}

bool State::is_idle(const Life& life) const {
  return life.id == 0 && life.syncs.empty() &&
         std::none_of(rounds_.begin(), rounds_.end(), [&](const auto& entry) {
           return entry.second.ready.count(life.incarnation) > 0;
         });
}

// A full run closes the connection of whoever has been an idle observer for longest; it may come
// back as others do. Places are for those that ask for something.
void State::make_room(const wire::Hello& hello) {
  if (life_of(hello.incarnation) != nullptr) return;
  const bool sites_full = no_site_left(hello);
  if (!sites_full && lives_.size() < 2 * base::kPeersMax) return;
  const Life* oldest = nullptr;
  for (const auto& [incarnation, life] : lives_) {
    const bool alone = sites_.at(life.site).size() == 1 || !sites_full;
    if (!is_idle(life) || !life.connected() || !alone || now_ - life.since < kIdleMin) continue;
    if (oldest == nullptr || life.order < oldest->order) oldest = &life;
  }
  if (oldest != nullptr) close(oldest->conn);
}

void State::on_hello(ConnId conn, const wire::Hello& hello, const Shown& shown) {
  const wire::PublicKey& key = shown.key;
  if (const auto no = unwelcome(hello, shown)) return refuse(conn, no->code, no->text);
  make_room(hello);
  // Numbers of lives are no secret. Whoever has another key than the life it names is told to begin
  // one of its own: it may be the honest one, whose number another took while it was away.
  const Life* known = life_of(hello.incarnation);
  if (known != nullptr && known->key != key && !JCCL_PLANTED("life-of-another-key")) {
    send(conn, wire::Evicted{cat("this life of ", name(*known), " has another key")});
    return close(conn);
  }
  if (const auto refused = objection(hello)) {
    return refuse(conn, refused->code, refused->text);
  }
  const auto left = left_.find(hello.incarnation);  // as an observer
  const bool gone =
      ledger_.fenced(hello.incarnation) || (left != left_.end() && left->second == key);
  if (gone && !JCCL_PLANTED("fence-not-checked")) {
    send(conn, wire::Evicted{cat("the run went on without this life of ", hello.site)});
    return close(conn);
  }
  if (const auto taken = seat_taken(hello, key)) return refuse(conn, taken->code, taken->text);
  std::vector<wire::Incarnation> replaced;
  for (const Life* other : shards_of(hello.site)) {
    if (other->incarnation == hello.incarnation || JCCL_PLANTED("ghost-keeps-its-seat")) continue;
    if (other->shard != hello.shard && other->shards == hello.shards) continue;
    replaced.push_back(other->incarnation);
  }
  for (const wire::Incarnation incarnation : replaced) {
    const Life* other = life_of(incarnation);
    if (other == nullptr) continue;  // went with its site
    if (other->id == 0)
      drop_observer(incarnation, came_back(*other));
    else
      depart(hello.site, came_back(*other), "evict");
  }
  attach(conn, hello, shown);
}

// Of a connection that broke without a word nothing is heard soon.
bool State::alive(const Life& life) const {
  return life.connected() && now_ - life.heard < 2 * options_.heartbeat;
}

void State::attach(ConnId conn, const wire::Hello& hello, const Shown& shown) {
  Life& life = lives_[hello.incarnation];
  if (life.connected()) {  // the old connection broke, and nobody told us
    const ConnId old = life.conn;
    life.conn = 0;
    conns_.erase(old);
    fx_.close.push_back(old);
    doomed_.insert(old);
  }
  detach(life);
  take_out_of_its_key(&of_key_, life);
  gone_.erase(hello.site);
  sites_[hello.site].insert(hello.incarnation);
  life.incarnation = hello.incarnation;
  life.site = hello.site;
  life.shard = hello.shard;
  life.shards = hello.shards;
  life.addresses = hello.addresses;
  life.key = shown.key;
  of_key_[life.key][life.site].insert(life.incarnation);
  life.token = shown.token;
  life.uses = shown.uses;
  life.may_order = shown.may_order;
  life.conn = conn;
  life.resumed = false;
  life.roster_epoch = 0;
  if (life.id != 0 && !life.seen) note_back();
  life.seen = true;
  life.order = ++order_;
  life.since = now_;
  life.heard = now_;
  lives_due_ = std::min(lives_due_, now_ + options_.silence);
  conns_[conn] = hello.incarnation;
  life.start_peers = hello.start_peers;
  life.max_rate = hello.max_rate, life.day_bytes = hello.day_bytes;
  send(life, wire::Welcome{ledger_.run(), ledger_.epoch(), options_.heartbeat, options_.silence,
                           options_.max_rate});
}

// Outcomes first, so that the peer knows what it holds before it hears what others do now.
void State::on_resume(Life& life, const wire::Resume& resume) {
  life.resumed = life.said_held = true;
  for (const wire::Held& held : resume.held) {
    report(life, held);
    const Standing& at = ledger_.standing(held.tag);
    if (life.id != 0 && at.born && held.revision == at.committed) enter(held.tag, life.site);
  }
  if (life.id != 0) leave_what_it_does_not_hold(life);
  std::set<wire::Attempt> listed;
  for (const wire::Unresolved& about : resume.unresolved) {
    listed.insert(about.attempt);
    answer(life, about);
  }
  tell(life, roster());
  if (!life.drain.empty() && !JCCL_PLANTED("drain-said-once")) send(life, wire::Drain{life.drain});
  // STARTs that were lost on their way, in the order of their attempts: a data plane that has run
  // a later one takes frames of an earlier one for leftovers.
  std::map<wire::Attempt, MasterAttempt*> unheard;
  for (auto& [tag, round] : rounds_) {
    if (!round.running.has_value() || listed.count(round.running->attempt()) > 0) continue;
    const Part* part = round.running->part_of(life.incarnation);
    if (part != nullptr && !part->done.has_value())
      unheard[round.running->attempt()] = &*round.running;
  }
  for (const auto& [attempt, running] : unheard) {
    start_late(life, *running->part_of(life.incarnation), *running);
  }
  ask_anew(life);
  lives_changed_ = true;
}

void State::on_closed(ConnId conn) {
  if (doomed_.erase(conn) > 0) return;
  const auto found = conns_.find(conn);
  if (found != conns_.end()) forgive_links_with(found->second);
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

void State::drop_observer(wire::Incarnation incarnation, const std::string& why) {
  Life* life = life_of(incarnation);
  JCCL_CHECK(life != nullptr && life->id == 0);
  fence_observer(*life);
  send(*life, wire::Evicted{why});
  if (life->connected()) close(life->conn);  // forgets the life
}

// For its key: numbers of lives to come can be guessed, and whoever said one would fence it.
void State::fence_observer(const Life& life) {
  if (!left_.emplace(life.incarnation, life.key).second) return;
  left_in_order_.push_back(life.incarnation);
  if (left_in_order_.size() <= kFencedMax) return;
  left_.erase(left_in_order_.front());
  left_in_order_.pop_front();
}

void State::on_leave(Life& life) {
  const std::string text =
      cat(name(life), " left", life.drain.empty() ? "" : cat(": ", life.drain));
  if (life.id != 0) return depart(std::string(life.site), text, "leave");
  drop_observer(life.incarnation, text);
}

// By its own doing or undoing, and not by an order.
void State::depart(const std::string& site, const std::string& reason, const std::string& kind) {
  note_held(site, waited_since(site));
  note_left(site);
  for (const wire::Incarnation incarnation : lives_at(site)) forgive_links_with(incarnation);
  evict(site, reason, kind);
}

void State::evict(std::string site, const std::string& reason, const std::string& kind) {
  std::vector<wire::Member> left;
  for (const auto& [id, member] : ledger_.members()) {
    if (member.site != site) left.push_back(member);
  }
  if (left.size() != ledger_.members().size()) {
    note_departure(site);
    write_epoch(std::move(left), ledger_.next_id(), reason);
    if (!JCCL_PLANTED("link-secret-kept")) links_ = ledger_.epoch();
    note(kind, {{"site", site}, {"reason", reason}});
    if (!JCCL_PLANTED("departures-without-a-word"))
      departures_ += cat(departures_.empty() ? "" : "; ", reason);
  }
  for (auto& [tag, round] : rounds_) {
    if (round.running.has_value()) round.running->gone(site);
    if (!round.poll.has_value()) continue;
    round.poll->election.leave(site);
    round.poll->dispute.clear();
  }
  for (Life* life : shards_of(site)) {
    const wire::Incarnation incarnation = life->incarnation;
    ledger_.fence(incarnation);
    if (life->connected()) {
      const ConnId conn = life->conn;
      send(conn, wire::Evicted{reason});
      life->id = 0;
      close(conn);
      holder_left(incarnation);
    } else {
      detach(*life);
      forget(incarnation);
    }
  }
  note_gone(site, reason);
  // Decided by this loss, before the next one can change what the decision rests on.
  std::vector<wire::Tag> tags;
  for (const auto& [tag, round] : rounds_) tags.push_back(tag);
  if (JCCL_PLANTED("decision-left-for-later")) return touch_all();
  for (const wire::Tag& tag : tags) conclude(tag);
}

// When it is given up, unless it is heard of before.
base::Time State::lost_at(const Life& life) const {
  const base::Time end = life.connected() ? life.heard + options_.silence
                         : life.seen || JCCL_PLANTED("restart-gives-no-grace")
                             ? life.gone + options_.reset_grace
                             : started_at_ + options_.restart_grace;
  // It hung up on a master that stood still, and has not heard yet that this is over.
  const bool stood = !life.connected() && woke_at_ > 0 && !JCCL_PLANTED("own-pause-gives-no-grace");
  return stood ? std::max(end, woke_at_ + options_.silence) : end;
}

void State::expire_lives() {
  if (now_ < lives_due_) return;
  lives_due_ = now_ + options_.silence;
  std::vector<wire::Incarnation> due;
  for (const auto& [incarnation, life] : lives_) {
    if (JCCL_PLANTED("silence-is-no-death") && life.connected()) continue;
    const base::Time end = lost_at(life);
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
      depart(std::string(life->site), cat(name(*life), why), "evict");
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

Life* State::life_of(wire::Incarnation incarnation) {
  const auto found = lives_.find(incarnation);
  return found == lives_.end() ? nullptr : &found->second;
}

const Life* State::life_of(wire::Incarnation incarnation) const {
  const auto found = lives_.find(incarnation);
  return found == lives_.end() ? nullptr : &found->second;
}

const std::set<wire::Incarnation>& State::lives_at(const std::string& site) const {
  static const std::set<wire::Incarnation> nobody;
  const auto found = sites_.find(site);
  return found == sites_.end() ? nobody : found->second;
}

std::vector<Life*> State::shards_of(const std::string& site) {
  std::vector<Life*> shards;
  for (const wire::Incarnation incarnation : lives_at(site)) {
    shards.push_back(&lives_.at(incarnation));
  }
  std::sort(shards.begin(), shards.end(),
            [](const Life* a, const Life* b) { return a->shard < b->shard; });
  return shards;
}

void State::forget(wire::Incarnation incarnation) {
  const auto found = lives_.find(incarnation);
  JCCL_CHECK(found != lives_.end());
  note_gone(found->second.site,
            cat(name(found->second), left_.count(incarnation) > 0 ? " was there and left"
                                                                  : " was there and is cut off"));
  take_out(&sites_, found->second.site, incarnation);
  const Life& life = found->second;
  take_out_of_its_key(&of_key_, life);
  for (auto& [tag, round] : rounds_) round.claims.left(life.site, life.shard, life.key, now_);
  lives_.erase(found);
  holder_left(incarnation);
}

// Who fetches from it may be no member, and hear of no roster. A link that is silent may be only
// slow: it would wait, and a majority of those that were named could not come about any more.
void State::holder_left(wire::Incarnation incarnation) {
  if (JCCL_PLANTED("fetcher-not-told-who-left")) return;
  for (auto& [other, life] : lives_) {
    for (auto& [tag, asked] : life.syncs) {
      if (!asked.fetching || asked.holders.erase(incarnation) == 0 || !life.connected()) continue;
      const wire::Held& wanted = life.fetched.at(tag);
      wire::SyncReply reply;
      reply.tag = tag;
      reply.verdict = wire::SyncVerdict::kFetch;
      reply.revision = wanted.revision;
      reply.restored = ledger_.standing(tag).restored();
      reply.digest = wanted.digest;
      reply.links.generation = links_;
      for (const wire::Incarnation holder : asked.holders) {
        if (const Life* left = life_of(holder)) reply.holders.push_back(member_of(*left));
      }
      send(life, std::move(reply));
    }
  }
}

}  // namespace jccl::protocol
