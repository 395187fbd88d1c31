// What the master machine holds between two events, and the steps it is made of. Private to the
// master_*.cc files. Durable facts live in the Ledger, everything else here is lost by a restart
// and rebuilt from what peers say when they come back. Pure; one event at a time.
//
// A life:   hello → observer → (admitted) member → evicted, fenced for ever
// A round:  forming (READY by READY) → running (MasterAttempt) → commit: n + 1
//                                                               → abort: forming again, same n
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/own_pause.h"
#include "protocol/conduct/master_conduct.h"
#include "protocol/master/ledger.h"
#include "protocol/master/master_machine.h"
#include "protocol/master/master_records.h"
#include "protocol/members/master_membership.h"
#include "protocol/rounds/master_rounds.h"
#include "protocol/states/master_states.h"

namespace jccl::protocol {

// What stands still and why, in words (master_texts.cc).
class Wording : public Room<Wording> {
 public:
  std::string ban_text(const wire::PublicKey& key, std::uint64_t until_unix_ms,
                       const std::string& reason) const;
  std::string name(const ProcessRecord& process) const;
  std::string came_back(const ProcessRecord& process) const;  // why the life before ended
  std::string name(wire::PeerId id) const;
  std::string silence_of(const ProcessRecord& process) const;
  std::string missing_members(const wire::Tag& tag) const;
  std::string waiting_text(const wire::Tag& tag) const;
  std::string running_waits(const MasterAttempt& running) const;
  std::string cross_wait() const;
  std::string missing_shards(const ProcessRecord& process, const wire::Tag& called = {}) const;
  std::string outsider_text(const ProcessRecord& process, const wire::Tag& called = {}) const;
  void tell_waiting();
  std::string mismatch_text(const wire::Tag& tag) const;
  MasterView view(base::Time now) const;

 private:
  friend struct Archived;
  friend class MasterMachine;

  void tell_ready(const wire::Tag& tag, const std::string& crossed);

  base::Time crossed_since_ = base::kNever;
};

// What all rooms share: the durable facts, the rounds and processes, and the event at hand.
struct Frame {
  Frame(MasterOptions options, Planner planner, base::Time now)
      : options_(std::move(options)),
        planner_(std::move(planner)),
        ledger_(options_.history),
        now_(now),
        last_(now),
        started_at_(now) {}

  MasterOptions options_;
  Planner planner_;
  Ledger ledger_;
  base::Time now_ = 0, last_ = 0, wake_ = base::kNever, started_at_ = 0, next_tick_ = 0;
  base::Time before_ = 0;    // the event before this one
  base::Time woke_at_ = 0;   // it stood still itself until then
  std::set<ConnId> doomed_;  // closed by an effect, not yet reported closed
  std::map<wire::Incarnation, ProcessRecord> processes_;
  std::map<wire::Tag, Round> rounds_;
  std::set<wire::Tag> touched_;
  std::uint64_t settled_ = 0;  // tags that were looked at, for tests of what an event costs
  bool ticking_ = false;
  MasterEffects fx_;
};

// The machine around the rooms: events come in, and effects go out (master_machine.cc).
struct MasterMachine::State : Frame,
                              Connections,
                              Membership,
                              Seats,
                              Conduct,
                              WaitCharges,
                              LinkFaults,
                              Findings,
                              OperatorOrders,
                              Forming,
                              RunningAttempts,
                              Stragglers,
                              Withheld,
                              Audits,
                              StateSync,
                              StateBirth,
                              StateRestore,
                              StateVotes,
                              Wording {
  State(MasterOptions options, Planner planner, const std::vector<wire::Record>& records,
        base::Time now);

  void begin(base::Time now);
  void stood_still(const base::OwnPause& pause);
  MasterEffects finish();
  void start();
  void on(const MasterEvent& event);
  void on_message(const ConnMessage& said);
  void on_peer_message(ProcessRecord& process, const wire::Message& message);
  void settle();  // everything that follows from the event
  void settle(const wire::Tag& tag);
  void drop_unused_tags();
  void end_pauses();
  void tick();
  base::Time due(const Round& round, base::Time seen) const;
  base::Time next_wake() const;
  void journal(wire::Record record);
  void send(ConnId conn, wire::Message message);
  void send(const ProcessRecord& to, wire::Message said) { send(to.conn, std::move(said)); }
  void note(std::string kind, std::vector<std::pair<std::string, std::string>> fields);
  void refuse(ConnId conn, wire::Code code, std::string text);
  void refuse_nonsense(ConnId conn, std::string text);  // and hold it against a member
  void close(ConnId conn);
  void touch(const wire::Tag& tag) { touched_.insert(tag); }
  void touch_all();
};

}  // namespace jccl::protocol
