// Who may be in the run: bans and tokens; and what is held against members whose words cost the
// others a round. Faults are counted by key (blame.h); three are a ban, which is journaled. Of two
// sites nobody can say which is wrong, so with fewer than three nothing is held against anybody.
// Pure; one event at a time.
#include <algorithm>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr base::Duration kThrottleMin = base::kSecond;  // twice that after the first ban
constexpr std::uint32_t kDoublingsMax = 20;
constexpr std::size_t kAccusedMax = 32;  // by one life: as many as it was sent to

}  // namespace

std::uint64_t Conduct::unix_ms() const {
  const base::Duration unix_time = now() + options().unix_ahead;
  return static_cast<std::uint64_t>(std::max<base::Duration>(0, unix_time) / base::kMillisecond);
}

// ---- who may be here ---------------------------------------------------------------------------

const Ban* Conduct::ban_of(const wire::PublicKey& key) const {
  const auto found = ledger().bans().find(key);
  const bool holds = found != ledger().bans().end() && unix_ms() < found->second.until_unix_ms;
  return holds ? &found->second : nullptr;
}

std::optional<Status> Conduct::unwelcome(const wire::Hello& hello, const Shown& shown) const {
  if (const Ban* ban = ban_of(shown.key); ban != nullptr && !JCCL_PLANTED("bans-not-looked-at")) {
    return Status{Code::kBanned, wording().ban_text(shown.key, ban->until_unix_ms, ban->reason)};
  }
  const auto own = std::count_if(processes().begin(), processes().end(), [&](const auto& entry) {
    return entry.second.key == shown.key && entry.first != hello.incarnation;
  });
  if (own >= base::kLivesOfKeyMax && !JCCL_PLANTED("one-key-takes-all-places")) {
    return Status{Code::kLimit, cat("the key ", brief_key(shown.key), "… is here ", own,
                                    " times, the limit of a key: give each process a key file of "
                                    "its own, or none at all")};
  }
  return token_spent(shown.token, shown.uses, {hello.shard, hello.shards}, shown.key);
}

bool Conduct::is_revoked(const std::string& token) const {
  const auto found = ledger().tokens().find(token);
  return found != ledger().tokens().end() && found->second.revoked;
}

// A key that has joined by a token comes back by it without a further use, in the place that it
// had: keys that came as the shards of one site could else be so many sites. One use is one site,
// and the number of its shards is told by who was first.
std::optional<Status> Conduct::token_spent(const std::string& token, std::uint32_t uses,
                                           Place place, const wire::PublicKey& key) const {
  const auto found = ledger().tokens().find(token);
  if (token.empty() || found == ledger().tokens().end()) return std::nullopt;
  const TokenUse& use = found->second;
  if (use.revoked && !JCCL_PLANTED("revoked-tokens-taken")) return revoked_status(token);
  if (uses == 0 || JCCL_PLANTED("uses-not-counted")) return {};
  if (uses == 1 && use.of != 0 && use.of != place.of && !JCCL_PLANTED("uses-of-any-layout")) {
    return Status{Code::kBanned,
                  cat("the token ", token, " was used by a site of ", use.of,
                      use.of == 1 ? " shard" : " shards", ", this peer says ", place.of,
                      "; a site of another number of shards needs another token")};
  }
  const auto known = use.shards.find(key);
  if (known != use.shards.end()) {
    if (known->second == place.shard || JCCL_PLANTED("one-use-in-any-place")) return {};
    return Status{Code::kBanned,
                  cat("by the token ", token, " this key is shard ", known->second,
                      " of its site, and no other; another place needs another token")};
  }
  const auto spent = std::count_if(use.shards.begin(), use.shards.end(),
                                   [&](const auto& one) { return one.second == place.shard; });
  if (static_cast<std::uint32_t>(spent) < uses) return std::nullopt;
  return Status{Code::kBanned,
                cat("the token ", token, " was used by ", spent, spent == 1 ? " key" : " keys",
                    ", which is all it admits. A process that "
                    "starts again comes back with its key file; another needs another token")};
}

std::string Conduct::kept_outside(const std::string& site) const {
  for (const wire::Incarnation incarnation : connections().processes_at(site)) {
    std::string why = kept_outside(processes().at(incarnation));
    if (!why.empty()) return why;
  }
  return {};
}

// Until somebody does something about it; else it is a matter of time.
std::string Conduct::barred(const ProcessRecord& process) const {
  if (process.id != 0) return {};
  if (const auto spent =
          token_spent(process.token, process.uses, {process.shard, process.shards}, process.key)) {
    return spent->text;
  }
  if (std::string other = seats().key_elsewhere(process); !other.empty()) return other;
  return not_let_in(process.key);
}

std::string Conduct::not_let_in(const wire::PublicKey& key) const {
  const bool listed = options().listed.count(key) > 0 || ledger().let_in(key);
  if (options().admission != Admission::kListed || listed || JCCL_PLANTED("list-not-looked-at")) {
    return {};
  }
  return cat("waits for an operator: jccl admit ", base::to_hex(key));
}

std::string Conduct::kept_outside(const ProcessRecord& process) const {
  if (process.id != 0) return {};
  if (std::string why = barred(process); !why.empty()) return why;
  const auto seconds = [&](base::Time end) { return (end - now()) / base::kSecond + 1; };
  if (const base::Time out = blame_.out_until(process.key); now() < out) {
    return cat("is kept out for ", seconds(out),
               " s more, since the run had to go on without it "
               "again and again");
  }
  const auto throttle = throttles_.find(process.token);
  // Who is known has its own account alone, until others have waited for it as well.
  const bool known = blame_.known(process.key) && !blame_.held_of_late(process.key, now());
  const bool too_few = ledger().sites() < std::max(1U, options().min_peers);
  const bool anybody = too_few && !JCCL_PLANTED("nobody-may-begin-anew");  // there is no round
  if (throttle != throttles_.end() && now() < throttle->second.held_until && !known && !anybody) {
    return cat("waits for ", seconds(throttle->second.held_until),
               " s: others waited for peers which joined as it did, so new keys enter slowly");
  }
  const bool by_time = throttle != throttles_.end() &&
                       throttle->second.next_at <= throttle->second.held_until && anybody;
  if (throttle != throttles_.end() && now() < throttle->second.next_at && !process.gate_passed &&
      !by_time && is_new(process.key) && !JCCL_PLANTED("new-keys-after-bans-unhindered")) {
    const std::uint32_t bans = throttle->second.bans;
    const bool faults = throttle->second.for_faults;
    return cat("waits for ", seconds(throttle->second.next_at), " s: ",
               bans > 0 ? cat("after ", bans, " bans")
               : faults ? "after faults of peers that came as it did"
                        : "while many come and go without a round",
               blame_.is_blamed(process.key, now()) ? " new keys and blamed ones enter slowly"
                                                    : " new keys enter slowly");
  }
  return {};
}

// A key that was here before, and against which nothing is held, is an honest member's as far as
// anybody knows: it waits for nobody else's ban.
bool Conduct::is_new(const wire::PublicKey& key) const {
  const bool blamed = blame_.is_blamed(key, now()) && !JCCL_PLANTED("the-blamed-return-as-honest");
  return !ledger().was_member(key) || blame_.in_vain(key) || blamed;
}

// All who wait when the time has come may enter, then or later: not every joiner is current at that
// moment, and others would pass it by for ever.
void Conduct::open_gates() {
  for (auto& [token, throttle] : throttles_) {
    if (throttle.open || now() < throttle.next_at) continue;
    throttle.open = true;
    for (auto& [incarnation, process] : processes()) {
      process.gate_passed = process.gate_passed || (process.id == 0 && process.token == token);
    }
    connections().processes_changed_ = true;
  }
}

// After a restart: who was banned before it makes new keys of its token wait after it, too.
void Conduct::remember_bans() {
  if (JCCL_PLANTED("restarts-end-the-wait-of-new-keys")) return;
  std::map<wire::PublicKey, std::string> token_of;
  for (const auto& [token, use] : ledger().tokens()) {
    for (const auto& [key, shard] : use.shards) token_of[key] = token;
  }
  for (const auto& [key, ban] : ledger().bans()) {
    if (ban.until_unix_ms <= unix_ms()) continue;
    const auto token = token_of.find(key);
    Throttle& throttle = throttles_[token == token_of.end() ? "" : token->second];
    ++throttle.bans;
    throttle.banned_at = now();
  }
}

// How often some that came by the token were banned of late. Faults of those who were not, since
// they stay below that or left before it, make up bans, too.
std::uint32_t Conduct::caught(const std::string& token) {
  std::uint32_t times = 0;
  if (const auto throttle = throttles_.find(token); throttle != throttles_.end()) {
    Throttle& one = throttle->second;
    for (; one.bans > 0 && now() >= one.banned_at + kFaultHalfLife; --one.bans) {
      one.banned_at += kFaultHalfLife;
    }
    times = one.bans;
  }
  if (JCCL_PLANTED("faults-stay-with-their-keys")) return times;
  return times + static_cast<std::uint32_t>(blame_.of_token(token, now()) / kBanAt);
}

// Before its epoch is written: a new key delays the next new one.
void Conduct::note_entry(const ProcessRecord& process) {
  const bool fresh = is_new(process.key);
  const std::uint32_t times = fresh ? caught(process.token) : 0;
  if (times > 0) {
    Throttle& one = throttles_[process.token];
    one.open = false, one.for_faults = true;
    one.next_at =
        now() + std::min(options().out_max, kThrottleMin << std::min(times, kDoublingsMax));
  }
  if (process.token.empty()) return;
  const auto use = ledger().tokens().find(process.token);
  const bool known = use != ledger().tokens().end() && use->second.shards.count(process.key) > 0;
  if (!known) journal(wire::TokenRecord{process.token, false, process.key, process.shard});
}

// Before its epoch is written.
void Conduct::note_departure(const std::string& site) {
  for (const ProcessRecord* process : connections().shards_of(site)) {
    if (process->in_commit)
      blame_.served(process->key, process->served_to - process->served_since, now());
  }
  const ProcessRecord* in_vain = nullptr;
  for (const ProcessRecord* process : connections().shards_of(site)) {
    if (process->id == 0 || process->in_commit || JCCL_PLANTED("visits-are-free")) continue;
    blame_.visited(process->key, true, now());
    in_vain = process;
  }
  if (in_vain == nullptr) return;
  Throttle& throttle = throttles_[in_vain->token];
  const bool free = !ledger().begun() && JCCL_PLANTED("visits-before-the-first-round-are-free");
  const int at_once = ledger().begun() ? Visits::kFree : Visits::kFreeAtFirst;
  const base::Duration wait = free ? 0 : throttle.in_vain.add(at_once, options().out_max, now());
  if (wait == 0) return;
  throttle.open = false, throttle.for_faults = false;
  throttle.next_at = std::max(throttle.next_at, now() + wait);
}

// ---- faults ------------------------------------------------------------------------------------

void Conduct::charge(const ProcessRecord& process, Fault fault, const std::string& why) {
  if (process.id == 0 || ledger().sites() < 3 || JCCL_PLANTED("faults-not-counted")) return;
  const double sum = blame_.charge(process.key, process.token, fault, now());
  note("fault", {{"site", process.site}, {"key", base::to_hex(process.key)}, {"text", why}});
  if (sum >= kBanAt) guilty_[process.key] = process.site;
}

// What no program of ours says, be its user as careless as can be: the others wait meanwhile for a
// call that can begin.
void Conduct::charge_invented(const ProcessRecord& process, const std::string& what) {
  if (!JCCL_PLANTED("inventions-are-free")) charge(process, Fault::kBadCall, what);
}

// Its connection goes for what no peer of ours says, may be back at once, and others wait for it.
void Conduct::charge_nonsense(ConnId conn) {
  const auto found = connections().conns_.find(conn);
  const ProcessRecord* process =
      found == connections().conns_.end() ? nullptr : connections().record_of(found->second);
  if (process != nullptr && process->conn == conn) {
    charge(*process, Fault::kBadCall, "sent a message that no peer sends");
  }
}

// Of a holder that the master sent it to, and no more. It is one's word: it counts when this one
// has been in a round, once, and a bounded number of such words (blame.h).
void Conduct::on_outvoted(ProcessRecord& process, const wire::Outvoted& said) {
  const auto offered = process.fetched.find(said.held.tag);
  const ProcessRecord* holder = connections().record_of(said.holder);
  if (offered == process.fetched.end() || offered->second != said.held || holder == nullptr) return;
  const auto held = holder->held.find(said.held.tag);
  if (holder->key == process.key || held == holder->held.end()) return;
  if (held->second.digest != said.held.digest || process.accuses.size() >= kAccusedMax) return;
  process.accuses.insert(holder->key);
  note("outvoted", {{"site", holder->site},
                    {"key", base::to_hex(holder->key)},
                    {"by", process.site},
                    {"text", cat("part ", said.part, " of revision ", said.held.revision, " of ",
                                 said.held.tag, " is another than most others'")}});
  if (process.in_commit || JCCL_PLANTED("strangers-words-count")) charge_accused(process);
}

void Conduct::charge_accused(ProcessRecord& process) {
  for (const wire::PublicKey& key : std::exchange(process.accuses, {})) {
    for (const auto& [incarnation, one] : processes()) {
      if (one.key != key || one.id == 0 || !blame_.accused(key, process.key, now())) continue;
      charge(one, Fault::kForgery, cat("served another state, as ", process.site, " says"));
    }
  }
}

// At the end of an event, or of a sweep: who is evicted may be what the event is about.
void Conduct::punish() {
  if (JCCL_PLANTED("holders-go-before-bans")) put_out_holders();
  while (!guilty_.empty()) {
    const auto [key, site] = *guilty_.begin();
    guilty_.erase(guilty_.begin());
    const std::string why = blame_.words(key, now());
    blame_.forget_faults(key);
    const auto before = ledger().bans().find(key);
    const std::uint32_t times = before == ledger().bans().end() ? 0 : before->second.times;
    ban(key, std::min(options().ban_max, options().ban << std::min(times, kDoublingsMax)), why,
        site);
  }
  put_out_holders();  // a ban is of lives that are there, and of their tokens
}

void Conduct::put_out_holders() {
  for (const std::string& site : std::exchange(holders_, {})) {
    if (membership().member_sites().count(site) == 0) continue;
    connections().depart(
        site, cat(site, " left or ended attempts for which others had waited, again and again"),
        "evict");
  }
}

void Conduct::ban(const wire::PublicKey& key, base::Duration span, const std::string& reason,
                  const std::string& of) {
  wire::BanRecord record;
  record.key = key;
  record.until_unix_ms = span == 0
                             ? wire::kForGood
                             : unix_ms() + static_cast<std::uint64_t>(span / base::kMillisecond);
  record.reason = base::to_utf8(reason);
  record.site = of;  // it may be out by now
  for (const auto& [incarnation, process] : processes()) {
    if (process.key != key) continue;
    record.site = process.site;
    Throttle& throttle = throttles_[process.token];
    ++throttle.bans;
    throttle.banned_at = now();
    throttle.open = false;
    throttle.next_at =
        std::max(throttle.next_at, now() + std::min(options().out_max, kThrottleMin));
  }
  journal(record);
  note("ban", {{"site", record.site},
               {"key", base::to_hex(key)},
               {"for_s", span == 0 ? "ever" : cat(span / base::kSecond)},
               {"reason", reason}});
  expel(
      [&](const ProcessRecord& process) {
        return process.key == key && !JCCL_PLANTED("the-banned-stay-in");
      },
      wording().ban_text(key, record.until_unix_ms, record.reason),
      [&](const std::string& site) { return cat(site, " is banned: ", reason); });
}

// Members go with their sites; the others are refused. How many sites went.
std::size_t Conduct::expel(const std::function<bool(const ProcessRecord&)>& whom,
                           const std::string& refusal,
                           const std::function<std::string(const std::string&)>& reason) {
  std::set<std::string> sites;
  std::vector<ConnId> outside;
  for (const auto& [incarnation, process] : processes()) {
    if (!whom(process)) continue;
    if (process.id != 0) sites.insert(process.site);
    if (process.id == 0 && process.connected()) outside.push_back(process.conn);
  }
  for (const ConnId conn : outside) refuse(conn, Code::kBanned, refusal);
  for (const std::string& site : sites) connections().evict(site, reason(site), "evict");
  return sites.size();
}

// The site had to go for what may be nobody's fault.
void Conduct::put_out(const std::string& site, base::Duration cost) {
  if (ledger().sites() < 3) return;
  for (const ProcessRecord* process : connections().shards_of(site))
    blame_.departed(process->key, cost, options().out_max, now());
}

}  // namespace jccl::protocol
