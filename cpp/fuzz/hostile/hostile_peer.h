// One peer of the hostile world: the real peer machine, the data plane in memory, and a user who
// calls round after round and checks each result. The hostile member is one of these too; what it
// says and sends passes through its world's bends. Test only; one thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/hostile/hostile_oracle.h"
#include "fuzz/hostile/hostile_plane.h"

namespace jccl::fuzz {

inline const wire::Tag kGrads = "grads", kModel = "model";

class WorldPeer;

class WorldSide {  // what a peer needs of its world
 public:
  virtual ~WorldSide() = default;
  virtual base::Time now() const = 0;
  virtual void dial(WorldPeer& from) = 0;
  virtual void hang_up(WorldPeer& from) = 0;
  virtual void say(WorldPeer& from, const wire::Message& message) = 0;
  virtual void queue_frame(const QueuedFrame& frame) = 0;
  virtual void started_attempt(WorldPeer& at) = 0;  // frames that waited may be taken now
};

struct UserCall {
  std::vector<float> in, out;
  peer::CallRef record;
  wire::PeerId self = 0;  // in the attempt that was started last
};

struct UserOptions {
  std::string site;
  std::uint32_t number = 0;  // of the process, in order of starting
  peer::Collective collective = peer::Collective::kAllReduce;  // of the tag without state
  std::string plan;
  bool with_state = false, source = false, private_out = false;
  double weight = 1;
  base::Duration deadline = 5 * base::kSecond;
  bool hostile = false;
};

class WorldPeer : private PlaneOwner {
 public:
  WorldPeer(WorldSide* world, Oracle* oracle, UserOptions options, wire::Incarnation incarnation);

  void start();
  void connected() { event(protocol::Connected{}); }
  void disconnected(base::Code why = base::Code::kLinkLost) {
    event(protocol::Disconnected{{why, "lost"}});
  }
  void from_master(const wire::Message& message) { event(protocol::FromMaster{message}); }
  void tick();
  void user_turn();  // calls what is not open
  void cancel(const wire::Tag& tag) { event(protocol::CancelCall{tag}); }
  void leave() { event(protocol::Depart{}); }
  // As the user of a hostile member: rounds are called, whatever happened before.
  void event(const protocol::PeerEvent& event);
  void settle();  // what the data plane reported meanwhile

  base::Time wake() const { return wake_; }
  wire::Incarnation incarnation() const { return machine_.incarnation(); }
  const protocol::PeerMachine& machine() const { return machine_; }
  MemoryPlane& plane() { return plane_; }
  const UserOptions& options() const { return options_; }
  peer::SnapshotStore& store() { return store_; }
  const std::optional<base::Status>& broken() const { return broken_; }
  bool gone() const { return gone_; }
  bool lost_state() const { return lost_state_; }
  std::uint64_t good_rounds(const wire::Tag& tag) const {
    const auto found = good_.find(tag);
    return found == good_.end() ? 0 : found->second;
  }
  std::string site() const { return options_.site; }

 private:
  void queue_frame(const QueuedFrame& frame) override { world_.queue_frame(frame); }
  void plane_event(protocol::PeerEvent event) override { reported_.push_back(std::move(event)); }
  void apply(const protocol::PeerEffects& effects);
  void carry_out_data(const protocol::PeerEffects& effects);
  void call(const wire::Tag& tag);
  void sync();
  void completed(const protocol::CompleteCall& done);
  void synced(const protocol::CompleteSync& done);
  void next_revision(std::uint64_t n, const std::vector<float>& result);
  std::vector<peer::Leaf> state_leaves();

  WorldSide& world_;
  Oracle& oracle_;
  UserOptions options_;
  peer::SnapshotStore store_;
  protocol::PeerMachine machine_;
  MemoryPlane plane_;
  std::deque<protocol::PeerEvent> reported_;
  std::map<wire::Tag, std::shared_ptr<UserCall>> calls_;
  std::map<wire::Tag, wire::Attempt> committed_;  // told just before the call ends
  std::map<wire::Tag, std::uint64_t> good_;
  std::vector<float> state_;
  std::uint64_t revision_ = 0, calls_made_ = 0;
  wire::Digest digest_;
  bool standing_ = false;  // at the newest revision, as far as is known
  bool syncing_ = false, gone_ = false, lost_state_ = false;
  std::optional<base::Status> broken_;
  base::Time wake_ = base::kNever;
};

}  // namespace jccl::fuzz
