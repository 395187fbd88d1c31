// What really happened in a run, as an all-seeing observer writes it down, and the promises of the
// design held against it: one file oracle_pN.cc per promise. The first broken promise is kept.
// Pure; one thread per world.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "protocol/peer/peer_machine.h"
#include "sim/network/network.h"
#include "sim/network/plan.h"
#include "sim/values.h"
#include "wire/chain.h"
#include "wire/serialize.h"

namespace jccl::sim {

struct CallRecord {  // one call of one user
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
  wire::Incarnation incarnation = 0;
  wire::Tag tag;
  double weight = 1;
  base::Time begun = 0, deadline = 0;
  bool open = true;  // stays so for ever when the process died
  bool success = false;
  base::Code code = base::Code::kOk;
  std::uint64_t n = 0;
  bool refused = false;   // the guard did not let its input pass
  bool unsynced = false;  // of a shared state that its user never synchronised
};

struct AttemptInfo {
  struct Part {
    std::uint64_t call = 0;  // 0: takes part without a call
    base::Time begun = 0;
    std::uint32_t shard = 0;
    double weight = 1;
    base::Bytes plan;
    std::uint64_t revision = 0;  // where its state stood
    wire::Digest state;
    bool done = false, failed = false;
    bool wrong = false;   // its machine is broken, or it lies
    wire::Digest result;  // as reported
  };
  std::map<wire::PeerId, Part> parts;      // who accepted the START
  std::vector<wire::PeerId> contributors;  // as the first START says
  bool told_aborted = false, judged = false;
  std::map<wire::Incarnation, std::uint64_t> sent_to;  // bytes of payload
  bool sent_again = false;                             // a frame of it
  bool audit_lied = false;  // a liar bound, showed or sent what does not fit
  bool audited = false;     // as its START says: what a liar bends it does not bind
  bool bent = false;        // a liar sent what is not its own: the sum is anybody's guess
};

inline constexpr std::string_view kStrangerSite = "stranger-";

struct Published {  // a success that a user was told of
  std::uint32_t slot = 0;
  std::uint32_t shard = 0;
  wire::Attempt attempt;
  std::uint64_t call = 0;
  const Array* result = nullptr;
  const exchange::Terms* terms = nullptr;  // of the call
  const protocol::CompleteCall* complete = nullptr;
};

struct CommitInfo {
  wire::CommitRecord record;
  std::map<std::uint32_t, Array> results;  // per shard, as first published
  std::set<std::uint32_t> judged{};        // shards whose result was compared with what is due
  std::set<std::uint32_t> digested{};      // … and with the journal's digest
};

struct History {
  std::uint32_t min_peers = 1;
  std::uint64_t remembered = 1024;  // commits per tag
  bool counts_bytes = false;        // what is sent is noted
  bool unweighted = false;          // calls take no other weight than 1
  bool joins_only = false;          // nothing goes wrong but that joiners come and die
  bool master_only = false;         // … but that the master is stopped, dies and comes back in time
  base::Time now = 0;
  std::string promise, what;  // of the first violation

  std::vector<wire::Record> durable;
  std::uint64_t epoch = 0;
  std::map<wire::PeerId, wire::Member> members;            // of the newest durable epoch
  std::map<wire::PeerId, wire::Member> everybody;          // ever admitted
  std::set<wire::Incarnation> liars;                       // lives of a hostile member
  std::set<std::pair<wire::Tag, std::uint64_t>> forged;    // revisions that it alone made
  std::set<std::pair<wire::Tag, std::uint64_t>> restored;  // revisions that are earlier states
  std::set<std::pair<std::uint64_t, std::size_t>> epochs;  // durable epochs and their sizes
  std::map<wire::RoundName, CommitInfo> commits;
  std::map<wire::Attempt, wire::RoundName> committed;
  std::map<wire::Tag, std::uint64_t> last;  // commits per tag
  std::map<wire::Tag, std::string> births;  // of state tags: the source's site
  std::map<wire::Attempt, AttemptInfo> attempts;
  std::map<std::tuple<wire::Tag, std::uint32_t, std::uint64_t>, wire::Digest>
      states;                                             // by tag, shard, revision
  std::map<std::uint64_t, wire::RoundName> counted;       // calls whose input is in a commit
  std::vector<CallRecord> calls;                          // by id - 1
  std::map<std::uint32_t, std::set<wire::PeerId>> named;  // by slot: in any roster it was told
  std::map<std::pair<std::uint32_t, wire::Tag>, std::uint64_t> stood;  // by slot, of its process

  bool failed() const { return !promise.empty(); }
  void fail(const char* which, std::string text) {
    if (promise.empty()) promise = which, what = std::move(text);
  }
  CallRecord& call(std::uint64_t id) { return calls[id - 1]; }

  bool liars_decide(const wire::Held& held, bool weak) const;  // oracle_p6.cc
  bool contradicted = false;  // the record to come: an honest member said otherwise to its master

  // What the world reports.
  void on_durable(const wire::Record& record);
  void on_told(std::uint32_t slot, const wire::Message& message);
  void on_published(const Published& published);
  void on_call_ended(const CallRecord& call, bool untouched);
  void on_state(std::uint32_t slot, std::uint32_t shard, const wire::Held& held);
  void on_end(const std::vector<wire::Record>& journal);
};

// P1 atomic.
void p1_commit_is_everywhere(History& history, const wire::CommitRecord& record);
void p1_same_for_all(History& history, const Published& published);
void p1_no_means_no(History& history);
// P2 exactly once.
void p2_each_once(History& history, const Published& published);
void p2_calls_in_commit(History& history, const wire::CommitRecord& record);
void p2_bytes_as_documented(History& history, const wire::CommitRecord& record);
void p2_refused_once(History& history, CallRecord& call);
// P3 abort is invisible.
void p3_untouched(History& history, const CallRecord& call, bool untouched);
void p3_given(History& history, const CallRecord& call, bool untouched);
void p3_open(History& history, const CallRecord& call, bool untouched);
// P4 bounded: a call or synchronisation that is open, or ends, now.
void p4_not_by_own_pause(History& history, std::uint32_t slot, base::Time awake,
                         base::Duration limit);
void p4_in_time(History& history, std::uint32_t slot, const wire::Tag& tag, base::Time due);
// P5 journal first, one decision, no gap, resolved after a restart.
void p5_record(History& history, const wire::Record& record);
void p5_seat(History& history, const std::string& site, std::uint32_t shard,
             wire::Incarnation welcome);
void p5_told(History& history, std::uint32_t slot, const wire::Message& message);  // both:
void p5_true(History& history, std::uint32_t slot, const wire::Message& message);
void p5_names(History& history, std::uint32_t slot, const wire::Message& message);
void p5_published(History& history, const Published& published);
void p5_nobody_lost(History& history, const wire::EpochRecord& record);
void p5_journal_is_history(History& history, const std::vector<wire::Record>& journal);
// P6 one history.
void p6_state(History& history, const std::string& who, std::uint32_t shard,
              const wire::Held& held);
void p6_all_synced(History& history, const wire::CommitRecord& record);
void p6_contributors_agree(History& history, const wire::CommitRecord& record);
void p6_never_back(History& history, std::uint32_t slot, const wire::Held& held);
void p6_restored(History& history, const wire::RestoreRecord& record);
// P7 joining disturbs nobody.
void p7_nothing_aborts(History& history, const wire::Outcome& outcome);
void p7_members_stay(History& history, const wire::EpochRecord& record);
void p7_calls_end_well(History& history, const CallRecord& call);
// P8 strangers get nothing.
void p8_told(History& history, Stranger stranger, const wire::Message& message);
void p8_observer(History& history, wire::Incarnation self, const wire::Message& message);
void p8_no_member(History& history, const wire::EpochRecord& record);
// P9 corruption never reaches a sum.
void p9_taken(History& history, std::uint32_t slot, const wire::FrameHeader& frame);
void p9_changed(History& history, std::uint32_t slot, const wire::FrameHeader& frame);
void p9_rows(History& history, bool opened);
void p9_published(History& history, const Published& published);
// P10 named.
void p10_says_why(History& history, const std::string& who, const wire::Tag& tag,
                  const std::string& words);

}  // namespace jccl::sim
