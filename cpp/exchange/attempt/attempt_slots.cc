// Outputs with slots: what each contributor gave lies in its own, unchanged but for the codec. Of
// an all_to_all a peer gets one block of each contributor, and nothing is added. See attempt.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/planted.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {

// Where in the outputs something from that peer belongs.
std::uint32_t Attempt::slot_for(const ChunkState& chunk, base::PeerId from) const {
  if (!keeps_apart()) return chunk.slot;
  const auto at = std::lower_bound(plan_.order.begin(), plan_.order.end(), from);
  return static_cast<std::uint32_t>(at - plan_.order.begin());
}

// Of a chunk that this peer owns. What others see stays as it is until the commit.
void Attempt::keep_apart(ChunkState& chunk) {
  const auto own = static_cast<std::uint32_t>(position_);
  if (chunk.early.count(own) == 0 && is_here(chunk)) {
    if (!pass_guard(chunk)) return;
    chunk.early[own] = codec::is_lossy(contribution_codec_) ? own_encoded(chunk) : nullptr;
  }
  for (auto& [position, data] : chunk.early) {
    if (eager_ && data) write_part(chunk, position, std::exchange(data, nullptr));
  }
  const std::size_t missing = JCCL_PLANTED("done-without-a-block") ? 1 : 0;
  if (chunk.early.size() + missing < chunk.route.add_order.size()) return;
  chunk.added = static_cast<std::uint32_t>(chunk.route.add_order.size());
  settle(chunk);
}

void Attempt::write_part(const ChunkState& chunk, std::uint32_t position,
                         const BufferRef& data) const {
  const std::uint8_t* from = data->data();
  const std::uint32_t slot = JCCL_PLANTED("blocks-one-slot-on")
                                 ? (position + 1) % static_cast<std::uint32_t>(plan_.order.size())
                                 : position;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    if (std::uint8_t* out = output_of(chunk, segment, slot)) {
      codec::decode(contribution_codec_, dtype, from, segment.count, out);
    }
    from += codec::encoded_bytes(contribution_codec_, dtype, segment.count);
  }
}

// What is not written yet, and the own block, which lies in the input where no codec changes it.
void Attempt::write_parts(const ChunkState& chunk) const {
  for (const auto& [position, data] : chunk.early) {
    if (data) write_part(chunk, position, data);
  }
  if (codec::is_lossy(contribution_codec_) || JCCL_PLANTED("own-block-left-out")) return;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const std::size_t size = codec::size_of(call_->specs[segment.leaf].dtype);
    std::uint8_t* out = output_of(chunk, segment, static_cast<std::uint32_t>(position_));
    if (out != nullptr) std::memmove(out, own_values(segment), segment.count * size);
  }
}

// Zeros where nobody contributed; all of them where this peer has no part in the result.
void Attempt::clear_empty_slots() const {
  const Terms& terms = call_->terms();
  if (!collective::spec_of(terms.collective).has_slots()) return;
  const bool part = contributes() || collective::has_common_result(plan_.kind) ||
                    JCCL_PLANTED("left-out-keeps-its-blocks");
  const std::size_t filled = part ? plan_.order.size() : 0;
  for (std::size_t i = 0; i < call_->leaves.size(); ++i) {
    const Leaf& leaf = call_->leaves[i];
    const std::size_t each = call_->specs[i].count * codec::size_of(leaf.dtype);
    if (leaf.out == nullptr || terms.slots <= filled || JCCL_PLANTED("empty-slots-left")) continue;
    std::memset(static_cast<std::uint8_t*>(leaf.out) + filled * each, 0,
                (terms.slots - filled) * each);
  }
}

}  // namespace jccl::exchange
