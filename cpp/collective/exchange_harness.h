// All peers of one attempt in one place: walks every peer's routes over in-memory mailboxes, in a
// shuffled order, with no transport beneath. Test-only; a reference for whoever walks routes over
// real links.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "codec/noise.h"
#include "collective/kernels/kernels.h"
#include "collective/plan.h"

namespace jccl::collective {

using base::Bytes;
using codec::Codec;
using codec::CodecId;
using codec::Dtype;

struct Exchange {
  Plan plan;
  std::vector<LeafSpec> leaves;
  Op op = Op::kSum;
  Codec codec;
  std::size_t chunk_bytes = 256 * 1024;
  std::vector<std::vector<Bytes>> inputs;  // by position, by leaf
  std::vector<double> weights;             // by position
  std::vector<base::PeerId> receivers;
  std::uint64_t shuffle = 0;
};

struct Outcome {
  std::vector<Chunk> chunks;
  std::map<base::PeerId, std::vector<std::optional<Bytes>>> results;  // encoded, by chunk
  std::map<base::PeerId, std::uint64_t> sent_bytes;
  bool complete = false;  // every peer has all that its routes promise
};

class Executor {
 public:
  explicit Executor(const Exchange& exchange) : x_(exchange) {
    out_.chunks = make_layout(x_.plan, x_.leaves, x_.codec, x_.chunk_bytes);
    states_.resize(x_.plan.order.size(), std::vector<State>(out_.chunks.size()));
    for (const auto id : x_.plan.order) out_.results[id].resize(out_.chunks.size());
    for (const auto id : x_.receivers) out_.results[id].resize(out_.chunks.size());
    for (const double w : x_.weights) weight_sum_ += w;
  }

  Outcome run() {
    base::Rng rng(x_.shuffle);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> turns;
    for (std::uint32_t p = 0; p < x_.plan.order.size(); ++p) {
      for (std::uint32_t c = 0; c < out_.chunks.size(); ++c) turns.emplace_back(p, c);
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = turns.size(); i > 1; --i) std::swap(turns[i - 1], turns[rng.below(i)]);
      for (const auto& [position, chunk] : turns) moved = step(position, chunk) || moved;
    }
    out_.complete = is_complete();
    return std::move(out_);
  }

 private:
  struct State {
    bool sent = false;
    bool passed_on = false;
    std::size_t added = 0;
    Bytes accumulator;                    // of an all_to_all: the blocks one after another
    std::map<std::uint32_t, Bytes> mail;  // contributions or partial sums, by sender
  };

  // One peer looks at one chunk and does what it can. True if anything happened.
  bool step(std::uint32_t me, std::uint32_t c) {
    const Chunk& chunk = out_.chunks[c];
    const Route r = route(x_.plan, chunk, me);
    State& state = states_[me][c];
    bool moved = false;
    if (!r.send_to.empty() && !r.partial && !state.sent) {
      for (const std::uint32_t to : r.send_to) send(me, to, c, own(me, chunk));
      state.sent = moved = true;
    }
    while (state.added < r.add_order.size() && add_next(me, chunk, r)) moved = true;
    const bool summed = !r.add_order.empty() && state.added == r.add_order.size();
    if (summed && r.owner && !out_.results[id(me)][c]) {
      out_.results[id(me)][c] = finished(chunk, state);
      moved = true;
    }
    if (summed && !r.owner && !state.sent) {
      for (const std::uint32_t to : r.send_to) send(me, to, c, state.accumulator);
      state.sent = moved = true;
    }
    if (out_.results[id(me)][c] && !state.passed_on) {
      pass_on(me, c);
      state.passed_on = moved = true;
    }
    return moved;
  }

  bool add_next(std::uint32_t me, const Chunk& chunk, const Route& r) {
    State& state = states_[me][chunk.index];
    const std::uint32_t from = r.add_order[state.added];
    if (from != me && state.mail.count(from) == 0) return false;
    if (x_.plan.kind != PlanKind::kAllToAll) state.accumulator.resize(chunk.accumulator_bytes);
    const Bytes data = from == me ? own(me, chunk) : state.mail.at(from);
    const bool is_sum = from != me && r.partial;
    if (is_sum && data.size() != chunk.accumulator_bytes) return false;
    if (!is_sum && data.size() != contribution_bytes(chunk)) return false;
    if (x_.plan.kind == PlanKind::kAllToAll) {
      state.accumulator.insert(state.accumulator.end(), data.begin(), data.end());
      ++state.added;
      return true;
    }
    std::size_t data_at = 0;
    std::size_t acc_at = 0;
    for (const Segment& s : chunk.segments) {
      const Dtype dtype = x_.leaves[s.leaf].dtype;
      std::uint8_t* acc = state.accumulator.data() + acc_at;
      const std::size_t acc_bytes = accumulator_bytes(dtype, s.count);
      if (is_sum && state.added == 0) {
        std::copy_n(data.data() + acc_at, acc_bytes, acc);
      } else if (is_sum) {
        add_partial(x_.op, dtype, data.data() + acc_at, s.count, acc);
      } else {
        accumulate(x_.op, dtype, contribution(), state.added == 0, data.data() + data_at, s.count,
                   x_.weights[from], acc);
      }
      data_at += codec::encoded_bytes(contribution(), dtype, s.count);
      acc_at += acc_bytes;
    }
    ++state.added;
    return true;
  }

  Bytes finished(const Chunk& chunk, State& state) const {
    if (x_.plan.kind == PlanKind::kAllToAll) return state.accumulator;
    Bytes out(chunk.encoded_bytes);
    std::size_t acc_at = 0;
    std::size_t out_at = 0;
    const double all = x_.plan.kind == PlanKind::kGather ? 1 : weight_sum_;
    for (const Segment& s : chunk.segments) {
      const Dtype dtype = x_.leaves[s.leaf].dtype;
      finish(x_.op, dtype, result(), state.accumulator.data() + acc_at, s.count, all,
             out.data() + out_at, noise(result_noise_peer(x_.plan, chunk), s));
      acc_at += accumulator_bytes(dtype, s.count);
      out_at += codec::encoded_bytes(result(), dtype, s.count);
    }
    return out;
  }

  void pass_on(std::uint32_t me, std::uint32_t c) {
    const Bytes& result = *out_.results[id(me)][c];
    for (const auto to : result_targets(x_.plan, out_.chunks[c], me, x_.receivers)) {
      out_.sent_bytes[id(me)] += result.size();
      out_.results[to][c] = result;
    }
  }

  Bytes own(std::uint32_t me, const Chunk& chunk) const {
    Bytes out(contribution_bytes(chunk));
    std::size_t at = 0;
    for (const Segment& s : chunk.segments) {
      const Dtype dtype = x_.leaves[s.leaf].dtype;
      const std::uint8_t* in = x_.inputs[me][s.leaf].data() + s.first * codec::size_of(dtype);
      codec::encode(contribution(), dtype, in, s.count, out.data() + at, noise(id(me), s));
      at += codec::encoded_bytes(contribution(), dtype, s.count);
    }
    return out;
  }

  void send(std::uint32_t me, std::uint32_t to, std::uint32_t c, const Bytes& data) {
    out_.sent_bytes[id(me)] += data.size();
    states_[to][c].mail[me] = data;
  }

  std::size_t contribution_bytes(const Chunk& chunk) const {
    std::size_t bytes = 0;
    for (const Segment& s : chunk.segments) {
      bytes += codec::encoded_bytes(contribution(), x_.leaves[s.leaf].dtype, s.count);
    }
    return bytes;
  }

  bool is_complete() const {
    const bool common = has_common_result(x_.plan.kind);
    for (const auto& [peer, results] : out_.results) {
      for (std::size_t c = 0; c < results.size(); ++c) {
        const bool wanted = common || x_.plan.order[out_.chunks[c].owner] == peer;
        if (results[c].has_value() != wanted) return false;
      }
    }
    return true;
  }

  Codec contribution() const { return contribution_codec(x_.plan, x_.codec); }
  Codec result() const { return result_codec(x_.plan, x_.codec); }
  codec::Noise noise(base::PeerId peer, const Segment& s) const {
    return {codec::noise_seed(x_.codec, {1, peer, s.leaf}), s.first};
  }
  base::PeerId id(std::uint32_t position) const { return x_.plan.order[position]; }

  const Exchange& x_;
  Outcome out_;
  std::vector<std::vector<State>> states_;  // by position, by chunk
  double weight_sum_ = 0;
};

}  // namespace jccl::collective
