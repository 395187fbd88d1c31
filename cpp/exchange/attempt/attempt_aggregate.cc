// Chunks of a call with a robust aggregator: contributions stay as they arrived until the last one
// is here, then all are aggregated at once, in the plan's order. See attempt.h.
#include <algorithm>

#include "base/planted.h"
#include "collective/kernels/aggregate.h"
#include "collective/kernels/kernels.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {

void Attempt::aggregate_if_all_here(ChunkState& chunk) {
  const std::vector<std::uint32_t>& order = chunk.route.add_order;
  const bool all_here = std::all_of(order.begin(), order.end(), [&](std::uint32_t position) {
    if (position == static_cast<std::uint32_t>(position_)) return is_here(chunk);
    return chunk.early.count(position) > 0;
  });
  const std::size_t missing = JCCL_PLANTED("aggregated-without-the-last") ? 1 : 0;
  if (!all_here && (missing == 0 || !is_here(chunk) || chunk.early.size() + 2 < order.size()))
    return;
  if (!pass_guard(chunk)) return;
  aggregate(chunk);
  chunk.early.clear();
  chunk.added = static_cast<std::uint32_t>(order.size());
  finish(chunk);
}

void Attempt::aggregate(ChunkState& chunk) {
  if (!sums_in_output(chunk)) chunk.accumulator = memory_->take(chunk.chunk.accumulator_bytes);
  const bool encodes = codec::is_lossy(contribution_codec_);
  const BufferRef own = encodes ? own_encoded(chunk) : nullptr;
  std::size_t encoded_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    collective::Contributions all{
        call_->specs[segment.leaf].dtype, contribution_codec_, {}, segment.count};
    for (const std::uint32_t position : chunk.route.add_order) {
      const auto arrived = chunk.early.find(position);
      if (arrived != chunk.early.end()) {
        all.encoded.push_back(arrived->second->data() + encoded_at);
      } else if (position == static_cast<std::uint32_t>(position_)) {
        all.encoded.push_back(encodes ? own->data() + encoded_at : own_values(segment));
      }
    }
    collective::aggregate(call_->terms().aggregator, all, &scratch_,
                          accumulator_of(chunk, segment, accumulator_at));
    encoded_at += codec::encoded_bytes(contribution_codec_, all.dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(all.dtype, segment.count);
  }
}

}  // namespace jccl::exchange
