// The master: orders membership, starts attempts, decides outcomes. Pure: the driver owns sockets,
// clock and journal and carries out Effects in the order journal (durable) → send → close.
// Runs on whichever thread drives it, one event at a time. Rules: DECISIONS.md, wire/PROTOCOL.md.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "base/time.h"
#include "protocol/rounds/audit.h"
#include "wire/messages.h"

namespace jccl::protocol {

using ConnId = std::uint64_t;  // one control connection; never reused by a driver

// What the master does with a site that the others have waited for, `straggler_after` long.
enum class Straggler : std::uint8_t {
  kWait,   // until the deadline
  kSkip,   // the round goes on without its contribution
  kEvict,  // the run goes on without it
};

// Who may become a member: every process with a token, or the keys that were listed or let in.
enum class Admission : std::uint8_t { kAuto, kListed };

struct MasterOptions {
  wire::RunId run{};
  std::uint32_t start_peers = 1;  // sites awaited once, before the first round of the run
  std::uint32_t min_peers = 1;    // sites every commit needs
  base::Duration heartbeat = 500 * base::kMillisecond;
  base::Duration silence = 3 * base::kSecond;  // hung or cut: evict
  base::Duration reset_grace =
      200 * base::kMillisecond;                      // connection reset, listener still answers
  base::Duration restart_grace = 5 * base::kSecond;  // for journaled members to come back
  // How long to wait for a peer with the newest revision, before the run goes back to an earlier
  // one.
  base::Duration restore_after = 30 * base::kSecond;
  Straggler straggler = Straggler::kWait;
  base::Duration straggler_after = 10 * base::kSecond;
  std::uint32_t sites_max = 1024;
  std::size_t members_max = 1024;  // base::kPeersMax at most
  std::size_t history = 1024;      // commits per tag whose outcome is remembered; older: EXPIRED
  // How long the first ban of a key lasts; each further one lasts twice as long. `out_max`: how
  // long a key that had to go again and again, or a new key after a ban, is kept out at most.
  base::Duration ban = 600 * base::kSecond, ban_max = 86'400 * base::kSecond;
  base::Duration out_max = 600 * base::kSecond;
  Admission admission = Admission::kAuto;
  std::set<wire::PublicKey> listed;
  std::string source;  // the site with whose state the run begins; empty: peers name one, or none
  // A weight of more than so many times the median of a round's is refused. 0: none is.
  double weight_max = base::kWeightRatioMax;
  std::uint64_t max_rate = 0;  // bytes/s that each peer sends by links, at most; 0: no bound
  double audit = 0;            // share of the cells of a round that are added up anew; 0: none
  Auditor auditor = {};
  base::Duration unix_ahead = 0;  // Unix time is the time of events and this: bans outlive masters
};

// Chooses a plan. Given by the driver (collective/ knows plans); pure.
struct PlanRequest {
  base::Bytes hint;                                              // Ready::hint of the contributors
  std::vector<wire::PeerId> contributors, receivers;             // ascending, one shard group
  std::vector<std::pair<wire::PeerId, wire::PeerId>> bad_links;  // failed in this round
  std::vector<wire::PeerId> dial_only;  // of both: without an address; no two of them have a link
  bool may_ring = true;  // where the hint leaves it open and links allow nothing else
};
using Planner = std::function<base::Result<base::Bytes>(const PlanRequest&)>;
struct Advisors {  // all that a machine asks of its driver and is not an event
  Planner planner;
  Auditor auditor;
};

// ---- events ------------------------------------------------------------------------------------

// The answer to every request of a process that comes by a revoked token.
base::Status revoked_status(const std::string& token);

// The credentials that the other end of a connection has shown.
struct Shown {
  wire::PublicKey key{};   // that it has proved
  std::string token = {};  // its name; empty: the run has none
  std::uint32_t uses = 0;  // keys of one shard that may join by it; 0: any number
  bool may_order = false;  // an operator
};
struct ConnMessage {
  ConnId conn = 0;
  wire::Message message;
  Shown shown = {};
};
struct ConnClosed {  // reset, EOF, protocol violation, or closed by an effect
  ConnId conn = 0;
  bool nonsense = false;  // what came in whole was no message: only its owner can have made it
};
struct ProbeAnswer {  // answer to Effects::probe: does the peer's listener refuse connections?
  wire::Incarnation incarnation = 0;
  bool refused = false;
};
struct EvictSite {  // an order of the process that runs the master
  std::string site;
};
struct Tick {};
using MasterEvent = std::variant<ConnMessage, ConnClosed, ProbeAnswer, EvictSite, Tick>;

// ---- effects -----------------------------------------------------------------------------------

struct MasterSend {
  ConnId conn = 0;
  wire::Message message;
};
// One line of the run's history for people and tools: kind plus fields, written as JSON by the
// driver. Kinds: admit, evict, leave, epoch, birth, start, commit, abort, reject, sync, refuse,
// cut, skip, fault, ban, order, restore, audit, convicted.
struct HistoryLine {
  std::string kind;
  std::vector<std::pair<std::string, std::string>> fields;
};
struct MasterEffects {
  std::vector<wire::Record> journal;  // made durable, in order, before anything below
  std::vector<MasterSend> send;
  std::vector<ConnId> close;
  std::vector<std::pair<wire::Incarnation, std::vector<std::string>>> probe;
  std::vector<HistoryLine> history;
  // Connections that asked for a recording of this machine (recorder.h). The driver writes the
  // file, so it answers them, and then closes them.
  std::vector<std::pair<ConnId, std::string>> record;             // and why they asked
  std::vector<std::pair<wire::PeerId, wire::Measured>> measured;  // by members; for the planner
  base::Time wake = base::kNever;  // deliver a Tick no later than this
};

// ---- what people may ask -----------------------------------------------------------------------

struct PeerView {
  wire::Member member;
  bool connected = false;
  bool admitted = false;  // else an observer
  base::Duration silent = 0;
  std::uint64_t progress = 0;
  std::vector<wire::Moving> moving;  // of its last heartbeat
  std::uint64_t max_rate = 0;        // bytes/s that it sends by links, at most; 0: no bound
  std::uint64_t day_bytes = 0;       // … and bytes in any day
  std::string trouble;               // lost, silent, cut off, slow or skipped, in words
  std::string faults;                // the faults of its key, in words
  std::string token;                 // by whose name it came in
  std::string waiting_for;           // what this peer's oldest open call waits for, in words
};
struct TagView {
  wire::TagInfo info;
  std::string phase;  // idle | forming | running | …
  wire::Attempt attempt;
  std::string waiting_for;  // never empty while the round stands still
  std::uint64_t commits = 0, aborts = 0;
  std::string audit;              // how its rounds are audited, in words; empty: they are not to be
  std::uint64_t audit_bytes = 0;  // of cells that were shown for that
  std::uint64_t audited = 0;      // cells that were, since this master started
  std::size_t holders = 0;        // sites that have the newest state, whole or its first shard
};
struct BanView {
  wire::PublicKey key{};
  std::string site, reason;
  std::uint64_t until_unix_ms = 0;  // wire::kForGood: until it is pardoned
};
// The newest audit of a peer's work: what those that repeated it found.
struct FindingView {
  std::string site, tag;
  std::uint64_t round = 0;
  std::size_t repeated = 0, different = 0;  // by so many sites
  double worst = 0;                         // statistic, of its limit
  std::uint32_t convicted = 0;              // how often the site was, of all its audits
  base::Duration age = 0;
};
struct TokenView {
  std::string name;
  std::size_t keys = 0;  // that have joined by it
  bool revoked = false;
};
struct MasterView {
  std::uint64_t epoch = 0;
  std::vector<PeerView> peers;
  std::vector<TagView> tags;
  std::vector<BanView> bans;
  std::vector<TokenView> tokens;
  std::vector<FindingView> findings;
};

class MasterMachine {
 public:
  // Recovers from the records of the journal (empty: a new run). The first effects journal the run
  // (if new) and a new epoch.
  MasterMachine(MasterOptions options, Planner planner, const std::vector<wire::Record>& records,
                base::Time now);
  ~MasterMachine();
  MasterMachine(MasterMachine&&) noexcept;

  MasterEffects start(base::Time now);
  MasterEffects on(const MasterEvent& event, base::Time now);
  MasterView view(base::Time now) const;
  // An operator revoked it: a process that comes by it hears nothing and orders nothing.
  bool is_revoked(const std::string& token) const;
  // Why a key whose token is for any site may not have this one; `is_its_own` says of a token's
  // name whether it was made for the site.
  base::Status reserved(const std::string& site, const wire::PublicKey& key,
                        const std::function<bool(const std::string&)>& is_its_own) const;

  // What this machine's run has against a peer that asks for a group of it: a ban, a spent or
  // revoked token, a key that nobody has let in. ok: nothing.
  base::Status objects_to(const wire::Hello& hello, const Shown& shown) const;
  std::size_t sites() const;  // of its members
  bool is_deserted() const;   // no process is here, nor awaited

  // For searches through all interleavings (canonical.cc): a second machine that goes on from here,
  // and a 128-bit digest of everything that decides its behaviour. Texts for people are not in it.
  MasterMachine clone() const;
  base::Digest digest() const;

  struct State;                                   // for master_*.cc only
  const State& state() const { return *state_; }  // … and for who checks the machine

 private:
  friend struct MasterSide;  // makes one of a recording (recorded_sides.h)
  explicit MasterMachine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace jccl::protocol
