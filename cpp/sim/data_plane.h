// The model of a peer's data engine and of its user's buffers: symbolic chunks over faulty links,
// direct or star plans, repair of receivers, snapshots. It does what a real driver must do with the
// effects of a PeerMachine, and as a mutant what it must not. Pure; one thread per world.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "protocol/master_machine.h"
#include "protocol/peer_machine.h"
#include "sim/network.h"

namespace jccl::sim {

class World;
struct SimPeer;

// What the simulator's planner writes into START: who owns elements, who gives, who gets.
struct Plan {
  std::vector<wire::PeerId> owners, contributors, receivers;
  wire::PeerId owner_of(std::size_t element) const { return owners[element % owners.size()]; }
  bool owns(wire::PeerId id) const;
  bool contributes(wire::PeerId id) const;
};
inline constexpr std::uint8_t kStarHint = 1;  // one owner only
base::Result<base::Bytes> make_plan(const protocol::PlanRequest& request,
                                    const std::map<wire::PeerId, std::uint64_t>& speeds);
Plan read_plan(const base::Bytes& bytes);

struct DataRun {
  wire::Attempt attempt;
  wire::RoundName round;
  Plan plan;
  bool receiver = false;
  wire::PeerId self = 0;
  std::uint64_t call = 0;  // the user's; 0: none
  Array given;             // the own input when the attempt began
  Array result;
  std::uint32_t have = 0;  // bit mask over elements
  std::array<std::vector<wire::PeerId>, kElements> arrived;
  std::array<Sum, kElements> partial;
  bool done = false, failed = false, committed = false;
  bool told = false;  // a liar: that it is done, before it was
  Time moved = 0;
  std::uint64_t all = 0;   // messages, when it began
  std::uint32_t turn = 0;  // whom a receiver asks next
};

class DataPlane {
 public:
  DataPlane(World& world, SimPeer& peer) : world_(world), peer_(peer) {}

  void run(const protocol::RunAttempt& run);
  void compared(std::uint64_t call);  // its state differs from what this peer holds
  bool tell_early(const wire::Attempt& attempt, const wire::Digest& digest);  // a liar
  void discard(const wire::Attempt& attempt);
  void commit(const wire::Attempt& attempt);
  void fetch(const protocol::FetchSnapshot& fetch);
  void stop_fetch(const wire::Tag& tag) { fetches_.erase(tag); }
  void on_data(DataMessage& message);
  void on_reset(std::uint32_t other, wire::Incarnation life);
  void tick();   // stalls
  void clear();  // the process died, or its incarnation did
  const DataRun* find(const wire::Attempt& attempt) const;
  bool runs(std::uint64_t call) const;  // an attempt of this call
  bool idle() const { return runs_.empty() && fetches_.empty(); }
  protocol::Progress progress() const;

 private:
  struct Fetch {
    wire::Held want;
    std::vector<wire::Member> holders;
    std::size_t at = 0;
    Time asked = 0;
    Time whole = base::kNever;  // all of it is here; checked and loaded by then
  };
  DataRun* find_run(const wire::Attempt& attempt);
  void on_contribution(DataMessage& message);
  void on_result(DataMessage& message);
  void on_ask(const DataMessage& message);
  void on_snapshot(DataMessage& message);
  void fetched(const wire::Held& held);
  void take(DataRun& run, wire::PeerId from, std::uint32_t elements, const Array& values);
  void close_element(DataRun& run, std::size_t element);
  void store(DataRun& run, std::size_t element, const Sum& sum);
  void finish_if_whole(DataRun& run);
  void fail(DataRun& run, base::Code cause, wire::PeerId other, const char* why);
  void ask_for_result(DataRun& run);
  void ask_next(Fetch& fetch);
  void send(wire::PeerId to, DataMessage message);
  std::optional<wire::PeerId> missing(const DataRun& run) const;
  std::uint64_t left(const DataRun& run) const;
  bool lives(wire::PeerId id) const;

  World& world_;
  SimPeer& peer_;
  std::vector<DataRun> runs_;
  std::vector<DataMessage> early_;  // for STARTs still to come
  std::map<wire::Tag, Fetch> fetches_;
  std::map<wire::RoundName, std::array<Sum, kElements>> leftover_;  // a mutant's
  std::uint64_t moved_ = 0;
};

}  // namespace jccl::sim
