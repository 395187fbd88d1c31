// How far an attempt is: the bytes of its frames, whose it still waits for, and how many are left.
// See attempt.h.
#include <algorithm>
#include <map>

#include "base/planted.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {

using wire::FrameKind;

// Of all frames of the chunk that this peer sends or gets.
std::uint64_t Attempt::frames_bytes(const ChunkState& chunk) const {
  const collective::Route& route = chunk.route;
  const FrameKind kind = route.partial ? FrameKind::kPartial : FrameKind::kContribution;
  std::uint64_t frames = 0;
  for (const std::uint32_t position : route.add_order) {
    frames += static_cast<std::int32_t>(position) != position_;
  }
  std::uint64_t results = !chunk.finished && !route.owner;
  if (contributes()) {
    frames += route.send_to.size();
    results += collective::result_targets(plan_, chunk.chunk, static_cast<std::uint32_t>(position_),
                                          start_.receivers)
                   .size();
  }
  return frames * payload_bytes(chunk, kind) + results * chunk.chunk.encoded_bytes;
}

// Of these bytes `alone` are missing for nobody's doing but the sender's: its own contribution, or
// what is made of that only. A sum waits for others, too.
void Attempt::for_missing(
    const std::function<void(base::PeerId, std::uint64_t bytes, bool alone)>& each) const {
  const std::size_t size = plan_.order.size();
  for (const ChunkState& chunk : chunks_) {
    const collective::Route& route = chunk.route;
    const FrameKind kind = route.partial ? FrameKind::kPartial : FrameKind::kContribution;
    for (std::size_t i = chunk.added; i < route.add_order.size(); ++i) {
      const std::uint32_t position = route.add_order[i];
      const bool here = chunk.early.find(position) != chunk.early.end();
      if (plan_.order[position] == self_ || here) continue;
      const bool first = (chunk.chunk.owner + 1) % size == position;  // of a ring
      each(plan_.order[position], payload_bytes(chunk, kind), !route.partial || first);
    }
    if (chunk.finished || chunk.ahead || route.owner) continue;
    const bool own = plan_.kind == collective::PlanKind::kGather || size == 1;
    each(source_of(chunk), chunk.chunk.encoded_bytes, own);
  }
}

std::vector<Attempt::Awaited> Attempt::awaited() const {
  std::map<base::PeerId, std::uint64_t> missing;
  for_missing([&](base::PeerId peer, std::uint64_t bytes, bool) { missing[peer] += bytes; });
  std::vector<Awaited> awaited;
  for (const auto& [peer, bytes] : missing) awaited.push_back({peer, bytes});
  return awaited;
}

// Frames sent again count as moved once more; but what is still to come is left, or who waits for a
// frame that its sender keeps would seem to wait for nothing.
wire::Moving Attempt::moving() const {
  wire::Moving moving{start_.attempt, 0, all_bytes_, 0, 0};
  moving.left = all_bytes_ > moved_bytes_ ? all_bytes_ - moved_bytes_ : 0;
  std::map<base::PeerId, std::uint64_t> owed, other;
  std::uint64_t missing = 0;
  for_missing([&](base::PeerId peer, std::uint64_t bytes, bool alone) {
    (alone ? owed : other)[peer] += bytes;
    missing += bytes;
  });
  if (JCCL_PLANTED("sums-wait-as-contributions")) owed.merge(other);
  moving.lacking = static_cast<std::uint32_t>(owed.size());
  std::uint64_t most = 0;
  for (const auto& [peer, bytes] : owed.empty() ? other : owed) {
    if (bytes <= most && !JCCL_PLANTED("waits-for-the-last")) continue;
    most = bytes;
    moving.waits_on = peer;
  }
  if (!JCCL_PLANTED("sent-again-is-nothing-left")) moving.left = std::max(moving.left, missing);
  return moving;
}

}  // namespace jccl::exchange
