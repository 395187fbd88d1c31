// The arithmetic and the memory of an attempt: own contributions, sums, results, and where they lie
// in the leaves. See attempt.h.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "codec/encoded.h"
#include "codec/guard.h"
#include "codec/noise.h"
#include "collective/kernels/kernels.h"
#include "exchange/attempt/attempt.h"
#include "snapshot/digest.h"

namespace jccl::exchange {

using base::cat;
using base::Code;

std::size_t Attempt::own_bytes(const ChunkState& chunk) const {
  std::size_t bytes = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    bytes +=
        codec::encoded_bytes(contribution_codec_, call_->specs[segment.leaf].dtype, segment.count);
  }
  return bytes;
}

// True: f32 and f64 sums may be formed where the result will lie.
bool Attempt::sums_in_output(const ChunkState& chunk) const {
  if (!in_output_ || chunk.route.partial) return false;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    if (dtype != codec::Dtype::kF32 && dtype != codec::Dtype::kF64) return false;
  }
  return true;
}

std::uint8_t* Attempt::accumulator_of(const ChunkState& chunk, const collective::Segment& segment,
                                      std::size_t at) const {
  return chunk.accumulator ? chunk.accumulator->data() + at : output_of(chunk, segment);
}

bool Attempt::pass_guard(ChunkState& chunk) {
  if (chunk.guarded) return true;
  if (const auto bad = malformed(chunk)) {
    fail(Code::kGuard, self_, *bad);
    return false;
  }
  bool finite = true;
  const bool encodes = codec::is_lossy(contribution_codec_);
  if (encodes) chunk.encoded = encode_own(chunk, &finite);  // looks at every value anyway
  if (!encodes || !finite) {
    if (const auto bad = guard(chunk)) {
      chunk.encoded.reset();
      fail(Code::kGuard, self_, *bad);
      return false;
    }
  }
  chunk.guarded = true;
  if (!wants_result(chunk)) --unguarded_;
  return true;
}

codec::Noise Attempt::noise(base::PeerId peer, const collective::Segment& segment) const {
  const codec::NoiseName name{start_.round.n, peer, segment.leaf};
  return {codec::noise_seed(call_->terms().codec, name), segment.first};
}

BufferRef Attempt::encode_own(const ChunkState& chunk, bool* finite) const {
  BufferRef encoded = memory_->take(own_bytes(chunk));
  std::uint8_t* out = encoded->data();
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    const std::size_t bytes = codec::encoded_bytes(contribution_codec_, dtype, segment.count);
    bool good = true;
    if (const std::uint8_t* own = own_bytes_of(segment)) {
      std::memcpy(out, own, bytes);
      good = codec::finite_encoded(contribution_codec_, out, segment.count);
    } else {
      good = codec::encode_checked(contribution_codec_, dtype, own_values(segment), segment.count,
                                   out, noise(self_, segment));
    }
    *finite = *finite && good;
    out += bytes;
  }
  return encoded;
}

// Null: the contribution came as values.
const std::uint8_t* Attempt::own_bytes_of(const collective::Segment& segment) const {
  const Leaf& leaf = call_->leaves[segment.leaf];
  if (leaf.encoded == nullptr) return nullptr;
  return leaf.encoded + codec::encoded_bytes(call_->terms().codec, leaf.dtype, segment.first);
}

void Attempt::decode_own() {
  undecoded_ = false;
  decoded_.resize(call_->leaves.size());
  for (std::size_t i = 0; i < decoded_.size(); ++i) {
    const Leaf& leaf = call_->leaves[i];
    if (leaf.encoded == nullptr) continue;
    decoded_[i] = memory_->take(leaf.count * codec::size_of(leaf.dtype));
    codec::decode(call_->terms().codec, leaf.dtype, leaf.encoded, leaf.count, decoded_[i]->data());
  }
}

// Encoded once for all who need it: those it is sent to, and the own sum. Once more only if one of
// them needs it again.
BufferRef Attempt::own_encoded(ChunkState& chunk) {
  BufferRef encoded = chunk.encoded;
  bool finite = true;
  if (!encoded) encoded = encode_own(chunk, &finite);
  if (chunk.encoded_uses > 0) --chunk.encoded_uses;
  chunk.encoded = chunk.encoded_uses > 0 ? encoded : nullptr;
  return encoded;
}

const std::uint8_t* Attempt::own_values(const collective::Segment& segment) const {
  const Leaf& leaf = call_->leaves[segment.leaf];
  const void* values = leaf.encoded != nullptr ? decoded_[segment.leaf]->data() : leaf.in;
  return static_cast<const std::uint8_t*>(values) + segment.first * codec::size_of(leaf.dtype);
}

// Sums of which the kernels do two terms in one pass.
bool Attempt::sums_f32(const ChunkState& chunk) const {
  const collective::Op op = call_->terms().op;
  const bool adds = op == collective::Op::kSum || op == collective::Op::kMean;
  if (!adds || !chunk.route.owner || chunk.route.partial) return false;
  if (codec::is_lossy(contribution_codec_) || codec::is_lossy(result_codec_)) return false;
  return std::all_of(chunk.chunk.segments.begin(), chunk.chunk.segments.end(),
                     [this](const collective::Segment& segment) {
                       return call_->specs[segment.leaf].dtype == codec::Dtype::kF32;
                     });
}

// False: one of them is not here yet, or the guard failed.
bool Attempt::add_first_two(ChunkState& chunk) {
  Term terms[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t position = chunk.route.add_order[i];
    const auto found = chunk.early.find(position);
    terms[i].weight = weights_[JCCL_PLANTED("weight-of-the-first") ? 0 : position];
    terms[i].own = position == static_cast<std::uint32_t>(position_);
    if (terms[i].own && (!is_here(chunk) || !pass_guard(chunk))) return false;
    if (!terms[i].own && found == chunk.early.end()) return false;
    if (!terms[i].own) terms[i].arrived = found->second;
  }
  for (std::size_t i = 0; i < 2; ++i) chunk.early.erase(chunk.route.add_order[i]);
  if (!sums_in_output(chunk)) chunk.accumulator = memory_->take(chunk.chunk.accumulator_bytes);
  chunk.added = 2;
  add_two(chunk, terms[0], terms[1]);
  return true;
}

// Into the sum's place, in one pass. The last of the chunk's additions divides too, and the place
// becomes the result's. `chunk.added` counts both terms already.
void Attempt::add_two(ChunkState& chunk, const Term& a, const Term& b) {
  const bool last = chunk.added == chunk.route.add_order.size();
  const collective::Op op =
      last || JCCL_PLANTED("divided-at-each-step") ? call_->terms().op : collective::Op::kSum;
  std::size_t at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    std::uint8_t* sum = accumulator_of(chunk, segment, at);
    const auto values = [&](const Term& term) -> const std::uint8_t* {
      if (term.arrived) return term.arrived->data() + at;
      return term.own ? own_values(segment) : sum;
    };
    JCCL_CHECK(collective::reduce2(op, codec::Dtype::kF32, values(a), a.weight, values(b), b.weight,
                                   segment.count, weight_sum_, sum));
    at += segment.count * sizeof(float);
  }
  if (!last) return;
  chunk.result = std::move(chunk.accumulator);
  chunk.written = in_output_;
  note_result(chunk);
  settle(chunk);
}

bool Attempt::add_own(ChunkState& chunk) {
  if (!pass_guard(chunk)) return false;
  const Terms& terms = call_->terms();
  const bool first = chunk.added == 0 || JCCL_PLANTED("partial-forgotten");
  if (!chunk.accumulator && !sums_in_output(chunk)) {
    chunk.accumulator = memory_->take(chunk.chunk.accumulator_bytes);
  }
  BufferRef encoded;
  if (codec::is_lossy(contribution_codec_)) encoded = own_encoded(chunk);
  std::size_t encoded_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    const std::uint8_t* from = encoded ? encoded->data() + encoded_at : own_values(segment);
    collective::accumulate(
        terms.op, dtype, contribution_codec_, first, from, segment.count,
        JCCL_PLANTED("own-weight-left-out") ? 1 : weights_[static_cast<std::size_t>(position_)],
        accumulator_of(chunk, segment, accumulator_at));
    encoded_at += codec::encoded_bytes(contribution_codec_, dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(dtype, segment.count);
  }
  return true;
}

void Attempt::add_other(ChunkState& chunk, const BufferRef& data) {
  const Terms& terms = call_->terms();
  const bool first = chunk.added == 0;
  if (first && chunk.route.partial) {
    chunk.accumulator = data;  // the sum so far
    return;
  }
  const std::uint32_t position = chunk.route.add_order[chunk.added];
  if (!chunk.accumulator && !sums_in_output(chunk)) {
    chunk.accumulator = memory_->take(chunk.chunk.accumulator_bytes);
  }
  std::size_t data_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    std::uint8_t* into = accumulator_of(chunk, segment, accumulator_at);
    if (chunk.route.partial) {
      collective::add_partial(terms.op, dtype, data->data() + accumulator_at, segment.count, into);
    } else {
      collective::accumulate(terms.op, dtype, contribution_codec_, first, data->data() + data_at,
                             segment.count, weights_[position], into);
    }
    data_at += codec::encoded_bytes(contribution_codec_, dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(dtype, segment.count);
  }
}

void Attempt::finish(ChunkState& chunk) {
  const Terms& terms = call_->terms();
  if (!in_output_) chunk.result = memory_->take(chunk.chunk.encoded_bytes);
  std::size_t encoded_at = 0, accumulator_at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    collective::finish(terms.op, dtype, result_codec_,
                       accumulator_of(chunk, segment, accumulator_at), segment.count, weight_sum_,
                       chunk.result ? chunk.result->data() + encoded_at : output_of(chunk, segment),
                       noise(collective::result_noise_peer(plan_, chunk.chunk), segment));
    encoded_at += codec::encoded_bytes(result_codec_, dtype, segment.count);
    accumulator_at += collective::accumulator_bytes(dtype, segment.count);
  }
  chunk.accumulator.reset();
  chunk.written = in_output_;
  note_result(chunk);
  settle(chunk);
}

// Looks at the result's bytes while they are in the cache.
void Attempt::note_result(ChunkState& chunk) { chunk.digest = digest_of(result_views(chunk)); }

void Attempt::decode_result(const ChunkState& chunk) {
  if (keeps_apart()) return write_parts(chunk);
  const bool short_last =
      JCCL_PLANTED("last-chunk-cut-short") && chunk.chunk.index + 1 == chunks_.size();
  std::size_t at = 0;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const codec::Dtype dtype = call_->specs[segment.leaf].dtype;
    if (std::uint8_t* out = output_of(chunk, segment)) {
      codec::decode(result_codec_, dtype, chunk.result->data() + at,
                    segment.count - (short_last ? 1 : 0), out);
    }
    at += codec::encoded_bytes(result_codec_, dtype, segment.count);
  }
}

std::optional<std::string> Attempt::guard(const ChunkState& chunk) const {
  if (!call_->terms().guard || JCCL_PLANTED("own-guard-not-asked")) return std::nullopt;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const Leaf& leaf = call_->leaves[segment.leaf];
    if (!codec::is_float(leaf.dtype)) continue;
    const std::uint8_t* own = own_bytes_of(segment);
    const bool finite = own != nullptr
                            ? codec::finite_encoded(call_->terms().codec, own, segment.count)
                            : codec::all_finite(leaf.dtype, own_values(segment), segment.count);
    if (!finite) {
      return cat(leaf_text(leaf, segment.leaf), " holds NaN or Inf");
    }
  }
  return std::nullopt;
}

// What another peer sent, before any of it is added or shown; its bytes are in the cache. Nothing
// can be said of a partial sum or of a sum's values, which may overflow honestly. `views` is one
// buffer, but for results that came straight into the outputs, as values.
std::optional<std::string> Attempt::wrong_payload(const ChunkState& chunk, wire::FrameKind kind,
                                                  const std::vector<base::ByteView>& views) const {
  if (kind == wire::FrameKind::kPartial) return std::nullopt;
  const bool result = kind == wire::FrameKind::kResult;
  const codec::Codec& codec = result ? result_codec_ : contribution_codec_;
  // In a gather the result is a contribution, which its owner has looked at.
  const bool finite =
      call_->terms().guard && (!result || plan_.kind == collective::PlanKind::kGather);
  if (!call_->terms().guard || (!finite && !codec::is_lossy(codec))) return std::nullopt;
  const bool apart = views.size() == chunk.chunk.segments.size() && views.size() > 1;
  std::size_t at = 0;
  for (std::size_t i = 0; i < chunk.chunk.segments.size(); ++i) {
    const collective::Segment& segment = chunk.chunk.segments[i];
    const Leaf& leaf = call_->leaves[segment.leaf];
    const std::uint8_t* bytes = apart ? views[i].data() : views.front().data() + at;
    at += codec::encoded_bytes(codec, leaf.dtype, segment.count);
    if (codec::is_lossy(codec)) {
      const base::Status good = codec::check_received(codec, bytes, segment.count, finite);
      if (!good.ok()) return cat(leaf_text(leaf, segment.leaf), ": ", good.text);
    } else if (!codec::all_finite(leaf.dtype, bytes, segment.count)) {
      return cat(leaf_text(leaf, segment.leaf),
                 " holds NaN or Inf, which the sender's own guard "
                 "leaves out");
    }
  }
  return std::nullopt;
}

std::vector<base::ByteView> Attempt::input_views(const ChunkState& chunk) const {
  std::vector<base::ByteView> views;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const std::size_t size = codec::size_of(call_->leaves[segment.leaf].dtype);
    views.emplace_back(own_values(segment), segment.count * size);
  }
  return views;
}

std::vector<base::MutableView> Attempt::output_views(const ChunkState& chunk,
                                                     std::uint32_t slot) const {
  std::vector<base::MutableView> views;
  for (const collective::Segment& segment : chunk.chunk.segments) {
    const std::size_t size = codec::size_of(call_->leaves[segment.leaf].dtype);
    views.emplace_back(output_of(chunk, segment, slot), segment.count * size);
  }
  return views;
}

// Segments of an all_to_all lie in the owner's block of the inputs.
std::uint8_t* Attempt::output_of(const ChunkState& chunk, const collective::Segment& segment,
                                 std::uint32_t slot) const {
  const Leaf& leaf = call_->leaves[segment.leaf];
  if (leaf.out == nullptr) return nullptr;
  const std::uint64_t block = call_->specs[segment.leaf].count;
  const std::uint64_t begin = keeps_apart() ? chunk.chunk.owner * block : 0;
  const std::uint64_t first = slot * block + (segment.first - begin);
  return static_cast<std::uint8_t*>(leaf.out) + first * codec::size_of(leaf.dtype);
}

}  // namespace jccl::exchange
