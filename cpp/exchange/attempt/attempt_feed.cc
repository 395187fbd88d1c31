// Attempts whose own inputs come while they run (see peer/streamed_input.h), or are compared: a
// chunk is set going when its last byte is here, the last one of all when the state is known to be
// the run's. See attempt.h.
#include <algorithm>
#include <map>

#include "base/planted.h"
#include "base/text.h"
#include "codec/encoded.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {

using base::cat;
using base::Code;

// How much of the feed each chunk waits for. Contributions that are decoded before they are added
// wait for all of it.
void Attempt::lay_out_feed() {
  std::vector<std::uint64_t> begins;
  std::uint64_t all = 0;
  for (const Leaf& leaf : call_->leaves) {
    begins.push_back(all);
    all += input_bytes(leaf);
  }
  for (ChunkState& chunk : chunks_) {
    for (const collective::Segment& segment : chunk.chunk.segments) {
      const Leaf& leaf = call_->leaves[segment.leaf];
      const std::uint64_t end = segment.first + segment.count;
      const std::uint64_t bytes = leaf.encoded != nullptr
                                      ? codec::encoded_bytes(call_->terms().codec, leaf.dtype, end)
                                      : end * codec::size_of(leaf.dtype);
      chunk.needs = std::max(chunk.needs, begins[segment.leaf] + bytes);
    }
    if (undecoded_) chunk.needs = all;
  }
}

bool Attempt::is_here(const ChunkState& chunk) const {
  if (undecoded_ || is_kept_back(chunk)) return false;
  return call_->incoming() == nullptr || call_->incoming()->here() >= chunk.needs;
}

// Until the state is known to be equal, so that nobody can make a result with values of another
// state: the outcome is written by another thread, and may come at any line of this one.
bool Attempt::is_kept_back(const ChunkState& chunk) const {
  const Comparison so_far = call_->comparison();
  if (JCCL_PLANTED("difference-lets-go") && so_far == Comparison::kDiffers) return false;
  return chunk.last_own && so_far != Comparison::kEqual && !JCCL_PLANTED("last-chunk-sent-at-once");
}

// The last chunk that the own contribution goes into, of each result that others form: of a
// scatter, where each has a part for itself, one for each of them.
void Attempt::choose_kept_back() {
  std::map<std::uint32_t, ChunkState*> last;  // by owner
  const bool has_parts = !collective::has_common_result(plan_.kind);
  for (ChunkState& chunk : chunks_) {
    if (chunk.encoded_uses == 0) continue;
    last[has_parts && !JCCL_PLANTED("one-part-kept-back") ? chunk.chunk.owner : 0] = &chunk;
  }
  for (const auto& [owner, chunk] : last) chunk->last_own = true;
}

// The own contribution of the chunk is here.
void Attempt::set_going(ChunkState& chunk) {
  const collective::Route& route = chunk.route;
  if (!route.partial) {
    for (const std::uint32_t to : route.send_to) {
      host_->enqueue(start_.attempt, plan_.order[to],
                     {wire::FrameKind::kContribution, chunk.chunk.index});
    }
  }
  // Alone, first of a chain, or others' came before it: nothing arrives that would set it going.
  const bool first = route.add_order.size() == 1 &&
                     route.add_order.front() == static_cast<std::uint32_t>(position_);
  if (first || !chunk.early.empty() || chunk.added > 0) advance(chunk);
}

void Attempt::fed() {
  if (coming_.empty() || failed_) return;
  if (call_->comparison() == Comparison::kDiffers)
    return fail(Code::kResync, self_, call_->difference());
  if (undecoded_ && call_->incoming()->whole()) decode_own();
  while (!coming_.empty() && !failed_ && is_here(chunks_[coming_.back()])) {
    ChunkState& chunk = chunks_[coming_.back()];
    coming_.pop_back();
    set_going(chunk);
  }
  if (!coming_.empty() && call_->incoming() != nullptr) {
    if (const auto fault = call_->incoming()->fault()) fail(Code::kGuard, self_, *fault);
  }
  report_if_complete();
}

// What check_call() does for bytes that are here at the start of a call.
std::optional<std::string> Attempt::malformed(const ChunkState& chunk) const {
  if (call_->incoming() == nullptr) return std::nullopt;
  const codec::Codec& codec = call_->terms().codec;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const Leaf& leaf = call_->leaves[segment.leaf];
    const std::uint8_t* own = own_bytes_of(segment);
    if (own == nullptr) continue;
    const std::size_t bytes = codec::encoded_bytes(codec, leaf.dtype, segment.count);
    const base::Status good = codec::check_encoded(codec, leaf.dtype, own, bytes, segment.count);
    if (!good.ok()) return cat(leaf_text(leaf, segment.leaf), ": ", good.text);
  }
  return std::nullopt;
}

}  // namespace jccl::exchange
