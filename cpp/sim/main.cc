// jccl-sim: runs seeds of the deterministic simulation. Exit 0: all promises kept; 1: one broken
// (seed, promise and the last lines of the run are printed); 2: wrong usage. Each job is a thread
// with worlds of its own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/codes.h"
#include "base/text.h"
#include "sim/mutant_search.h"
#include "sim/replay.h"
#include "sim/shrink.h"
#include "sim/world.h"
#include "wire/serialize.h"

extern const char* const jccl_sim_commit;

namespace {

using namespace jccl;
using namespace jccl::sim;

struct Options {
  std::uint64_t seeds = 1000, first = 1;
  unsigned jobs = 1;
  bool trace = false, twice = false, coverage = false, keep_going = false;
  const MutantRow* mutant = nullptr;
  bool mutants = false, seeds_given = false;
  std::string from, rewrite, script, recording;
  std::map<std::uint64_t, std::string> open;  // alarms that are known and not mended: seed, why
  std::map<std::uint64_t, std::string> rare;  // run besides: seed, the rare pair that it meets
  bool shrink = false, require_coverage = false, hostile = false;
  base::Planted planted() const { return mutant == nullptr ? base::Planted{} : mutant->mutant; }
};

// From so many seeds on, every pair of phase and input must have been met. Who requires it of fewer
// seeds looks further for the rest, up to here.
constexpr std::uint64_t kCoverageSeeds = 100'000;

thread_local std::uint64_t current_seed = 0;

void on_fatal(int signal) {
  std::fprintf(stderr, "jccl-sim: %s in seed %llu\n",
               signal == SIGSEGV ? "memory was misused" : "a check failed",
               static_cast<unsigned long long>(current_seed));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Lines of a seed and of what is known about it; those of # say something else.
bool read_seeds(const char* path, std::map<std::uint64_t, std::string>& seeds) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    char* rest = nullptr;
    const std::uint64_t seed = std::strtoull(line.c_str(), &rest, 10);
    if (rest == line.c_str()) return false;
    seeds[seed] = rest;
  }
  return in.eof();
}

constexpr const char* kUsage =
    "usage: jccl-sim [--seeds N] [--first-seed S] [--jobs J] [--seed S] [--trace] [--twice]\n"
    "                [--hostile] [--keep-going] [--coverage] [--require-coverage] [--open FILE]\n"
    "                [--rare FILE] [--rewrite FILE] [--mutant NAME]\n"
    "       jccl-sim --seed S --shrink | --script FILE [--shrink] [--trace]\n"
    "       jccl-sim --mutants [--hostile] [--mutant NAME] [--seeds N] [--jobs J] [--from FILE]\n"
    "                [--rewrite FILE]\n"
    "       jccl-sim --replay FILE [--trace]\n"
    "Runs N seeds of the simulated cluster against the promises P1-P10 and liveness (L).\n"
    "--seed S runs one; --trace prints all of it; --twice runs each seed twice and compares;\n"
    "--hostile makes one member lie.\n"
    "--require-coverage runs those of --rare besides, and more (up to 100,000) until every pair of "
    "phase\n"
    "and input was met; --rewrite writes the seeds that were needed.\n"
    "--shrink makes a run that breaks a promise as small as it can and prints it as a script; of "
    "many seeds that is done for the first that does, more quickly; --script runs "
    "one.\n"
    "--mutant NAME plants a bug; --mutants looks for a seed that catches each of them (up to "
    "100,000\n"
    "seeds; with --from, those listed in FILE, from their seed there or their script in the folder "
    "scripts\n"
    "beside it), prints a table, and exits 1 "
    "if one survives.\n"
    "--replay FILE plays a recording of a flight recorder into the machine that it is of, tells "
    "its "
    "story\n"
    "(with --trace all of it), and exits 1 where this build does something else, 2 where it can't "
    "be read.\n";

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (arg == "--trace")
      options.trace = true;
    else if (arg == "--twice")
      options.twice = true;
    else if (arg == "--coverage")
      options.coverage = true;
    else if (arg == "--require-coverage")
      options.coverage = options.require_coverage = true;
    else if (arg == "--keep-going")
      options.keep_going = true;
    else if (arg == "--mutants")
      options.mutants = true;
    else if (arg == "--shrink")
      options.shrink = true;
    else if (arg == "--hostile")
      options.hostile = true;
    else if (value == nullptr)
      return false;
    else if (arg == "--seeds")
      options.seeds = std::strtoull(argv[++i], nullptr, 10), options.seeds_given = true;
    else if (arg == "--first-seed")
      options.first = std::strtoull(argv[++i], nullptr, 10);
    else if (arg == "--jobs")
      options.jobs = static_cast<unsigned>(std::atoi(argv[++i]));
    else if (arg == "--seed")
      options.first = std::strtoull(argv[++i], nullptr, 10), options.seeds = 1;
    else if (arg == "--script")
      options.script = argv[++i];
    else if (arg == "--replay")
      options.recording = argv[++i];
    else if (arg == "--open" || arg == "--rare") {
      if (!read_seeds(argv[++i], arg == "--open" ? options.open : options.rare)) return false;
    } else if (arg == "--from")
      options.from = argv[++i];
    else if (arg == "--rewrite")
      options.rewrite = argv[++i];
    else if (arg == "--mutant") {
      options.mutant = find_mutant(argv[++i]);
      if (options.mutant == nullptr) return false;
    } else
      return false;
  }
  return options.jobs >= 1 && options.jobs <= 256;
}

constexpr std::uint64_t kShrinkRuns = 2000;  // of the first failure of many seeds: some seconds

void print_line(const std::string& line) { std::puts(line.c_str()); }

// The run is deterministic: what a quick run found, a traced one shows.
void show(const Report& report, const Options& options) {
  std::printf("seed %llu, commit %s: %s broken: %s\n  %s\n",
              static_cast<unsigned long long>(report.seed), jccl_sim_commit, report.promise.c_str(),
              report.what.c_str(), report.mix.describe().c_str());
  if (options.trace) return;
  const Report again =
      simulate({report.seed, options.planted(), true, 30, nullptr, nullptr, options.hostile});
  for (const std::string& line : again.tail) std::printf("  %s\n", line.c_str());
  const auto seed = static_cast<unsigned long long>(report.seed);
  std::printf("  replay: jccl-sim%s --seed %llu --trace\n", options.hostile ? " --hostile" : "",
              seed);
  std::fflush(stdout);
}

// The smallest script found in `runs_max` runs that breaks the same promise.
void show_smaller(Script script, const Report& broken, const Options& options,
                  std::uint64_t runs_max) {
  script.promise = broken.promise;
  if (options.mutant != nullptr) script.mutant = options.mutant->name;
  const Shrunk small = shrink(script, options.planted(), runs_max);
  std::printf("# %llu runs, %zu faults became %zu: %s\n%s",
              static_cast<unsigned long long>(small.runs), script.faults.size(),
              small.script.faults.size(),
              small.report.what.substr(0, small.report.what.find('\n')).c_str(),
              to_text(small.script).c_str());
}

// One run by its script, or the smallest script that breaks what it (or a seed) breaks.
int replay(Options options) {
  Script script;
  if (!options.script.empty()) {
    std::ifstream file(options.script);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    base::Result<Script> read = read_script(text);
    if (!file || !read.ok()) {
      std::fprintf(stderr, "jccl-sim: %s is no script: %s\n", options.script.c_str(),
                   read.ok() ? "" : read.status().text.c_str());
      return 2;
    }
    script = std::move(read.value());
    if (options.mutant == nullptr && !script.mutant.empty()) {
      options.mutant = find_mutant(script.mutant);
      if (options.mutant == nullptr) {
        std::fprintf(stderr, "jccl-sim: no planted bug is called %s\n", script.mutant.c_str());
        return 2;
      }
    }
  } else {
    script = script_of(simulate({options.first, options.planted()}));
  }
  RunOptions run{script.seed, options.planted(), options.trace, 0, print_line, &script};
  const Report report = simulate(run);
  std::printf("commit %s: %s%s%s\n", jccl_sim_commit,
              report.promise.empty() ? "all promises kept" : report.promise.c_str(),
              report.promise.empty() ? "" : " broken: ", report.what.c_str());
  if (!options.shrink || report.promise.empty()) return report.promise.empty() ? 0 : 1;
  show_smaller(std::move(script), report, options, 20'000);
  return 1;
}

void print_counts(const Counts& c, double seconds) {
  const auto n = [](std::uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf(
      "%llu seeds in %.1f s (%.0f/s): %llu events, %llu messages, %llu commits, "
      "%llu aborted attempts, %llu deliveries\n",
      n(c.seeds), seconds, static_cast<double>(c.seeds) / seconds, n(c.events), n(c.messages),
      n(c.commits), n(c.aborts), n(c.deliveries));
  std::printf(
      "%llu admissions, %llu late joiners, %llu syncs, %llu master starts, %llu torn rows, "
      "%llu seeds lost a state\n",
      n(c.admissions), n(c.joins), n(c.syncs), n(c.master_starts), n(c.torn_rows),
      n(c.lost_states));
  std::printf(
      "%llu takeovers, %llu masters fenced, %llu failed writes, %llu damaged journals refused, "
      "%llu flipped frames dropped, %llu measures, %llu rings for speed\n%llu edits, %llu calls "
      "without a sync, "
      "%llu second sources refused\ncommits per seed:",
      n(c.takeovers), n(c.fenced), n(c.failed_writes), n(c.refused_journals), n(c.flipped),
      n(c.measured), n(c.fast_rings), n(c.edits), n(c.forgotten), n(c.claims_refused));
  const char* const steps[] = {"0", "1-2", "3-9", "10-19", "20-29", "30-59", "60-119", "120+"};
  for (std::size_t i = 0; i < c.commits_spread.size(); ++i) {
    std::printf(" %s: %.1f %%", steps[i],
                100.0 * static_cast<double>(c.commits_spread[i]) / static_cast<double>(c.seeds));
  }
  std::printf("\n");
  std::printf("faults:");
  for (std::size_t i = 0; i < kFaults; ++i) {
    const std::string name(name_of(static_cast<Fault>(i)));
    std::printf(" %s %llu", name.c_str(), n(c.faults[i]));
  }
  std::printf("\ncalls ended:");
  for (std::size_t i = 0; i < kCodes; ++i) {
    const std::string name(base::name_of(static_cast<base::Code>(i)));
    if (c.codes[i] > 0) std::printf(" %s %llu", name.c_str(), n(c.codes[i]));
  }
  std::printf("\n");
}

struct Shared {
  std::vector<std::uint64_t> seeds;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> broken{0};
  std::mutex mutex;
  Counts counts;
  std::optional<Report> first;                 // that broke a promise
  std::vector<std::string> missing;            // pairs that nobody met yet
  std::map<std::uint64_t, std::string> found;  // seeds that did then, and what they met
};

// The next seed of the list; the list's end, or a broken promise, ends the work.
std::optional<std::uint64_t> next_seed(const Options& options, Shared& shared) {
  const std::uint64_t i = shared.next.fetch_add(1);
  if (i >= shared.seeds.size() || (shared.broken > 0 && !options.keep_going)) return {};
  return shared.seeds[i];
}

Counts run_one(const Options& options, std::uint64_t seed, Shared& shared) {
  current_seed = seed;
  RunOptions run{seed, options.planted(), options.trace, 0, print_line, nullptr, options.hostile};
  Report report = simulate(run);
  if (options.twice && simulate(run).trace_hash != report.trace_hash) {
    report.promise = "determinism", report.what = "two runs of the seed differ";
  }
  Counts counts = report.counts;
  if (report.promise.empty()) return counts;
  const std::lock_guard lock(shared.mutex);
  if (const auto known = options.open.find(seed); known != options.open.end()) {
    std::printf("seed %llu broke %s, which is open: %s\n", static_cast<unsigned long long>(seed),
                report.promise.c_str(), known->second.c_str());
    return counts;
  }
  ++shared.broken;
  show(report, options);
  if (!shared.first) shared.first = std::move(report);
  return counts;
}

void work(const Options& options, Shared& shared) {
  Counts counts;
  while (const std::optional<std::uint64_t> seed = next_seed(options, shared)) {
    counts.add(run_one(options, *seed, shared));
  }
  const std::lock_guard lock(shared.mutex);
  shared.counts.add(counts);
}

// More seeds, one by one, until every pair was met.
void look_further(const Options& options, Shared& shared) {
  while (const std::optional<std::uint64_t> seed = next_seed(options, shared)) {
    const Counts counts = run_one(options, *seed, shared);
    const std::lock_guard lock(shared.mutex);
    if (shared.missing.empty()) return;
    shared.counts.add(counts);
    std::vector<std::string> left;
    to_text(shared.counts.coverage, &left);
    for (const std::string& pair : shared.missing) {
      if (std::find(left.begin(), left.end(), pair) != left.end()) continue;
      std::string& met = shared.found[*seed];
      met += (met.empty() ? " " : ", ") + pair;
    }
    shared.missing = std::move(left);
  }
}

using Work = void (*)(const Options& options, Shared& shared);
void on_threads(Work job, const Options& options, Shared& shared) {
  std::vector<std::thread> threads;
  for (unsigned j = 1; j < options.jobs; ++j) threads.emplace_back(job, options, std::ref(shared));
  job(options, shared);
  for (std::thread& thread : threads) thread.join();
}

bool write_rare(const std::string& path, const std::map<std::uint64_t, std::string>& rare) {
  std::ofstream out(path);
  out << "# Written by: make long-rare\n"
         "# Seeds after CI's fixed ones, each with the pair of phase and input that it met "
         "first.\n";
  for (const auto& [seed, pairs] : rare) out << seed << pairs << "\n";
  return static_cast<bool>(out.flush());
}

// What the fixed seeds and those of the list have not met, later ones are to meet. False: no file
// could be written.
bool cover(const Options& options, Shared& shared) {
  to_text(shared.counts.coverage, &shared.missing);
  if (shared.missing.empty() || shared.broken > 0 || !options.require_coverage) return true;
  std::printf("%zu pairs are not met yet: looking further\n", shared.missing.size());
  shared.seeds.clear();
  for (std::uint64_t i = options.seeds; i < kCoverageSeeds; ++i) {
    shared.seeds.push_back(options.first + i);
  }
  shared.next = 0;
  on_threads(look_further, options, shared);
  for (const auto& [seed, pairs] : shared.found) {
    std::printf("seed %llu met%s\n", static_cast<unsigned long long>(seed), pairs.c_str());
  }
  if (!shared.found.empty() && options.rewrite.empty()) {
    std::puts("to meet them at once: make long-rare, and keep what it writes");
  }
  return options.rewrite.empty() || write_rare(options.rewrite, shared.found);
}

// Those beside the table that have a planted bug.
std::vector<Script> scripts_beside(const std::string& table) {
  std::vector<Script> scripts;
  const auto folder = std::filesystem::path(table).parent_path() / "scripts";
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    std::ifstream file(entry.path());
    base::Result<Script> read = read_script({std::istreambuf_iterator<char>(file), {}});
    if (read.ok() && !read.value().mutant.empty()) scripts.push_back(std::move(read.value()));
  }
  return scripts;
}

int hunt(const Options& options) {
  MutantSearch search;
  search.jobs = options.jobs;
  if (options.seeds_given) search.seeds = options.seeds;
  search.hostile = options.hostile;
  for (const MutantRow& row : options.hostile ? hostile_mutants() : mutants()) {
    if (options.mutant == nullptr || options.mutant->mutant == row.mutant) {
      search.rows.push_back(&row);
    }
  }
  if (!options.from.empty()) {
    std::ifstream file(options.from);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    base::Result<Catches> known = read_catches(text);
    if (!file || !known.ok()) return std::fputs("jccl-sim: no table of seeds there\n", stderr), 2;
    search.known = std::move(known.value());
    if (!options.hostile) search.scripts = scripts_beside(options.from);
    // Who is not in the table takes long: that is for a search without one.
    std::erase_if(search.rows, [&](const MutantRow* row) {
      const bool listed = search.known.count(row->name) > 0 || options.mutant != nullptr;
      if (!listed) std::printf("not in the table, skipped: %s\n", std::string(row->name).c_str());
      return !listed;
    });
  }
  const std::vector<MutantFound> all = search_mutants(search);
  print_found(all);
  Catches catches = search.known;
  bool survived = false;
  for (const MutantFound& one : all) {
    survived = survived || one.seed == 0;
    if (one.seed == 0 || one.by_script) continue;  // its line stays as it is
    catches[std::string(one.row->name)] = {one.seed, one.promise};
  }
  if (!options.rewrite.empty()) std::ofstream(options.rewrite) << write_catches(catches);
  return survived ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) return std::puts(kUsage), 0;
  if (!parse(argc, argv, options)) return std::fputs(kUsage, stderr), 2;
  if (options.mutants) return hunt(options);
  if (options.shrink || !options.script.empty()) return replay(options);
  if (!options.recording.empty()) {
    return replay_recording(options.recording, options.trace, jccl_sim_commit);
  }
  for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, on_fatal);
  const auto begin = std::chrono::steady_clock::now();
  Shared shared;
  for (std::uint64_t i = 0; i < options.seeds; ++i) shared.seeds.push_back(options.first + i);
  for (const auto& [seed, pairs] : options.rare) {
    const bool fixed = seed >= options.first && seed - options.first < options.seeds;
    if (!fixed) shared.seeds.push_back(seed);
  }
  on_threads(work, options, shared);
  const bool written = cover(options, shared);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  print_counts(shared.counts, took.count());
  const auto broken = static_cast<unsigned long long>(shared.broken.load());
  if (options.coverage) {
    std::fputs(to_text(shared.counts.coverage, &shared.missing).c_str(), stdout);
  }
  const bool required =
      options.require_coverage || (options.coverage && options.seeds >= kCoverageSeeds);
  const bool missed = required && !shared.missing.empty();
  if (!written) std::fprintf(stderr, "jccl-sim: %s can't be written\n", options.rewrite.c_str());
  if (shared.first && shared.first->promise != "determinism") {
    show_smaller(script_of(*shared.first), *shared.first, options, kShrinkRuns);
  }
  std::printf("%llu seeds broke a promise\n", broken);
  return broken == 0 && !missed && written ? 0 : 1;
}
