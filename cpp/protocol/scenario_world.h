// A tiny world for scenario texts: the real machines, wired in memory with links that lose nothing
// and take no time, and hands to kill, pause and cut them. Test only; no randomness at all.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"
#include "protocol/recorder/recorder.h"

namespace jccl::protocol {

// So small that it turns again and again, and states are compared.
inline constexpr std::size_t kScenarioRecorderBytes = 16 << 10;

struct Process {  // one peer
  PeerOptions options;
  std::optional<PeerMachine> machine;
  std::unique_ptr<Recorder<PeerSide>> recorder;
  ConnId conn = 0;
  bool alive = true, paused = false, reachable = true, may_order = false;
  bool pauses_at_welcome = false;
  base::Time wake = base::kNever;
  std::map<wire::Tag, wire::Attempt> running;
  std::map<wire::Tag, wire::Held> wanted;  // what it was told to fetch
  std::map<wire::Tag, wire::Held> own;
  std::deque<PeerEvent> inbox;  // while paused
};

class ScenarioWorld {
 public:
  // Carries out one command; returns what happened, a line each.
  std::string run(const std::string& command);
  // For random tests: at most this many deliveries after each command; a broken connection then
  // loses what was on its way.
  void deliver_at_most(int count) { budget_ = count; }
  bool has_master() const { return master_.has_value(); }
  // What the machines' recordings say that their replays don't, of all machines so far; empty:
  // nothing.
  const std::string& replayed();
  std::uint64_t replayed_events() const { return replayed_events_; }

 private:
  using Words = std::vector<std::string>;
  struct Parsed {
    std::string verb;
    Words names;  // of peers
    Words rest;
    std::map<std::string, std::string> options;
    std::string option(const std::string& key, const std::string& other) const;
  };
  Parsed parse(const std::string& command) const;

  void set_master(const Parsed& p);
  void start_peers_default(const Parsed& p);
  void start_master();
  void add_peer(const Parsed& p, const std::string& name);
  void act(const Parsed& p, const std::string& name);
  void act_on_process(const Parsed& p, Process& peer);
  void act_on_state(const Parsed& p, const std::string& name);
  void call(const Parsed& p, const std::string& name);
  void fail(const Parsed& p, const std::string& name);
  void sync(const Parsed& p, const std::string& name);
  void crash_master();
  void break_conn(Process& peer);
  void wait(base::Duration duration);
  void show(const Parsed& p);

  void to_master(MasterEvent event);
  void to_peer(const std::string& name, PeerEvent event);
  void flow();  // until nothing is on its way
  void apply(MasterEffects effects);
  void apply(const std::string& name, PeerEffects effects);
  void tell(const std::string& name, const PeerEffects& effects);
  void connect(const std::string& name);
  std::string words(const HistoryLine& line);
  base::Digest digest(const std::string& name);
  std::string named(std::string text) const;  // digests by their names again
  void say(const std::string& line) { said_ += line + "\n"; }

  base::Time now_ = base::kSecond;
  MasterOptions options_;
  std::vector<wire::Record> durable_;
  std::unique_ptr<Recorder<MasterSide>> recorder_;
  std::optional<MasterMachine> master_;
  base::Time master_wake_ = base::kNever;
  std::size_t behind_ = 0;      // another has followed this master: it lacks so many records
  std::string dies_at_commit_;  // "before" or "after" the record is durable
  bool planner_refuses_bad_links_ = true;
  std::set<std::string> hidden_{"epoch"};
  std::map<std::string, Process> peers_;
  std::map<ConnId, std::string> conns_;
  ConnId next_conn_ = 0;
  std::uint64_t next_process_ = 100;
  std::deque<MasterEvent> for_master_;
  std::deque<std::pair<std::string, PeerEvent>> for_peers_;
  std::map<std::string, std::string> digest_names_;
  std::string said_;
  std::string replay_trouble_;
  std::uint64_t replayed_events_ = 0;
  template <typename Side>
  void replay_it(const std::unique_ptr<Recorder<Side>>& recorder);
  int budget_ = 1 << 30;
  bool lossy() const { return budget_ < (1 << 30); }
  void lose(ConnId conn, const std::string& name);
};

}  // namespace jccl::protocol
