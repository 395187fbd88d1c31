#include "fuzz/hostile_plane.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "wire/codec.h"

namespace jccl::fuzz {
namespace {

bool of_snapshot(wire::FrameKind kind) {
  return kind == wire::FrameKind::kSnapshotAsk || kind == wire::FrameKind::kSnapshotPart ||
         kind == wire::FrameKind::kSnapshotGone;
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
    : owner_(owner), pool_(std::size_t{1} << 20), snapshots_(store, &pool_, this) {}

void MemoryPlane::set_roster(const wire::Roster& roster) {
  roster_ = roster;
  self_id_ = id_of(self_);
  snapshots_.set_members(roster.members);
}

base::PeerId MemoryPlane::id_of(wire::Incarnation incarnation) const {
  for (const wire::Member& member : roster_.members) {
    if (member.incarnation == incarnation) return member.id;
  }
  return 0;
}

base::PeerId MemoryPlane::id_in(const Running& running, wire::Incarnation incarnation) {
  for (const auto& [id, life] : running.incarnations) {
    if (life == incarnation) return id;
  }
  return 0;
}

void MemoryPlane::run(const protocol::RunAttempt& order, const peer::CallRef& call,
                      base::Time now) {
  const wire::Attempt attempt = order.start.attempt;
  const bool overtaken = attempt < newest_;
  newest_ = std::max(newest_, attempt);
  Running& running = running_[attempt];
  running.begun = now;
  running.call = call;
  for (const wire::Member& member : roster_.members) {
    running.incarnations[member.id] = member.incarnation;
  }
  running.run = std::make_unique<exchange::Attempt>(
      order.start, self_id_, call, &pool_, kChunkBytes, static_cast<exchange::AttemptHost*>(this));
  if (overtaken) {
    return attempt_failed(attempt, base::Code::kLinkLost, 0, "START came after a later attempt's");
  }
  const base::Status ready = running.run->prepare();
  if (!ready.ok()) return attempt_failed(attempt, ready.code, 0, ready.text);
  running.run->begin();
}

bool MemoryPlane::commit(const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  if (found == running_.end()) return false;
  found->second.run->commit();
  found->second.call->delivered = true;
  return true;
}

void MemoryPlane::release(const peer::CallRef& call) {
  std::erase_if(running_, [&](const auto& entry) {
    const exchange::Attempt& run = *entry.second.run;
    return entry.second.call == call && (!run.committed() || !run.serves());
  });
}

void MemoryPlane::fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout,
                        base::Time now) {
  snapshots_.fetch(order, layout, now);
}

std::optional<FrameBytes> MemoryPlane::produce(const QueuedFrame& frame) {
  std::optional<exchange::OutFrame> made;
  if (frame.snapshot) {
    made = snapshots_.produce(frame.to, frame.snapshot_item);
  } else if (const auto found = running_.find(frame.attempt); found != running_.end()) {
    made = found->second.run->produce(frame.item);
  }
  if (!made) return std::nullopt;
  FrameBytes bytes{made->header, {}};
  for (const base::ByteView& part : made->payload) {
    bytes.payload.insert(bytes.payload.end(), part.begin(), part.end());
  }
  return bytes;
}

exchange::Placement MemoryPlane::place(wire::Incarnation from, const wire::FrameHeader& header) {
  if (header.kind == wire::FrameKind::kArrived) return exchange::Placement::note();  // the link's
  if (of_snapshot(header.kind)) return snapshots_.place(from, header);
  const auto found = running_.find(header.attempt);
  if (found == running_.end()) {
    if (header.attempt <= newest_) return exchange::Placement::drain(header.payload_bytes);
    return exchange::Placement::pause();
  }
  const base::PeerId peer = id_in(found->second, from);
  if (peer == 0)
    return exchange::Placement::refuse({base::Code::kCorrupt, "a stranger's data frame"});
  return found->second.run->place(peer, header);
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
    Running& running = running_.at(h.attempt);
    status = running.run->arrived(id_in(running, from), h, at.token);
  }
  return status.ok() ? FrameFate::kTaken : FrameFate::kDamaged;
}

void MemoryPlane::link_failed(wire::Incarnation peer) {
  snapshots_.link_failed(peer);
  std::vector<std::pair<wire::Attempt, base::PeerId>> failed;
  for (const auto& [attempt, running] : running_) {
    if (running.run->done()) continue;
    const base::PeerId id = id_in(running, peer);
    const auto& others = running.run->others();
    if (std::ranges::count(others, id) > 0) failed.emplace_back(attempt, id);
  }
  for (const auto& [attempt, id] : failed) {
    attempt_failed(attempt, base::Code::kLinkLost, id, "the link broke");
  }
}

void MemoryPlane::tick(base::Time now, base::Duration silence) {
  snapshots_.tick(now);
  std::vector<std::pair<wire::Attempt, base::PeerId>> stalled;
  for (auto& [attempt, running] : running_) {
    if (running.run->done()) continue;
    for (const exchange::Attempt::Awaited& awaited : running.run->awaited()) {
      const auto peer = running.incarnations.find(awaited.peer);
      if (peer == running.incarnations.end()) continue;
      if (now - std::max(running.begun, heard_[peer->second]) <= silence * 5 / 6) continue;
      stalled.emplace_back(attempt, awaited.peer);
      running.begun = now;
      break;
    }
  }
  for (const auto& [attempt, peer] : stalled) {
    attempt_failed(attempt, base::Code::kPeerLost, peer, "nothing comes");
  }
  // Whatever a committed one had to send has left by now.
  std::erase_if(running_, [](const auto& entry) { return entry.second.run->committed(); });
}

std::vector<wire::Moving> MemoryPlane::moving() const {
  std::vector<wire::Moving> out;
  for (const auto& [attempt, running] : running_) {
    const wire::Moving here = running.run->moving();
    if (!running.run->done() || here.left > 0) out.push_back(here);
  }
  return out;
}

void MemoryPlane::enqueue(const wire::Attempt& attempt, base::PeerId to, exchange::WorkItem item) {
  const Running& running = running_.at(attempt);
  const auto found = running.incarnations.find(to);
  if (found == running.incarnations.end()) return;
  QueuedFrame frame;
  frame.from = self_;
  frame.to = found->second;
  frame.attempt = attempt;
  frame.item = item;
  owner_->queue_frame(frame);
}

void MemoryPlane::enqueue_snapshot(base::Incarnation to, std::uint32_t item) {
  QueuedFrame frame;
  frame.from = self_;
  frame.to = to;
  frame.snapshot = true;
  frame.snapshot_item = item;
  owner_->queue_frame(frame);
}

void MemoryPlane::attempt_done(const wire::Attempt& attempt, const base::Digest& result) {
  owner_->plane_event(protocol::AttemptDone{attempt, result});
}

void MemoryPlane::attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                                 std::string text) {
  owner_->plane_event(protocol::AttemptFailed{attempt, cause, peer, std::move(text)});
}

void MemoryPlane::fetch_ended(const wire::Tag& tag, const base::Status& status,
                              const wire::Held& held) {
  if (status.ok()) return owner_->plane_event(protocol::FetchDone{held});
  owner_->plane_event(protocol::FetchFailed{tag, status.text});
}

}  // namespace jccl::fuzz
