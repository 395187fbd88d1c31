// The fetcher's bookkeeping. Every part is missing, asked for, or here; a part asked of a holder
// that was lost or became slow is missing again.
#include "snapshot/fetch_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::snapshot {

FetchPlan::FetchPlan(FetchOptions options, std::uint32_t first_part, std::uint32_t last_part,
                     const std::set<std::uint32_t>& have)
    : options_(options), first_(first_part), last_(last_part), cursor_(first_part) {
  JCCL_CHECK(first_part <= last_part);
  JCCL_CHECK(options.parts_per_ask > 0);
  JCCL_CHECK(options.asks_per_holder > 0);
  parts_.assign(last_part - first_part, Part::kMissing);
  missing_ = last_part - first_part;
  for (const std::uint32_t part : have) {
    if (part < first_ || part >= last_) continue;
    at(part) = Part::kHere;
    --missing_;
  }
}

void FetchPlan::add_holder(base::Incarnation holder, base::Time now) {
  if (banned_.contains(holder)) return;
  const auto [it, added] = holders_.try_emplace(holder);
  if (!added) return;
  it->second.due = now + options_.slow_after;
  gone_.erase(holder);
}

void FetchPlan::hand_back(const Holder& holder) {
  for (const auto& [number, ask] : holder.asks) {
    for (const std::uint32_t part : ask.left) {
      if (at(part) != Part::kAsked) continue;
      at(part) = Part::kMissing;
      if (!JCCL_PLANTED("cursor-does-not-go-back")) cursor_ = std::min(cursor_, part);
    }
  }
}

// The opposite: what a holder owes and nobody else was asked for is under way after all.
void FetchPlan::take_back(const Holder& holder) {
  for (const auto& [number, ask] : holder.asks) {
    for (const std::uint32_t part : ask.left) {
      if (at(part) == Part::kMissing) at(part) = Part::kAsked;
    }
  }
}

void FetchPlan::on_holder_lost(base::Incarnation holder, const std::string& why) {
  const auto it = holders_.find(holder);
  if (it == holders_.end()) return;
  if (!JCCL_PLANTED("lost-parts-not-asked-again")) hand_back(it->second);
  holders_.erase(it);
  gone_[holder] = why;
}

void FetchPlan::on_outdated(base::Incarnation holder) {
  outdated_ = true;
  on_holder_lost(holder, "holds that revision no more");
}

void FetchPlan::distrust(base::Incarnation holder, const std::string& why) {
  if (!JCCL_PLANTED("liar-may-come-back")) banned_.insert(holder);
  on_holder_lost(holder, why);
}

void FetchPlan::fetch_again(std::uint32_t part) {
  JCCL_CHECK(at(part) == Part::kHere);
  at(part) = Part::kMissing;
  cursor_ = std::min(cursor_, part);
  ++missing_;
}

PartUse FetchPlan::on_part(base::Incarnation holder, std::uint64_t ask, std::uint32_t part,
                           bool good, base::Time now) {
  const auto it = holders_.find(holder);
  if (it == holders_.end()) return PartUse::kDrop;
  const auto asked = it->second.asks.find(ask);
  if (asked == it->second.asks.end() || asked->second.left.erase(part) == 0) return PartUse::kDrop;
  if (!good && !JCCL_PLANTED("bad-part-counts-as-here")) {
    asked->second.left.insert(part);  // so that it is handed back with the rest
    distrust(holder, base::cat("sent part ", part, " with a wrong digest"));
    return PartUse::kDrop;
  }
  if (asked->second.left.empty()) it->second.asks.erase(asked);
  it->second.due = now + options_.slow_after;
  if (it->second.slow) take_back(it->second);
  it->second.slow = false;
  if (at(part) == Part::kHere && !JCCL_PLANTED("part-counted-twice")) return PartUse::kHave;
  at(part) = Part::kHere;
  --missing_;
  return PartUse::kKeep;
}

// True if a slow holder may be tried with one more ask.
bool FetchPlan::notice_silence(Holder& holder, base::Time now) {
  if (holder.asks.empty() || now < holder.due) return false;
  const bool again = holder.slow;
  holder.slow = !JCCL_PLANTED("slow-holder-waited-for");
  holder.patience = again ? 2 * holder.patience : 4 * options_.slow_after;
  holder.due = now + holder.patience;
  hand_back(holder);
  return again;
}

bool FetchPlan::take_run(std::uint32_t* first, std::uint32_t* last) {
  while (cursor_ < last_ && at(cursor_) != Part::kMissing) ++cursor_;
  *first = *last = cursor_;
  while (*last < last_ &&
         *last - *first < options_.parts_per_ask * (JCCL_PLANTED("ask-too-long") ? 4 : 1) &&
         at(*last) == Part::kMissing) {
    at((*last)++) = Part::kAsked;
  }
  return *first < *last;
}

bool FetchPlan::fill(base::Incarnation id, Holder& holder, base::Time now,
                     std::vector<FetchAsk>* out) {
  Ask ask;
  if (!take_run(&ask.first, &ask.last)) return false;
  for (std::uint32_t part = ask.first; part < ask.last; ++part) ask.left.insert(part);
  if (holder.asks.empty() && !JCCL_PLANTED("silence-from-the-first-ask"))
    holder.due = now + options_.slow_after;
  out->push_back({id, next_ask_, ask.first, ask.last});
  holder.asks.emplace(next_ask_++, std::move(ask));
  return true;
}

std::vector<FetchAsk> FetchPlan::next_asks(base::Time now) {
  std::vector<base::Incarnation> again;
  for (auto& [id, holder] : holders_) {
    if (notice_silence(holder, now)) again.push_back(id);
  }
  std::vector<FetchAsk> out;
  // Rounds over the holders, the least busy first, so that a short fetch is spread over all.
  for (std::uint32_t busy = 0; busy < options_.asks_per_holder; ++busy) {
    for (auto& [id, holder] : holders_) {
      if (holder.slow || holder.asks.size() != busy) continue;
      if (!fill(id, holder, now, &out)) return out;
    }
  }
  for (const base::Incarnation id : again) fill(id, holders_.at(id), now, &out);
  return out;
}

bool FetchPlan::wants(std::uint32_t part) const {
  return part >= first_ && part < last_ && parts_[part - first_] != Part::kHere;
}

base::Status FetchPlan::status() const {
  if (finished()) return {};
  const bool some = std::any_of(holders_.begin(), holders_.end(), [&](const auto& entry) {
    return !outdated_ || !entry.second.slow;
  });
  if (some) return {};
  std::string text =
      base::cat(missing_, " of ", parts_.size(), " parts missing and no holder left");
  const char* separator = ": ";
  for (const auto& [id, holder] : holders_) {
    text += base::cat(separator, base::to_hex(id), " is silent");
    separator = ", ";
  }
  for (const auto& [id, why] : gone_) {
    text += base::cat(separator, base::to_hex(id), " ", why);
    separator = ", ";
  }
  return {base::Code::kPeerLost, std::move(text)};
}

base::Time FetchPlan::wake() const {
  base::Time wake = base::kNever;
  for (const auto& [id, holder] : holders_) {
    if (!holder.asks.empty())
      wake = std::min(wake, holder.due * (JCCL_PLANTED("fetch-wakes-late") ? 4 : 1));
  }
  return wake;
}

std::string FetchPlan::waiting_for() const {
  if (finished()) return {};
  std::string text = base::cat(missing_, " of ", parts_.size(), " parts");
  const char* separator = " from ";
  for (const auto& [id, holder] : holders_) {
    if (holder.asks.empty()) continue;
    text += base::cat(separator, base::to_hex(id), holder.slow ? " (slow)" : "");
    separator = ", ";
  }
  return text;
}

}  // namespace jccl::snapshot
