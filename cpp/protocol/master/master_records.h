// The master machine's memory of each life, and of each tag's round, besides the journal: reports
// of peers, and answers to them. Private to the master_*.cc files; nothing here decides.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/conduct/blame.h"
#include "protocol/master/ledger.h"
#include "protocol/master/master_machine.h"
#include "protocol/rounds/master_attempt.h"
#include "protocol/states/claims.h"
#include "protocol/states/election.h"

namespace jccl::protocol {

// From so many peers on, what each arrival would tell everybody is gathered.
inline constexpr std::size_t kCrowd = 64;

struct AskedSync {  // an open Sync of a connected life
  wire::Sync sync;
  base::Time deadline = base::kNever;
  bool fetching = false;                // told kFetch; silent until it asks again
  std::set<wire::Incarnation> holders;  // … from these that are still there
  bool matches = false;                 // has the newest revision; waits to be admitted
  std::string told;                     // last kWait text
  bool noted = false;                   // among the claims: see note_claim()
};

struct ProcessRecord {  // of an incarnation that is a member, or a connected observer
  wire::Incarnation incarnation = 0;
  std::string site;
  std::uint32_t shard = 0, shards = 1, start_peers = 0;
  std::uint64_t max_rate = 0, day_bytes = 0;
  std::vector<std::string> addresses;
  wire::PublicKey key{};
  std::string token;                           // its name; empty: none
  bool gate_passed = false;                    // it has waited while new keys of its token had to
  std::uint32_t uses = 0;                      // of the token
  bool may_order = false;                      // its connection is an operator's
  bool in_commit = false;                      // as a member
  base::Time served_since = 0, served_to = 0;  // its first commit and its last, as a member
  base::Time waited_since = base::kNever;      // an attempt ended while others waited for its data
  wire::PeerId id = 0;                         // 0: observer
  ConnId conn = 0;                             // 0: not connected
  bool resumed = false;
  std::uint64_t roster_epoch = 0;  // of the last Roster sent on this connection …
  bool told_as_member = false;     // … which named the members
  bool seen = false;               // connected at least once since this master started …
  bool said_held = false;          // … and said with a Resume what it holds
  std::uint64_t order = 0;         // of connecting
  base::Time since = 0;            // … when
  base::Time jumped = 0;           // its clock, as it ended a deadline that was far; 0: never
  base::Time heard = 0;            // last frame
  base::Time gone = 0;             // when the connection was lost
  std::uint64_t progress = 0;
  std::vector<wire::Moving> moving;         // of the last heartbeat …
  base::Time beat = 0;                      // … which came then
  std::vector<wire::Moving> moving_before;  // of the one before it
  base::Time beat_before = 0;
  std::map<wire::Tag, AskedSync> syncs;
  std::map<wire::Tag, std::pair<std::uint64_t, base::Time>> asked;  // its call, READY first since
  std::map<wire::Tag, wire::Held> held;
  std::map<wire::Tag, wire::Held> fetched;    // what kFetch named last
  std::map<wire::Tag, std::uint64_t> behind;  // asked while this newer revision was the newest
  // The newest revision it was offered, or heard of as the late outcome of its own attempt: it may
  // hold that by now. Until it asks again, or its Sync is over.
  std::map<wire::Tag, std::uint64_t> may_hold;
  std::map<wire::Tag, std::uint64_t> told_back;  // the newest restored revision it heard of
  std::map<wire::Tag, base::Time> knocking;      // current, and outside: since when
  // Attempts that it left as its own state had changed, since it was last in a commit of the tag or
  // the others did without it.
  std::map<wire::Tag, std::uint32_t> spoilt;
  std::set<wire::Tag> edit_noted;     // the last of these; it asks for the run's state next
  std::uint32_t missed = 0;           // offers that were outdated before it could enter
  std::string drain;                  // an operator asked it to leave, in words
  std::set<wire::PublicKey> accuses;  // counts when it has been in a commit
  bool connected() const { return conn != 0; }
};

struct Serving {  // the newest revision of one shard, for one look at who asks
  std::vector<const ProcessRecord*> holders;
  bool awaited = false;             // somebody may turn out to be one
  std::optional<std::string> back;  // fallback_text(), once somebody asks for it
  std::optional<std::string> lost;  // lost_text(), likewise
};

struct Asker {  // a site that asks for a state before its birth
  std::string site;
  std::uint64_t order = UINT64_MAX;  // of connecting
  std::uint32_t of = 1;              // shards
  bool named = false;                // as the source
  std::set<wire::PublicKey> keys;    // of those that ask
  Brought shards;

  bool whole() const { return shards.size() >= of; }
  bool has_leaves_of(std::uint32_t shard, const Values& brings) const {
    const auto own = shards.find(shard);
    return own != shards.end() && own->second.first == brings.first;
  }
  std::vector<base::Digest> descriptors() const {
    std::vector<base::Digest> all;
    for (const auto& [shard, digests] : shards) all.push_back(digests.first);
    return all;
  }
};

using Askers = std::map<std::string, Asker>;

struct Birth {
  std::string site;       // whose state it is; empty: nobody's yet
  std::string wait;       // … and why
  bool disputed = false;  // named sources differ: those that ask are told, and have to agree
};

struct OpenReady {
  wire::Ready ready;
  base::Time deadline = base::kNever;
  base::Time since = 0;
  base::Time called = 0;    // the call's first READY
  base::Duration time = 0;  // … and all that it has, to its peer
  std::string told;         // last Waiting text
};

// What its last heartbeat says of the attempt; null: nothing.
const wire::Moving* moving_of(const ProcessRecord& process, const wire::Attempt& attempt);

// An attempt that was aborted: what a part is told that asks, now or when it is connected again.
struct AbortedAttempt {
  wire::Outcome outcome;
  std::map<wire::Incarnation, std::pair<base::Code, bool>> otherwise;  // its own code and `retry`

  wire::Outcome told(wire::Incarnation incarnation) const;
};

struct Departed {  // who went or ended an attempt, and since when others waited for it
  std::string site;
  wire::PublicKey key{};
  std::string token;
  base::Time since = 0;
  base::Time at = 0;   // when it went, or until when an attempt failed of it
  bool stays = false;  // it has paid until then
};

struct LinkFailures {  // of one link in one round
  std::set<wire::Attempt> attempts;
  base::Time since = 0;  // START of the first
};

// What is remembered of a round until it commits.
struct RoundMemory {
  std::map<std::pair<wire::PeerId, wire::PeerId>, LinkFailures> link_failures;
  std::map<wire::PeerId, std::set<wire::PeerId>> named;  // whom, by which reporters
  std::set<std::pair<wire::PeerId, wire::PeerId>> cut;   // links that plans have to avoid
  std::set<wire::PeerId> began_late;  // who was silent since its START had been lost
  std::uint32_t corrupt = 0;
  std::string refusal;  // whose call was refused as unlike most others', and what all asked for
  std::string guarded;  // whose contribution was left out, and why
  std::map<wire::Attempt, AbortedAttempt> aborted;
  std::uint32_t tries = 0;                                           // attempts that were aborted
  base::Time paused_until = 0;                                       // before the next one
  base::Time failed_since = base::kNever, failed_at = base::kNever;  // of the last, START and end
  std::map<wire::PublicKey, Departed> left;                          // who went since that START
  std::map<wire::PublicKey, Departed> ended;  // who left attempts that open calls were in

  // The calls have ended, and others begin; not what was held against those that went.
  void forget() {
    auto gone = std::move(left), ending = std::move(ended);
    *this = {};
    left = std::move(gone), ended = std::move(ending);
  }
};

// The vote on what the newest revision is. Begins with its commit, ends with the decision.
struct Poll {
  std::uint64_t revision = 0;
  int tier = 0;  // who votes: see master_votes.cc
  Election election;
  // Only such votes are missing as may never be given, since then.
  base::Time doubt_since = base::kNever;
  std::string dispute;  // no majority, in words
};

// Of summaries (master_texts.cc): what is shown of one, and where two differ first.
std::string brief(const std::string& list);
std::string first_difference(const std::string& one, const std::string& other);

struct Round {  // the volatile side of one tag
  std::map<wire::Incarnation, OpenReady> ready;
  std::optional<MasterAttempt> running;
  std::string running_told;
  RoundMemory memory;
  // Newcomers that owe a READY of this tag alone: they have called or synchronised it. See owes().
  std::set<wire::PeerId> entered;
  std::set<wire::PeerId> assumed;  // … of these nothing is known since the restart
  std::optional<Poll> poll;
  std::set<std::string> without;           // sites that are not waited for; until the next commit
  std::set<std::string> skipped;           // sites that are not waited for; until they are back
  base::Time quorum_since = base::kNever;  // half of the sites are READY, and not all
  bool asks_quorum = false;                // one of its READYs does, since it began to form
  base::Quorum quorum;                     // that more than half of the members ask for
  base::Time met_since = base::kNever;     // so many sites as it names are READY, and not all
  std::map<std::string, base::Duration> late;  // sites: for how long calls that ended waited so
  base::Time lost_since = base::kNever;        // no holder of the newest revision is left
  base::Time unasked_since = base::kNever;     // nor does anybody ask for it
  base::Time unborn_since = base::kNever;      // its birth is asked for
  Claims claims;                               // until the birth
  base::Time unclaimed_at = base::kNever;      // when there was last no room for another claim
  base::Time claims_due = 0;                   // they are not looked through before
  std::map<wire::PublicKey, base::Time> half_since;  // the rest of its source is waited for
  base::Time unheld_since = base::kNever;  // no holder is known, as looked up for who asks
  std::uint64_t brought = 0;               // the newest earlier one that somebody brought since …
  base::Time brought_at = 0;               // … and when last
  wire::PublicKey opened_by{};             // who asked for the tag first
  wire::Tag before;                        // whose rounds its own go before, as a READY says
  std::set<wire::Incarnation> asking;      // all with an open Sync, and some that had one
  // No READY, no Sync expires before these; the exact times are looked up when they come.
  base::Time ready_due = base::kNever, sync_due = base::kNever;
  std::uint64_t commits = 0, aborts = 0;
  std::set<wire::PeerId> contributed;  // to the last one, of calls that so many may contribute to
  std::string audit;  // how its rounds are audited, or why not, as it was said last
  std::uint64_t audited = 0, audit_bytes = 0;  // cells that were added up anew; shown for that
  base::Duration usual = 0;                    // that an attempt takes which commits
  // Attempts that deadlines ended, of which a commit leaves one, and what a call should have left
  // that it does not end the next: see hurried().
  std::uint32_t cut_short = 0;
  base::Duration needed = 0;
  base::Time held_since = base::kNever;      // all are READY, and START is held for a joiner …
  base::Duration held = 0;                   // … for so long before the attempt that runs
  base::Duration took = 0, took_before = 0;  // the attempts of the two newest commits
  bool spared = false;  // an attempt since then was a hold's fault: see note_hold()
  double weight = 0;    // the middle one of the last round that had two to compare
  bool does_without() const { return !skipped.empty() || !without.empty(); }
};

struct Cut {             // a link between two keys that failed of late
  base::Time until = 0;  // plans do without it, if they can
  std::uint32_t times = 0;
  std::uint32_t rounds = 0;  // in which it failed
};

// After a ban, new keys of the same token may belong to the banned peer: they enter ever more
// slowly. New keys also enter slowly while many come and go.
struct Throttle {
  std::uint32_t bans = 0;
  base::Time banned_at = 0, next_at = 0;
  Visits in_vain;
  Held held;
  base::Time held_until = 0;  // by those who came by it
  bool open = true;           // who waited until `next_at` has been let through
  bool for_faults = false;    // `next_at` is, and not for visits in vain
};

struct KeptSeat {  // of a site that was kicked
  base::Time until = 0;
  std::set<wire::PublicKey> keys;  // that may come back to it
};

enum class WaitCause : std::uint8_t { kNothing, kTooFew, kPeers, kJoiner };

struct Wait {  // why a round stands still
  WaitCause cause = WaitCause::kNothing;
  std::string text;
};

}  // namespace jccl::protocol
