// Snapshots of the data plane: who is behind fetches, piece by piece, from a holder of the
// revision.
#include <algorithm>

#include "base/planted.h"
#include "sim/network/plane.h"
#include "sim/world.h"

namespace jccl::sim {

constexpr Duration kStall = 800 * kMillisecond;
constexpr std::uint64_t kMessageBytes = 1000;  // as far as anybody counts them

void DataPlane::fetch(const protocol::FetchSnapshot& order) {
  Fetch& fetch = fetches_[order.want.tag];
  if (fetch.want == order.want && fetch.whole != base::kNever) return;  // it only has to be loaded
  fetch = {order.want, order.holders, 0, world_.now};
  if (fetch.holders.empty()) {
    fetch.asked = 0;
    return;
  }
  const std::size_t turn = world_.rng.data.below(fetch.holders.size());
  std::rotate(fetch.holders.begin(), fetch.holders.begin() + static_cast<std::ptrdiff_t>(turn),
              fetch.holders.end());
  ask_next(fetch);
}

void DataPlane::ask_next(Fetch& fetch) {
  fetch.asked = world_.now;
  DataMessage ask;
  ask.kind = DataKind::kSnapshotAsk;
  ask.held = fetch.want;
  ask.from = peer_.incarnation;
  ask.to = fetch.holders[fetch.at].incarnation;
  world_.send_data(peer_.slot, std::move(ask));
}

void DataPlane::on_snapshot(const DataMessage& message) {
  moved_ += kMessageBytes;
  if (message.kind == DataKind::kSnapshotAsk) {
    DataMessage answer;
    answer.kind = DataKind::kSnapshotGone;
    answer.held = message.held;
    for (const UserTag& tag : peer_.tags) {
      // What it synchronises is held from then on (its number may be another run's).
      const bool own = tag.syncing && tag.tag == message.held.tag;
      const bool holds =
          tag.published == message.held || (own && tag.digest == message.held.digest);
      if (holds) answer.kind = DataKind::kSnapshotPart;
    }
    answer.from = peer_.incarnation, answer.to = message.from;
    world_.send_data(peer_.slot, std::move(answer));
    return;
  }
  const auto fetch = fetches_.find(message.held.tag);
  if (fetch == fetches_.end() || fetch->second.want != message.held) return;
  if (fetch->second.whole != base::kNever) return;
  if (message.kind == DataKind::kSnapshotGone) {
    fetch->second.asked = 0;
    return;
  }
  for (UserTag& tag : peer_.tags) {
    if (tag.tag != message.held.tag) continue;
    tag.revision = message.held.revision, tag.digest = message.held.digest;
  }
  const base::Duration load = world_.healed ? 0 : world_.mix.load;
  fetch->second.whole = world_.now + load;
  if (load == 0) fetched(message.held);
}

bool DataPlane::loads(const wire::Tag& tag) const {
  const auto fetch = fetches_.find(tag);
  return fetch != fetches_.end() && fetch->second.whole != base::kNever;
}

void DataPlane::fetched(const wire::Held& held) {
  fetches_.erase(held.tag);
  for (UserTag& tag : peer_.tags) {
    if (tag.tag == held.tag) tag.published = held;
  }
  peer_.queue(protocol::FetchDone{held});
}

// A link is one to a life (0: whichever): what an earlier one refuses late breaks no other.
void DataPlane::on_reset(std::uint32_t other, wire::Incarnation life) {
  for (auto& [tag, fetch] : fetches_) {
    if (fetch.at >= fetch.holders.size()) continue;
    const wire::Incarnation end = fetch.holders[fetch.at].incarnation;
    const bool broke = world_.slots.at(end) == other && (life == 0 || end == life);
    if (broke) fetch.asked = 0;  // the next tick asks the next holder
  }
}

void DataPlane::tick_fetches() {
  for (auto it = fetches_.begin(); it != fetches_.end();) {
    Fetch& fetch = it->second;
    if (fetch.whole != base::kNever) {
      const wire::Held got = fetch.want;
      const bool loaded = world_.now >= fetch.whole;
      ++it;
      if (loaded) fetched(got);
      continue;
    }
    if (world_.now < fetch.asked + kStall) {
      ++it;
      continue;
    }
    ++fetch.at;
    if (fetch.at < fetch.holders.size()) {
      ask_next(fetch);
      ++it;
      continue;
    }
    const wire::Tag tag = it->first;
    it = fetches_.erase(it);
    peer_.queue(protocol::FetchFailed{tag, "no holder answers"});
    it = fetches_.upper_bound(tag);
  }
}

}  // namespace jccl::sim
