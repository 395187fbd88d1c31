// A simulated master process: driver of a MasterMachine over a store that may lose what was not
// made durable, or serve another master by now. While it holds no lease it is a standby and
// refuses connections. Pure; one thread per world.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "protocol/master/master_machine.h"
#include "sim/network/plan.h"
#include "sim/network/store.h"

namespace jccl::sim {

class World;

struct SimMaster {
  SimMaster(World& w, std::uint32_t i) : world(w), index(i) {}

  void boot();
  void die(bool vanish);
  void retire();  // the machine ends
  void pause(Duration length, bool clock_stands);
  void resume();
  void jump(Duration by);
  void feed(protocol::MasterEvent event);
  void on_synced(bool good);
  void on_wake();
  void on_lease();
  bool running() const { return alive && !paused && !busy; }
  bool listens() const { return alive && machine != nullptr; }
  void release();  // events held while stopped or busy
  Time clock() const;

  World& world;
  const std::uint32_t index;
  bool alive = false, paused = false, busy = false;
  bool doomed = false;  // dies with its next write, told or not, on the disk or not
  std::uint32_t life = 0;
  std::unique_ptr<protocol::MasterMachine> machine;
  wire::ChainWriter chain;
  std::vector<Event> held;

 private:
  void serve();
  void write(const std::vector<wire::Record>& records);
  bool still_held();
  void apply(protocol::MasterEffects effects);
  void carry_out(protocol::MasterEffects& effects);
  void drain();

  std::deque<protocol::MasterEvent> pending_;
  protocol::MasterEffects stashed_;
  bool in_machine_ = false;
  Time wake_ = base::kNever;
  Time lease_at_ = 0;                 // when it looks after its lease again
  Time skew_ = 0;                     // of its clock
  Time stands_since_ = base::kNever;  // its clock, until it resumes
  std::uint64_t term_ = 0;            // of the lease it holds or held
  Time held_until_ = 0;               // by its own clock
  Planner planner_;
};

}  // namespace jccl::sim
