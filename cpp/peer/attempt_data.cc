// The arithmetic and the memory of an attempt: own contributions, sums, results, and where they lie
// in the leaves. See attempt.h.
#include "base/crc32c.h"
#include "base/text.h"
#include "codec/guard.h"
#include "collective/kernels.h"
#include "peer/attempt.h"
#include "snapshot/digest.h"

namespace jccl::peer {

using base::cat;
using base::Code;

std::size_t AttemptRun::own_bytes(const ChunkState& chunk) const {
  std::size_t bytes = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    bytes +=
        codec::encoded_bytes(contribution_codec_, call_->specs[segment.leaf].dtype, segment.count);
  }
  return bytes;
}

bool AttemptRun::add_own(ChunkState& chunk) {
  if (const auto bad = guard(chunk)) {
    fail(Code::kGuard, self_, *bad);
    return false;
  }
  const RoundOptions& options = call_->options;
  const bool first = chunk.added == 0;
  if (!chunk.accumulator) chunk.accumulator = pool_->take(chunk.chunk.accumulator_bytes);
  BufferRef encoded;
  if (contribution_codec_ != codec::CodecId::kNone) {
    encoded = pool_->take(own_bytes(chunk));
    encode_own(chunk, encoded->data());
  }
  std::size_t encoded_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    const std::uint8_t* from =
        encoded ? encoded->data() + encoded_at
                : static_cast<const std::uint8_t*>(call_->leaves[segment.leaf].in) +
                      segment.first * codec::size_of(dtype);
    collective::accumulate(options.op, dtype, contribution_codec_, first, from, segment.count,
                           weights_[static_cast<std::size_t>(position_)],
                           chunk.accumulator->data() + accumulator_at);
    encoded_at += codec::encoded_bytes(contribution_codec_, dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(dtype, segment.count);
  }
  return true;
}

void AttemptRun::add_other(ChunkState& chunk, const BufferRef& data) {
  const RoundOptions& options = call_->options;
  const bool first = chunk.added == 0;
  if (first && chunk.route.partial) {
    chunk.accumulator = data;  // the sum so far
    return;
  }
  const std::uint32_t position = chunk.route.add_order[chunk.added];
  if (!chunk.accumulator) chunk.accumulator = pool_->take(chunk.chunk.accumulator_bytes);
  std::size_t data_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    std::uint8_t* into = chunk.accumulator->data() + accumulator_at;
    if (chunk.route.partial) {
      collective::add_partial(options.op, dtype, data->data() + accumulator_at, segment.count,
                              into);
    } else {
      collective::accumulate(options.op, dtype, contribution_codec_, first, data->data() + data_at,
                             segment.count, weights_[position], into);
    }
    data_at += codec::encoded_bytes(contribution_codec_, dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(dtype, segment.count);
  }
}

void AttemptRun::finish(ChunkState& chunk) {
  const RoundOptions& options = call_->options;
  chunk.result = pool_->take(chunk.chunk.encoded_bytes);
  std::size_t encoded_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    collective::finish(options.op, dtype, options.codec, chunk.accumulator->data() + accumulator_at,
                       segment.count, weight_sum_, chunk.result->data() + encoded_at);
    encoded_at += codec::encoded_bytes(options.codec, dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(dtype, segment.count);
  }
  chunk.accumulator.reset();
  chunk.digest = snapshot::digest_of(chunk.result->span());
  chunk.result_crc = base::crc32c(chunk.result->span());
  settle(chunk);
}

void AttemptRun::decode_result(const ChunkState& chunk) {
  std::size_t at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    if (std::uint8_t* out = output_of(chunk, segment)) {
      codec::decode(call_->options.codec, dtype, chunk.result->data() + at, segment.count, out);
    }
    at += codec::encoded_bytes(call_->options.codec, dtype, segment.count);
  }
}

void AttemptRun::encode_own(const ChunkState& chunk, std::uint8_t* out) const {
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    const auto* in = static_cast<const std::uint8_t*>(call_->leaves[segment.leaf].in) +
                     segment.first * codec::size_of(dtype);
    codec::encode(contribution_codec_, dtype, in, segment.count, out);
    out += codec::encoded_bytes(contribution_codec_, dtype, segment.count);
  }
}

std::optional<std::string> AttemptRun::guard(const ChunkState& chunk) const {
  if (!call_->options.guard) return std::nullopt;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const Leaf& leaf = call_->leaves[segment.leaf];
    if (!codec::is_float(leaf.dtype)) continue;
    const auto* in =
        static_cast<const std::uint8_t*>(leaf.in) + segment.first * codec::size_of(leaf.dtype);
    if (!codec::scan(leaf.dtype, in, segment.count).finite) {
      return cat(leaf_text(leaf, segment.leaf), " holds NaN or Inf");
    }
  }
  return std::nullopt;
}

std::vector<base::ByteView> AttemptRun::input_views(const ChunkState& chunk) const {
  std::vector<base::ByteView> views;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const Leaf& leaf = call_->leaves[segment.leaf];
    const std::size_t size = codec::size_of(leaf.dtype);
    views.emplace_back(static_cast<const std::uint8_t*>(leaf.in) + segment.first * size,
                       segment.count * size);
  }
  return views;
}

std::vector<net::MutableView> AttemptRun::output_views(const ChunkState& chunk) const {
  std::vector<net::MutableView> views;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const std::size_t size = codec::size_of(call_->leaves[segment.leaf].dtype);
    views.emplace_back(output_of(chunk, segment), segment.count * size);
  }
  return views;
}

std::uint8_t* AttemptRun::output_of(const ChunkState& chunk,
                                    const collective::Segment& segment) const {
  const Leaf& leaf = call_->leaves[segment.leaf];
  if (leaf.out == nullptr) return nullptr;
  const std::uint64_t first = chunk.slot * leaf.count + segment.first;
  return static_cast<std::uint8_t*>(leaf.out) + first * codec::size_of(leaf.dtype);
}

}  // namespace jccl::peer
