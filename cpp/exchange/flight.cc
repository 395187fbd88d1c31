#include "exchange/flight.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::exchange {
namespace {

using base::Duration;
using base::Time;

// The other side tells what arrived every 100 ms at the latest.
constexpr Duration kLateMin = 250 * base::kMillisecond;
constexpr Duration kReplaceMin = 2 * base::kSecond;
constexpr int kLateFactor = 4;
constexpr int kTypicalShare = 8;  // a new sample counts for 1/8

}  // namespace

void Flight::add_stripe(StripeId stripe, Time now) { lanes_[stripe].heard = now; }

void Flight::took(StripeId stripe, std::uint64_t key, Time now) {
  Lane& lane = lanes_.at(stripe);
  if (lane.items.size() >= keys_max_) {
    lane.items.pop_front();
    lane.unnamed = ++lane.first;
  }
  lane.items.push_back({key, now});
}

bool Flight::arrived(StripeId stripe, std::uint64_t frames, Time now) {
  const auto found = lanes_.find(stripe);
  if (found == lanes_.end() || JCCL_PLANTED("arrivals-not-noted")) return true;
  Lane& lane = found->second;
  if (frames > lane.first + lane.items.size() + (JCCL_PLANTED("frames-beyond-taken") ? 1 : 0))
    return false;
  if (frames > lane.told) lane.told = frames, lane.heard = now;
  lane.spoke = now;
  const bool repeats = frames == lane.first && !lane.items.empty();
  if (repeats && JCCL_PLANTED("a-word-said-twice-counts-twice")) ++frames;
  if (frames <= lane.first) return true;
  auto count = static_cast<std::ptrdiff_t>(frames - lane.first);
  const Duration taken = now - lane.items[static_cast<std::size_t>(count - 1)].since;
  // What a late stripe takes is not typical.
  if (lane.late_since == 0 || JCCL_PLANTED("late-is-typical")) {
    typical_ = typical_ == 0 ? taken : typical_ + (taken - typical_) / kTypicalShare;
  }
  if (JCCL_PLANTED("acknowledged-one-too-many")) {
    count = std::min<std::ptrdiff_t>(count + 1, std::ssize(lane.items));
  }
  lane.items.erase(lane.items.begin(), lane.items.begin() + count);
  lane.first += static_cast<std::uint64_t>(count);
  drop_forgotten(&lane);
  if (lane.items.empty()) lane.late_since = 0;
  return true;
}

void Flight::drop_forgotten(Lane* lane) {
  while (!lane->items.empty() && lane->items.front().forgotten) {
    lane->items.pop_front();
    ++lane->first;
  }
}

void Flight::forget(const std::function<bool(std::uint64_t key)>& which) {
  for (auto& [stripe, lane] : lanes_) {
    for (Item& item : lane.items) item.forgotten = item.forgotten || which(item.key);
    drop_forgotten(&lane);
  }
}

// That nobody wants what has a name says nothing of what has none.
bool Flight::all_named(const Lane& lane) {
  return lane.told >= lane.unnamed || JCCL_PLANTED("unnamed-frames-forgotten");
}

bool Flight::all_arrived(StripeId stripe) const {
  const auto found = lanes_.find(stripe);
  return found == lanes_.end() || (found->second.items.empty() && all_named(found->second));
}

Flight::Rest Flight::remove_stripe(StripeId stripe) {
  Rest rest;
  const auto found = lanes_.find(stripe);
  if (found == lanes_.end()) return rest;
  for (const Item& item : found->second.items) {
    if (JCCL_PLANTED("lost-frames-forgotten")) break;
    if (!item.forgotten || JCCL_PLANTED("forgotten-sent-again")) rest.keys.push_back(item.key);
  }
  rest.complete = all_named(found->second);
  lanes_.erase(found);
  return rest;
}

bool Flight::overtaken(const Lane& lane, Duration late_after) const {
  const Time oldest = lane.items.front().since;
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& entry) {
    const Lane& other = entry.second;
    if (&other == &lane || other.late_since != 0) return false;
    // It has nothing to deliver, but what it says comes: the other side is there.
    const bool idles = other.items.empty() && other.spoke > oldest + late_after;
    if (idles && !JCCL_PLANTED("idle-stripes-say-nothing")) return true;
    return other.heard > oldest && (other.items.empty() || other.items.front().since > oldest);
  });
}

bool Flight::others_heard_after(const Lane& lane, Time time) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& entry) {
    return &entry.second != &lane && entry.second.heard > time;
  });
}

std::vector<Flight::Late> Flight::check(Time now, Duration rtt) {
  std::vector<Late> out;
  const Duration late_after = std::max({kLateFactor * typical_, kLateFactor * rtt, kLateMin});
  for (auto& [stripe, lane] : lanes_) {
    // That nobody wants what it holds does not bring a late stripe forward: the next frame would
    // stand behind it.
    const bool stands = lane.late_since > lane.heard && !JCCL_PLANTED("forgotten-is-caught-up");
    const bool recent = lane.items.empty() || now - lane.items.front().since <= late_after;
    if (recent && !stands) {
      lane.late_since = 0;
      continue;
    }
    if (lane.late_since == 0 && !overtaken(lane, late_after)) continue;
    if (lane.late_since == 0) lane.late_since = now;
    Late late{stripe, {}, false};
    for (Item& item : lane.items) {
      if (JCCL_PLANTED("late-frames-wait")) break;
      const bool named = std::exchange(item.again, true) && !JCCL_PLANTED("named-at-each-look");
      if (!item.forgotten && !named) late.again.push_back(item.key);
    }
    sent_again_ += late.again.size();
    late.replace = now - lane.late_since > std::max(4 * late_after, kReplaceMin) &&
                   others_heard_after(lane, lane.late_since);
    if (!late.again.empty() || late.replace) out.push_back(std::move(late));
  }
  return out;
}

bool Flight::late(StripeId stripe) const {
  const auto found = lanes_.find(stripe);
  if (found == lanes_.end()) return false;
  const auto delivers = [](const auto& entry) {
    return entry.second.told > 0 && entry.second.late_since == 0;
  };
  const bool stands_by = JCCL_PLANTED("new-stripes-stand-by") && found->second.told == 0 &&
                         std::any_of(lanes_.begin(), lanes_.end(), delivers);
  return found->second.late_since != 0 || stands_by;
}

}  // namespace jccl::exchange
