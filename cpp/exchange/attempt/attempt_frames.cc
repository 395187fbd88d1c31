// Which frames an attempt takes: those that its plan names, from the sender that it names, in the
// order of what they are made of, and each once. Everything else never touches a buffer; what no
// peer sends that follows the plan is told to the host, as evidence against its sender. See
// attempt.h.
#include <algorithm>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "exchange/attempt/attempt.h"
#include "snapshot/digest.h"

namespace jccl::exchange {

using base::cat;
using base::Code;
using wire::FrameKind;

namespace {

constexpr std::ptrdiff_t kCopiesMax = 8;  // of one frame, under way at once
// A stripe that is late has its frames sent again, if they arrived, too: so often, of each, no
// network makes it between two losses of a stripe.
constexpr std::uint64_t kRepeatsMax = 16;

}  // namespace

// Who hands the result of the chunk to this peer, which does not add it up itself.
base::PeerId Attempt::source_of(const ChunkState& chunk) const {
  const std::int32_t from = chunk.route.result_from;
  return plan_.order[from >= 0 ? static_cast<std::size_t>(from) : chunk.chunk.owner];
}

// Whether the plan has such a frame at all, be it here already.
bool Attempt::plans(const ChunkState& chunk, base::PeerId from, FrameKind kind) const {
  if (JCCL_PLANTED("frames-of-any-sender")) return true;
  const collective::Route& route = chunk.route;
  if (kind == FrameKind::kResult) {
    return !route.owner && wants_result(chunk) && source_of(chunk) == from;
  }
  if (route.partial != (kind == FrameKind::kPartial)) return false;
  return std::any_of(route.add_order.begin(), route.add_order.end(),
                     [&](std::uint32_t position) { return plan_.order[position] == from; });
}

// Of what the plan has: whether it is still to come.
bool Attempt::expects(const ChunkState& chunk, base::PeerId from, FrameKind kind) const {
  const collective::Route& route = chunk.route;
  if (kind == FrameKind::kResult) return !chunk.finished && !chunk.ahead && !route.owner;
  for (std::size_t i = chunk.added; i < route.add_order.size(); ++i) {
    const std::uint32_t position = route.add_order[i];
    if (plan_.order[position] == from) return chunk.early.find(position) == chunk.early.end();
  }
  return false;
}

// The one that this peer hands its own part to can't have the result before that has left. In a
// ring of three or more the one that hands it the result can: a peer further on may have handed on
// a sum without that part, and the two in between know nothing of it.
bool Attempt::comes_before_its_parts(const ChunkState& chunk, FrameKind kind) const {
  if (kind != FrameKind::kResult || JCCL_PLANTED("results-before-their-parts")) return false;
  const std::vector<std::uint32_t>& adders = chunk.route.send_to;
  if (!contributes() || chunk.sent_own || adders.empty()) return false;
  return plan_.order[adders.front()] == source_of(chunk) || JCCL_PLANTED("forwarders-pay");
}

// Then it waits for the own part: those behind this peer need that, whatever this result is. A peer
// that took it would be done, and would seem to keep back what it still waits for itself.
bool Attempt::comes_ahead(const ChunkState& chunk) const {
  return chunk.route.partial && chunk.added < chunk.route.add_order.size() &&
         !JCCL_PLANTED("results-end-their-parts");
}

void Attempt::count_repeat(base::PeerId from) {
  const std::uint64_t most = kRepeatsMax * (1 + chunks_.size());
  if (++repeats_[from] != most || JCCL_PLANTED("repeats-not-counted")) return;
  violated(from, wire::ViolationKind::kRepeats);
}

void Attempt::stripe_lost(base::PeerId from) {
  if (!JCCL_PLANTED("losses-are-repeats")) repeats_.erase(from);
}

void Attempt::violated(base::PeerId from, wire::ViolationKind kind) {
  if (!violators_.insert(from).second || JCCL_PLANTED("violations-unsaid")) return;
  host_->violation(start_.attempt, from, kind);
}

Placement Attempt::place(base::PeerId from, const wire::FrameHeader& header) {
  if (header.chunk >= chunks_.size()) {
    violated(from, wire::ViolationKind::kChunk);
    return Placement::refuse({Code::kCorrupt, cat("chunk ", header.chunk, " does not exist")});
  }
  ChunkState& chunk = chunks_[header.chunk];
  const std::size_t size = payload_bytes(chunk, header.kind);
  if (header.payload_bytes != size && !JCCL_PLANTED("lengths-not-compared")) {
    violated(from, wire::ViolationKind::kLength);
    return Placement::refuse(
        {Code::kCorrupt, cat("chunk ", header.chunk, " has ", size, " bytes, the frame says ",
                             header.payload_bytes)});
  }
  if (!plans(chunk, from, header.kind)) {
    violated(from, wire::ViolationKind::kSender);
    return Placement::drain(size);
  }
  if (failed_ || committed_) return Placement::drain(size);
  if (!expects(chunk, from, header.kind)) {  // a copy of what is here already
    count_repeat(from);
    return Placement::drain(size);
  }
  if (comes_before_its_parts(chunk, header.kind)) {
    violated(from, wire::ViolationKind::kPhase);
    return Placement::drain(size);
  }
  if (copies(from, header) >= kCopiesMax && !JCCL_PLANTED("copies-of-a-frame-without-end")) {
    return Placement::refuse({Code::kLimit, cat("chunk ", header.chunk, " is on its way ",
                                                kCopiesMax, " times, and none of them arrives")});
  }
  const std::uint64_t token = next_token_++;
  // Only the first of several copies may write where the result belongs.
  const bool as_it_is = header.kind == FrameKind::kResult || keeps_apart();
  if (as_it_is && in_output_ && copies(from, header) == 0) {
    arriving_[token] = {from, header.kind, header.chunk, nullptr};
    return Placement::into(output_views(chunk, slot_for(chunk, from)), token);
  }
  BufferRef buffer = memory_->take(size);
  Placement placement = Placement::into(buffer->span(), token);
  arriving_[token] = {from, header.kind, header.chunk, std::move(buffer)};
  return placement;
}

std::ptrdiff_t Attempt::copies(base::PeerId from, const wire::FrameHeader& header) const {
  return std::count_if(arriving_.begin(), arriving_.end(),
                       [&](const auto& entry) { return entry.second.is_of(from, header); });
}

// ---- what others sent, for whoever compares it --------------------------------------------------

// Where all add up everything, results differ by what one of them sent.
void Attempt::note_heard(ChunkState& chunk, base::PeerId from, const base::Digest& digest) {
  chunk.heard.resize(plan_.order.size());
  for (std::size_t i = 0; i < plan_.order.size(); ++i) {
    if (plan_.order[i] == from) chunk.heard[i] = digest;
  }
}

// Of the contribution as it leaves: hashed once for all whom it is sent to.
const base::Digest& Attempt::own_digest(ChunkState& chunk,
                                        const std::vector<base::ByteView>& payload) {
  const auto own = static_cast<std::size_t>(position_);
  if (chunk.heard.empty() || chunk.heard[own] == base::Digest{}) {
    note_heard(chunk, self_, digest_of(payload));
  }
  return chunk.heard[own];
}

const base::Digest& Attempt::own_digest(ChunkState& chunk) {
  const auto own = static_cast<std::size_t>(position_);
  if (!chunk.heard.empty() && chunk.heard[own] != base::Digest{}) return chunk.heard[own];
  if (!codec::is_lossy(contribution_codec_)) return own_digest(chunk, input_views(chunk));
  bool finite = true;
  const BufferRef encoded = chunk.encoded ? chunk.encoded : encode_own(chunk, &finite);
  return own_digest(chunk, {encoded->span()});
}

// Of an attempt that is done.
std::vector<wire::Share> Attempt::shares() {
  const bool none = !collective::has_common_result(plan_.kind) || !contributes();
  if (none || plan_.order.size() > base::kSharesMax) return {};
  std::map<base::PeerId, std::pair<base::PeerId, base::Writer>> parts;  // by owner: whose frames
  for (ChunkState& chunk : chunks_) {
    if (plan_.kind != collective::PlanKind::kExchange) {
      auto& [from, digests] = parts[plan_.order[chunk.chunk.owner]];
      from = chunk.route.owner ? self_ : source_of(chunk);
      digests.digest(chunk.digest);
      continue;
    }
    (void)own_digest(chunk);
    for (std::size_t i = 0; i < plan_.order.size(); ++i) {
      auto& [from, digests] = parts[plan_.order[i]];
      from = plan_.order[i];
      digests.digest(chunk.heard[i]);
    }
  }
  std::vector<wire::Share> shares;
  for (const auto& [owner, part] : parts) {
    shares.push_back({owner, part.first, snapshot::digest_of(part.second.bytes())});
  }
  return shares;
}

}  // namespace jccl::exchange
