// What the peer machine holds between two events, and the steps it is made of. Private to the
// peer_*.cc files. Pure; one event at a time.
//
// A connection: paused → dialing → greeting (Hello sent) → up; any loss → paused, with back-off.
// A call:       waiting (READY) → moving (START) → reported (DONE or FAIL) → closing (COMMIT heard,
//               own result missing) → ended. An abort leads back to waiting. A call that ends while
//               its outcome is unknown leaves a Doubt, and its tag takes no other call until then.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/text.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::protocol {

enum class MasterConnection : std::uint8_t { kPaused, kDialing, kGreeting, kUp, kNoLife, kEnded };

// What the master ends without a commit has failed, whatever code it names.
inline base::Code failure(base::Code code) {
  return base::holds_result(code) ? base::Code::kInternal : code;
}

inline std::string busy_text(const wire::Tag& tag) {
  return base::cat("a call on ", tag, " is open: wait for it first (wait, done), or end all open ",
                   "ones with comm.abort()");
}

enum class CallPhase : std::uint8_t { kWaiting, kMoving, kReported, kClosing };

struct OpenCall {
  Call call;
  std::uint64_t number = 0;  // of all calls of this machine: what a START must answer
  std::uint64_t n = 0;
  CallPhase phase = CallPhase::kWaiting;
  double weight = 1.0;
  base::Code left_out = base::Code::kOk;  // kGuard, kSkipped: weight 0, and the call ends with this
  std::string left_out_why;               // which leaf it was, or how slow this peer
  bool receiver = false;
  bool orphan = false;  // started in an earlier life, which was evicted
  std::uint32_t attempts = 0;
  wire::Attempt attempt;
  base::Duration beats = base::kNever;  // while it moves; see beat_for()
  std::optional<wire::Digest> own;      // the complete result
  std::vector<wire::Share> shares;      // of it
  wire::AuditRoots audit;               // … and what this peer is held to for it
  std::optional<wire::Fail> failed;
  std::optional<wire::Outcome> outcome;  // kClosing: committed
  std::string waiting;                   // the master's last words
};

struct Doubt {  // an attempt whose call ended before its outcome was known
  wire::Unresolved about;
  bool is_state = false;
  bool kept = false;                    // the data plane still holds its result
  std::optional<wire::Message> report;  // a Done or Fail that has to reach the master
};

struct OpenSync {
  SyncCall call;
  bool went_back = false;  // the run did, after what its user has
  std::optional<wire::Held> fetching;
  bool disputed = false;            // a fetch ended so
  bool current = false;             // waits for the Roster that names this peer
  base::Time again = base::kNever;  // after a failed fetch
  std::string waiting;
};

struct PeerMachine::State {
  State(PeerOptions options, wire::Incarnation incarnation, base::Time now);

  // peer_machine.cc: routing
  void begin(base::Time now);
  void on(const PeerEvent& event);
  void on_master(const wire::Message& message);
  PeerEffects finish();
  base::Time next_wake() const;
  void tick();
  void send(wire::Message message) {
    if (up()) fx_.send.push_back(std::move(message));
  }
  bool up() const { return link_ == MasterConnection::kUp; }
  void depart();

  // peer_connection.cc
  void dial();
  void pause();
  void on_connected();
  void on_disconnected(const base::Status& cause);
  void on_welcome(const wire::Welcome& welcome);
  void on_refuse(const wire::Refuse& refuse);
  void on_evicted(const wire::Evicted& evicted);
  void on_new_life(const NewLife& life);
  void on_roster(const wire::Roster& roster);
  void tend_connection();
  void beat_for(OpenCall& open);
  void break_off(base::Status why);
  bool master_lost() const;
  std::string cut_off() const;
  std::string beyond_grace() const;

  // peer_calls.cc
  void on_call(const Call& call);
  std::optional<base::Status> objection(const Call& call) const;
  void on_cancel(const wire::Tag& tag);
  void on_start(const wire::Start& start);
  bool stands_at(const OpenCall& open, const wire::Start& start) const;
  void on_attempt_done(const AttemptDone& done);
  void on_attempt_failed(const AttemptFailed& failed);
  void on_audit_ask(const wire::AuditAsk& ask);
  void on_audit_answer(const AuditAnswer& answer);
  void on_outcome(const wire::Outcome& outcome);
  void on_aborted(OpenCall& open, const wire::Outcome& outcome);
  void on_reject(const wire::Reject& reject);
  void on_moved(const wire::Moved& moved);
  void on_waiting(const wire::Waiting& waiting);
  void close_committed(const wire::Tag& tag);
  void report(const OpenCall& open);
  void let_go(const wire::Attempt& attempt);
  void refuse_start(OpenCall& open);
  void give_up(const wire::Tag& tag, base::Code code, const std::string& why);
  void settle_doubt(const wire::Tag& tag, const wire::Outcome& outcome);
  void send_ready(const OpenCall& open);
  void complete(const wire::Tag& tag, base::Code code, std::string text);
  void orphan_calls(const std::string& text);
  void lose_master_for_calls();
  void ask_again();
  void heard_commit(const wire::Tag& tag, std::uint64_t n);
  OpenCall* call_of(const wire::Attempt& attempt);

  // peer_sync.cc
  void on_sync_call(const SyncCall& call);
  void send_sync(const OpenSync& open);
  void on_sync_reply(const wire::SyncReply& reply);
  void on_fetch_done(const FetchDone& done);
  void on_fetch_failed(const FetchFailed& failed);
  void on_publish(const wire::Held& held);
  void on_state_changed(const StateChanged& changed);
  void finish_sync(const wire::Tag& tag, base::Code code, std::string text);
  bool held_here(const wire::SyncReply& reply) const;
  void finish_current_syncs();

  PeerOptions options_;
  wire::Incarnation incarnation_;
  wire::RunId run_{};
  base::Time now_ = 0, last_ = 0, wake_ = base::kNever;
  MasterConnection link_ = MasterConnection::kPaused;
  base::Duration heartbeat_, silence_;
  std::uint64_t run_rate_ = 0;  // Welcome::max_rate
  base::Time heard_ = 0;        // last frame of the master
  base::Time lost_at_ = 0;      // since when there is no master
  std::string refused_;         // what the last one said that turned this peer away for now
  base::Time dial_at_ = 0;
  base::Duration pause_ = 0;
  std::uint32_t unwelcome_ = 0;    // lives in a row that were evicted before they were welcomed
  base::Duration life_pause_ = 0;  // evicted again and again: comes back slower
  base::Time next_beat_ = 0, next_ask_ = 0;
  std::uint64_t sequence_ = 0, progress_ = 0;
  std::vector<wire::Moving> moving_;
  std::optional<wire::Measured> measured_;  // the newest
  wire::PeerId id_ = 0;
  std::uint64_t epoch_ = 0;
  bool departing_ = false;
  base::Time departed_by_ = base::kNever;
  std::optional<base::Status> broken_;
  wire::Roster roster_;
  std::map<wire::Tag, OpenCall> calls_;
  std::uint64_t calls_made_ = 0;
  std::map<wire::Tag, Doubt> doubts_;
  std::map<wire::Tag, OpenSync> syncs_;
  std::map<wire::Tag, std::uint64_t> committed_;
  std::map<wire::Tag, wire::Held> held_;
  std::set<wire::Tag> resync_;
  std::set<wire::Tag> changed_;  // … since its program changed that state, and nobody was told
  PeerEffects fx_;
};

}  // namespace jccl::protocol
