// See attempt.h. Sums are formed in the order the plan gives, whatever order frames arrive in:
// what comes early waits in its buffer.
#include "exchange/attempt/attempt.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/planted.h"
#include "base/text.h"
#include "codec/guard.h"
#include "collective/kernels/kernels.h"
#include "snapshot/digest.h"

namespace jccl::exchange {
using base::cat;
using base::Code;
using base::Status;
using wire::FrameKind;

Attempt::Attempt(wire::Start start, base::PeerId self, CallRef call, Memory* memory,
                 std::size_t chunk_bytes, AttemptHost* host)
    : start_(std::move(start)),
      self_(self),
      call_(std::move(call)),
      memory_(memory),
      chunk_bytes_(chunk_bytes),
      host_(host) {}

Status Attempt::prepare() {
  auto plan = collective::decode(start_.plan);
  if (!plan.ok()) return plan.status();
  plan_ = std::move(plan.value());
  const Terms& terms = call_->terms();
  if (const Status fits = check_start(start_, plan_, self_, terms); !fits.ok()) return fits;
  for (std::size_t i = 0; i < plan_.order.size(); ++i) {
    if (plan_.order[i] == self_) position_ = static_cast<std::int32_t>(i);
    const auto found =
        std::find_if(start_.contributors.begin(), start_.contributors.end(),
                     [&](const wire::Contributor& c) { return c.id == plan_.order[i]; });
    weights_.push_back(found->weight);
    weight_sum_ += JCCL_PLANTED("mean-of-peers") ? 1 : found->weight;
  }
  for (double weight : weights_) {
    for (const collective::LeafSpec& leaf : call_->specs) {
      const Status usable = collective::check_weight(terms.op, leaf.dtype, weight);
      if (!usable.ok()) return usable;
    }
  }
  const bool differs = call_->comparison() == Comparison::kDiffers;
  if (differs && !JCCL_PLANTED("differing-state-begins"))
    return {Code::kResync, call_->difference()};
  if (!(weight_sum_ > 0)) return {Code::kEmpty, "the weights add up to 0"};
  if (is_robust()) weight_sum_ = 1;  // an aggregate is divided already
  contribution_codec_ = collective::contribution_codec(plan_, terms.codec);
  result_codec_ = collective::result_codec(plan_, terms.codec);
  // One output that is an input too must stay intact until the outcome is known.
  eager_ = (terms.out_private || JCCL_PLANTED("written-before-commit")) &&
           std::all_of(call_->leaves.begin(), call_->leaves.end(), [](const Leaf& leaf) {
             return leaf.out != nullptr &&
                    (leaf.out != leaf.in || JCCL_PLANTED("written-over-the-input"));
           });
  // Receivers are served on after the commit, when the output belongs to the caller again.
  serves_ = contributes() && !start_.receivers.empty() && collective::has_common_result(plan_.kind);
  const bool as_values = contributes() && !codec::is_lossy(contribution_codec_);
  undecoded_ = as_values && std::any_of(call_->leaves.begin(), call_->leaves.end(),
                                        [](const Leaf& leaf) { return leaf.encoded != nullptr; });
  in_output_ = eager_ && !codec::is_lossy(result_codec_) &&
               (!serves_ || JCCL_PLANTED("served-from-the-output"));
  if (const Status laid = lay_out(); !laid.ok()) return laid;
  if (const Status audit = begin_audit(); !audit.ok()) return audit;
  if (contributes() && call_->incoming() != nullptr) lay_out_feed();
  if (undecoded_ && (call_->incoming() == nullptr || call_->incoming()->whole())) decode_own();
  return {};
}

Status Attempt::lay_out() {
  std::vector<collective::Chunk> layout =
      collective::make_layout(plan_, call_->specs, call_->terms().codec, chunk_bytes_,
                              collective::grid_of(call_->terms().aggregator));
  if (layout.size() >= (std::size_t{1} << 29)) return {Code::kLimit, "too many chunks"};
  chunks_.reserve(layout.size());
  for (collective::Chunk& chunk : layout) {
    ChunkState state;
    state.slot = plan_.kind == collective::PlanKind::kGather ? chunk.owner : 0;
    state.route = contributes()
                      ? collective::route(plan_, chunk, static_cast<std::uint32_t>(position_))
                      : collective::receiver_route(plan_, chunk);
    state.chunk = std::move(chunk);
    state.finished = !wants_result(state);
    if (!state.finished) ++unfinished_;
    if (contributes() && state.finished) ++unguarded_;
    const bool adds_own =
        std::any_of(state.route.add_order.begin(), state.route.add_order.end(),
                    [&](std::uint32_t p) { return static_cast<std::int32_t>(p) == position_; });
    state.encoded_uses = adds_own ? 1 : 0;
    if (!state.route.partial) {
      state.encoded_uses += static_cast<std::uint32_t>(state.route.send_to.size());
    }
    note_others(state);
    all_bytes_ += frames_bytes(state);
    chunks_.push_back(std::move(state));
  }
  std::sort(others_.begin(), others_.end());
  choose_kept_back();
  return {};
}

// Whoever this peer gets frames of the chunk from or sends them to.
void Attempt::note_others(const ChunkState& chunk) {
  const auto note = [this](base::PeerId peer) {
    const bool known = std::find(others_.begin(), others_.end(), peer) != others_.end();
    if (peer != self_ && !known) others_.push_back(peer);
  };
  const collective::Route& route = chunk.route;
  for (std::uint32_t position : route.add_order) note(plan_.order[position]);
  for (std::uint32_t position : route.send_to) note(plan_.order[position]);
  if (route.result_from >= 0) note(plan_.order[static_cast<std::size_t>(route.result_from)]);
  if (!contributes()) return;
  for (base::PeerId peer : collective::result_targets(
           plan_, chunk.chunk, static_cast<std::uint32_t>(position_), start_.receivers)) {
    note(peer);
  }
}

base::Digest Attempt::digest_of(const std::vector<base::ByteView>& views) {
  if (views.size() == 1) return snapshot::digest_of(views.front());
  snapshot::Hasher hasher;
  for (const base::ByteView& view : views) hasher.update(view);
  return hasher.finish();
}

void Attempt::begin() {
  for (ChunkState& chunk : chunks_) {
    if (failed_) return;
    if (!contributes()) continue;
    if (is_here(chunk)) {
      set_going(chunk);
    } else {
      coming_.push_back(chunk.chunk.index);
    }
  }
  const bool compares = call_->comparison() != Comparison::kEqual;  // what is kept back comes last
  std::sort(coming_.begin(), coming_.end(), [this, compares](std::uint32_t a, std::uint32_t b) {
    const auto place = [this, compares](std::uint32_t index) {
      const ChunkState& chunk = chunks_[index];
      return std::tuple(compares && chunk.last_own, chunk.needs, index);
    };
    return place(a) > place(b);
  });
  if (coming_.empty()) return report_if_complete();
  fed();  // it may have failed before this attempt
}

bool Attempt::wants_result(const ChunkState& chunk) const {
  return collective::has_common_result(plan_.kind) || chunk.route.owner;
}

std::vector<base::ByteView> Attempt::result_views(const ChunkState& chunk) const {
  std::vector<base::ByteView> views;
  if (chunk.result) {
    views.push_back(chunk.result->span());
  } else {
    for (const base::MutableView& view : output_views(chunk)) views.emplace_back(view);
  }
  return views;
}

std::size_t Attempt::payload_bytes(const ChunkState& chunk, FrameKind kind) const {
  if (kind == FrameKind::kPartial) return chunk.chunk.accumulator_bytes;
  return kind == FrameKind::kContribution ? own_bytes(chunk) : chunk.chunk.encoded_bytes;
}

Status Attempt::arrived(base::PeerId from, const wire::FrameHeader& header, std::uint64_t token) {
  const auto found = arriving_.find(token);
  if (found == arriving_.end()) return {};
  const BufferRef buffer = std::move(found->second.buffer);
  arriving_.erase(found);
  ChunkState& chunk = chunks_[header.chunk];
  std::vector<base::ByteView> views;
  if (buffer) {
    views.push_back(buffer->span());
  } else {
    const std::uint32_t slot = slot_for(chunk, from);
    for (const base::MutableView& view : output_views(chunk, slot)) views.emplace_back(view);
  }
  const bool is_result = header.kind == FrameKind::kResult;
  // A result's hash is a part of the attempt's digest as well.
  base::Digest digest;
  const bool exchanged = plan_.kind == collective::PlanKind::kExchange;
  if (is_result || exchanged || host_->checks_frames()) digest = digest_of(views);
  const std::uint32_t check = host_->checks_frames() ? snapshot::check_in(digest) : 0;
  if (check != header.payload_check && !JCCL_PLANTED("chunk-check-not-compared")) {
    return {Code::kCorrupt, cat("chunk ", header.chunk, " from peer ", from,
                                " arrived damaged (its check differs)")};
  }
  call_->note_received(header.payload_bytes);
  if (failed_ || committed_ || !expects(chunk, from, header.kind)) return {};
  const auto is_copy = [&](const auto& entry) { return entry.second.is_of(from, header); };
  if (std::erase_if(arriving_, is_copy) > 0 && !JCCL_PLANTED("copies-not-dropped")) {
    host_->drop_copies(start_.attempt, from, {header.kind, header.chunk});
  }
  moved_bytes_ += header.payload_bytes;
  if (exchanged) note_heard(chunk, from, digest);
  if (const auto wrong = wrong_payload(chunk, header.kind, views)) {
    if (!JCCL_PLANTED("wrong-values-unsaid")) violated(from, wire::ViolationKind::kValues);
    fail(Code::kCorrupt, from, cat("chunk ", header.chunk, ": ", *wrong));
  } else if (is_result && comes_ahead(chunk)) {
    chunk.ahead.emplace(buffer, digest);
  } else if (is_result) {
    take_result(chunk, buffer, digest);
  } else {
    for (std::uint32_t position : chunk.route.add_order) {
      if (plan_.order[position] != from) continue;
      chunk.early[position] = buffer;
      if (audit_) audit_->note_received(chunk.chunk.index, position, views);
    }
    advance(chunk);
  }
  report_if_complete();
  return {};
}

// `buffer` is null if the result came straight into the output.
void Attempt::take_result(ChunkState& chunk, const BufferRef& buffer, const base::Digest& digest) {
  if (buffer && in_output_) {  // a second copy that overtook the first
    const std::uint8_t* from = buffer->data();
    for (const base::MutableView& view : output_views(chunk)) {
      std::memcpy(view.data(), from, view.size());
      from += view.size();
    }
  } else {
    chunk.result = buffer;
  }
  chunk.written = in_output_;
  if (!JCCL_PLANTED("received-digest-left-out")) chunk.digest = digest;
  settle(chunk);
}

// Adds whatever is next in order and here. The own value waits for a neighbour, so that the two
// make one pass over memory where the kernels have that.
void Attempt::advance(ChunkState& chunk) {
  const std::vector<std::uint32_t>& order = chunk.route.add_order;
  if (chunk.added == order.size() || failed_) return;
  if (keeps_apart()) return keep_apart(chunk);
  if (is_robust()) return aggregate_if_all_here(chunk);
  const bool fuses = order.size() > 1 && sums_f32(chunk);
  if (fuses && chunk.added == 0 && !add_first_two(chunk)) return;
  if (chunk.finished) return;
  while (chunk.added < order.size()) {
    const std::uint32_t position = order[chunk.added];
    if (position == static_cast<std::uint32_t>(position_)) {
      if (!is_here(chunk) || !add_own(chunk)) return;
    } else {
      auto found = chunk.early.find(position);
      if (found == chunk.early.end() && JCCL_PLANTED("sums-by-arrival"))
        found = chunk.early.begin();
      if (found == chunk.early.end()) return;
      const BufferRef data = found->second;
      if (!JCCL_PLANTED("added-contributions-kept")) chunk.early.erase(found);
      if (fuses && chunk.added + 1 == order.size()) {
        ++chunk.added;
        return add_two(chunk, {data, false, weights_[position]}, {});
      }
      add_other(chunk, data);
    }
    ++chunk.added;
  }
  if (chunk.route.owner) {
    finish(chunk);
    return;
  }
  for (const std::uint32_t to : chunk.route.send_to) {
    if (JCCL_PLANTED("partial-stays-here")) break;
    host_->enqueue(start_.attempt, plan_.order[to], {FrameKind::kPartial, chunk.chunk.index});
  }
  if (!chunk.ahead.has_value()) return;
  const auto [buffer, digest] = *std::exchange(chunk.ahead, std::nullopt);
  take_result(chunk, buffer, digest);
}

// The result of a chunk is known here: pass it on, and write it where that is allowed already.
void Attempt::settle(ChunkState& chunk) {
  chunk.finished = true;
  if (audit_) audit_->note_result(chunk.chunk.index, result_views(chunk));
  hand_on(chunk);
  if (eager_ && !chunk.written) {
    decode_result(chunk);
    chunk.written = true;
  }
  // To be sent, perhaps again.
  const bool kept =
      (serves_ || !chunk.route.result_to.empty()) && !JCCL_PLANTED("results-let-go-early");
  if (chunk.written && !kept) chunk.result.reset();
  --unfinished_;
}

void Attempt::hand_on(ChunkState& chunk) {
  if (!contributes()) return;
  const auto targets = collective::result_targets(
      plan_, chunk.chunk, static_cast<std::uint32_t>(position_), start_.receivers);
  for (base::PeerId peer : targets) {
    if (peer == self_ || (JCCL_PLANTED("receivers-get-no-result") &&
                          std::count(start_.receivers.begin(), start_.receivers.end(), peer) > 0))
      continue;
    host_->enqueue(start_.attempt, peer, {FrameKind::kResult, chunk.chunk.index});
  }
}

std::optional<OutFrame> Attempt::produce(const WorkItem& item) {
  if (failed_ || item.chunk >= chunks_.size()) return std::nullopt;
  ChunkState& chunk = chunks_[item.chunk];
  OutFrame frame;
  wire::FrameHeader header;
  header.kind = item.kind;
  header.attempt = start_.attempt;
  header.chunk = item.chunk;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes(chunk, item.kind));
  if (item.kind == FrameKind::kContribution) {
    if (committed_) return std::nullopt;  // the owner had it, or the round went on without
    if (!pass_guard(chunk)) return std::nullopt;
    if (!codec::is_lossy(contribution_codec_)) {
      frame.payload = input_views(JCCL_PLANTED("first-chunk-sent-for-all") ? chunks_[0] : chunk);
      frame.keep_alive = call_;
    } else {
      const BufferRef encoded = own_encoded(chunk);
      frame.payload.push_back(encoded->span());
      frame.keep_alive = encoded;
    }
    chunk.sent_own = true;
    if (audit_) audit_->note_own(chunk.chunk.index, frame.payload);
    report_if_complete();
  } else if (item.kind == FrameKind::kPartial) {
    if (!chunk.accumulator) return std::nullopt;
    chunk.sent_own = true;
    frame.payload.push_back(chunk.accumulator->span());
    frame.keep_alive = chunk.accumulator;
  } else {
    const bool lies_in_output = chunk.finished && chunk.written && in_output_ && !committed_;
    if (!chunk.result && !lies_in_output) return std::nullopt;
    frame.payload = result_views(chunk);
    frame.keep_alive = chunk.result ? std::shared_ptr<const void>(chunk.result) : call_;
  }
  const bool exchanged =
      plan_.kind == collective::PlanKind::kExchange && item.kind == FrameKind::kContribution;
  if (exchanged) (void)own_digest(chunk, frame.payload);
  if (host_->checks_frames()) {
    const bool is_result = item.kind == FrameKind::kResult;
    header.payload_check = snapshot::check_in(is_result   ? chunk.digest
                                              : exchanged ? own_digest(chunk, frame.payload)
                                                          : digest_of(frame.payload));
  }
  frame.header.resize(wire::kFrameHeaderBytes);
  wire::encode(header, frame.header.data());
  call_->note_sent(header.payload_bytes);
  moved_bytes_ += header.payload_bytes;
  return frame;
}

void Attempt::commit() {
  JCCL_CHECK(done_ && !committed_);
  committed_ = true;
  clear_empty_slots();
  if (keeps_apart() && contributes()) {
    call_->scatter_first = static_cast<std::uint64_t>(position_);
    call_->scatter_count = plan_.order.size();
  }
  bool first = true;
  for (ChunkState& chunk : chunks_) {
    if (!wants_result(chunk)) continue;
    if (plan_.kind == collective::PlanKind::kScatter) {
      for (const collective::Segment& segment : chunk.chunk.segments) {
        if (segment.leaf != 0) continue;
        if (first) call_->scatter_first = segment.first;
        first = false;
        call_->scatter_count += segment.count;
      }
    }
    const bool forgotten =
        JCCL_PLANTED("commit-leaves-the-last-chunk") && chunk.chunk.index + 1 == chunks_.size();
    if (!chunk.written && !forgotten) decode_result(chunk);
    chunk.written = true;
    if (keeps_apart()) chunk.early.clear();
  }
}

void Attempt::report_if_complete() {
  const std::size_t left = JCCL_PLANTED("done-before-the-last-chunk") ? 1 : 0;
  const bool looked_at = unguarded_ == 0 || JCCL_PLANTED("done-before-all-was-looked-at");
  if (unfinished_ > left || !looked_at || done_ || failed_) return;
  done_ = true;
  base::Digest result;
  if (collective::has_common_result(plan_.kind)) {
    base::Writer digests;
    for (const ChunkState& chunk : chunks_) {
      digests.digest(JCCL_PLANTED("digest-of-one-chunk") ? chunks_[0].digest : chunk.digest);
    }
    result = snapshot::digest_of(digests.bytes());
  }
  host_->attempt_done(start_.attempt, result);
}

void Attempt::fail(Code cause, base::PeerId peer, std::string text) {
  if (failed_ || done_) return;
  failed_ = true;
  host_->attempt_failed(start_.attempt, cause, peer, std::move(text));
}

}  // namespace jccl::exchange
