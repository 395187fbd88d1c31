// The control messages between a peer and the master, and the journal's records, as plain values.
// What the bytes look like is in PROTOCOL.md and codec.h; what they mean, and who may send what
// when, is in protocol/. A change of any field bumps kVersion and the golden bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/codes.h"
#include "base/ids.h"
#include "base/quorum.h"
#include "base/sha256.h"
#include "base/time.h"
#include "wire/parts.h"

namespace jccl::wire {

inline constexpr std::uint16_t kVersion = 23;
// A peer speaks each version from this one on, a master its own: that of its journal.
inline constexpr std::uint16_t kVersionOldest = 23;
// The first whose hello names such a range.
inline constexpr std::uint16_t kVersionRanges = 19;

// ---- peer to master ----------------------------------------------------------------------------

struct Hello {                       // the first frame of a control connection; ≤ kHelloBytesMax
  std::uint16_t version = kVersion;  // the newest that it speaks
  std::uint16_t oldest = kVersionOldest;
  RunId run{};  // all zero: whichever run this master has
  Incarnation incarnation = 0;
  std::string site;  // peers of one site are admitted and evicted together
  std::uint32_t shard = 0, shards = 1;
  std::vector<std::string> addresses;
  std::uint32_t start_peers = 0;  // sites awaited once before the first round; 0: no wish
  std::uint64_t max_rate = 0;     // bytes/s that it sends by links, at most; 0: no bound
  std::uint64_t day_bytes = 0;    // … and bytes in any day
  bool operator==(const Hello&) const = default;
};
inline bool has_common_version(const Hello& hello) {
  return hello.oldest <= kVersion && hello.version >= kVersion;
}
struct Resume {  // right after Welcome: everything the master must answer or know
  std::vector<Unresolved> unresolved;
  std::vector<Held> held;
  bool operator==(const Resume&) const = default;
};
struct Ready {
  RoundName round;
  Digest descriptor;    // shapes, dtypes, op, codec of all leaves; equal on all peers
  std::string summary;  // the same in words, for the mismatch text; ≤ kSummaryBytesMax
  Bytes hint;           // opaque to the protocol: what kind of plan; part of the descriptor
  // They follow from the call as well: how many may contribute to it, of one shard (0: any number),
  // and whether who does has the weight 1.
  std::uint32_t contributors_max = 0;
  bool unit_weights = false;
  double weight = 1.0;  // 0: receive only
  bool has_state = false;
  std::uint64_t revision = 0;  // = n - 1 when has_state
  Digest state;
  Digest fingerprint;      // of whatever must be alike for the state to evolve alike; 0: none
  Duration deadline = 0;   // left when this was sent
  std::uint64_t call = 0;  // which call of this life asks; START and Reject name it again
  Tag before;              // the tag whose next round this call goes before; none: ""
  base::Quorum quorum;     // of what members the round may begin with; part of the descriptor
  bool operator==(const Ready&) const = default;
};
// The part of a result that one owner adds up, as this peer has it.
struct Share {
  PeerId owner = 0;
  PeerId from = 0;  // whose link it came by; the peer itself: it made it
  Digest digest;
  bool operator==(const Share&) const = default;
};
// What a contributor to an audited attempt is held to: Merkle roots over what it sent, received and
// made (base/merkle.h), told before anybody knows which cells are looked at. By position in the
// plan, where a list is one.
struct PartsRoot {
  std::uint32_t cells = 0;  // that the owner owns
  Sha256 root{};            // of the own parts of them
  bool operator==(const PartsRoot&) const = default;
};
struct AuditRoots {
  std::uint32_t cells = 0;       // that this peer owns
  Sha256 result{};               // of all cells of the result
  std::vector<PartsRoot> parts;  // by owner: what was sent to it
  std::vector<Sha256> receipts;  // by contributor: what came from it as an owner
  bool none() const { return parts.empty(); }
  bool operator==(const AuditRoots&) const = default;
};
struct Done {
  Attempt attempt;
  Digest result;
  std::vector<Share> shares = {};  // ascending owner; none of many contributors, and of scatter
  AuditRoots audit = {};           // empty unless START says that the attempt is audited
  bool operator==(const Done&) const = default;
};
struct Fail {
  Attempt attempt;
  Code cause = Code::kLinkLost;  // kLinkLost (broke) and kPeerLost (silent) name a peer; kGuard …
  PeerId peer = 0;               // the other end of a failed link
  std::string text;
  bool operator==(const Fail&) const = default;
};
struct Withdraw {  // takes back a Ready that has not been started
  RoundName round;
  bool operator==(const Withdraw&) const = default;
};
struct Query {  // asks for the outcome of an attempt in doubt; answered by Outcome
  Unresolved about;
  bool operator==(const Query&) const = default;
};
struct Moving {  // an attempt that has something to send or to receive here
  Attempt attempt;
  std::uint64_t left = 0, all = 0;  // payload bytes still to be sent and received; of how many
  PeerId waits_on = 0;              // whose data is missing most; 0: nobody's
  // Contributors whose own contribution is missing here: `waits_on` is one of them then. A sum is
  // missing for others' doing, too.
  std::uint32_t lacking = 0;
  bool operator==(const Moving&) const = default;
};
struct Heartbeat {
  std::uint64_t sequence = 0;
  std::uint64_t progress = 0;  // payload bytes moved in this life, any direction
  std::vector<Moving> moving = {};
  bool operator==(const Heartbeat&) const = default;
};
struct Leave {
  bool operator==(const Leave&) const = default;
};
struct Sync {  // wants to stand at the newest revision of a state tag; answered by SyncReply
  Tag tag;
  bool source = false;    // named source of an unborn run
  bool fetching = false;  // that revision, on its way here: said again on a new connection
  bool changed = false;   // its program has changed the state that it stood at: said once
  Wish restore = Wish::kNone;
  std::uint64_t revision = 0;
  Digest digest;      // of the own state at that revision
  Digest descriptor;  // shapes and dtypes; equal on all peers
  std::string summary;
  Duration deadline = 0;
  bool operator==(const Sync&) const = default;
};
struct LinkMeasured {  // of one link, as its sending side saw it
  PeerId peer = 0;
  std::uint32_t rtt_us = 0;       // 0: not measured
  std::uint64_t bytes_per_s = 0;  // towards the peer, while data waited; 0: not measured
  bool operator==(const LinkMeasured&) const = default;
};
struct Measured {  // what the links of this peer carry, from the traffic of rounds alone, and its
                   // core
  std::uint64_t up_bytes_per_s = 0;  // all links together, while data waited; 0: not measured
  std::vector<LinkMeasured> links;   // ascending id
  std::uint32_t core = 0;            // thousandths of one that its data thread has; 0: not told
  bool operator==(const Measured&) const = default;
};
struct Published {  // can serve this snapshot from now on
  Held held;
  bool operator==(const Published&) const = default;
};
// A holder whose part of a snapshot most other holders contradict, as the fetcher heard from them.
struct Outvoted {
  Held held;
  Incarnation holder = 0;
  std::uint32_t part = 0;
  bool operator==(const Outvoted&) const = default;
};

// What a frame does that no peer which follows its plan sends.
enum class ViolationKind : std::uint8_t {
  kChunk = 1,    // names a chunk that the plan has not
  kLength = 2,   // has another length than its chunk
  kSender = 3,   // is not the sender's to send: kind, chunk or attempt
  kPhase = 4,    // a result before what it is made of was sent
  kValues = 5,   // bytes that no encoder with a guard writes
  kRepeats = 6,  // again and again what is here already
  kAck = 7,      // acknowledges what was never sent
};
struct Violation {  // by a member, as another one saw it; once per attempt and sender
  Attempt attempt;  // zeros: of none
  PeerId peer = 0;
  ViolationKind kind = ViolationKind::kChunk;
  bool operator==(const Violation&) const = default;
};

// What becomes of a member whose work most others find different: nothing, a ban that ends, a ban.
enum class FindingPolicy : std::uint8_t { kWarn = 0, kExclude = 1, kBan = 2 };
struct Finding {  // by a member that repeated work which another one claims (docs/audits.md)
  Tag tag;        // of the optimizer
  std::uint64_t round = 0;
  PeerId peer = 0;  // whose work it is
  bool differs = false;
  std::uint32_t worst = 0;  // the statistic nearest to its limit, in thousandths of it; for people
  FindingPolicy policy = FindingPolicy::kWarn;
  bool operator==(const Finding&) const = default;
};

// One cell as its sender is bound to it. Answers AuditAsk, one frame a cell.
struct AuditPart {
  Attempt attempt;
  std::uint32_t cell = 0;  // of all cells of the plan, in the order of its chunks
  bool result = false;     // the owner's sum; else the sender's own part
  Bytes terms;             // what the cell is; opaque to the protocol (collective/audit.h)
  std::vector<Sha256> path;
  Bytes bytes;  // encoded
  bool operator==(const AuditPart&) const = default;
};

// ---- master to peer ----------------------------------------------------------------------------

struct Welcome {
  RunId run{};
  std::uint64_t epoch = 0;
  Duration heartbeat = 0;      // send one this often
  Duration silence = 0;        // either side is taken for lost after this long without a frame
  std::uint64_t max_rate = 0;  // of the run: Hello::max_rate may be lower; 0: no bound
  std::uint16_t version = kVersion;  // that both speak from here on
  bool operator==(const Welcome&) const = default;
};
struct Refuse {  // and the connection closes
  Code code = Code::kInvalid;
  std::string text;
  bool operator==(const Refuse&) const = default;
};
struct Roster {  // the membership at an epoch, and where every tag stands; or how these changed
  std::uint64_t epoch = 0;
  std::uint64_t base = 0;  // 0: the whole; else the epoch of the last Roster, and changes to it
  std::vector<Member> members;  // ascending id
  std::vector<PeerId> left;     // ascending; members of `base` that are none any more
  std::vector<TagInfo> tags;
  LinkSecret links;  // the newest
  std::string why;   // of a change: how those in `left` came to leave, in words
  bool operator==(const Roster&) const = default;
};
struct Start {
  Attempt attempt;
  RoundName round;
  std::vector<Contributor> contributors;  // ascending id; their value is in the result
  std::vector<PeerId> receivers;          // ascending id; they only get it
  Bytes plan;                             // opaque
  std::uint64_t call = 0;                 // the receiver's Ready::call that this answers
  bool has_state = false;                 // of a state tag: what all who take part stand at
  std::uint64_t revision = 0;
  Digest state{};  // of the receiver's shard
  // The run's id if the attempt is audited: what contributors tell with DONE binds it. Zeros: it
  // is not.
  RunId audit{};
  bool operator==(const Start&) const = default;
};
enum class Verdict : std::uint8_t { kCommitted = 1, kAborted = 2, kExpired = 3 };
struct Outcome {
  Attempt attempt;
  RoundName round;
  Verdict verdict = Verdict::kAborted;
  // kCommitted:
  std::vector<Contributor> contributors;
  std::uint32_t world = 0;  // sites that contributed
  Digest result;
  // kAborted: whether the master will try again without another call; if not, `code` ends the call
  bool retry = false;
  Code code = Code::kOk;
  std::string text;
  bool operator==(const Outcome&) const = default;
};
struct Reject {  // ends a call that has not been started
  RoundName round;
  Code code = Code::kInvalid;
  std::string text;
  std::uint64_t call = 0;  // the Ready::call that this answers
  bool operator==(const Reject&) const = default;
};
struct Moved {  // round.n was committed without you; non-state calls go again as committed + 1
  RoundName round;
  std::uint64_t committed = 0;
  bool operator==(const Moved&) const = default;
};
struct Waiting {  // what a started call stands still for, in words; sent when it changes
  RoundName round;
  std::string text;
  bool operator==(const Waiting&) const = default;
};
struct Evicted {  // the run goes on without this incarnation; the connection closes
  std::string text;
  bool operator==(const Evicted&) const = default;
};
struct Drain {  // an operator asks this peer to leave; said again on a new connection
  std::string text;
  bool operator==(const Drain&) const = default;
};
struct Notice {  // what everybody ought to hear of, in words
  std::string text;
  bool operator==(const Notice&) const = default;
};
struct AuditAsk {  // for the own parts of these cells, and the results of those that it owns
  Attempt attempt;
  std::vector<std::uint32_t> cells;  // ascending
  bool operator==(const AuditAsk&) const = default;
};
struct HeartbeatAck {
  std::uint64_t sequence = 0;
  bool operator==(const HeartbeatAck&) const = default;
};
enum class SyncVerdict : std::uint8_t {
  kCurrent = 1,  // state equals the newest revision; the peer is (or is about to be) a member
  kFetch = 2,    // get (revision, digest) from one of the holders, then Sync again
  kWait = 3,     // e.g. start_peers not reached, source not there, holders publishing; text says
  kRefused = 4,  // code and text end the call
};
struct SyncReply {
  Tag tag;
  SyncVerdict verdict = SyncVerdict::kWait;
  std::uint64_t revision = 0;
  std::uint64_t restored = 0;  // the newest revision that is an earlier state; 0: none is
  Digest digest;
  std::vector<Member> holders;
  Code code = Code::kOk;
  std::string text;
  LinkSecret links;  // for the holders
  bool operator==(const SyncReply&) const = default;
};

// ---- anybody who may connect, instead of a Hello ----------------------------------------------

struct StatusAsk {  // answered by the driver of the master, then the connection closes
  bool operator==(const StatusAsk&) const = default;
};
struct StatusReply {
  Bytes json;  // UTF-8; ≤ kStatusBytesMax
  bool operator==(const StatusReply&) const = default;
};

// What an operator may ask for, in effect when it is answered.
enum class OrderVerb : std::uint8_t {
  kKick = 1,    // evict a site
  kBan = 2,     // … a key, and refuse it for `span`; 0: for good
  kPardon = 3,  // end a key's ban
  kAdmit = 4,   // let a key in, where newcomers wait for that
  kRevoke = 5,  // refuse a token from now on, and evict the keys that joined by it
  kDrain = 6,   // ask a site to leave, at a moment when nobody waits for it
  kDump = 7,    // leave a recording of the master's machine in its folder
};
struct Order {  // answered by OrderReply, then the connection closes
  OrderVerb verb = OrderVerb::kKick;
  std::string subject;  // site, key as 64 hex digits, or name of a token; of a dump none
  Duration span = 0;
  std::string reason;
  bool operator==(const Order&) const = default;
};
struct OrderReply {
  Code code = Code::kOk;
  std::string text;
  bool operator==(const OrderReply&) const = default;
};

using Message =
    std::variant<Hello, Resume, Ready, Done, Fail, Withdraw, Query, Heartbeat, Leave, Sync,
                 Published, Welcome, Refuse, Roster, Start, Outcome, Reject, Moved, Waiting,
                 Evicted, HeartbeatAck, SyncReply, StatusAsk, StatusReply, Measured, Order,
                 OrderReply, Drain, Outvoted, Notice, Violation, AuditPart, AuditAsk, Finding>;

// ---- journal records ---------------------------------------------------------------------------

struct RunRecord {  // always the first
  RunId run{};
  std::uint16_t version = kVersion;
  bool operator==(const RunRecord&) const = default;
};
struct EpochRecord {  // a membership; also written by every starting master before its first Start
  std::uint64_t epoch = 0;
  PeerId next_id = 1;
  std::vector<Member> members;
  std::string reason;
  bool operator==(const EpochRecord&) const = default;
};
struct BirthRecord {  // once per state tag: where its revision 0 comes from
  Tag tag;
  std::string site;                  // of the source
  std::vector<Incarnation> sources;  // by shard
  std::vector<Digest> digests;       // by shard
  std::vector<Digest> descriptors;   // by shard: shapes and dtypes, which every joiner's must equal
  std::string summary;               // of shard 0, for texts
  bool operator==(const BirthRecord&) const = default;
};
struct CommitRecord {
  Attempt attempt;
  RoundName round;
  std::vector<Contributor> contributors;
  std::uint32_t world = 0;
  Digest result;
  bool is_state = false;
  Digest state;                       // of revision n - 1, which all contributors shared
  Bytes plan;                         // of shard 0
  std::vector<Digest> shard_results;  // of shards 1, 2, …; empty when sites have one shard
  std::vector<PeerId> receivers;      // ascending; who got the result without a part in it
  bool operator==(const CommitRecord&) const = default;
};
struct StateRecord {  // what revision `revision` is, as those who made it decided
  Tag tag;
  std::uint64_t revision = 0;
  bool weak = false;            // not all who had a vote gave one
  std::vector<Digest> digests;  // by shard: sites with several shards hold several ranges
  bool operator==(const StateRecord&) const = default;
};

struct RestoreRecord {  // the run goes on from an earlier state, under a number of its own
  Tag tag;
  std::uint64_t revision = 0;   // its number from now on: one more than the newest so far
  std::uint64_t of = 0;         // that it was, if the journal remembers; else 0
  bool wished = false;          // by an operator, and not for want of the newest one
  std::string site;             // who has it
  std::vector<Digest> digests;  // by shard
  bool operator==(const RestoreRecord&) const = default;
};

struct BanRecord {  // no life of this key is let in; written again when that changes
  PublicKey key{};
  std::uint64_t until_unix_ms = 0;  // 0: lifted
  std::string site;                 // that it was, or asked to be
  std::string reason;
  bool operator==(const BanRecord&) const = default;
};
struct AdmitRecord {  // an operator's yes, where newcomers wait for it
  PublicKey key{};
  bool operator==(const AdmitRecord&) const = default;
};
struct TokenRecord {  // a key joined by a token; or the token is taken no more
  std::string token;  // its name
  bool revoked = false;
  PublicKey key{};
  std::uint32_t shard = 0;  // shards of a site share a token
  bool operator==(const TokenRecord&) const = default;
};

inline constexpr std::uint64_t kForGood = ~std::uint64_t{0};  // of a ban

using Record = std::variant<RunRecord, EpochRecord, BirthRecord, CommitRecord, StateRecord,
                            BanRecord, AdmitRecord, TokenRecord, RestoreRecord>;

}  // namespace jccl::wire
