// The audit of an attempt, at one of its contributors: what it is held to, and what it shows when
// the master asks. The input is as it was until the outcome, and encoding it again gives the same
// bytes, so nothing is kept. See attempt.h and audit_book.h.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "collective/hint.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {

using base::Code;
using base::Status;

Status Attempt::begin_audit() {
  if (start_.audit == wire::RunId{} || !contributes()) return {};
  const Terms& terms = call_->terms();
  collective::Hint hint;
  hint.audit = collective::auditable(call_->specs, terms.codec, terms.aggregator);
  if (const std::string why = collective::unauditable(plan_, hint); !why.empty()) {
    return {Code::kInternal, base::cat("START is audited, which no master asks for: ", why)};
  }
  AuditBook::Of of{start_.audit, start_.attempt, plan_, static_cast<std::uint32_t>(position_),
                   {},           call_->specs};
  of.terms.op = terms.op;
  of.terms.aggregator = terms.aggregator;
  of.terms.codec = terms.codec;
  std::vector<collective::Chunk> chunks;
  for (const ChunkState& chunk : chunks_) chunks.push_back(chunk.chunk);
  audit_ = std::make_unique<AuditBook>(std::move(of), chunks);
  return {};
}

// In memory that `held` keeps.
std::vector<base::ByteView> Attempt::own_part(const ChunkState& chunk, BufferRef* held) const {
  if (!codec::is_lossy(contribution_codec_)) return input_views(chunk);
  bool finite = true;
  *held = encode_own(chunk, &finite);
  return {(*held)->span()};
}

wire::AuditRoots Attempt::audit_roots() {
  if (!audit_ || !done_ || sealed_) return {};
  for (const ChunkState& chunk : chunks_) {
    if (audit_->has_own(chunk.chunk.index)) continue;  // the own share, which was sent to nobody
    BufferRef held;
    audit_->note_own(chunk.chunk.index, own_part(chunk, &held));
  }
  sealed_ = true;
  return audit_->seal();
}

std::vector<wire::AuditPart> Attempt::audit_parts(const std::vector<std::uint32_t>& cells) const {
  std::vector<wire::AuditPart> parts;
  if (!audit_ || !sealed_ || committed_) return parts;
  BufferRef held;
  std::vector<base::ByteView> own;
  std::uint32_t of_chunk = 0;
  for (const std::uint32_t index : cells) {
    if (index >= audit_->cells()) break;
    const ChunkState& chunk = chunks_[audit_->cell(index).chunk];
    if (own.empty() || of_chunk != chunk.chunk.index) own = own_part(chunk, &held);
    of_chunk = chunk.chunk.index;
    parts.push_back(audit_->part(index, false, own));
    const bool known = chunk.result || chunk.written;
    if (audit_->owns(index) && known)
      parts.push_back(audit_->part(index, true, result_views(chunk)));
  }
  return parts;
}

}  // namespace jccl::exchange
