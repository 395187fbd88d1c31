// A peer's open communicator: the C++ API that the C header, the XLA handlers and Python share.
// Every method may be called from any thread. Calls of different tags run side by side; waits are
// bounded by deadlines and can be ended by abort(). One control thread (protocol machine,
// heartbeats) and one data thread (links, kernels) belong to each communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/quorum.h"
#include "base/status.h"
#include "base/time.h"
#include "exchange/call.h"
#include "peer/streamed_input.h"
#include "snapshot/mark.h"

namespace jccl::net {
class Identity;
}

namespace jccl::peer {

struct ConnectOptions {
  std::string master;    // "host:port[,host:port…]"
  std::string token;     // or the run's secret; empty: plain, loopback only
  std::string key_file;  // of this peer's key pair, made if there is none; empty: a fresh one
  // That of another communicator of this process, in place of `key_file`: for a group.
  std::shared_ptr<const net::Identity> identity = nullptr;
  bool insecure = false;  // allow plain connections off loopback
  std::string group;      // of the run, a run of its own by the same rights; empty: the run itself
  std::string site;       // empty: a site of its own
  std::uint32_t shard = 0, shards = 1;
  std::string bind;  // listen address; empty: chosen by `master`; "none": dial out only
  std::vector<std::string> advertise;  // addresses told to others; empty: from the bound socket
  std::uint32_t start_peers = 0;       // sites awaited before the first round
  std::uint32_t stripes = 0;           // connections per link; 0: automatic
  double max_rate = 0;                 // bytes a second that leave by links; 0: no bound
  double day_bytes = 0;                // … and bytes in any day
  std::optional<bool> io_threads;      // two beside the data thread; empty: where cores abound
  std::size_t chunk_bytes = 256 * 1024;
  base::Duration deadline = 300 * base::kSecond;  // default of every call
  base::Duration connect_timeout = 30 * base::kSecond;
  base::Duration master_grace = 60 * base::kSecond;
  // Recordings of this peer's machine (protocol/recorder/recorder.h) are left in this folder, after
  // faults and when asked. Empty: nowhere. So many bytes of the last events are kept for them; 0:
  // none.
  std::string record;
  std::size_t record_bytes = std::size_t{2} << 20;
  bool record_on_signal = false;  // SIGUSR1 asks for one; refused where it has a handler already
};

using exchange::Collective;
using exchange::Leaf;

// One mark per leaf of a tag's shared state, in the order in which it is synchronised and
// published.
using StateMarks = std::vector<snapshot::Mark>;
StateMarks marks_of(const std::vector<Leaf>& leaves);  // of their `in`

struct RoundOptions : exchange::Terms {
  base::Tag tag = "default";
  bool root = false;            // broadcast
  base::Digest fingerprint;     // see wire::Ready
  base::Quorum quorum = {};     // all_reduce and all_gather may begin without who is late
  base::Duration deadline = 0;  // 0: the communicator's
  // The tag's shared state, as it was when the values of this call were made from it: required once
  // the tag was synchronised, refused before. If it is not the revision that this peer published or
  // adopted last, the call is in no result and ends with kResync. Either its marks, compared before
  // anything is sent, or its leaves, which start() reads while the round's data move: part of the
  // contribution is kept back until they were compared.
  std::optional<StateMarks> state = {};
  std::optional<std::vector<Leaf>> state_leaves = {};
  // The state is another tag's, whose rounds this one goes before. Where others are in the next of
  // those already, or will be because the own state is not the run's, waiting for this peer, the
  // call ends kResync, and the caller goes on to that one.
  base::Tag state_tag = {};
  // The inputs are still on their way, and the round begins with what is here. For calls that are
  // not staged, with outputs apart from the inputs. If the round does not commit, `out` is left to
  // the caller, as inputs may lack parts; if the feed fails, the round goes on without this peer's
  // contribution (kGuard). A call may end before its feed, which then still writes to the inputs.
  std::shared_ptr<StreamedInput> feed;
};

struct RoundResult {
  base::Status status;
  std::uint64_t n = 0;
  std::uint32_t world = 0;  // sites whose values are in the result
  std::uint64_t epoch = 0;
  std::uint32_t attempts = 0;
  std::vector<base::PeerId> contributors;
  std::vector<double> weights;
  std::uint64_t sent_bytes = 0, received_bytes = 0;  // payload, all attempts
  // reduce_scatter: of leaf 0; all_to_all: the own slot, and how many are filled.
  std::uint64_t scatter_first = 0, scatter_count = 0;
  base::Duration elapsed = 0;
};

// 0: none. The upper half is random per communicator, so that a handle that outlived its process in
// a checkpoint names no round of another.
using Handle = std::uint64_t;

// What wait() writes to the `outs` of a staged round that failed: nothing, or the staged input (of
// an all_gather: nothing), for callers whose outputs have no earlier content.
enum class OnFailure : std::uint8_t { kLeave = 1, kInput = 2 };

// When what happened to a round that has ended, on the steady clock; 0: it did not happen.
struct RoundTimes {
  base::Tag tag;
  std::uint64_t n = 0;
  base::Code code = base::Code::kOk;
  std::uint32_t attempts = 0;
  base::Time begun = 0;               // start(): the inputs are as they are
  base::Time started = 0;             // the master's first START has come: data move
  base::Time moved = 0;               // the whole result is here
  base::Time ended = 0;               // its outcome is known here
  base::Time awaited = 0, taken = 0;  // wait() entered and left
};

struct SyncOptions {
  base::Tag tag = "default";
  bool source = false;  // this peer's state is the run's first
  base::Wish restore = base::Wish::kNone;
  base::Duration deadline = 0;
  // publish: of the state that the new one was made from. If it is not the revision that this peer
  // published or adopted last, the new one is no revision of the run's.
  std::optional<StateMarks> before = {};
};
struct SyncResult {
  base::Status status;
  std::uint64_t revision = 0;
  base::Digest digest;
  bool replaced = false;   // `out` differs from `in`
  bool edited = false;     // publish: what it was given was not what this peer held
  bool went_back = false;  // `out` is another state since the run went back to an earlier one
  std::uint64_t received_bytes = 0;  // of the state, from the peers that hold it
};

// What this peer found when it repeated the work that another one claims for a round.
struct WorkFound {
  base::Tag tag;  // of the optimizer
  std::uint64_t round = 0;
  base::PeerId peer = 0;
  bool differs = false;
  double worst = 0;         // the statistic nearest to its limit, by that limit
  std::uint8_t policy = 0;  // 0 warn, 1 exclude, 2 ban
};

struct Attributes {
  base::RunId run{};
  base::PeerId id = 0;  // 0: observer
  base::Incarnation incarnation = 0;
  std::uint64_t epoch = 0;
  std::uint32_t world = 0;  // sites in the membership
  std::vector<std::string> sites;
  std::vector<base::PeerId> ids;      // of each site's first shard: another one is another life
  std::uint32_t evictions = 0;        // of this peer
  std::string evicted;                // why, the last time
  std::uint64_t departures = 0;       // how often members were heard to leave …
  std::vector<std::string> departed;  // … and how, of the last 64
  std::string drain;                  // an operator asks this peer to leave: why
  std::uint64_t noticed = 0;          // how often the master had news for all: the run went back …
  std::vector<std::string> notices;   // … and which, of the last 64
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  std::uint64_t rounds_committed = 0, rounds_retried = 0;
  std::string listen;
};

class Communicator {
 public:
  // Returns once the master has said Welcome. Codes: kMasterLost (unreachable; text lists what was
  // tried), kVersion, kWrongRun, kAuth, kIo (port in use), kInvalid.
  static base::Result<std::shared_ptr<Communicator>> connect(const ConnectOptions& options);
  ~Communicator();  // close()

  // What start() would say of the state, for callers whose rounds begin together or not at all.
  base::Status check_state(const RoundOptions& options);

  // Blocking: start + wait.
  RoundResult run(const std::vector<Leaf>& leaves, const RoundOptions& options);

  // Begins a round. With `stage`, inputs are copied first and may change at once; `out` of the
  // leaves is then ignored and outputs go where wait() says.
  base::Result<Handle> start(const std::vector<Leaf>& leaves, const RoundOptions& options,
                             bool stage = false);
  // Ends a round: exactly once per handle. `outs` (staged rounds only): where each leaf goes.
  // kUnknownTag for a handle that isn't open, kBusyTag if another thread waits on it.
  RoundResult wait(Handle handle, const std::vector<void*>* outs = nullptr,
                   OnFailure on_failure = OnFailure::kLeave);
  bool finished(Handle handle) const;
  bool is_open(Handle handle) const;  // started here, and not waited for yet

  // Makes `leaves` the newest revision of the tag's state: in is this peer's, out gets the run's
  // (a copy of `in` where equal). Declares the tag as state.
  SyncResult sync_state(const std::vector<Leaf>& leaves, const SyncOptions& options);

  // After a committed round: `in` is the state of the new revision, copied into a host buffer from
  // which joiners are served. If the tag needs a resync, fetches the newest state into `out`
  // instead and answers kResynced, and likewise where the state was edited since this peer
  // published or adopted it: see SyncOptions::before; without a new revision, `in` itself is
  // compared. out == in or a copy of in otherwise. kInvalid for a tag that was never synchronised.
  SyncResult publish(const std::vector<Leaf>& leaves, const SyncOptions& options);

  // Ends every open round with kAborted (or kInDoubt); the communicator stays usable. Handles that
  // nobody waits on can still be waited for, until the next start of their tag takes its place: so
  // a tag is free again whose handle was lost.
  void abort();
  // close(), so that the others lose nothing by it: calls that still wait for others end with
  // kClosed, those to come too, but a round that moves goes on to its end, for 10 s at most.
  void leave();
  // Leaves the run gracefully; idempotent. Open calls end, and later ones answer, with kClosed:
  // they came to nothing. kInDoubt: the outcome of one that had begun is not known.
  void close();
  // Leaves a recording of this peer's machine in the folder for them, and says where. kInvalid: no
  // folder, or nothing is kept. kLimit: too many, too soon. kIo: it can't be written.
  base::Result<std::string> record(const std::string& why);
  base::Duration deadline() const;  // of calls that name none
  std::shared_ptr<const net::Identity> identity() const;
  Attributes attributes() const;
  base::Digest digest(const base::Tag& tag) const;  // of the newest published revision
  std::uint64_t revision(const base::Tag& tag) const;
  // The site of a peer, as RoundResult::contributors has its id, also when it has left. "": not
  // known, or one of the oldest of more than 4,096.
  std::string site_of(base::PeerId id) const;
  // Tells the master, which shows it and counts it. Nothing is told while there is no master.
  base::Status tell_found(const WorkFound& found);
  std::string waiting_for() const;
  // The same by tag; without an open call, under no tag, that there is no master.
  std::vector<std::pair<base::Tag, std::string>> waits() const;
  // What a caller did wrong with the tag's state, in words, once for each time: for callers that
  // cannot be given an error. "" if there is nothing new.
  std::string new_mistake(const base::Tag& tag);
  std::vector<RoundTimes> timeline() const;  // of the rounds that ended last, at most 1024

  class Impl;  // public so that the drivers' parts can name it
  explicit Communicator(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// "wait text" of a status for users: code, what happened, remedy.
std::string describe(const base::Status& status);  // one printable line, whoever wrote its text

}  // namespace jccl::peer
