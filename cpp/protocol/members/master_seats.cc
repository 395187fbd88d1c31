// Whose a seat is, and a name, and how many sites one key may be. Pure; one event at a time.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr base::Duration kKickedMin = 60 * base::kSecond;  // that a kicked site's name is kept

}  // namespace

// A seat, a (site, shard), is its key's. Another key has it when that session has been lost for its
// grace, and the same key in another process when it is not alive: of two processes with one key
// file each would put out the other.
std::optional<Status> Seats::seat_taken(const wire::Hello& hello,
                                        const wire::PublicKey& key) const {
  if (const auto kept = seat_kept(hello.site, key)) return kept;
  for (const wire::Incarnation incarnation : connections().processes_at(hello.site)) {
    const ProcessRecord& process = processes().at(incarnation);
    if (incarnation == hello.incarnation || connections().gives_way(process)) continue;
    if (process.shard != hello.shard && process.shards == hello.shards) continue;
    const bool another = process.key != key && !JCCL_PLANTED("seat-of-another-key");
    if (connections().alive(process) || another)
      return Status{Code::kLinkLost, taken_text(process, key)};
  }
  return std::nullopt;
}

// Whose the seat is, until when, and what the peer that wants it can do.
std::string Seats::taken_text(const ProcessRecord& process, const wire::PublicKey& asker) const {
  const bool same = process.key == asker;
  const std::string whose = cat(
      "the seat of site ", process.site, ", shard ", process.shard, " of ", process.shards,
      ", is taken by ", same ? "this peer's own key " : "the key ", brief_key(process.key), "…");
  const auto ms = [](base::Duration span) {
    return (span + base::kMillisecond - 1) / base::kMillisecond;
  };
  if (connections().alive(process)) {
    return cat(whose, same ? " in another process" : "", ", heard ", ms(now() - process.heard),
               " ms ago. It is free when that process has ended or been away for ",
               ms(options().reset_grace),
               " ms. If both are to run, give each a site or shard of its own",
               same ? " and a key file of its own" : "");
  }
  return cat(
      whose, ", which is away. If that does not come back, the seat is free in ",
      ms(std::max<base::Duration>(0, connections().lost_at(process) - now())),
      " ms: try again then. With a key file a process that starts again has its seat at once");
}

// Who is kicked may come back, so nobody else has the name meanwhile. A ban gives it to others.
void Seats::keep_seat(const std::string& site) {
  std::erase_if(kept_seats_, [this](const auto& entry) { return entry.second.until <= now(); });
  KeptSeat& seat = kept_seats_[site];
  seat.until = now() + kKickedMin;
  seat.keys.clear();
  for (const ProcessRecord* process : connections().shards_of(site)) seat.keys.insert(process->key);
}

std::optional<Status> Seats::seat_kept(const std::string& site, const wire::PublicKey& key) const {
  const auto seat = kept_seats_.find(site);
  if (seat == kept_seats_.end() || now() >= seat->second.until) return std::nullopt;
  const auto& keys = seat->second.keys;
  const bool banned = std::all_of(keys.begin(), keys.end(), [this](const auto& one) {
    return conduct().ban_of(one) != nullptr;
  });
  if (keys.count(key) > 0 || banned || JCCL_PLANTED("kicked-seat-is-free")) return std::nullopt;
  return Status{Code::kLinkLost,
                cat("site ", site, " was kicked and may come back: its name is kept for the key ",
                    brief_key(*keys.begin()), keys.size() > 1 ? "… and others" : "…", " for ",
                    (seat->second.until - now()) / base::kSecond + 1,
                    " s more. Try again then, or give this peer another site")};
}

// Once a key has joined by a token that was made for the site, its name is for such tokens alone.
// Nobody is put out: a member comes back as it came.
Status Seats::reserved(const std::string& site, const wire::PublicKey& key,
                       const std::function<bool(const std::string&)>& is_its_own) const {
  for (const auto& [id, member] : ledger().members()) {
    if (member.site == site && member.key == key) return {};
  }
  for (const auto& [token, use] : ledger().tokens()) {
    if (use.revoked || use.shards.empty() || !is_its_own(token)) continue;
    if (JCCL_PLANTED("own-tokens-keep-no-name")) continue;
    return {Code::kAuth,
            cat("site ", site,
                " has tokens of its own, and peers there come by them alone; this "
                "token is for any site: use one that was made for it (jccl token create --site), "
                "or another site")};
  }
  return {};
}

// Whoever it is, it is one: with one key it can't be several sites, and have a vote for each.
std::string Seats::key_elsewhere(const ProcessRecord& process) const {
  if (process.key == wire::PublicKey{} || JCCL_PLANTED("one-key-is-many-sites")) return {};
  const auto same = connections().of_key_.find(process.key);
  if (same == connections().of_key_.end()) return {};
  for (const auto& [site, incarnations] : same->second) {
    if (site == process.site) continue;  // without a look at its processes: there may be many
    for (const wire::Incarnation incarnation : incarnations) {
      const ProcessRecord& other = processes().at(incarnation);
      const bool first = other.id != 0 ||
                         (other.order < process.order && !JCCL_PLANTED("one-key-is-many-outside"));
      if (!first) continue;
      return cat("waits: its key ", brief_key(process.key), "… is the key of ",
                 other.id != 0 ? "the member " : "", site, ": give each a key file of its own");
    }
  }
  return {};
}

}  // namespace jccl::protocol
