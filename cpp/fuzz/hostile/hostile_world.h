// A run in one process: a real master with its journal, honest peers and a hostile one, in virtual
// time. Every message passes through its bytes; what a driver refuses is refused here. Checks that
// effects, queues and memory stay bounded, that the journal is a story of commits, and that a new
// master takes over from it. Test only; one thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "fuzz/hostile/hostile_coverage.h"
#include "fuzz/hostile/hostile_peer.h"
#include "fuzz/target.h"
#include "master/plan_cache.h"
#include "protocol/master/master_machine.h"

namespace jccl::fuzz {

using protocol::ConnId;

class HostileHook {  // the script's hand on what the hostile member says and sends
 public:
  virtual ~HostileHook() = default;
  virtual void outgoing(const wire::Message& message, std::vector<Bytes>* out) = 0;
  virtual void outgoing_frame(const FrameBytes& frame, std::vector<FrameBytes>* out) = 0;
  virtual void heard(const wire::Message& message) = 0;
  // Of a master that lies: what an honest peer hears instead.
  virtual void from_master(const wire::Message& message, std::vector<Bytes>* out) = 0;
};

struct WorldOptions {
  protocol::MasterOptions master;
  std::vector<UserOptions> users;  // one of them hostile
  // The master lies too: then no result is right, but nothing aborts, and all calls end.
  bool lying_master = false;
};

class HostileWorld : public WorldSide {
 public:
  HostileWorld(const WorldOptions& options, HostileHook* hook);

  void run_for(base::Duration duration);
  base::Time now() const override { return now_; }

  WorldPeer& hostile() { return *hostile_; }
  std::vector<WorldPeer*> honest();  // alive
  Oracle& oracle() { return oracle_; }
  const protocol::MasterMachine& master() const { return *master_; }
  const std::vector<wire::Record>& journal() const { return durable_; }

  // ---- what the script does to it
  ConnId open_bare();                       // a connection of the hostile member beside its own
  void say_bare(ConnId conn, Bytes bytes);  // any bytes, as one frame
  void close_bare(ConnId conn) { queue({Delivery::kUpClosed, conn, nullptr, {}, {}, {}}); }
  void say_hostile(Bytes bytes);  // on its own connection
  void cut(WorldPeer& peer);      // its control connection breaks
  void frame(wire::Incarnation to, FrameBytes frame);
  void kill(std::size_t honest, bool restart);
  void restart_master();
  void silence_links(bool silent) { links_silent_ = silent; }
  void evict(const std::string& site) { master_event(protocol::EvictSite{site}); }
  void end_hostile(bool silent);  // it says nothing any more, or leaves without a word
  // The run's first state is the hostile one's own: who founds a run says what it is.
  bool founded_by_hostile() const { return founded_by_hostile_; }
  // They answered each other for very long: time for the hostile one to go.
  bool exhausted() const { return exhausted_; }
  void check_end() const;

 private:
  struct Delivery {
    enum Kind { kConnected, kUp, kUpClosed, kDown, kDownClosed, kFrame, kMade } kind = kUp;
    ConnId conn = 0;
    WorldPeer* peer = nullptr;
    Bytes bytes;
    QueuedFrame frame;
    FrameBytes made;
  };
  struct Conn {
    WorldPeer* peer = nullptr;  // null: bare
    bool greeted = false;
  };

  void dial(WorldPeer& from) override;
  void hang_up(WorldPeer& from) override;
  void say(WorldPeer& from, const wire::Message& message) override;
  void queue_frame(const QueuedFrame& frame) override;
  void started_attempt(WorldPeer& at) override;

  void queue(Delivery delivery) { deliveries_.push_back(std::move(delivery)); }
  void begin_master();
  void drain();
  void deliver(Delivery delivery);
  void deliver_up(ConnId conn, const Bytes& bytes);
  void deliver_down(const Delivery& delivery);
  void deliver_frame(const Delivery& delivery);
  void take_frame(const Delivery& delivery, const FrameBytes& bytes);
  void master_event(const protocol::MasterEvent& event);
  void apply(const protocol::MasterEffects& effects);
  void note_heard(ConnId conn, const wire::Message& message, const protocol::MasterEffects& fx);
  void journaled(const wire::Record& record);
  void fire();
  void tick_planes();
  base::Time next_time() const;
  WorldPeer* peer_of(wire::Incarnation incarnation);
  wire::Incarnation fresh_life() { return (++processes_ << 16) | 1; }  // as base::first_life

  WorldOptions options_;
  HostileHook& hook_;
  base::Time now_ = base::kSecond;
  Oracle oracle_;
  std::vector<wire::Record> durable_;
  std::optional<master::PlanCache> planner_;
  std::optional<protocol::MasterMachine> master_;
  base::Time master_wake_ = base::kNever, planes_due_ = 0, users_due_ = 0;
  std::vector<std::unique_ptr<WorldPeer>> peers_;  // also the dead
  std::set<const WorldPeer*> dead_;
  WorldPeer* hostile_ = nullptr;
  std::map<ConnId, Conn> conns_;
  std::map<const WorldPeer*, ConnId> conn_of_;
  ConnId last_conn_ = 0;
  std::deque<Delivery> deliveries_;
  std::map<const WorldPeer*, std::vector<Delivery>> paused_;
  std::deque<protocol::MasterEvent> to_master_;
  std::uint64_t processes_ = 0;
  void tell(ConnId conn, WorldPeer* peer, const wire::Message& message);
  bool exhausted_ = false, links_silent_ = false, ended_ = false, founded_by_hostile_ = false;
  std::uint64_t epoch_ = 0;
  std::map<wire::Tag, std::uint64_t> committed_;
  std::set<wire::Attempt> commits_;
};

}  // namespace jccl::fuzz
