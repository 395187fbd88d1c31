#include "fuzz/hostile/hostile_plane.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

bool of_snapshot(wire::FrameKind kind) {
  return kind == wire::FrameKind::kSnapshotAsk || kind == wire::FrameKind::kSnapshotPart ||
         kind == wire::FrameKind::kSnapshotGone || kind == wire::FrameKind::kProofAsk ||
         kind == wire::FrameKind::kProof;
}

void fill_places(const exchange::Placement& place, const base::Bytes& payload) {
  std::size_t at = 0;
  for (const base::MutableView& span : place.spans) {
    JCCL_CHECK(at + span.size() <= payload.size());
    if (!span.empty()) std::memcpy(span.data(), payload.data() + at, span.size());
    at += span.size();
  }
  JCCL_CHECK(at == payload.size());
}

}  // namespace

MemoryPlane::MemoryPlane(PlaneOwner* owner, peer::SnapshotStore* store)
    : owner_(owner),
      pool_(std::size_t{1} << 20),
      snapshots_(store, &pool_, this),
      attempts_(&pool_, kChunkBytes, this) {}

void MemoryPlane::set_roster(const wire::Roster& roster) {
  roster_ = roster;
  attempts_.set_members(roster.members, self_);
  snapshots_.set_members(roster.members);
}

base::PeerId MemoryPlane::id_of(wire::Incarnation incarnation) const {
  for (const wire::Member& member : roster_.members) {
    if (member.incarnation == incarnation) return member.id;
  }
  return 0;
}

void MemoryPlane::run(const protocol::RunAttempt& order, const peer::CallRef& call,
                      base::Time now) {
  attempts_.run(order.start, call, now);
}

void MemoryPlane::fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout,
                        base::Time now) {
  snapshots_.fetch(order, layout, now);
}

std::optional<FrameBytes> MemoryPlane::produce(const QueuedFrame& frame) {
  std::optional<exchange::OutFrame> made;
  if (exchange::slot_of(frame.key) == 0) {
    made = snapshots_.produce(frame.to, static_cast<std::uint32_t>(frame.key));
  } else {
    made = attempts_.produce(frame.key);
  }
  if (!made) return std::nullopt;
  FrameBytes bytes{made->header, {}};
  for (const base::ByteView& part : made->payload) {
    bytes.payload.insert(bytes.payload.end(), part.begin(), part.end());
  }
  return bytes;
}

exchange::Placement MemoryPlane::place(wire::Incarnation from, const wire::FrameHeader& header) {
  if (header.kind == wire::FrameKind::kArrived) return exchange::Placement::ack();  // the link's
  if (of_snapshot(header.kind)) return snapshots_.place(from, header);
  return attempts_.place(from, header);
}

FrameFate MemoryPlane::receive(wire::Incarnation from, const FrameBytes& frame) {
  const auto header = wire::decode_frame_header(frame.header);
  if (!header.ok()) return FrameFate::kRefused;
  const wire::FrameHeader& h = header.value();
  const exchange::Placement at = place(from, h);
  if (at.kind == exchange::Placement::Kind::kRefuse) return FrameFate::kRefused;
  if (at.kind == exchange::Placement::Kind::kPause) return FrameFate::kPaused;
  if (at.kind != exchange::Placement::Kind::kInto) return FrameFate::kDrained;
  base::Bytes payload = frame.payload;  // so many bytes are read, whatever they are
  payload.resize(h.payload_bytes);
  fill_places(at, payload);
  base::Status status;
  if (of_snapshot(h.kind)) {
    status = snapshots_.arrived(from, h, at.token);
  } else {
    status = attempts_.arrived(from, h, at.token);
  }
  return status.ok() ? FrameFate::kTaken : FrameFate::kDamaged;
}

void MemoryPlane::link_failed(wire::Incarnation peer) {
  snapshots_.link_failed(peer);
  attempts_.link_failed(peer, "the link broke");
}

void MemoryPlane::tick(base::Time now, base::Duration silence) {
  snapshots_.tick(now);
  attempts_.check_stalls(now, silence * 5 / 6, 0);
  // Whatever a committed one had to send has left by now.
  (void)attempts_.sweep([](std::uint32_t) { return false; });
}

base::Time MemoryPlane::last_received(base::Incarnation peer) const {
  const auto found = heard_.find(peer);
  return found == heard_.end() ? 0 : found->second;
}

void MemoryPlane::enqueue(base::Incarnation to, std::uint64_t key, bool) {
  owner_->queue_frame({self_, to, key});
}

void MemoryPlane::enqueue_snapshot(base::Incarnation to, std::uint32_t item, bool) {
  owner_->queue_frame({self_, to, item});
}

void MemoryPlane::attempt_done(const wire::Attempt& attempt, const base::Digest& result) {
  owner_->plane_event(protocol::AttemptDone{attempt, result, attempts_.shares(attempt),
                                            attempts_.audit_roots(attempt)});
}

void MemoryPlane::violation(const wire::Attempt& attempt, base::PeerId from,
                            wire::ViolationKind kind) {
  owner_->plane_event(protocol::FrameViolation{{attempt, from, kind}});
}

void MemoryPlane::attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                                 std::string text) {
  owner_->plane_event(protocol::AttemptFailed{attempt, cause, peer, std::move(text)});
}

void MemoryPlane::fetch_ended(const wire::Tag& tag, const base::Status& status,
                              const wire::Held& held) {
  if (status.ok()) return owner_->plane_event(protocol::FetchDone{held});
  owner_->plane_event(
      protocol::FetchFailed{tag, status.text, status.code == base::Code::kDisputed});
}

base::Result<net::MacKey> MemoryPlane::draw_key() { return net::MacKey{++keys_}; }

void MemoryPlane::holder_outvoted(const wire::Held& want, base::Incarnation holder,
                                  std::uint32_t part) {
  owner_->plane_event(protocol::HolderOutvoted{{want, holder, part}});
}

}  // namespace jccl::fuzz
