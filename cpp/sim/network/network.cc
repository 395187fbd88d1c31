// Framing of the simulated control connections: u32 length, then the message.
#include "sim/network/network.h"

#include <algorithm>
#include <cstring>

namespace jccl::sim {

void push_frame(Direction& direction, const base::Bytes& payload, Time at, StreamLaw law,
                base::Rng& rng) {
  at = std::max(at, direction.last);
  base::Bytes bytes(4 + payload.size());
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::memcpy(bytes.data(), &size, 4);
  std::copy(payload.begin(), payload.end(), bytes.begin() + 4);
  if (!direction.queue.empty() && !direction.queue.back().end && rng.chance(law.coalesce)) {
    base::Bytes& tail = direction.queue.back().bytes;
    tail.insert(tail.end(), bytes.begin(), bytes.end());
    return;
  }
  while (bytes.size() > 1 && rng.chance(law.split)) {
    const auto cut = static_cast<std::ptrdiff_t>(1 + rng.below(bytes.size() - 1));
    direction.queue.push_back({at, base::Bytes(bytes.begin(), bytes.begin() + cut), false});
    bytes.erase(bytes.begin(), bytes.begin() + cut);
    at += between(rng, 0, 2 * kMillisecond);
  }
  direction.queue.push_back({at, std::move(bytes), false});
  direction.last = at;
}

bool pop_frame(Direction& direction, base::Bytes* payload) {
  const std::size_t left = direction.in.size() - direction.in_at;
  std::uint32_t size = 0;
  if (left >= 4) std::memcpy(&size, direction.in.data() + direction.in_at, 4);
  if (left < 4 || left - 4 < size) {
    if (left == 0) direction.in.clear(), direction.in_at = 0;
    return false;
  }
  const std::uint8_t* at = direction.in.data() + direction.in_at + 4;
  payload->assign(at, at + size);
  direction.in_at += 4 + size;
  return true;
}

}  // namespace jccl::sim
