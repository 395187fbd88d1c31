// What the hostile member sends over links: frames that are late, doubled, bent, or of no attempt.
#include <algorithm>
#include <utility>

#include "fuzz/hostile/hostile_member.h"
#include "snapshot/digest.h"

namespace jccl::fuzz {

FrameBytes HostileMember::frame_of(wire::FrameHeader header, Bytes payload) {
  const bool bare =
      header.kind == wire::FrameKind::kSnapshotGone || header.kind == wire::FrameKind::kArrived;
  if (bare) header.payload_bytes = 0;
  header.payload_bytes = std::min(header.payload_bytes, wire::kFramePayloadBytesMax);
  FrameBytes frame{Bytes(wire::kFrameHeaderBytes), std::move(payload)};
  wire::encode(header, frame.header.data());
  world_->oracle().bent(header.attempt);
  return frame;
}

void HostileMember::bend_header(wire::FrameHeader* header) {
  for (const FieldRow& row : fields_of("header")->rows) {
    if (row.bend == Bend::kNone || in_.below(4) > 0) continue;
    if (row.field == "kind") header->kind = static_cast<wire::FrameKind>(1 + in_.below(9));
    if (row.field == "attempt") header->attempt = values_.attempt(header->attempt);
    const auto number = [&](std::uint32_t now) {
      return static_cast<std::uint32_t>(values_.number(row.bend, now));
    };
    if (row.field == "chunk") header->chunk = number(header->chunk);
    if (row.field == "payload bytes") header->payload_bytes = number(header->payload_bytes);
    if (row.field == "payload check") header->payload_check = number(header->payload_check);
  }
}

void HostileMember::outgoing_frame(const FrameBytes& frame, std::vector<FrameBytes>* out) {
  last_frame_ = frame;
  if (trick_ == FrameTrick::kNone || trick_times_ == 0) return out->push_back(frame);
  --trick_times_;
  wire::FrameHeader header = wire::decode_frame_header(frame.header).value();
  Bytes payload = frame.payload;
  world_->oracle().bent(header.attempt);
  switch (trick_) {
    case FrameTrick::kDrop:
      return;
    case FrameTrick::kTwice:
      out->push_back(frame);
      return out->push_back(frame);
    case FrameTrick::kHeader:
      bend_header(&header);
      break;
    case FrameTrick::kPayload:  // other values, and the check of those
      for (std::uint8_t& byte : payload) byte = in_.below(4) == 0 ? 0xFF : byte ^ in_.u8();
      header.payload_check = snapshot::check_of(payload);
      break;
    case FrameTrick::kSize:
      payload.resize(in_.below(2 * payload.size() + 2));
      header.payload_bytes = static_cast<std::uint32_t>(payload.size());
      header.payload_check = snapshot::check_of(payload);
      break;
    default:
      out->push_back(frame);
      payload.assign(payload.size(), 0);  // the second says something else
      header.payload_check = snapshot::check_of(payload);
  }
  out->push_back(frame_of(header, std::move(payload)));
}

void HostileMember::inject_frame() {
  const std::vector<WorldPeer*> honest = world_->honest();
  const wire::Incarnation to = honest[in_.below(honest.size())]->incarnation();
  if (in_.below(8) == 0) return world_->frame(to, {in_.bytes(48), {}});
  wire::FrameHeader header;
  Bytes payload;
  if (last_frame_) {
    header = wire::decode_frame_header(last_frame_->header).value();
    payload = last_frame_->payload;
  }
  bend_header(&header);
  if (in_.flag()) header.payload_check = snapshot::check_of(payload);
  world_->frame(to, frame_of(header, std::move(payload)));
}

void HostileMember::ask_snapshots() {
  const std::vector<WorldPeer*> honest = world_->honest();
  wire::SnapshotAsk ask;
  ask.tag = in_.below(4) == 0 ? values_.text(Bend::kTag, kModel, base::kTagBytesMax) : kModel;
  if (ask.tag.empty()) ask.tag = kModel;
  ask.revision = values_.number(Bend::kCounter, 1);
  ask.ask = in_.u8();
  ask.first_part = static_cast<std::uint32_t>(in_.below(4));
  ask.last_part = in_.below(4) == 0 ? UINT32_MAX : ask.first_part + 1;
  wire::FrameHeader header;
  header.kind = static_cast<wire::FrameKind>("\4\5\6\x8\x9"[in_.below(5)]);  // of snapshots
  header.attempt = {ask.revision, in_.flag() ? ask.ask : (1ULL << 32) | in_.below(4)};
  header.chunk = static_cast<std::uint32_t>(in_.below(4));
  Bytes payload = in_.bytes(header.kind == wire::FrameKind::kProof ? 16 : 64);
  if (header.kind == wire::FrameKind::kSnapshotAsk) payload = wire::encode(ask);
  const wire::ProofAsk proof{ask.tag, ask.revision, ask.ask, ask.last_part, {}};
  if (header.kind == wire::FrameKind::kProofAsk) payload = wire::encode(proof);
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_check = snapshot::check_of(payload);
  if (header.kind == wire::FrameKind::kSnapshotGone) payload.clear(), header.payload_check = 0;
  const std::size_t which = in_.below(honest.size());
  world_->frame(honest[which]->incarnation(), frame_of(header, std::move(payload)));
}

}  // namespace jccl::fuzz
