// One run: peers, master, network, faults and oracles around one virtual clock, all from one seed.
// First faults, then everything heals, then all who live must get on. Pure; one thread per world.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/planted.h"
#include "sim/coverage.h"
#include "sim/history.h"
#include "sim/master.h"
#include "sim/mix.h"
#include "sim/network/network.h"
#include "sim/network/pipes.h"
#include "sim/network/store.h"
#include "sim/peer.h"

namespace jccl::sim {

using base::kCodes;
inline constexpr Duration kAuditPause = 100 * kMillisecond;
inline constexpr Duration kSpikeMax = 150 * kMillisecond;
inline constexpr Duration kBannedMax = 2 * kSecond;
inline constexpr std::string_view kALie = "a lie";  // in all words of a hostile member

inline bool says(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

struct Counts {  // what a run (or many) did: a simulator that does nothing finds nothing
  std::array<std::uint64_t, kFaults> faults{};
  std::uint64_t seeds = 0, events = 0, messages = 0, commits = 0, aborts = 0, deliveries = 0;
  std::uint64_t admissions = 0, master_starts = 0, torn_rows = 0, joins = 0, syncs = 0;
  std::uint64_t lost_states = 0;
  std::uint64_t takeovers = 0, fenced = 0, failed_writes = 0, refused_journals = 0;
  std::uint64_t measured = 0, ghosts = 0, flipped = 0, frame_lies = 0, audit_lies = 0,
                convicted = 0;
  std::uint64_t fast_rings = 0;  // planned for speed, where any order of addition will do
  std::uint64_t edits = 0, forgotten = 0, claims_refused = 0;  // what users did to shared states
  std::array<std::uint64_t, 8> commits_spread{};  // seeds by commits: 0, 1-2, 3-9, 10-29, …
  std::array<std::uint64_t, kCodes> codes{};      // how calls ended
  Coverage coverage;
  void add(const Counts& other);
};

struct Script;

struct RunOptions {
  std::uint64_t seed = 1;
  base::Planted mutant = base::Planted::kNone;
  bool trace = false;
  std::size_t trace_lines = 30;  // 0: print each line at once to `sink`
  void (*sink)(const std::string& line) = nullptr;
  const Script* script = nullptr;  // instead of what the seed would draw
  bool hostile = false;            // one member lies
};

struct Report {
  std::uint64_t seed = 0;
  std::string promise, what;  // empty: all kept
  std::uint64_t trace_hash = 0;
  Counts counts;
  Mix mix;
  std::vector<Injected> faults;
  std::vector<std::string> tail;
};

Report simulate(const RunOptions& options);

struct Turn {  // of a master, as it stood before an event
  bool door_shut = false;
  using Asked = std::map<wire::Incarnation, std::set<wire::Tag>>;
  Asked asked;                    // what observers want to synchronise, as far as it has heard
  std::set<std::string> calling;  // sites with a call open
};

class World {
 public:
  explicit World(const RunOptions& options);
  Report run();

  // For processes.
  void post(Time at, Kind kind, std::uint32_t target, std::uint64_t a = 0, std::uint64_t b = 0);
  void repost(std::vector<Event>& held);  // events a stopped process finds now
  std::uint32_t life_of(std::uint32_t target) const;
  void dial(std::uint32_t slot, std::uint64_t number);
  void send_up(std::uint64_t conn, const wire::Message& message);
  void send_down(std::uint64_t conn, const wire::Message& message);
  void close_peer_end(std::uint64_t conn, bool vanish = false);
  void close_master_end(std::uint64_t conn, bool vanish = false);
  void close_master_ends(std::uint32_t master, bool vanish);
  void reset_conn(std::uint64_t conn, bool half);
  void probe(const SimMaster& master, wire::Incarnation incarnation);
  void send_data(std::uint32_t from, DataMessage message);
  void reset_data(std::uint32_t a, std::uint32_t b, bool one_sided);
  // pipes.cc
  Pipe& pipe(std::uint32_t id) { return pipes_[id - 1]; }
  std::size_t stripes_between(std::uint32_t a, std::uint32_t b) const;
  void dial_pipe(std::uint32_t slot, wire::Incarnation to);
  void carry(std::uint32_t pipe, std::size_t end, Transit transit);
  void post_pipe(Pipe& pipe, std::size_t end);
  void room_at(Pipe& pipe, std::size_t end);
  void end_of_pipe(Pipe& pipe, std::size_t end);
  void reset_pipes(std::uint32_t a, std::uint32_t b, bool one_sided, bool one);
  wire::PublicKey key_of(std::uint32_t slot, wire::Incarnation life);
  void judge_impostor(Conn& c, const wire::Message& message);
  wire::Incarnation new_incarnation(std::uint32_t slot);
  wire::Incarnation next_life(std::uint32_t slot, wire::Incarnation life);
  bool tracing() const { return options_.trace; }
  void note(std::string line);
  void crash_master(SimMaster& master, Duration down, bool vanish);  // and start it again
  void report_durable(bool left = false);
  // What a master is about to tell, and tells.
  Turn before_turn(const protocol::MasterMachine& machine, const protocol::MasterEvent& event,
                   Time clock) const;
  void check_turn(const protocol::MasterMachine& machine, const protocol::MasterEffects& effects,
                  Turn turn);
  Turn::Asked still_asked(Turn turn, const protocol::MasterEffects& effects);
  bool writes(const protocol::MasterMachine& machine);
  void check_door(const protocol::MasterMachine& machine, const protocol::MasterEffects& effects,
                  const Turn::Asked& asked);
  void check_abort(const protocol::MasterMachine& machine, const wire::Outcome& outcome);
  void check_lost(const protocol::MasterMachine& machine, std::uint32_t asker,
                  const wire::Tag& tag);
  void check_ban(const wire::BanRecord& ban);
  void check_convicted(const protocol::HistoryLine& line);  // audit_liar.cc
  // oracle_hostile.cc
  std::size_t sites_left(const AttemptInfo& attempt) const;
  void check_banned(const wire::Member& member, std::uint64_t epoch);
  void note_ban(const wire::BanRecord& ban);
  void check_refusals(const wire::Outcome& outcome);
  std::size_t member_sites() const;
  std::size_t others_computed_wrong(const std::string& site) const;
  void check_end_by_lie(const SimPeer& peer, const protocol::CompleteCall& done,
                        std::uint64_t call);
  bool contradicted(const wire::Record& record);  // oracle_p6.cc
  void check_moves(std::uint32_t slot, const Own& own);
  void check_silence(std::uint32_t slot, const Own& own);
  void check_not_early(const CallRecord& call, const std::string& why);
  void clocks_part() { clocks_parted_at_ = now; }
  void check_straggler(const std::string& site, const std::string& reason);
  SimMaster* active();  // the master that serves; of several the last that began to; null: none

  const RunOptions& options() const { return options_; }
  const Mix mix;
  Streams rng;
  Time now = 0;
  bool healed = false;
  History history;
  Counts counts;
  Store store;
  std::vector<SimMaster> masters;
  std::deque<SimPeer> peers;                         // which stay where they are
  std::map<wire::Incarnation, std::uint32_t> slots;  // every incarnation there ever was

 private:
  void set_calm();
  void begin();
  void dispatch(const Event& event);
  void dispatch_peer(const Event& event);
  void dispatch_master(const Event& event);
  Duration trickle(std::uint32_t slot);
  Time arrival(std::uint32_t from, std::uint32_t to);
  Time arrival(const Pipe& pipe, std::size_t end);
  void on_pipe(const Event& event);
  void on_pipe_up(const Event& event);
  void on_pipe_end(const Event& event);
  bool hold(const Event& event);
  void on_control(const Event& event);
  void deliver(Conn& conn, bool up, const base::Bytes& payload);
  void end_of_stream(Conn& conn, bool up);
  void on_data(const Event& event);
  void on_dialed(const Event& event);
  std::uint64_t connect(SimPeer& peer, SimMaster& master);
  void apply_write(std::uint64_t number);
  void audit();
  bool converged() const;
  bool tied() const;
  bool one_of_two_lies() const;
  void check_liveness();
  void push(Conn& conn, bool up, const wire::Message& message);
  void push_end(Conn& conn, bool up);
  void post_stream(Conn& conn, bool up);
  Duration delay(std::uint32_t slot);
  Conn& conn(std::uint64_t id) { return conns_[id - 1]; }
  DataLink& link(std::uint32_t from, std::uint32_t to) { return links_[from * kSlotsMax + to]; }

  // oracle_p4.cc to oracle_p10.cc, and whom they concern
  void check_membership(const wire::Record& record, bool left);
  bool site_is_there(const std::string& site) const;
  bool hampered(const std::string& site) const;
  bool waits_for_a_slow_line(const std::string& site) const;
  bool stripe_stood(const std::string& site) const;
  bool has_called(const std::string& site, const std::string& reason, Duration patience) const;
  void check_false_eviction(const wire::Member& member, const std::string& reason);
  void check_hung();
  void check_grace(const wire::Member& member, const std::string& reason);
  bool is_itself(const wire::Member& member);
  void check_admission(const wire::Member& member, const std::vector<wire::Member>& members);
  void check_holds();
  void check_words();

  // faults.cc
  void inject(const Injected& fault);
  void fault_peer(const Injected& fault);
  void haunt(const Injected& fault);
  void babble(const Injected& fault, SimMaster& master);
  void fault_clock(const Injected& fault);
  void fault_network(const Injected& fault);
  void fault_master(const Injected& fault);
  void cut_master(const SimMaster& master, Time until);
  void freeze(SimMaster& master, Duration length);
  void thaw(std::uint32_t woken);
  void heal();

  RunOptions options_;
  EventQueue queue_;
  std::deque<Conn> conns_;
  std::vector<DataLink> links_;
  std::deque<Pipe> pipes_;
  using ByMaster = std::array<Time, kMastersMax>;
  std::array<ByMaster, kSlotsMax> up_blocked_{}, down_blocked_{};
  std::array<Time, kSlotsMax> slow_until_{};
  std::array<Trickle, kSlotsMax> trickle_{};
  std::array<Time, kSlotsMax + kMastersMax> late_until_{};
  std::vector<Injected> faults_;
  Time healed_at_ = 0;
  Time tied_at_ = 0;    // last, since then
  Time served_at_ = 0;  // the newest master's first record
  std::uint64_t served_epoch_ = 0;
  Time disturbed_until_ = 0, disk_disturbed_until_ = 0;  // by faults other than the master's
  Time master_disturbed_until_ = 0;
  Time clocks_parted_at_ = -1;  // one jumped, or stood still

  std::array<Time, kSlotsMax> hampered_until_{}, stripe_stood_until_{};
  Turn::Asked asked_;    // as it was let in
  Time decided_at_ = 0;  // … which the disk may have made known later
  std::map<std::uint64_t, std::uint64_t> decided_unix_;  // of an epoch, by its writer's clock
  std::map<wire::PublicKey, std::uint64_t> bans_;        // until when
  // Attempts that a hostile member refused and nobody else, since it was banned or a master began.
  std::map<wire::PublicKey, std::set<wire::Attempt>> refused_alone_;
  std::set<std::string> wished_out_;           // sites that the operator has evicted
  std::map<wire::PeerId, Duration> gone_for_;  // members whose process is not there
  bool over_ = false;
  std::uint64_t hash_ = 1;
  std::deque<std::string> tail_;
};

}  // namespace jccl::sim
