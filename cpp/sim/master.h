// The simulated master process: driver of a MasterMachine over a disk that loses what was not made
// durable and may tear the last row. Pure; one thread per world.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "protocol/master_machine.h"
#include "sim/network.h"
#include "wire/chain.h"

namespace jccl::sim {

class World;

struct Disk {
  std::vector<wire::Row> rows;  // durable
  std::vector<wire::Row> unsynced;
  std::size_t told = 0;  // durable rows that history knows of

  void sync();
  // What a power cut leaves: a prefix of the unsynced rows, the last of them perhaps torn.
  void crash(base::Rng& rng, double torn);
};

struct SimMaster {
  explicit SimMaster(World& w) : world(w) {}

  void boot();
  void die(bool vanish);
  void feed(protocol::MasterEvent event);
  void on_synced();
  void on_wake();
  bool running() const { return alive && !paused && !busy; }
  void release();  // events held while stopped or busy

  World& world;
  bool alive = false, paused = false, busy = false;
  bool doomed = false;  // dies with its next write, told or not, on the disk or not
  std::uint32_t life = 0;
  std::unique_ptr<protocol::MasterMachine> machine;
  Disk disk;
  wire::ChainWriter chain;
  std::vector<Event> held;

 private:
  void apply(protocol::MasterEffects effects);
  void carry_out(protocol::MasterEffects& effects);
  void report_durable();
  void drain();

  std::deque<protocol::MasterEvent> pending_;
  protocol::MasterEffects stashed_;
  bool in_machine_ = false;
  Time wake_ = base::kNever;
};

}  // namespace jccl::sim
