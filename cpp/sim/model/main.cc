// jccl-model: searches the small world whole. Exit 0: every reachable state keeps every promise;
// 1: one is broken (the shortest way to it is printed); 2: wrong usage; 3: stopped at --states.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/model/search.h"
#include "sim/mutants.h"

namespace {

using namespace jccl::sim;

constexpr const char* kUsage =
    "usage: jccl-model [--peers N] [--late N] [--rounds N] [--min-peers N] [--state] [--faults N]\n"
    "                  [--ticks N] [--history N] [--begun] [--coarse] [--all] [--jobs J]\n"
    "                  [--states N] [--mutant NAME] [--quiet]\n"
    "Visits every state that N peers and a master can reach in N rounds with at most so many\n"
    "faults (deaths, resets, failed links) and timers that fire before messages arrive. Of steps "
    "that\n"
    "commute only one order is tried, unless --all is given. --begun: everybody is connected "
    "first;\n"
    "--coarse: greetings and rosters take no time.\n";

struct Options {
  model::Scope scope;
  model::Limits limits;
  const MutantRow* mutant = nullptr;
};

void tell(std::uint64_t states) {
  std::fprintf(stderr, "%llu states\n", static_cast<unsigned long long>(states));
}

bool parse(int argc, char** argv, Options& options) {
  options.limits.report = tell;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--state") {
      options.scope.state = true;
      continue;
    }
    if (arg == "--begun" || arg == "--coarse") {
      (arg == "--begun" ? options.scope.begun : options.scope.coarse) = true;
      continue;
    }
    if (arg == "--all") {
      options.scope.reduce = false;
      continue;
    }
    if (arg == "--quiet") {
      options.limits.report = nullptr;
      continue;
    }
    if (++i >= argc) return false;
    const auto number = static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
    if (arg == "--peers")
      options.scope.peers = number;
    else if (arg == "--late")
      options.scope.late = number;
    else if (arg == "--rounds")
      options.scope.rounds = number;
    else if (arg == "--min-peers")
      options.scope.min_peers = number;
    else if (arg == "--faults")
      options.scope.faults = number;
    else if (arg == "--ticks")
      options.scope.ticks = number;
    else if (arg == "--history")
      options.scope.history = number;
    else if (arg == "--jobs")
      options.limits.threads = std::max(1U, number);
    else if (arg == "--states")
      options.limits.states_max = std::strtoull(argv[i], nullptr, 10);
    else if (arg == "--mutant" && (options.mutant = find_mutant(argv[i])) != nullptr)
      continue;
    else
      return false;
  }
  const model::Scope& scope = options.scope;
  return scope.peers >= 1 && scope.peers <= 8 && scope.late < scope.peers && scope.rounds <= 8;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) return std::puts(kUsage), 0;
  if (!parse(argc, argv, options)) return std::fputs(kUsage, stderr), 2;
  if (options.mutant != nullptr) jccl::base::planted_in_thread = options.mutant->mutant;
  const auto begin = std::chrono::steady_clock::now();
  const model::Found found = model::search(options.scope, options.limits);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto n = [](std::uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf("%llu states, %llu transitions, depth %llu, %llu quiet states, %.1f s%s\n",
              n(found.states), n(found.transitions), n(found.depth), n(found.quiet), took.count(),
              found.whole ? ", all of them" : ", NOT ALL: stopped at --states");
  std::printf("%llu ends %llx, by faults left:", n(found.ends), n(found.ends_sum));
  for (std::uint32_t left = 0; left <= options.scope.faults && left < model::kLayers; ++left) {
    std::printf(" %u: %llu", left, n(found.layers[left]));
  }
  std::printf("\n");
  if (found.promise.empty()) return found.whole ? 0 : 3;
  std::printf("%s broken: %s\n", found.promise.c_str(), found.what.c_str());
  for (const std::string& line : found.trace) std::printf("  %s\n", line.c_str());
  return 1;
}
