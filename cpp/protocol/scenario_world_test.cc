// See scenario_world.h. Named *_test.cc because it belongs to the test program alone.
#include "protocol/scenario_world.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/check.h"
#include "base/ids.h"
#include "base/text.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Time;

namespace {

base::Duration duration_of(const std::string& text) {
  const double value = std::atof(text.c_str());
  const bool milli = text.find("ms") != std::string::npos;
  return static_cast<base::Duration>(value * (milli ? base::kMillisecond : base::kSecond));
}

wire::RunId some_run() {
  wire::RunId run{};
  run.fill(7);
  return run;
}

}  // namespace

std::string ScenarioWorld::Parsed::option(const std::string& key, const std::string& other) const {
  const auto found = options.find(key);
  return found == options.end() ? other : found->second;
}

ScenarioWorld::Parsed ScenarioWorld::parse(const std::string& command) const {
  Parsed parsed;
  std::istringstream in(command);
  in >> parsed.verb;
  for (std::string word; in >> word;) {
    const auto equals = word.find('=');
    const bool peer = peers_.count(word) > 0 && parsed.rest.empty();
    if (equals != std::string::npos)
      parsed.options[word.substr(0, equals)] = word.substr(equals + 1);
    else if (peer || parsed.verb == "peers")
      parsed.names.push_back(word);
    else
      parsed.rest.push_back(word);
  }
  return parsed;
}

std::string ScenarioWorld::run(const std::string& command) {
  said_.clear();
  const Parsed p = parse(command);
  if (p.verb == "master") {
    set_master(p);
  } else if (p.verb == "peers") {
    if (!master_.has_value() && durable_.empty()) {
      if (options_.run == wire::RunId{}) set_master(p);
      start_peers_default(p);
      start_master();
    }
    for (const std::string& name : p.names) add_peer(p, name);
  } else if (p.verb == "crash") {
    crash_master();
  } else if (p.verb == "crash-at-commit") {
    dies_at_commit_ = p.rest.at(0);
  } else if (p.verb == "restart") {
    behind_ = static_cast<std::size_t>(std::atoi(p.option("behind", "0").c_str()));
    start_master();
  } else if (p.verb == "wait") {
    wait(duration_of(p.rest.at(0)));
  } else if (p.verb == "show") {
    show(p);
  } else if (p.verb == "evict-site") {
    to_master(EvictSite{p.names.at(0)});
  } else {
    JCCL_CHECK(!p.names.empty() || lossy());
    for (const std::string& name : p.names) {
      act(p, name);
      flow();
    }
  }
  flow();
  return named(said_);
}

void ScenarioWorld::set_master(const Parsed& p) {
  options_.run = some_run();
  options_.min_peers = std::atoi(p.option("min_peers", "1").c_str());
  options_.start_peers = std::atoi(p.option("start_peers", "0").c_str());
  options_.restore_after = duration_of(p.option("restore_after", "30"));
  options_.history = std::atoi(p.option("history", "1024").c_str());
  options_.restart_grace = duration_of(p.option("restart_grace", "60"));
  options_.sites_max = std::atoi(p.option("sites_max", "1024").c_str());
  const std::string straggler = p.option("straggler", "wait");
  options_.straggler = straggler == "skip"    ? Straggler::kSkip
                       : straggler == "evict" ? Straggler::kEvict
                                              : Straggler::kWait;
  options_.straggler_after = duration_of(p.option("straggler_after", "10"));
  if (p.option("show", "") == "epochs") hidden_.clear();
  planner_refuses_bad_links_ = p.option("planner", "direct") == "direct";
}

// Unless said otherwise, the run starts when the first peers named are all there.
void ScenarioWorld::start_peers_default(const Parsed& p) {
  if (options_.start_peers != 0) return;
  options_.start_peers = static_cast<std::uint32_t>(p.names.size());
}

void ScenarioWorld::start_master() {
  const auto planner = [this](const PlanRequest& request) -> base::Result<base::Bytes> {
    if (!request.bad_links.empty() && planner_refuses_bad_links_) {
      return base::Status{Code::kLinkLost,
                          cat("no plan avoids the link ", request.bad_links.front().first, "-",
                              request.bad_links.front().second)};
    }
    if (!request.bad_links.empty()) say("planner: avoids a failed link");
    return request.hint;
  };
  const auto end = durable_.end() - static_cast<std::ptrdiff_t>(std::min(durable_.size(), behind_));
  recorder_ = std::make_unique<Recorder<MasterSide>>(kScenarioRecorderBytes);
  master_.emplace(options_, recorder_->heard({planner, {}}).planner,
                  std::vector(durable_.begin(), end), now_);
  apply(recorder_->start(*master_, now_));
}

void ScenarioWorld::add_peer(const Parsed& p, const std::string& name) {
  if (lossy())
    lose(peers_[name].conn, name);
  else
    flow();
  conns_.erase(peers_[name].conn);  // of an earlier process: the master does not notice yet
  replay_it(peers_[name].recorder);
  peers_.erase(name);
  Process& peer = peers_[name];
  peer.options.run = some_run();
  if (p.options.count("run") > 0) peer.options.run[0] = 1;
  peer.options.site = p.option("site", name);
  peer.options.shard = std::atoi(p.option("shard", "0").c_str());
  peer.options.shards = std::atoi(p.option("shards", "1").c_str());
  peer.options.start_peers = std::atoi(p.option("start_peers", "0").c_str());
  peer.may_order = p.option("operator", "no") == "yes";
  if (p.option("listens", "yes") == "yes") peer.options.addresses = {name};
  peer.machine.emplace(peer.options, base::first_life(++next_process_), now_);
  peer.recorder = std::make_unique<Recorder<PeerSide>>(kScenarioRecorderBytes);
  apply(name, peer.recorder->start(*peer.machine, now_));
  flow();
}

void ScenarioWorld::act(const Parsed& p, const std::string& name) {
  Process& peer = peers_.at(name);
  if (!peer.alive) return;
  if (p.verb == "call") return call(p, name);
  if (p.verb == "done" || p.verb == "fail") {
    if (peer.running.count(p.rest.at(0)) == 0) return say(cat(name, ": (no attempt)"));
  }
  if (p.verb == "done") {
    const auto& tag = p.rest.at(0);
    const wire::Attempt attempt = peer.running.at(tag);
    return to_peer(name, AttemptDone{attempt, digest(p.option("digest", cat("sum-", tag)))});
  }
  if (p.verb == "fail") return fail(p, name);
  if (p.verb == "moves") {  // how far it is, in MB; said with its next heartbeat
    const std::uint64_t left = std::strtoull(p.option("left", "0").c_str(), nullptr, 10);
    const std::string from = p.option("from", "");
    const wire::PeerId waits_on = from.empty() ? 0 : peers_.at(from).machine->id();
    const wire::Moving moving{peer.running.at(p.rest.at(0)), left * 1000000, 100000000, waits_on};
    return to_peer(name, Progress{0, {moving}});
  }
  if (p.verb == "cancel") return to_peer(name, CancelCall{p.rest.at(0)});
  if (p.verb == "edit") return to_peer(name, StateChanged{p.rest.at(0), "edited"});
  if (p.verb == "leave") return to_peer(name, Depart{});
  if (p.verb == "sync" || p.verb == "fetched" || p.verb == "fetch-failed" || p.verb == "publish") {
    return act_on_state(p, name);
  }
  act_on_process(p, peer);
}

void ScenarioWorld::act_on_process(const Parsed& p, Process& peer) {
  if (p.verb == "kill") {
    peer.alive = false;
    peer.wake = base::kNever;
    peer.machine.reset();
    replay_it(peer.recorder);
    break_conn(peer);
  } else if (p.verb == "pause") {
    peer.paused = true;
  } else if (p.verb == "pause-at-welcome") {  // of its next connection the master hears a Hello
    peer.pauses_at_welcome = true;
  } else if (p.verb == "resume") {
    peer.paused = false;
    for (const auto& [name, one] : peers_) {
      if (&one != &peer) continue;
      while (!peer.inbox.empty()) {
        to_peer(name, std::move(peer.inbox.front()));
        peer.inbox.pop_front();
      }
    }
  } else if (p.verb == "cut") {  // the connection is reset, the process lives
    peer.inbox.clear();          // what it had not read is lost
    break_conn(peer);
  } else if (p.verb == "unplug") {
    peer.reachable = false;
    break_conn(peer);
  } else if (p.verb == "plug") {
    peer.reachable = true;
  } else {
    JCCL_CHECK(false);
  }
}

void ScenarioWorld::act_on_state(const Parsed& p, const std::string& name) {
  Process& peer = peers_.at(name);
  const wire::Tag& tag = p.rest.at(0);
  if (p.verb == "sync") return sync(p, name);
  if (p.verb == "fetched" && peer.wanted.count(tag) == 0) {
    return say(cat(name, ": (nothing to fetch)"));
  }
  if (p.verb == "fetched") {
    peer.own[tag] = peer.wanted.at(tag);
    return to_peer(name, FetchDone{peer.own[tag]});
  }
  if (p.verb == "fetch-failed") return to_peer(name, FetchFailed{tag, "the holder is gone"});
  const std::uint64_t revision = std::strtoull(
      p.option("revision", std::to_string(peer.machine->committed(tag))).c_str(), nullptr, 10);
  peer.own[tag] = {tag, revision, digest(p.option("digest", cat(tag, "@", revision)))};
  to_peer(name, PublishState{peer.own[tag]});
}

void ScenarioWorld::call(const Parsed& p, const std::string& name) {
  Call call;
  call.tag = p.rest.at(0);
  call.summary = p.option("shape", "f32[4]");
  call.descriptor = digest(cat("descriptor ", call.summary));
  call.hint = {1};
  call.weight = std::atof(p.option("weight", "1").c_str());
  call.is_state = p.option("state", "no") == "yes";
  call.quorum = base::quorum_from_text(p.option("quorum", "")).value();
  call.fingerprint = digest(p.option("fingerprint", "cpu"));
  call.deadline = now_ + duration_of(p.option("deadline", "300"));
  call.before = p.option("before", "");
  to_peer(name, call);
}

void ScenarioWorld::fail(const Parsed& p, const std::string& name) {
  AttemptFailed failed;
  failed.attempt = peers_.at(name).running.at(p.rest.at(0));
  const std::string& cause = p.rest.at(1);
  failed.text = cause;
  if (cause == "guard") failed.cause = Code::kGuard;
  if (cause == "corrupt") failed.cause = Code::kCorrupt;
  if (cause == "edited") failed.cause = Code::kResync;
  if (cause == "silent") {
    failed.cause = Code::kPeerLost;
    failed.peer = peers_.at(p.rest.at(2)).machine->id();
    failed.text = cat("nothing from ", p.rest.at(2), " for 2500 ms");
  }
  if (cause == "link") {
    const auto& other = peers_.at(p.rest.at(2)).machine;
    if (other.has_value()) failed.peer = other->id();
    failed.text = cat("link to ", p.rest.at(2), " broke");
  }
  to_peer(name, failed);
}

void ScenarioWorld::sync(const Parsed& p, const std::string& name) {
  SyncCall call;
  call.tag = p.rest.at(0);
  wire::Held& own = peers_.at(name).own[call.tag];
  if (p.options.count("digest") > 0 || own.tag.empty()) {
    own = {call.tag, static_cast<std::uint64_t>(std::atoi(p.option("revision", "0").c_str())),
           digest(p.option("digest", cat(call.tag, " of ", name)))};
  }
  call.user_has = own.revision;
  call.revision = own.revision;
  call.digest = own.digest;
  call.source = p.option("source", "no") == "yes";
  const std::string wish = p.option("restore", "no");
  call.restore = wish == "yes"     ? base::Wish::kKnown
                 : wish == "any"   ? base::Wish::kAny
                 : wish == "again" ? base::Wish::kAgain
                                   : base::Wish::kNone;
  call.summary = p.option("shape", "f32[4]");
  call.descriptor = digest(cat("descriptor ", call.summary));
  call.deadline = now_ + duration_of(p.option("deadline", "300"));
  to_peer(name, call);
}

void ScenarioWorld::crash_master() {
  replay_it(recorder_);
  master_.reset();
  master_wake_ = base::kNever;
  for_master_.clear();
  for (auto& [name, peer] : peers_) {
    if (peer.conn == 0) continue;
    if (lossy()) lose(peer.conn, name);
    conns_.erase(peer.conn);
    peer.conn = 0;
    to_peer(name, Disconnected{{Code::kMasterLost, "connection reset"}});
  }
}

void ScenarioWorld::break_conn(Process& peer) {
  if (peer.conn == 0) return;
  const ConnId conn = peer.conn;
  const std::string name = conns_.at(conn);
  if (lossy()) lose(conn, name);
  conns_.erase(conn);
  peer.conn = 0;
  to_master(ConnClosed{conn});
  if (peer.alive) to_peer(name, Disconnected{{Code::kMasterLost, "connection reset"}});
}

void ScenarioWorld::lose(ConnId conn, const std::string& name) {
  std::erase_if(for_master_, [&](const MasterEvent& event) {
    const auto* message = std::get_if<ConnMessage>(&event);
    return message != nullptr && message->conn == conn;
  });
  std::erase_if(for_peers_, [&](const auto& entry) {
    return entry.first == name && std::holds_alternative<FromMaster>(entry.second);
  });
  std::erase_if(peers_.at(name).inbox,
                [](const PeerEvent& event) { return std::holds_alternative<FromMaster>(event); });
}

// Moves time from alarm to alarm, the earliest first.
void ScenarioWorld::wait(base::Duration duration) {
  const Time end = now_ + duration;
  while (true) {
    Time next = std::min(end, master_wake_);
    for (const auto& [name, peer] : peers_) {
      if (!peer.paused) next = std::min(next, peer.wake);
    }
    now_ = std::max(now_, next);
    bool rang = false;
    if (master_.has_value() && master_wake_ <= now_) {
      rang = true;
      master_wake_ = base::kNever;
      to_master(Tick{});
    }
    for (auto& [name, peer] : peers_) {
      if (peer.paused || peer.wake > now_) continue;
      rang = true;
      peer.wake = base::kNever;
      to_peer(name, PeerTick{});
    }
    flow();
    if (!rang && now_ >= end) return;
  }
}

void ScenarioWorld::to_master(MasterEvent event) { for_master_.push_back(std::move(event)); }

void ScenarioWorld::to_peer(const std::string& name, PeerEvent event) {
  for_peers_.emplace_back(name, std::move(event));
}

void ScenarioWorld::flow() {
  for (int left = budget_; left > 0 && !(for_master_.empty() && for_peers_.empty()); --left) {
    if (!for_master_.empty()) {
      const MasterEvent event = std::move(for_master_.front());
      for_master_.pop_front();
      if (master_.has_value()) apply(recorder_->on(*master_, event, now_));
      continue;
    }
    auto [name, event] = std::move(for_peers_.front());
    for_peers_.pop_front();
    Process& peer = peers_.at(name);
    if (!peer.alive) continue;
    const auto* said = std::get_if<FromMaster>(&event);
    const bool welcome = said != nullptr && std::holds_alternative<wire::Welcome>(said->message);
    if (welcome && std::exchange(peer.pauses_at_welcome, false)) peer.paused = true;
    if (peer.paused)
      peer.inbox.push_back(std::move(event));
    else
      apply(name, peer.recorder->on(*peer.machine, event, now_));
  }
}

void ScenarioWorld::apply(MasterEffects effects) {
  bool commits = false;
  for (const auto& record : effects.journal) {
    commits = commits || std::holds_alternative<wire::CommitRecord>(record);
  }
  if (commits && dies_at_commit_ == "before") {
    say("master: dies before the commit is durable");
    dies_at_commit_.clear();
    return crash_master();
  }
  if (behind_ == 0) durable_.insert(durable_.end(), effects.journal.begin(), effects.journal.end());
  if (commits && dies_at_commit_ == "after") {
    say("master: dies after the commit is durable, before telling it");
    dies_at_commit_.clear();
    return crash_master();
  }
  for (const HistoryLine& line : effects.history) {
    if (hidden_.count(line.kind) == 0) say(words(line));
  }
  for (MasterSend& message : effects.send) {
    const auto to = conns_.find(message.conn);
    if (to != conns_.end()) to_peer(to->second, FromMaster{std::move(message.message)});
  }
  for (const ConnId conn : effects.close) {
    to_master(ConnClosed{conn});
    const auto to = conns_.find(conn);
    if (to == conns_.end()) continue;
    Process& peer = peers_.at(to->second);
    to_peer(to->second, Disconnected{{Code::kMasterLost, "closed by the master"}});
    peer.conn = 0;
    conns_.erase(to);
  }
  for (const auto& [incarnation, addresses] : effects.probe) {
    for (const auto& [name, peer] : peers_) {
      if (name == addresses.front()) to_master(ProbeAnswer{incarnation, !peer.alive});
    }
  }
  master_wake_ = effects.wake;
}

void ScenarioWorld::apply(const std::string& name, PeerEffects effects) {
  Process& peer = peers_.at(name);
  tell(name, effects);
  for (const RunAttempt& run : effects.run) peer.running[run.start.round.tag] = run.start.attempt;
  for (const FetchSnapshot& fetch : effects.fetch) peer.wanted[fetch.want.tag] = fetch.want;
  for (wire::Message& message : effects.send) {
    wire::PublicKey key{};  // of the process, whatever its life
    std::copy_n(name.begin(), std::min(name.size(), key.size()), key.begin());
    if (peer.conn != 0)
      to_master(ConnMessage{peer.conn, std::move(message), {key, {}, 0, peer.may_order}});
  }
  peer.wake = effects.wake;
  if (effects.disconnect && peer.conn != 0) {
    to_master(ConnClosed{peer.conn});
    conns_.erase(peer.conn);
    peer.conn = 0;
  }
  if (effects.rejoin) {
    to_peer(name, NewLife{base::next_life(peers_.at(name).machine->incarnation(), 0)});
  }
  if (effects.connect) connect(name);
}

void ScenarioWorld::connect(const std::string& name) {
  Process& peer = peers_.at(name);
  if (!master_.has_value() || !peer.reachable) {
    return to_peer(name, Disconnected{{Code::kMasterLost, "connection refused"}});
  }
  peer.conn = ++next_conn_;
  conns_[peer.conn] = name;
  to_peer(name, Connected{});
}

}  // namespace jccl::protocol
