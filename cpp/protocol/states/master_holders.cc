// Who has the newest revision of a state tag, and who may still turn out to have it. Pure.
#include <algorithm>

#include "base/ids.h"
#include "base/planted.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

namespace {

constexpr std::size_t kHoldersMax = 32;  // named to one fetcher
constexpr base::Duration kHoldsRest =
    200 * base::kMillisecond;       // short holds take a third at most,
constexpr int kHoldsRestTimes = 4;  // … longer ones a fifth
}  // namespace

bool StateSync::contributed(wire::PeerId id, const wire::Tag& tag) const {
  const Standing& at = ledger().standing(tag);
  if (id == 0 || at.recent.empty()) return false;
  const wire::CommitRecord& last = at.recent.back();
  const auto below = [](const wire::Contributor& one, wire::PeerId other) {
    return one.id < other;
  };
  const auto found =
      std::lower_bound(last.contributors.begin(), last.contributors.end(), id, below);
  if (found != last.contributors.end() && found->id == id) return true;
  // They compare their result with the commit's.
  return !JCCL_PLANTED("receivers-hold-nothing") &&
         std::binary_search(last.receivers.begin(), last.receivers.end(), id);
}

// It is the process whose state revision 0 is. In a later life too, which may be let in by another
// tag before it says that it has this one. Its number is enough to be waited for: who names it in
// vain gains no more than who says that it fetches.
bool StateSync::has_first(const ProcessRecord& process, const wire::Tag& tag) const {
  const Standing& at = ledger().standing(tag);
  if (process.shard >= at.sources.size()) return false;
  const wire::Incarnation source = at.sources[process.shard];
  const bool later = at.committed == 0 && !JCCL_PLANTED("source-of-one-life") &&
                     base::process_of(source) == base::process_of(process.incarnation);
  return later || source == process.incarnation;
}

// That they may have it is, of those that are here, their own word. So while no holder is known
// they are waited for as long as whoever brings an earlier revision, and no longer; for how long
// those are that are away, the membership says.
base::Time StateSync::awaited_until(const Round& round) const {
  const base::Time since = round.unheld_since;
  if (since == base::kNever || JCCL_PLANTED("awaited-for-ever")) return base::kNever;
  return since + std::max(options().silence, options().restore_after);
}

// Somebody in the membership that isn't known as a holder yet, but may turn out to be one.
bool StateSync::may_publish(const wire::Tag& tag, std::uint32_t shard) const {
  const Standing& at = ledger().standing(tag);
  const auto known = at.digests.find(shard);
  if (known == at.digests.end()) return state_votes().votes_awaited(tag);
  const bool too_long = now() >= awaited_until(rounds().at(tag));
  for (const auto& [incarnation, process] : processes()) {
    if (process.id == 0 || process.shard != shard) continue;
    const bool believed = !too_long || !process.connected();
    // Not back since the master's restart, or lost again before its Resume: nothing known of it.
    const bool heard = JCCL_PLANTED("known-by-its-hello") ? process.seen : process.said_held;
    if (!heard && believed) return true;
    if (process.syncs.count(tag) > 0 && !JCCL_PLANTED("waits-for-one-who-is-behind")) {
      continue;  // wants that revision itself
    }
    const bool reported = state_votes().holds_newest(process, tag);
    const auto behind = process.behind.find(tag);
    if (!reported && behind != process.behind.end() && behind->second == at.committed &&
        !JCCL_PLANTED("waits-for-one-who-is-behind")) {
      continue;
    }
    if (!reported && believed && (contributed(process.id, tag) || has_first(process, tag)))
      return true;
    const bool right = reported && process.held.at(tag).digest == known->second;
    if (right && !process.connected()) return true;
  }
  return false;
}

// Somebody may turn out to be a holder, or is getting the newest revision just now.
bool StateSync::awaited(const wire::Tag& tag, std::uint32_t shard) const {
  const std::uint64_t newest = ledger().standing(tag).committed;
  const bool too_long = now() >= awaited_until(rounds().at(tag));
  const auto gets_it = [&](const auto& entry) {
    const ProcessRecord& process = entry.second;
    if (too_long && process.connected()) return false;
    const auto offered = process.may_hold.find(tag);
    return process.shard == shard && offered != process.may_hold.end() &&
           offered->second == newest && !JCCL_PLANTED("fetcher-not-awaited");
  };
  return may_publish(tag, shard) || std::any_of(processes().begin(), processes().end(), gets_it);
}

// Looked up once for all who ask: with a crowd of askers a look at all lives for each is n².
Serving StateSync::serving(const wire::Tag& tag, std::uint32_t shard) const {
  Serving serving;
  const auto& digests = ledger().standing(tag).digests;
  const auto known = digests.find(shard);
  for (const auto& [incarnation, process] : processes()) {
    if (known == digests.end()) break;
    if (!process.connected() || process.shard != shard) continue;
    const auto held = process.held.find(tag);
    if (held != process.held.end() && held->second.digest == known->second) {
      serving.holders.push_back(&process);
    }
  }
  serving.awaited = awaited(tag, shard);
  return serving;
}

// There are holders, but they can only dial out, like the asker.
bool StateSync::out_of_reach(const Serving& serving, const ProcessRecord& asker) const {
  return holders_of(serving, asker).empty() &&
         std::any_of(serving.holders.begin(), serving.holders.end(), [&](const ProcessRecord* one) {
           return one->incarnation != asker.incarnation;
         });
}

std::vector<wire::Member> StateSync::holders_of(const Serving& serving,
                                                const ProcessRecord& asker) const {
  std::vector<wire::Member> members, observers;
  for (const ProcessRecord* process : serving.holders) {
    if (process->incarnation == asker.incarnation) continue;
    if (process->addresses.empty() && asker.addresses.empty()) continue;
    auto& list = process->id != 0 ? members : observers;
    if (list.size() < kHoldersMax) list.push_back(membership().member_of(*process));
    if (members.size() == kHoldersMax) break;
  }
  return members.empty() ? observers : members;
}

// Whoever enters has to be current on all tags at one moment, and attempts in flight make newer
// revisions yet: a hold is for the time after them.
void StateSync::extend_holds() {
  const bool in_flight = std::any_of(rounds().begin(), rounds().end(), [&](const auto& entry) {
    return entry.second.running.has_value() && ledger().standing(entry.first).born;
  });
  if (!in_flight || JCCL_PLANTED("holds-end-before-rounds")) return;
  for (auto& [site, until] : holds_) {
    until = std::max(until, std::min(now() + kHoldMax, hold_began_ + kHoldInFlightMax));
  }
}

// Rounds that are held have half of the time of their calls left, and twice what they usually take.
// For a short hold all calls have the time.
base::Time StateSync::held_until(base::Time until) const {
  for (const auto& [tag, round] : rounds()) {
    if (!ledger().standing(tag).born || JCCL_PLANTED("held-beyond-its-call")) continue;
    for (const auto& [incarnation, open] : round.ready) {
      const base::Duration left = JCCL_PLANTED("half-a-call-is-enough") ? 0 : 2 * round.usual;
      until =
          std::min({until, open.since + (open.deadline - open.since) / 2, open.deadline - left});
    }
  }
  return std::max(until, hold_began_ + kHoldMax);
}

// A hold ends in time, when rounds wait for the site anyway, or when it is gone.
void StateSync::end_holds() {
  if (holds_.empty()) return;
  extend_holds();
  const auto ended = std::erase_if(holds_, [&](const auto& hold) {
    const bool over = now() >= held_until(hold.second) && !JCCL_PLANTED("hold-never-ends");
    return over || stragglers().waited_for(hold.first) ||
           connections().shards_of(hold.first).empty();
  });
  if (ended == 0) return;
  const base::Duration held = now() - hold_began_;
  const bool is_short = held <= 2 * kHoldMax || JCCL_PLANTED("long-holds-rest-shortly");
  const base::Duration rest = std::max(kHoldsRest, (is_short ? 2 : kHoldsRestTimes) * held);
  holds_rest_until_ = std::max(holds_rest_until_, now() + rest);
  touch_all();
}

}  // namespace jccl::protocol
