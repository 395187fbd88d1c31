// The control thread of a communicator: drives the peer machine over the connection to the master
// and turns its effects into orders for the data thread and results for the users' threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "net/link/frames.h"
#include "net/socket/dial.h"
#include "net/socket/loop.h"
#include "peer/call.h"
#include "peer/data_plane.h"
#include "peer/recording.h"
#include "protocol/peer/peer_machine.h"
#include "protocol/recorder/recorder.h"

namespace jccl::peer {

struct SyncRecord {
  wire::Tag tag;
  snapshot::Layout layout;  // of the user's leaves
  base::Status status;
  wire::Held held;
  bool went_back = false;  // the run did, since the state that was handed in
  bool done = false;
};
using SyncRef = std::shared_ptr<SyncRecord>;

// What users' threads may see without asking the control thread.
struct ControlView {
  bool welcomed = false;
  bool departed = false;
  base::Status broken;      // terminal
  base::Status last_error;  // of the connection to the master …
  std::string refused;      // … or why the master closed it: try again
  base::RunId run{};
  base::Incarnation incarnation = 0;
  base::PeerId id = 0;
  std::uint64_t epoch = 0;
  std::vector<std::string> sites;
  std::vector<base::PeerId> ids;                // of the first shard of each
  std::map<base::PeerId, std::string> site_of;  // of all members heard of, the newest 4,096
  std::uint32_t evictions = 0;
  std::string evicted;                   // why the last time
  std::uint64_t departures = 0;          // rosters that said why somebody left …
  std::deque<std::string> departed_why;  // … and what the last of them said
  std::string drain;                     // an operator asks this peer to leave: why
  std::uint64_t noticed = 0;             // what everybody ought to hear of: how often …
  std::deque<std::string> notices;       // … and the last of it
  bool idle = true;                      // no call is open
  std::uint64_t rounds_committed = 0, rounds_retried = 0;

  void hear(const protocol::PeerEffects& effects);  // of what is to be shown
  void note(const std::string& text);               // news of this peer itself
};

class Control {
 public:
  struct Config {
    protocol::PeerOptions machine;
    base::Incarnation incarnation = 0;
    std::vector<net::Address> master;  // the active one and its standbys, in any order
    net::Credentials credentials;
    std::string group;  // of the run; empty: the run itself
    net::Recordings recordings;
    std::size_t record_bytes = 0;
  };

  Control(net::Loop& loop, net::Loop& data_loop, DataPlane& plane, Config config);
  ~Control();  // on the loop's thread, or while it does not run

  // From any thread.
  void begin();
  void call(const protocol::Call& call, CallRef record);
  // Not ok: what open calls end as that come to nothing, in place of kAborted, for good.
  void cancel_all(const base::Status& ended_as = {});
  void sync(const protocol::SyncCall& call, SyncRef record);
  void published(const wire::Held& held);
  // The own state is not what was published.
  void state_changed(const wire::Tag& tag, const std::string& why);
  // Ends the calls that have not begun to move data, those to come at once. What moves goes on.
  void retire();
  void depart();
  base::Result<std::string> record(const std::string& why);
  void record_and_note(const std::string& why);  // for who asks without waiting for an answer
  bool needs_resync(const wire::Tag& tag);       // asks the control thread
  // What waits for what, by tag; without an open call, under no tag, that there is no master.
  std::vector<std::pair<wire::Tag, std::string>> waits();

  // Guards the view, the results of calls and syncs. Notified when something changed that people
  // wait for, but for the end of a call: that has a condition of its own.
  std::mutex& mutex() { return mutex_; }
  std::condition_variable& changed() { return changed_; }
  const ControlView& view() const { return view_; }

  // Events of the data thread.
  void audited(const wire::Attempt& attempt, std::vector<wire::AuditPart> parts) {
    loop_.post(
        [this, attempt, parts = std::move(parts)] { on(protocol::AuditAnswer{attempt, parts}); });
  }
  void attempt_done(const wire::Attempt& attempt, const base::Digest& result,
                    std::vector<wire::Share> shares, wire::AuditRoots audit);
  void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                      std::string text);
  void fetched(const wire::Held& held);
  void fetch_failed(const wire::Tag& tag, const base::Status& status);
  void outvoted(const wire::Outvoted& said);
  void found(const wire::Finding& said) {
    loop_.post([this, said] { on(protocol::WorkRepeated{said}); });
  }
  void violation(const wire::Violation& seen) {
    loop_.post([this, seen] { on(protocol::FrameViolation{seen}); });
  }
  void measured(const wire::Measured& measured);

 private:
  void on(protocol::PeerEvent event);
  void apply(protocol::PeerEffects effects);
  void complete(const protocol::CompleteCall& done);
  void finish_call(const CallRef& call, const protocol::CompleteCall& done);
  void synced(const protocol::CompleteSync& done);
  base::Status told(const base::Status& status) const;
  void connect();
  void connected(std::unique_ptr<net::ByteStream> stream);
  void await_first_word();
  void hear_refusal(const wire::Message& message);
  void rotate();
  void disconnect();
  void lost(base::Status cause);
  void send(const wire::Message& message);
  void put(const base::Bytes& word);
  void break_off(const base::Status& why);
  void update_view();
  void arm(base::Time wake);
  void beat();
  void leave_rounds();
  protocol::About about(const std::string& why) const;
  void record_fault(const std::string& what);

  net::Loop& loop_;
  net::Loop& data_loop_;
  DataPlane& plane_;
  Config config_;
  protocol::Recorder<protocol::PeerSide> recorder_;
  bool was_member_ = false;  // of a run, so that there is something to record
  protocol::PeerMachine machine_;
  std::unique_ptr<net::Dial> dial_;
  std::unique_ptr<net::FramedStream> stream_;
  std::uint64_t connection_ = 0;
  base::Duration silence_ = 0;   // as the data thread was told
  std::uint64_t max_rate_ = 0;   // … likewise
  net::TimerId first_word_ = 0;  // by when a master among several has to say something
  net::TimerId timer_ = 0;
  base::Time timer_at_ = base::kNever;
  bool retiring_ = false;
  base::Status ended_as_;  // see cancel_all
  std::map<wire::Tag, CallRef> calls_;
  std::map<wire::Tag, SyncRef> syncs_;

  std::mutex mutex_;
  std::condition_variable changed_;
  ControlView view_;
  RecordingWriter writer_;
};

}  // namespace jccl::peer
