// master_load: one crowd of simulated peers against a running master. Measures what the master
// costs without any data: messages, bytes, its CPU seconds and memory, times of rounds. Prints one
// JSON object. See benchmarks/master_load.py, which starts both.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "master_load_crowd.h"

namespace jccl::bench {
namespace {

using base::cat;
using base::Duration;
using base::Status;

struct Options {
  CrowdOptions crowd;
  std::string master_pid;
  std::size_t tags = 1, rounds = 20, replaced = 0;
  Duration pace = 0, idle = 0;
};

struct Cost {  // of the master's process, so far
  double cpu_s = 0;
  long rss_kib = 0;
};

// Threads that have ended are missing; the master keeps its own.
Cost cost_of(const std::string& pid) {
  Cost cost;
  for (const auto& task : std::filesystem::directory_iterator(cat("/proc/", pid, "/task"))) {
    double ran_ns = 0;
    std::ifstream(task.path() / "schedstat") >> ran_ns;
    cost.cpu_s += ran_ns / 1e9;
  }
  std::ifstream status(cat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) cost.rss_kib = std::stol(line.substr(6));
  }
  return cost;
}

struct Phase {
  std::string name;
  double wall_s = 0, cpu_s = 0;
  long rss_kib = 0;
  Traffic traffic;
  std::vector<Duration> times;  // of all rounds of all tags
  double slowest_tag = 0;       // its mean over the fastest tag's
};

class Meter {
 public:
  Meter(const Options& options, Crowd* crowd) : options_(options), crowd_(crowd) {}

  template <typename Step>
  Status measure(const std::string& name, Step step) {
    const Cost before = cost_of(options_.master_pid);
    const Traffic heard = crowd_->traffic();
    const base::Time began = steady_now();
    std::map<wire::Tag, std::vector<Duration>> times;
    if (Status status = step(&times); !status.ok()) return status;
    Phase phase;
    phase.name = name;
    phase.wall_s = static_cast<double>(steady_now() - began) / 1e9;
    const Cost after = cost_of(options_.master_pid);
    phase.cpu_s = after.cpu_s - before.cpu_s;
    phase.rss_kib = after.rss_kib;
    phase.traffic = crowd_->traffic() - heard;
    gather(times, &phase);
    phases_.push_back(std::move(phase));
    return {};
  }

  std::string json() const {
    std::string out = cat("{\"peers\": ", options_.crowd.peers, ", \"tags\": ", options_.tags,
                          ", \"wrong\": ", crowd_->wrong(), ", \"phases\": {");
    for (const Phase& phase : phases_) {
      out += cat(&phase == &phases_.front() ? "" : ", ", "\"", phase.name, "\": ", json(phase));
    }
    return out + "}}";
  }

 private:
  static void gather(const std::map<wire::Tag, std::vector<Duration>>& times, Phase* phase) {
    double slowest = 0, fastest = 0;
    for (const auto& [tag, own] : times) {
      phase->times.insert(phase->times.end(), own.begin(), own.end());
      double mean = 0;
      for (const Duration time : own) mean += static_cast<double>(time);
      mean /= static_cast<double>(own.size());
      slowest = std::max(slowest, mean);
      fastest = fastest == 0 ? mean : std::min(fastest, mean);
    }
    std::sort(phase->times.begin(), phase->times.end());
    phase->slowest_tag = fastest == 0 ? 0 : slowest / fastest;
  }

  static std::string json(const Phase& phase) {
    const auto at = [&](double part) {
      if (phase.times.empty()) return 0.0;
      const auto last = static_cast<double>(phase.times.size() - 1);
      return static_cast<double>(phase.times[static_cast<std::size_t>(part * last)]) / 1e6;
    };
    char text[512];
    std::snprintf(text, sizeof text,
                  "{\"wall_s\": %.4f, \"cpu_s\": %.4f, \"rss_kib\": %ld, \"rounds\": %zu, "
                  "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"slowest_tag\": %.3f, \"to_master\": %llu, "
                  "\"to_master_bytes\": %llu, \"from_master\": %llu, \"from_master_bytes\": %llu}",
                  phase.wall_s, phase.cpu_s, phase.rss_kib, phase.times.size(), at(0.5), at(0.99),
                  phase.slowest_tag, static_cast<unsigned long long>(phase.traffic.sent),
                  static_cast<unsigned long long>(phase.traffic.sent_bytes),
                  static_cast<unsigned long long>(phase.traffic.received),
                  static_cast<unsigned long long>(phase.traffic.received_bytes));
    return text;
  }

  const Options& options_;
  Crowd* crowd_;
  std::vector<Phase> phases_;
};

using Times = std::map<wire::Tag, std::vector<Duration>>;

Status run(const Options& options) {
  Crowd crowd(options.crowd);
  Meter meter(options, &crowd);
  Status status = meter.measure("connect", [&](Times*) { return crowd.connect(); });
  if (!status.ok()) return status;
  const auto rounds = [&](std::size_t count, Duration pace) {
    return [&crowd, &options, count, pace](Times* times) {
      return crowd.run(options.tags, count, pace, times);
    };
  };
  // The first round of each tag admits everybody.
  if (status = meter.measure("admit", rounds(1, 0)); !status.ok()) return status;
  if (status = meter.measure("rounds", rounds(options.rounds, options.pace)); !status.ok()) {
    return status;
  }
  if (options.idle > 0) {
    status = meter.measure("idle", [&](Times*) { return crowd.idle(options.idle); });
    if (!status.ok()) return status;
  }
  for (std::size_t i = 0; i < options.replaced; ++i) {
    status = meter.measure(cat("replace-", i), [&](Times* times) {
      const Status replaced = crowd.replace_one();
      return replaced.ok() ? crowd.run(options.tags, 1, 0, times) : replaced;
    });
    if (!status.ok()) return status;
  }
  std::printf("%s\n", meter.json().c_str());
  return {};
}

constexpr option kFlags[] = {
    {"master", required_argument, nullptr, 'm'},    {"master-pid", required_argument, nullptr, 'P'},
    {"peers", required_argument, nullptr, 'p'},     {"tags", required_argument, nullptr, 't'},
    {"rounds", required_argument, nullptr, 'r'},    {"pace-ms", required_argument, nullptr, 'c'},
    {"idle-ms", required_argument, nullptr, 'i'},   {"replaced", required_argument, nullptr, 'x'},
    {"unequal-weights", no_argument, nullptr, 'w'}, {nullptr, 0, nullptr, 0}};

bool parse(int argc, char** argv, Options* options) {
  int flag = 0;
  while ((flag = ::getopt_long(argc, argv, "", kFlags, nullptr)) != -1) {
    const std::string text = ::optarg == nullptr ? "" : ::optarg;
    const auto number = [&] { return std::strtoull(text.c_str(), nullptr, 10); };
    if (flag == 'm') options->crowd.address = text;
    if (flag == 'P') options->master_pid = text;
    if (flag == 'p') options->crowd.peers = number();
    if (flag == 't') options->tags = number();
    if (flag == 'r') options->rounds = number();
    if (flag == 'c') options->pace = static_cast<Duration>(number()) * base::kMillisecond;
    if (flag == 'i') options->idle = static_cast<Duration>(number()) * base::kMillisecond;
    if (flag == 'x') options->replaced = number();
    if (flag == 'w') options->crowd.unequal_weights = true;
    if (flag == '?') return false;
  }
  return !options->crowd.address.empty() && !options->master_pid.empty() &&
         options->crowd.peers > 0 && options->tags > 0;
}

}  // namespace
}  // namespace jccl::bench

int main(int argc, char** argv) {
  jccl::bench::Options options;
  if (!jccl::bench::parse(argc, argv, &options)) {
    std::fputs(
        "usage: master_load --master HOST:PORT --master-pid PID --peers N [--tags N]\n"
        "  [--rounds N] [--pace-ms N] [--idle-ms N] [--replaced N] [--unequal-weights]\n",
        stderr);
    return 2;
  }
  const jccl::base::Status status = jccl::bench::run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "master_load: %s\n", status.text.c_str());
  return 1;
}
