// One simulated process: driver of a PeerMachine, its data plane, and the user's program above it,
// which calls rounds on several tags, keeps state, synchronises it and reads every status. Pure;
// one thread per world.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/conduct/blame.h"
#include "sim/history.h"
#include "sim/network/plane.h"

namespace jccl::sim {

class World;

struct UserTag {  // the user's program on one tag
  wire::Tag tag;
  bool is_state = false;
  bool needs_sync = false;
  bool was_synced = false;
  bool forgotten = false;               // its user calls it and has not synchronised it
  std::optional<wire::Digest> claimed;  // what its user says the run begins with, in this sync
  bool no_source = false;               // told that the state began as another's
  std::uint64_t revision = 0;
  wire::Digest digest;
  std::optional<wire::Held> published;  // what it serves
  Time published_at = 0;
  std::uint64_t turn = 0;                // pending acts of an earlier turn are void
  std::uint64_t call = 0;                // open call's id; 0: none
  bool differs = false;                  // it is of a state that the user edited
  Time ready_at = 0;                     // when its peer said READY last, also for a new attempt
  BuffersRef buffers;                    // its arrays
  std::optional<wire::Attempt> visible;  // committed just before the completion
  bool syncing = false;
  Time sync_begun = 0, sync_deadline = 0;
  bool lost = false;  // last told: STATE_LOST
  std::uint32_t good_after_heal = 0;
  std::uint32_t calls = 0;
};

struct SimPeer {
  SimPeer(World& world, std::uint32_t slot);

  void boot();            // a new process at this slot
  void die(bool vanish);  // SIGKILL, or the machine with it
  void feed(protocol::PeerEvent event);
  void queue(protocol::PeerEvent event) { pending_.push_back(std::move(event)); }  // then drain()
  void drain();
  void on_message(wire::Message message);
  void on_dialed(bool accepted, std::uint64_t number);
  void on_closed(std::uint64_t conn);
  void on_wake();
  void on_data(const DataMessage& message);
  void on_reset(std::uint32_t other, wire::Incarnation life);
  void on_engine();
  void act(std::size_t tag, std::uint64_t turn);
  void cancel(std::size_t tag, std::uint64_t turn);
  void compared(std::size_t tag, std::uint64_t call_id);
  void leave();
  void audit();
  bool computes_wrong();  // by a broken machine, this time
  bool lies() const;      // a hostile member, for good
  void lie_in_weight(CallRecord* record);
  void lie_in_call(protocol::Call* call, CallRecord* record, std::size_t index);
  bool lie_instead_of_running(const protocol::RunAttempt& run);
  void lie_before_running(const wire::Attempt& attempt);
  void lie_about_holders(const protocol::FetchSnapshot& fetch);
  bool forge(wire::Digest* state);           // true: it is another than everybody's
  bool lie_in_result(wire::Digest* digest);  // true: it never says that it is done
  void made_fault(protocol::Fault fault, bool made);
  bool edited(UserTag& tag);
  void may_forget(UserTag& tag);
  bool calls_plainly(const UserTag& tag) const;
  void check_source(const UserTag& tag);
  void refuse_edited(UserTag& tag);
  void pause(Duration length, bool clock_stands);
  void resume();
  void jump(Duration by);
  Time clock() const;
  bool running() const { return alive && !paused; }
  Time latest_end(Time deadline) const;  // oracle_p4.cc
  bool settled() const;                  // everything the user wants works (again)

  World& world;
  const std::uint32_t slot;
  std::string site;
  std::uint32_t shard = 0;
  bool alive = false, paused = false, leaving = false;
  std::uint32_t life = 0;
  Time free_at = 0;                      // before it could not act in time
  Time stopped_at = 0, stood_until = 0;  // by a pause that is no short one
  std::vector<wire::Incarnation> lives;  // of this slot, ever
  std::unique_ptr<protocol::PeerMachine> machine;
  wire::Incarnation incarnation = 0;
  std::uint64_t conn = 0, dials = 0;
  DataPlane data;
  std::vector<UserTag> tags;
  std::vector<Event> held;  // while stopped
  double faults = 0;        // that its user or machine made, by their weights, since its last ban
  bool computed_wrong = false;

 private:
  void apply(protocol::PeerEffects effects);
  void apply_data(protocol::PeerEffects& effects);
  void complete(const protocol::CompleteCall& done);
  void synced(const protocol::CompleteSync& done);
  void end_call(UserTag& tag, const protocol::CompleteCall& done, bool success);
  void broken(const base::Status& status);
  void ask_the_ended();
  void call_again();
  void new_machine();
  void hang_up();
  void call(UserTag& tag, std::size_t index);
  BuffersRef buffers_for(const UserTag& tag, std::size_t index, const CallRecord& record);
  void measure();
  void sync(UserTag& tag, std::size_t index);
  void act_later(UserTag& tag, base::Duration pause);
  void arm(Time wake);
  UserTag* find(const wire::Tag& tag);

  std::deque<protocol::PeerEvent> pending_;
  std::uint32_t mistakes_ = 0;  // of the user's configuration
  bool busy_ = false;
  Time wake_ = base::kNever;
  Time skew_ = 0;                     // of its clock
  Time stands_since_ = base::kNever;  // its clock, until it resumes
  bool engine_armed_ = false;
};

}  // namespace jccl::sim
