// What one seed's run is made of: how many peers, which tags, how rough the network, which faults
// at which rates. Drawn whole from the seed (swarm testing: some runs know no fault at all, some
// one kind at an absurd rate). Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "collective/aggregator.h"

namespace jccl::sim {

enum class Fault : std::uint8_t {
  kPeerCrash,
  kMassCrash,    // half of all or more at one moment
  kJoinerCrash,  // of a process that is no member (yet)
  kPeerPause,
  kPeerLeave,
  kGhost,         // an old incarnation's connection comes up again
  kControlReset,  // what is in flight is lost; sometimes one end does not notice
  kControlCut,    // both ways or one
  kDataReset,
  kDataCut,   // both ways or one
  kClog,      // slow links
  kSwizzle,   // cuts some peers off one by one and lets them back in another order
  kDataFlip,  // bits flip on a peer link
  kLateWakes,
  kClockJump,  // of one process; clocks only go forward
  kMasterCrash,
  kMasterPause,
  kDiskError,  // a write or its fsync fails
  kDiskFull,
  kDiskRot,  // a row is damaged while its master is down; later somebody mends it
  kStoreCut,
  kOperatorEvicts,
  kTrickle,       // a slow site: its links carry one message at a time, with long pauses
  kDiskSlow,      // writes take long: what comes meanwhile is handled in one go
  kMasterCut,     // all control connections of one master carry nothing
  kMasterFrozen,  // a master's machine stands still, clock and all; it wakes cut off from its store
  kCount,
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::kCount);
std::string_view name_of(Fault fault);

// One fault, with all its choices made: a script is a list of these. `a` and `b` are slots, or a
// master and nothing; what the rest means depends on the kind (faults.cc).
struct Injected {
  base::Time at = 0;
  Fault fault = Fault::kPeerCrash;
  std::uint32_t a = 0, b = 0;
  base::Duration length = 0;
  std::uint64_t bits = 0;
  bool clock_stands() const { return (bits & 1) != 0; }  // too, of a machine that is paused
  bool operator==(const Injected&) const = default;
};

inline constexpr std::uint32_t kHabits = 7;  // of a liar: liar.cc

struct Mix {
  std::uint32_t slots = 3;   // peers that exist, some of them later
  std::uint32_t shards = 1;  // per site
  std::uint32_t late = 0;    // slots that join during the run
  std::uint32_t tags = 1;
  std::vector<bool> is_state;      // per tag
  bool same_birth = false;         // all first states equal
  std::uint32_t named_source = 0;  // slot + 1 that is the source; 0: none
  std::uint32_t min_peers = 1, start_peers = 1;
  std::uint64_t history = 1024;
  std::uint32_t masters = 1;    // processes, one of them active
  bool fenced_store = false;    // a store outside, with a lease; else the master's own disk
  std::uint32_t dial_only = 0;  // the last so many slots have no address
  std::uint32_t liar = 0;       // slot + 1 of a hostile member; 0: none. See liar.cc
  std::uint32_t habit = 0;      // … that lies in one way above all, by its number there; 0: in all
  double frame_lies = 0;        // … share of its frames that lie: frame_liar.cc
  std::uint32_t calls = 0;      // per tag and process before everything heals; 0: no bound

  std::array<double, kFaults> rate{};  // per second
  double vanish = 0.3;                 // share of crashes nobody is told of
  double torn = 0.5;                   // share of master crashes that tear the last row
  double weight_zero = 0, guard = 0, mismatch = 0, corrupt = 0, cancel = 0;  // per call
  double in_place = 0.5;
  double edits = 0;  // share of calls and of revisions before which the user changes its state
  bool edits_alike = false;         // … all in the same way: to one older checkpoint, say
  double forgets = 0;               // share of state tags that a process calls without a sync
  std::uint32_t second_source = 0;  // slot + 1 that is named source beside the other; 0: none
  double moves_site = 0.1;          // share of returns under a new site name
  double foreign = 0;  // share of processes with a state of another run, at about our revision

  base::Duration latency = 0, jitter = 0, data_latency = 0, sync_pause = 0, think = 0;
  double spike = 0.02, split = 0.05, coalesce = 0.2;
  base::Duration deadline = 0, downtime = 0, pause = 0, cut = 0, master_down = 0;
  base::Duration heartbeat = 0, silence = 0, reset_grace = 0, restart_grace = 0, master_grace = 0;
  base::Duration load = 0;                      // of a fetched state, once its bytes are here
  base::Duration lease = 0, lag = 0, jump = 0;  // of a fenced store, late wakes, clocks
  base::Duration faults_until = 0;
  bool life_signs = false;      // peer links say that they live: slow is not taken for dead
  std::uint32_t straggler = 0;  // as protocol::Straggler
  base::Duration straggler_after = base::kSecond;
  std::uint32_t quorum = 0;         // that calls ask for, in thousandths of the sites; 0: none does
  base::Duration quorum_grace = 0;  // … and for how long they wait for the others

  std::uint32_t stripes = 1;   // of a link
  std::uint32_t remember = 0;  // frames under way whose keys a stripe keeps; 0: all
  double stalls = 0;           // share of frames on which a stripe alone stands still
  std::uint32_t plans = 0;     // what the tags' calls ask for, two bits each
  std::uint32_t fastest = 0;   // … of those that leave it to the master, who take any order of sums
  double audit = 0;            // share of the cells of rounds that the master adds up anew
  double audit_lies = 0;       // of a liar: of audited attempts that it lies in
  double term_lies = 0;        // … of its calls: its weight, what they allow their contributors
  bool unweighted = false;     // no call takes another weight than 1
  std::uint32_t robust = 0;    // means: 0 by weight, 1 trimmed, 2 medians

  std::string plan_of(
      std::size_t tag) const;  // a kind's name, "fastest", or "": the planner's choice
  collective::Op op_of(std::size_t tag) const;
  collective::Aggregator aggregator_of(std::size_t tag) const;
  std::string describe() const;
};

// Calls f(name, field) for every number of a mix, so that scripts can write and read them.
template <typename M, typename F>
void each_field(M& m, F f) {
  f("slots", m.slots), f("shards", m.shards), f("late", m.late), f("tags", m.tags);
  f("same_birth", m.same_birth), f("named_source", m.named_source), f("min_peers", m.min_peers);
  f("start_peers", m.start_peers), f("history", m.history), f("masters", m.masters);
  f("fenced_store", m.fenced_store), f("dial_only", m.dial_only), f("calls", m.calls);
  f("liar", m.liar), f("habit", m.habit), f("vanish", m.vanish), f("torn", m.torn),
      f("weight_zero", m.weight_zero), f("guard", m.guard);
  f("mismatch", m.mismatch), f("corrupt", m.corrupt), f("cancel", m.cancel);
  f("foreign", m.foreign), f("in_place", m.in_place), f("edits", m.edits),
      f("moves_site", m.moves_site), f("latency", m.latency);
  f("edits_alike", m.edits_alike), f("forgets", m.forgets);
  f("second_source", m.second_source);
  f("jitter", m.jitter), f("data_latency", m.data_latency), f("sync_pause", m.sync_pause);
  f("think", m.think), f("spike", m.spike), f("split", m.split), f("coalesce", m.coalesce);
  f("deadline", m.deadline), f("downtime", m.downtime), f("pause", m.pause), f("cut", m.cut);
  f("master_down", m.master_down), f("heartbeat", m.heartbeat), f("silence", m.silence);
  f("reset_grace", m.reset_grace), f("restart_grace", m.restart_grace);
  f("master_grace", m.master_grace), f("lease", m.lease), f("lag", m.lag), f("jump", m.jump);
  f("faults_until", m.faults_until), f("life_signs", m.life_signs), f("straggler", m.straggler);
  f("straggler_after", m.straggler_after), f("load", m.load), f("plans", m.plans);
  f("quorum", m.quorum), f("quorum_grace", m.quorum_grace);
  f("fastest", m.fastest);
  f("robust", m.robust), f("frame_lies", m.frame_lies);
  f("audit", m.audit), f("audit_lies", m.audit_lies);
  f("term_lies", m.term_lies), f("unweighted", m.unweighted);
  f("stripes", m.stripes), f("remember", m.remember), f("stalls", m.stalls);
}

Mix draw_mix(std::uint64_t seed);
// The same with a hostile member, among four sites or more that do without it.
Mix draw_hostile_mix(std::uint64_t seed);
// All faults of a run, ascending in time.
std::vector<Injected> draw_faults(const Mix& mix, std::uint64_t seed);

}  // namespace jccl::sim
