// Random faults against the machines in the scenario world, with messages still on their way when
// the next thing happens. Small and quick: the simulator does this for real. A failing seed is
// printed with its commands.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <sstream>

#include "base/rng.h"
#include "base/sanitized.h"
#include "base/text.h"
#include "protocol/scenario_world.h"

namespace jccl::protocol {
namespace {

using base::cat;

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : rng_(seed) {
    const std::uint64_t count = 2 + rng_.below(3);
    for (std::uint64_t i = 0; i < count; ++i) names_.push_back(std::string(1, char('a' + i)));
    with_state_ = rng_.chance(0.6);
    run(cat("master history=", 1 + rng_.below(4), " restart_grace=", 2 + rng_.below(20),
            " start_peers=", 1 + rng_.below(count), " min_peers=", 1 + rng_.below(2)));
    for (const auto& name : names_) run(cat("peers ", name));
    if (with_state_) {
      for (const auto& name : names_) run(cat("sync ", name, " model digest=initial"));
    }
  }

  void storm(int steps) {
    for (int i = 0; i < steps; ++i) {
      calm_ = i % 50 > 20;  // faults come in bursts
      world_.deliver_at_most(static_cast<int>(rng_.below(calm_ ? 12 : 4)));
      run(any_command());
    }
  }

  // Everything mends; then every tag must make progress with everybody.
  void heal() {
    world_.deliver_at_most((1 << 30) - 1);
    run("crash-at-commit never");
    if (!world_.has_master()) run("restart");
    for (const auto& name : names_) {
      if (dead_.erase(name) > 0) run(cat("peers ", name));
      run(cat("resume ", name));
      run(cat("plug ", name));
    }
    run("wait 60");
    for (int turn = 0; turn < 30 && !converged(); ++turn) {
      const wire::Tag tag = turn % 2 == 0 || !with_state_ ? "grads" : "model";
      for (const auto& name : names_)
        run(cat("call ", name, " ", tag, state_of(tag), " deadline=20"));
      for (int round = 0; round < 4; ++round) {
        for (const auto& name : names_) run(cat("fetched ", name, " model"));
        run("wait 0.3");
        for (const auto& name : names_) run(cat("done ", name, " ", tag));
      }
      run("wait 21");
    }
  }

  bool converged() const {
    if (lost_) return true;  // every holder is gone: the run has stopped, and said so
    for (const auto& name : names_) {
      const auto found = good_.find(name);
      if (found == good_.end()) return false;
      if (found->second.count("grads") == 0) return false;
      if (with_state_ && found->second.count("model") == 0) return false;
    }
    return true;
  }

  void forget_good() { good_.clear(); }
  bool lost() const { return lost_; }
  const std::string& log() const { return log_; }
  std::size_t commits() const { return commits_.size(); }
  const std::string& replayed() { return world_.replayed(); }

 private:
  const std::string& any_name() { return names_[rng_.below(names_.size())]; }
  wire::Tag any_tag() { return with_state_ && rng_.chance(0.5) ? "model" : "grads"; }
  static std::string state_of(const wire::Tag& tag) { return tag == "model" ? " state=yes" : ""; }

  std::string any_command() {
    const std::string name = any_name();
    const wire::Tag tag = any_tag();
    const std::uint64_t dice = rng_.below(100);
    std::string all;
    for (const auto& one : names_) all += cat(" ", one);
    const std::string who = rng_.chance(0.6) ? all : cat(" ", name);
    if (dice < 30) {
      return cat("call", who, " ", tag, state_of(tag), " deadline=", 2 + rng_.below(20),
                 " weight=", rng_.chance(0.95) ? 1 : 0);
    }
    if (dice < 58) return cat("done", who, " ", tag);
    if (calm_ && dice >= 66) return cat("done", all, " ", tag);
    if (dice < 62) return cat("wait ", 50 + rng_.below(900), "ms");
    if (dice < 66) return cat("fetched ", name, " model");
    if (dice < 68) return cat("fail ", name, " ", tag, " link ", any_name());
    if (dice < 70) return cat("fail ", name, " ", tag, " guard");
    if (dice < 72) return cat("cancel ", name, " ", tag);
    if (dice < 75) return cat("cut ", name);
    if (dice < 77) return cat("unplug ", name);
    if (dice < 81) return cat("plug ", name);
    if (dice < 83) return cat("pause ", name);
    if (dice < 88) return cat("resume ", name);
    if (dice < 90) return cat("wait ", 2 + rng_.below(4));
    if (dice < 91) return dead_.insert(name), cat("kill ", name);
    if (dice < 94) return dead_.erase(name), cat("peers ", name);
    if (dice < 95) return world_.has_master() ? "crash" : "restart";
    if (dice < 96) return cat("crash-at-commit ", rng_.chance(0.5) ? "before" : "after");
    return world_.has_master() ? cat("sync ", name, " model") : "restart";
  }

  void run(const std::string& command) {
    if (!with_state_ && command.find(" model") != std::string::npos) return;
    log_ += cat("> ", command, "\n");
    hear(world_.run(command));
    while (!follow_ups_.empty()) {  // what a program does next
      const std::string next = follow_ups_.front();
      follow_ups_.pop_front();
      log_ += cat(">> ", next, "\n");
      hear(world_.run(next));
    }
  }

  void hear(const std::string& text) {
    log_ += text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      std::string who, what, third;
      in >> who >> what >> third;
      if (who == "commit")
        heard_commit(line);
      else if (what == "keeps")
        kept_[who] = third;
      else if (who.back() == ':')
        heard_peer(who.substr(0, who.size() - 1), what, third, in);
    }
  }

  static std::string field(const std::string& line, const std::string& key) {
    const auto at = line.find(key + "=");
    return line.substr(at + key.size() + 1, line.find(' ', at) - at - key.size() - 1);
  }

  void heard_commit(const std::string& line) {
    const std::string round = cat(field(line, "tag"), " ", field(line, "n"));
    EXPECT_TRUE(commits_.emplace(round, field(line, "attempt")).second) << "twice: " << line;
  }

  void heard_peer(const std::string& name, const wire::Tag& tag, const std::string& n,
                  std::istringstream& in) {
    std::string code;
    in >> code;
    if (tag == "sync") {
      lost_ = lost_ || code == "StateLost";
      if (code != "Ok," && code != "StateLost" && code != "BusyTag") resync_later(name);
      return;
    }
    if (code == "Ok," || code == "Guard,") {
      const std::string attempt = kept_[name + ":"];
      const auto commit = commits_.find(cat(tag, " ", n));
      // The master may have died between the durable record and its history line.
      if (commit == commits_.end())
        commits_[cat(tag, " ", n)] = attempt;
      else
        EXPECT_EQ(commit->second, attempt) << name << " " << tag << " " << n;
      good_[name].insert(tag);
      if (tag == "model") follow_ups_.push_back(cat("publish ", name, " model revision=", n));
    } else if (tag == "model" && (code == "Resync" || code == "Evicted" || code == "InDoubt")) {
      resync_later(name);
    }
  }

  void resync_later(const std::string& name) {
    if (lost_ || dead_.count(name) > 0) return;
    follow_ups_.push_back(cat("sync ", name, " model"));
  }

  std::deque<std::string> follow_ups_;
  base::Rng rng_;
  ScenarioWorld world_;
  std::vector<std::string> names_;
  std::set<std::string> dead_;
  std::map<std::string, std::string> commits_, kept_;
  std::map<std::string, std::set<wire::Tag>> good_;
  bool with_state_ = false, lost_ = false, calm_ = false;
  std::string log_;
};

TEST(RandomTest, faults_break_no_promise_and_the_run_goes_on_after_them) {
  std::size_t commits = 0, lost = 0;
  const char* first = std::getenv("JCCL_SEED");
  const char* count = std::getenv("JCCL_SEEDS");
  const std::uint64_t from = first == nullptr ? 1 : std::strtoull(first, nullptr, 10);
  const std::uint64_t seeds = count != nullptr   ? std::strtoull(count, nullptr, 10)
                              : first != nullptr ? 1
                              : base::kSanitized ? 80
                                                 : 200;
  for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
    RandomRun run(seed);
    run.storm(150);
    run.forget_good();
    run.heal();
    commits += run.commits();
    lost += run.lost();
    EXPECT_TRUE(run.converged()) << "seed " << seed;
    EXPECT_EQ(run.replayed(), "") << "seed " << seed;
    if (HasFailure()) {
      std::fputs(run.log().c_str(), stderr);
      FAIL() << "seed " << seed;
    }
  }
  EXPECT_LE(lost, 1 + seeds / 4) << "too many runs end early to test much";
  EXPECT_GE(commits, 4 * seeds) << "the storm leaves too little of the run";
}

}  // namespace
}  // namespace jccl::protocol
