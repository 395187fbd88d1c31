// The data plane of one peer of the hostile world: the real attempts (exchange/attempts.h) and the
// real snapshot traffic, with frames handed over in memory instead of over links. Test only; one
// thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exchange/attempts.h"
#include "peer/call.h"
#include "peer/snapshots/snapshots.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::fuzz {

// A frame that a peer has announced; its bytes are made when the other side takes it.
struct QueuedFrame {
  wire::Incarnation from = 0, to = 0;
  std::uint64_t key = 0;  // as exchange::Attempts has them; below 2^32 a snapshot's
};

struct FrameBytes {
  base::Bytes header, payload;
};

enum class FrameFate : std::uint8_t { kTaken, kDrained, kPaused, kRefused, kDamaged, kNone };

class PlaneOwner {
 public:
  virtual ~PlaneOwner() = default;
  virtual void queue_frame(const QueuedFrame& frame) = 0;
  virtual void plane_event(protocol::PeerEvent event) = 0;
};

class MemoryPlane : private exchange::AttemptsHost, private peer::SnapshotLinks {
 public:
  static constexpr std::size_t kChunkBytes = 64;

  MemoryPlane(PlaneOwner* owner, peer::SnapshotStore* store);

  void set_self(wire::Incarnation self) { self_ = self; }
  void set_roster(const wire::Roster& roster);
  void run(const protocol::RunAttempt& order, const peer::CallRef& call, base::Time now);
  void discard(const wire::Attempt& attempt) { attempts_.discard(attempt); }
  // False: no such attempt is here.
  bool commit(const wire::Attempt& attempt) { return attempts_.commit(attempt); }
  std::vector<wire::AuditPart> audit_parts(const wire::AuditAsk& ask) const {
    return attempts_.audit_parts(ask);
  }
  void release(const peer::CallRef& call) { attempts_.release(call); }
  void fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout, base::Time now);
  void stop_fetch(const wire::Tag& tag) { snapshots_.stop(tag); }

  std::optional<FrameBytes> produce(const QueuedFrame& frame);
  FrameFate receive(wire::Incarnation from, const FrameBytes& frame);
  void heard(wire::Incarnation from, base::Time now) { heard_[from] = now; }
  // The link to that peer is gone for good: attempts that need it fail.
  void link_failed(wire::Incarnation peer);
  void tick(base::Time now, base::Duration silence);
  std::vector<wire::Moving> moving() const { return attempts_.moving(); }
  std::size_t running() const { return attempts_.size(); }
  const wire::Roster& roster() const { return roster_; }
  base::PeerId id_of(wire::Incarnation incarnation) const;

 private:
  using Frames = std::function<bool(const wire::FrameHeader&)>;

  void enqueue(base::Incarnation to, std::uint64_t key, bool ahead) override;
  // Every frame is a copy here, made when it is handed over and whole when it is placed.
  void abandon(const std::function<bool(std::uint64_t)>&, const Frames&) override {}
  void abandon_receiving(base::Incarnation, const Frames&) override {}
  base::Time last_received(base::Incarnation peer) const override;
  void renew(base::Incarnation, const base::Status&) override {}
  void attempt_done(const wire::Attempt& attempt, const base::Digest& result) override;
  void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                      std::string text) override;
  void violation(const wire::Attempt& attempt, base::PeerId from,
                 wire::ViolationKind kind) override;
  void enqueue_snapshot(base::Incarnation to, std::uint32_t item, bool first) override;
  void own_snapshot_frames() override {}  // every frame is a copy here
  void use_link(const wire::Member&) override {}
  base::Result<net::MacKey> draw_key() override;
  void holder_outvoted(const wire::Held& want, base::Incarnation holder,
                       std::uint32_t part) override;
  void fetch_ended(const wire::Tag& tag, const base::Status& status,
                   const wire::Held& held) override;
  exchange::Placement place(wire::Incarnation from, const wire::FrameHeader& header);

  PlaneOwner* owner_;
  peer::BufferPool pool_;
  peer::SnapshotTraffic snapshots_;
  wire::Roster roster_;
  wire::Incarnation self_ = 0;
  exchange::Attempts attempts_;
  std::map<wire::Incarnation, base::Time> heard_;
  std::uint8_t keys_ = 0;  // drawn: the world is the same each time
};

}  // namespace jccl::fuzz
