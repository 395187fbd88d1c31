// A world small enough to be searched whole: the real machines and the simulator's oracles, but
// every order of events is a choice instead of a law of time. A world is a value: copied, changed
// by one choice, and hashed. What is abstracted:
//   messages   in order per connection and direction. What a process sent arrives, also when it
//   dies
//              or hangs up; what is on its way is lost, from some message on, only by a connection
//              that breaks, which is a fault of its own. Waiting texts are not sent at all
//   data       once every contributor has accepted an attempt its parts may complete, in any order,
//              or fail; a result is the symbolic sum of the inputs
//   time       stands still but for the choice "the earliest timer fires", however much is still on
//              its way; heartbeats are longer than the run
//   disk       a write is durable at once, or the master dies before it, or after it and mute
//   sends      a master that dies in a step has told any part of those it meant to tell
//   snapshots  what was offered can be fetched
// Pure; one thread per world.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"
#include "sim/history.h"

namespace jccl::sim::model {

struct Scope {                        // what is searched
  std::uint32_t peers = 2, late = 0;  // `late` of them start after the first commit
  std::uint32_t rounds = 2, min_peers = 1;
  bool state = false;                   // the tag has a state: birth, synchronisation, resync
  std::uint32_t faults = 1, ticks = 1;  // crashes, resets, failed links; timers that fire
  std::size_t history = 1024;
  bool begun = false;   // begins when everybody is connected
  bool coarse = false;  // a greeting, and a Roster that nothing is before, take no time
  bool reduce = true;   // of steps that commute with all others only one order: see ample()
};

enum class Step : std::uint8_t {
  // Progress: quiet when none of these is left.
  kToMaster,  // which connection's next message
  kToPeer,
  kMasterSees,  // … that the connection's other end is gone
  kPeerSees,
  kDial,
  kProbe,     // a peer's listener refuses
  kComplete,  // a part of an attempt
  kBreak,     // … whose data can't come any more
  kAct,       // the user calls, or synchronises
  kFetched,
  kPeerUp,
  kMasterUp,
  // Time and faults.
  kTimer,
  kLinkFails,
  kReset,
  kPeerDies,
  kMasterDies,
};

struct Choice {
  Step step = Step::kAct;
  std::uint8_t which = 0, other = 0;
  std::uint8_t death = 0;  // of the master in this step: 1 before the write, 2 after it, 3 + the
                           // slots that still hear of it
  bool costs_fault() const { return step >= Step::kLinkFails || death != 0; }
};

struct Done {  // what the master did in a step: where it could have died
  bool wrote = false;
  std::uint8_t told = 0;  // slots, as bits
};

template <typename Machine>
struct Box {
  Machine machine;
  base::Digest digest;
};

struct Parcel {  // a message on its way
  wire::Message message;
  std::uint64_t hash = 0;
};
std::shared_ptr<const Parcel> wrap(wire::Message message);
bool send_worthy(const wire::Message& message);  // false: it changes words only
bool told_worthy(const wire::Message& message);  // false: no promise is about it
using Queue = std::vector<std::shared_ptr<const Parcel>>;

struct ModelConn {
  protocol::ConnId id = 0;
  std::uint8_t slot = 0;
  bool peer_open = true, master_open = true;
  bool broken = false;  // either end may see it, whatever is on its way
  bool fresh = true;    // nothing has happened since it was made
  Queue up, down;
};

struct ModelRun {
  wire::Start start;
  bool receiver = false;
  std::uint64_t call = 0;
  bool done = false, failed = false;
  Array result;
};

struct ModelPeer {
  std::shared_ptr<const Box<protocol::PeerMachine>> box;  // null: not running
  wire::Incarnation incarnation = 0;
  std::uint8_t lives = 0, dials = 0, calls = 0;
  bool dialing = false, begun = false;
  std::vector<ModelRun> runs;
  base::Time wake = base::kNever;
  // The user.
  std::uint64_t call = 0;  // open; 0: none
  std::optional<wire::Attempt> visible;
  bool needs_sync = false, syncing = false, lost = false;
  std::uint64_t revision = 0;
  wire::Digest digest;
  std::optional<wire::Held> wanted;  // told to fetch
};

inline constexpr std::uint32_t kMasterBit = 1U << 31;

class World {
 public:
  explicit World(const Scope& scope);

  std::vector<Choice> choices() const;
  // A part of them that is enough to reach every state in which nothing is left to happen.
  std::vector<Choice> ample();
  Done take(const Choice& choice);
  base::Digest digest() const;
  const History& history() const { return *book_; }
  bool may_fail() const { return faults_left_ > 0; }
  std::uint32_t faults_left() const { return faults_left_; }
  // Nothing is left to happen by itself: then, if nobody is missing, no call may be open.
  void check_quiet();
  std::string words(const Choice& choice) const;  // of a choice of this world, before it is taken

 private:
  void peer_choices(std::uint8_t slot, std::vector<Choice>& out) const;
  void conn_choices(std::vector<Choice>& out) const;
  void fault_choices(std::vector<Choice>& out) const;
  void progress(const Choice& choice);
  void on_conn(const Choice& choice);
  bool accepted_by_all(const ModelRun& run) const;
  bool alive(wire::PeerId id) const;
  bool wants(const ModelPeer& peer, std::uint64_t known = 0) const;
  bool commutes(std::uint8_t slot) const;
  std::size_t owner(const Choice& choice) const;
  bool anchored(const Choice& choice) const;

  void connect_all();
  void greet(std::uint8_t slot);
  void pass_rosters();
  void to_master(const protocol::MasterEvent& event);
  void apply(protocol::MasterEffects effects);
  void tell(protocol::MasterSend& send);
  void start_master();
  void kill_master();
  void boot(std::uint8_t slot);
  void die(std::uint8_t slot);
  void to_peer(std::uint8_t slot, protocol::PeerEvent event);
  void apply(std::uint8_t slot, protocol::PeerEffects& effects,
             std::vector<protocol::PeerEvent>& next);
  void complete(std::uint8_t slot, const protocol::CompleteCall& done,
                std::vector<protocol::PeerEvent>& next);
  void synced(std::uint8_t slot, const protocol::CompleteSync& done,
              std::vector<protocol::PeerEvent>& next);
  std::optional<protocol::Call> new_call(std::uint8_t slot);
  void act(std::uint8_t slot);
  void run(std::uint8_t slot, const protocol::RunAttempt& order);
  void complete_run(std::uint8_t slot, ModelRun& run);
  void hang_up(std::uint8_t slot);
  void heard(const ModelConn& conn, const wire::Message& message);
  void tidy();  // forgets connections that both ends have given up
  void fire_timer(std::uint8_t which);
  base::Time earliest() const;
  History& book();
  ModelConn* conn_of(protocol::ConnId id);
  ModelConn* conn_at(std::uint8_t slot);
  std::uint64_t book_hash() const;
  std::set<wire::Attempt> open_attempts() const;
  void put_open(base::Writer& out) const;

  Scope scope_;
  base::Time now_ = base::kSecond;
  std::shared_ptr<const Box<protocol::MasterMachine>> master_;
  base::Time master_wake_ = base::kNever;
  std::uint8_t master_lives_ = 0;
  std::vector<ModelPeer> peers_;
  std::vector<ModelConn> conns_;
  std::vector<std::pair<wire::Incarnation, std::uint8_t>> probes_;
  std::shared_ptr<History> book_;  // shared by worlds until one writes
  mutable std::uint64_t book_hash_ = 0;
  std::uint32_t faults_left_ = 0, ticks_left_ = 0;
  std::uint8_t death_ = 0;  // of the step being taken
  Done done_;               // in it
  // Slots, as bits, and kMasterBit: who took part in a step since its faults were tried last, and
  // whose faults are tried from here.
  std::uint32_t moved_ = 0, tried_ = ~0U;
  bool asleep_ = false;  // the users, while everybody connects
};

}  // namespace jccl::sim::model
