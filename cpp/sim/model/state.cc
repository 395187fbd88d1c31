// The hash of all that matters in the small world: what decides what its processes do next, and
// what an oracle may still speak of. Pure.
#include "base/hash64.h"
#include "protocol/master/master_state.h"
#include "sim/model/world.h"
#include "wire/serialize.h"

namespace jccl::sim::model {

// What the journal says, without its words and how it came to say so.
std::uint64_t World::book_hash() const {
  if (book_hash_ != 0) return book_hash_;
  base::Writer out;
  for (const wire::Record& record : book_->durable) {
    if (std::holds_alternative<wire::EpochRecord>(record)) continue;
    const base::Bytes bytes = wire::encode_record(record);
    out.raw(bytes.data(), bytes.size());
  }
  out.u64(book_->epoch), out.u64(book_->members.size());
  for (const auto& [id, member] : book_->members) out.u64(id);
  for (const auto& [id, member] : book_->everybody) out.u64(member.incarnation);
  for (const auto& [key, digest] : book_->states) {
    out.u64(std::get<2>(key)), out.digest(digest);
  }
  book_hash_ = base::hash64(out.bytes()) | 1;
  return book_hash_;
}

// Attempts about which something may still come to light: those that may be committed, were just
// now, or whose result somebody has or waits for. Of others no oracle says anything any more, and
// neither of calls that have ended and are in none of these.
std::set<wire::Attempt> World::open_attempts() const {
  std::set<wire::Attempt> open;
  if (master_ != nullptr) {
    for (const auto& [attempt, tag] : master_->machine.state().running_) open.insert(attempt);
  }
  for (const ModelPeer& peer : peers_) {
    for (const ModelRun& run : peer.runs) open.insert(run.start.attempt);
  }
  return open;
}

void World::put_open(base::Writer& out) const {
  std::set<std::uint64_t> calls;
  for (const wire::Attempt& one : open_attempts()) {
    const auto attempt = book_->attempts.find(one);
    if (attempt == book_->attempts.end()) continue;
    out.attempt(one);
    out.flag(attempt->second.told_aborted);
    for (const auto& [id, part] : attempt->second.parts) {
      out.u64(id), out.u64(part.call), out.flag(part.done), out.digest(part.result);
      if (part.call != 0) calls.insert(part.call);
    }
  }
  for (const ModelPeer& peer : peers_) {
    if (peer.call != 0) calls.insert(peer.call);
  }
  for (const std::uint64_t id : calls) {
    const CallRecord& call = book_->calls[id - 1];
    out.u64(id), out.flag(call.open), out.flag(call.success);
    out.u64(static_cast<std::uint64_t>(call.code)), out.u64(call.open ? call.deadline : 0);
  }
}

base::Digest World::digest() const {
  base::Writer out;
  out.u64(book_hash()), out.u64(static_cast<std::uint64_t>(now_));
  put_open(out);
  out.u64(faults_left_ * 100 + ticks_left_);
  out.flag(master_ != nullptr);
  if (master_ != nullptr) out.digest(master_->digest);
  out.u64(static_cast<std::uint64_t>(master_wake_));
  for (const ModelPeer& peer : peers_) {
    out.flag(peer.box != nullptr);
    if (peer.box != nullptr) out.digest(peer.box->digest);
    out.u64(peer.incarnation), out.u8(peer.lives), out.u8(peer.dials), out.u8(peer.calls);
    out.flag(peer.dialing), out.u64(static_cast<std::uint64_t>(peer.wake));
    for (const ModelRun& run : peer.runs) {
      out.attempt(run.start.attempt), out.u64(run.call), out.u8(run.done), out.u8(run.failed);
    }
    out.u64(peer.call), out.flag(peer.needs_sync), out.flag(peer.syncing), out.flag(peer.lost);
    out.u64(peer.revision), out.digest(peer.digest), out.flag(peer.wanted.has_value());
    if (peer.wanted.has_value()) out.digest(peer.wanted->digest);
  }
  for (const ModelConn& conn : conns_) {
    out.u64(conn.id), out.flag(conn.peer_open), out.flag(conn.master_open), out.flag(conn.broken);
    out.u64(conn.up.size());
    for (const auto& parcel : conn.up) out.u64(parcel->hash);
    for (const auto& parcel : conn.down) out.u64(parcel->hash);
  }
  for (const auto& [incarnation, slot] : probes_) out.u64(incarnation);
  return {base::hash64(out.bytes(), 1), base::hash64(out.bytes(), 2)};
}

}  // namespace jccl::sim::model
