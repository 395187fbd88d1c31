// One peer's side of the protocol: its control connection, its calls, their attempts, and outcomes
// in doubt. Pure: the driver owns sockets, clock, the data plane and the user's buffers, and
// carries out Effects in the order listed. Runs on whichever thread drives it, one event at a time.
//
// A call lives: call → (Ready) → waiting → START → `run` → attempt done → (Done) → COMMIT →
// `commit` + `complete`. An abort → `discard`, and either a new START or `complete` with a code.
// In doubt (a START was accepted and no outcome heard), the machine never decides alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "wire/messages.h"

namespace jccl::protocol {

struct PeerOptions {
  wire::RunId run{};
  std::string site;
  std::uint32_t shard = 0, shards = 1;
  std::vector<std::string> addresses;
  std::uint32_t start_peers = 0;
  std::uint64_t max_rate = 0, day_bytes = 0;         // bytes/s, and bytes in any day; 0: no bound
  base::Duration master_grace = 60 * base::kSecond;  // how long to wait for a lost master
  base::Duration reconnect_pause = 50 * base::kMillisecond;  // doubles up to 0.3 s
};

// ---- events ------------------------------------------------------------------------------------

struct Connected {};   // the control connection is up (and authenticated, with TLS)
struct Disconnected {  // or could not be established
  base::Status cause;  // kAuth ends the communicator; everything else is tried again
};
struct FromMaster {
  wire::Message message;
};
struct Call {  // a user's collective on `tag`; the machine gives it its number
  wire::Tag tag;
  wire::Digest descriptor;
  std::string summary;
  base::Bytes hint;
  std::uint32_t contributors_max = 0;  // see wire::Ready
  bool unit_weights = false;
  base::Quorum quorum = {};
  double weight = 1.0;
  bool is_state = false;  // the tag has a revision and digest (set by Publish / SyncCall before)
  wire::Digest fingerprint;
  base::Time deadline = 0;  // absolute
  wire::Tag before = {};    // see wire::Ready
};
struct CancelCall {  // Ctrl-C or abort(): ends with kAborted, or kInDoubt after a START
  wire::Tag tag;
};
struct AttemptDone {  // the whole result is here
  wire::Attempt attempt;
  wire::Digest result;
  std::vector<wire::Share> shares = {};
  wire::AuditRoots audit = {};
};
struct AuditAnswer {  // answers Effects::audit; empty: its call has ended
  wire::Attempt attempt;
  std::vector<wire::AuditPart> parts;
};
// kResync: the contribution was made from another state than this peer's; part of it was kept back.
struct AttemptFailed {
  wire::Attempt attempt;
  base::Code cause = base::Code::kLinkLost;
  wire::PeerId peer = 0;
  std::string text;
};
struct SyncCall {  // wants the newest revision of `tag`; own state is (revision, digest)
  wire::Tag tag;
  bool source = false;
  wire::Wish restore = wire::Wish::kNone;
  std::uint64_t user_has = 0;  // the revision that its user published or was given last
  std::uint64_t revision = 0;
  wire::Digest digest;
  wire::Digest descriptor;
  std::string summary;
  base::Time deadline = 0;
};
struct FetchDone {  // answers Effects::fetch: verified against the digest and now the own state
  wire::Held held;
};
struct FetchFailed {
  wire::Tag tag;
  std::string text;
  bool disputed = false;  // its holders contradict each other, without a majority
};
struct HolderOutvoted {  // a fetcher heard most holders contradict one: the master is told
  wire::Outvoted said;
};
struct WorkRepeated {  // the program repeated what another one claims: the master is told
  wire::Finding said;
};
struct FrameViolation {  // another member sent what its plan does not allow: the master is told
  wire::Violation said;
};
struct PublishState {  // after a committed round (or sync): the own state of the tag's revision
  wire::Held held;
};
// The user's state is not the one that was published: needs a resync. An open call on the tag has
// no part in a result then: its attempts fail with kResync, those that begin later too.
struct StateChanged {
  wire::Tag tag;
  std::string why = {};
};
struct Depart {};  // leave gracefully; `departed` follows
struct NewLife {   // answers Effects::rejoin with base::next_life
  wire::Incarnation incarnation = 0;
};
struct Progress {  // payload bytes moved so far and what moves now, for heartbeats
  std::uint64_t bytes = 0;
  std::vector<wire::Moving> moving = {};
};
struct NewMeasures {  // what the links carry; said again after a reconnect
  wire::Measured measured;
};
struct PeerTick {};
using PeerEvent = std::variant<Connected, Disconnected, FromMaster, Call, CancelCall, AttemptDone,
                               AttemptFailed, SyncCall, FetchDone, FetchFailed, HolderOutvoted,
                               WorkRepeated, FrameViolation, PublishState, StateChanged, Depart,
                               NewLife, Progress, NewMeasures, PeerTick, AuditAnswer>;

// ---- effects -----------------------------------------------------------------------------------

struct RunAttempt {  // move the data; end with AttemptDone or AttemptFailed
  wire::Start start;
  bool receiver = false;
};
struct CompleteCall {
  wire::Tag tag;
  std::uint64_t n = 0;
  base::Status status;      // kOk: committed, and `commit` named its attempt just before
  std::uint32_t world = 0;  // sites that contributed
  std::uint64_t epoch = 0;
  std::uint32_t attempts = 0;
  std::vector<wire::Contributor> contributors;
};
struct FetchSnapshot {
  wire::Held want;
  std::vector<wire::Member> holders;  // of a fetch under way: that are left
  wire::LinkSecret links;             // what they ask for
};
struct CompleteSync {
  wire::Tag tag;
  base::Status status;  // kOk: the own state is the newest; kResynced never appears here
  wire::Held held;
  bool went_back = false;  // the run did, after the revision that its user has
};
struct PeerEffects {
  std::vector<wire::Attempt> discard;  // aborted or superseded: drop data, keep the user's input
  std::vector<RunAttempt> run;
  std::vector<wire::Attempt> commit;  // outputs become visible; keep serving results to receivers
  std::vector<wire::AuditAsk> audit;  // show these cells; answered by AuditAnswer
  std::vector<CompleteCall> complete;
  std::vector<FetchSnapshot> fetch;
  std::vector<CompleteSync> synced;
  std::optional<wire::Roster> roster;  // new membership, the whole
  std::vector<wire::Message> send;     // on the control connection
  bool connect = false;                // dial the master (again)
  bool disconnect = false;             // drop the control connection
  bool rejoin = false;                 // evicted: hand in a NewLife …
  bool renumber = false;               // … of a process number of its own: this one is taken
  std::string evicted;                 // … and why, in words
  std::string drain;                   // an operator asks this peer to leave, in words
  std::vector<std::string> notices;    // news for all members
  bool departed = false;
  std::optional<base::Status> broken;  // terminal: every open and later call ends with this
  base::Time wake = base::kNever;      // deliver a PeerTick no later than this
};

class PeerMachine {
 public:
  PeerMachine(PeerOptions options, wire::Incarnation incarnation, base::Time now);
  ~PeerMachine();
  PeerMachine(PeerMachine&&) noexcept;

  PeerEffects start(base::Time now);  // asks to connect
  PeerEffects on(const PeerEvent& event, base::Time now);

  wire::Incarnation incarnation() const;
  wire::PeerId id() const;  // 0 while an observer
  bool member() const;
  std::uint64_t epoch() const;
  wire::RunId run() const;         // known after the first Welcome
  base::Duration silence() const;  // of the run; before the first Welcome the default
  std::uint64_t max_rate() const;  // … and its own, in bytes/s; 0: no bound
  // A tag whose outcome is unknown, or whose state is behind: calls answer kResync / kInDoubt.
  bool needs_resync(const wire::Tag& tag) const;
  std::uint64_t committed(const wire::Tag& tag) const;
  std::string waiting_for(const wire::Tag& tag, base::Time now) const;
  bool has_started(const wire::Tag& tag) const;  // its call is in an attempt, or in doubt

  // As of MasterMachine: for searches through all interleavings (canonical.cc).
  PeerMachine clone() const;
  base::Digest digest() const;

  struct State;                                   // for peer_*.cc only
  const State& state() const { return *state_; }  // … and for who checks the machine

 private:
  friend struct PeerSide;  // makes one of a recording (recorded_sides.h)
  explicit PeerMachine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace jccl::protocol
