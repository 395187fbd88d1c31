#include "sim/mutant_search.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "sim/world.h"

namespace jccl::sim {
namespace {

using Clock = std::chrono::steady_clock;

// What a child tells its parent, in memory they share: it may end at any moment.
struct Slot {
  std::uint64_t seed = 0, tried = 0;
  bool found = false, by_script = false;
  char promise[16] = {}, what[240] = {};
};

void put(char* to, std::size_t size, const std::string& text) {
  const std::size_t count = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), count);
  to[count] = 0;
}

// True: caught, and the same run is clean without the bug.
bool try_run(const MutantRow& row, RunOptions options, Slot& slot) {
  slot.seed = options.seed;
  ++slot.tried;
  options.mutant = row.mutant;
  const Report report = simulate(options);
  options.mutant = {};
  if (report.promise.empty() || !simulate(options).promise.empty()) return false;
  put(slot.promise, sizeof slot.promise, report.promise);
  put(slot.what, sizeof slot.what, report.what);
  return slot.found = true;
}

bool try_seed(const MutantRow& row, std::uint64_t seed, bool hostile, Slot& slot) {
  return try_run(row, {seed, {}, false, 0, nullptr, nullptr, hostile}, slot);
}

// A new draw anywhere shifts the rest of a run: other seeds of its script do as well.
bool try_script(const MutantRow& row, Script script, Slot& slot) {
  constexpr std::uint64_t kSeeds = 200;
  if (script.mutant != row.name) return false;
  slot.by_script = true;
  for (std::uint64_t other = 0; other < kSeeds; ++other) {
    if (other > 0) script.seed = other;
    if (try_run(row, {script.seed, {}, false, 0, nullptr, &script}, slot)) return true;
  }
  return slot.by_script = false;
}

[[noreturn]] void search_one(const MutantSearch& search, const MutantRow& row, Slot& slot) {
  const int null = open("/dev/null", O_WRONLY);
  if (null >= 0) dup2(null, STDERR_FILENO);  // the broken invariants are expected here
  const auto known = search.known.find(row.name);
  if (known != search.known.end() && try_seed(row, known->second.seed, search.hostile, slot))
    _exit(0);
  for (const Script& script : search.scripts) {
    if (try_script(row, script, slot)) _exit(0);
  }
  for (std::uint64_t seed = 1; seed <= search.seeds; ++seed) {
    if (try_seed(row, seed, search.hostile, slot)) _exit(0);
  }
  _exit(0);
}

}  // namespace

std::vector<MutantFound> search_mutants(const MutantSearch& search) {
  const std::size_t count = search.rows.size();
  void* memory = mmap(nullptr, sizeof(Slot) * (count + 1), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  JCCL_CHECK(memory != MAP_FAILED);
  Slot* slots = static_cast<Slot*>(memory);
  std::vector<MutantFound> all(count);
  std::vector<Clock::time_point> begun(count);
  std::map<pid_t, std::size_t> running;
  std::size_t next = 0;
  std::fflush(nullptr);
  while (next < count || !running.empty()) {
    if (next < count && running.size() < search.jobs) {
      slots[next] = {};
      begun[next] = Clock::now();
      const pid_t child = fork();
      JCCL_CHECK(child >= 0);
      if (child == 0) search_one(search, *search.rows[next], slots[next]);
      running[child] = next++;
      continue;
    }
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    const auto entry = running.find(ended);
    if (entry == running.end()) continue;
    const std::size_t i = entry->second;
    running.erase(entry);
    const Slot& slot = slots[i];
    const std::chrono::duration<double> took = Clock::now() - begun[i];
    all[i] = {search.rows[i], slot.found ? slot.seed : 0,
              slot.by_script, slot.tried,
              took.count(),   slot.promise,
              slot.what};
    if (WIFSIGNALED(status)) {
      all[i].seed = slot.seed;
      all[i].promise = "invariant", all[i].what = "an assertion of the machines was broken";
    }
  }
  munmap(memory, sizeof(Slot) * (count + 1));
  return all;
}

void print_found(const std::vector<MutantFound>& all) {
  std::size_t width = 0, survived = 0;
  double seconds = 0;
  for (const MutantFound& one : all) width = std::max(width, one.row->name.size());
  const int w = static_cast<int>(width);
  std::printf("%-*s %-9s %7s %7s %7s\n", w, "mutant", "broken", "seed", "tried", "s");
  for (const MutantFound& one : all) {
    const bool found = one.seed != 0;
    survived += found ? 0 : 1;
    seconds += one.seconds;
    std::printf("%-*s %-9s %7llu %7llu %7.1f%s\n", w, std::string(one.row->name).c_str(),
                found ? one.promise.c_str() : "SURVIVED", static_cast<unsigned long long>(one.seed),
                static_cast<unsigned long long>(one.tried), one.seconds,
                one.by_script ? " of its script" : "");
  }
  std::printf("%zu mutants, %zu survived, %.0f s in all\n", all.size(), survived, seconds);
}

}  // namespace jccl::sim
