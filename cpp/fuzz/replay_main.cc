// Runs the stored inputs of every target (or of those named), in any build:
//
//   jccl-fuzz-replay CORPORA [TARGET…]            CORPORA/TARGET/… and each target's own seeds
//   jccl-fuzz-replay --file TARGET FILE           one input, e.g. one that ended a search
//   jccl-fuzz-replay --unpack CORPORA TARGET DIR  one file per input, for libFuzzer
//   jccl-fuzz-replay --pack DIR FILE              the other way
//   jccl-fuzz-replay --generate FROM COUNT        inputs of `hostile` by number; what they reached
//   jccl-fuzz-replay --collect FROM COUNT FILE    adds those of them that reach something new,
//   until
//                                                 nothing is missing
//   jccl-fuzz-replay --reached CORPORA            those of `hostile` and `introduction`; fails
//                                                 where the stored ones leave something out
//   jccl-fuzz-replay --others CORPORA             those of every other target
//   jccl-fuzz-replay --list
// With --trace, `hostile` says what it does.
#include <sys/time.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "fuzz/corpus.h"
#include "fuzz/hostile/hostile_coverage.h"
#include "fuzz/targets/introduction_judge.h"

namespace jccl::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<Bytes> inputs_of(const Target& target, const fs::path& corpora) {
  std::vector<Bytes> out = target.seeds();
  for (Bytes& input : read_inputs(corpora / target.name)) out.push_back(std::move(input));
  out.emplace_back();  // and nothing at all
  return out;
}

int replay(const fs::path& corpora, const std::vector<std::string>& names) {
  if (!fs::is_directory(corpora)) {
    std::fprintf(stderr, "%s: no such folder\n", corpora.c_str());
    return 2;
  }
  for (const std::string& name : names) {
    if (find_target(name) == nullptr) {
      std::fprintf(stderr, "%s: no such target; see --list\n", name.c_str());
      return 2;
    }
  }
  for (const Target& target : targets()) {
    if (!names.empty() && std::ranges::count(names, target.name) == 0) continue;
    const std::vector<Bytes> inputs = inputs_of(target, corpora);
    for (const Bytes& input : inputs) target.run(input);
    std::printf("%-12s %6zu inputs\n", std::string(target.name).c_str(), inputs.size());
    std::fflush(stdout);
  }
  return 0;
}

int replay_file(const std::string& name, const fs::path& file) {
  const Target* target = find_target(name);
  const std::vector<Bytes> inputs = read_inputs(file);
  if (target == nullptr || inputs.empty()) {
    std::fprintf(stderr, "no target %s, or no file %s\n", name.c_str(), file.c_str());
    return 2;
  }
  for (const Bytes& input : inputs) target->run(input);
  return 0;
}

constexpr int kProcessorSecondsMax = 60;  // of one input, which takes milliseconds
std::uint64_t running_number = 0;

void name_number(int signal) {
  std::fprintf(stderr, "input %llu %s\n", static_cast<unsigned long long>(running_number),
               signal == SIGPROF ? "does not end" : "ended it");
  if (signal == SIGPROF) std::_Exit(1);
}

// Every input by its number, so that a range that was run needs no other note than its ends.
int generate(std::uint64_t from, std::uint64_t count) {
  for (const int signal : {SIGABRT, SIGPROF}) std::signal(signal, name_number);
  for (running_number = from; running_number < from + count; ++running_number) {
    const itimerval limit{{0, 0}, {kProcessorSecondsMax, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    run_hostile(hostile_input(running_number));
  }
  std::fputs(coverage_text().c_str(), stdout);
  return 0;
}

// Keeps those inputs of a range that reach something new.
int collect(std::uint64_t from, std::uint64_t count, const fs::path& file) {
  std::vector<Bytes> kept = fs::exists(file) ? read_inputs(file) : std::vector<Bytes>{};
  for (const Bytes& input : kept) run_hostile(input);
  std::size_t before = reached().size();
  for (std::uint64_t number = from; number < from + count; ++number) {
    Bytes input = hostile_input(number);
    run_hostile(input);
    const std::size_t now = reached().size();
    if (std::exchange(before, now) == now) continue;
    kept.push_back(std::move(input));
    if (not_reached().empty()) break;
  }
  std::printf("%zu inputs reach %zu things\n", kept.size(), before);
  for (const std::string& what : not_reached()) std::printf("not reached: %s\n", what.c_str());
  return write_corpus(file, kept) ? 0 : 2;
}

bool counts_what_it_reaches(const Target& target) {
  return target.name == "hostile" || target.name == "introduction";
}

int check_reached(const fs::path& corpora) {
  for (const Bytes& input : read_inputs(corpora / "hostile")) run_hostile(input);
  for (const Bytes& input : read_inputs(corpora / "introduction")) run_introduction(input);
  std::fputs(coverage_text().c_str(), stdout);
  const std::vector<std::string> missing = not_reached(), endings = endings_not_reached();
  for (const Target& target : targets()) {  // and what is not stored
    if (!counts_what_it_reaches(target)) continue;
    for (const Bytes& input : target.seeds()) target.run(input);
    target.run({});
  }
  for (const auto* all : {&missing, &endings}) {
    for (const std::string& what : *all) {
      std::fprintf(stderr, "no stored input reaches: %s\n", what.c_str());
    }
  }
  if (missing.empty()) return endings.empty() ? 0 : 1;
  std::fprintf(stderr, "--collect 1 50000 %s adds some that do\n",
               (corpora / "hostile" / "corpus").c_str());
  return 1;
}

int main_of(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "--list") {
    for (const Target& target : targets()) std::printf("%s\n", std::string(target.name).c_str());
    return 0;
  }
  if (words.size() == 3 && words[0] == "--file") return replay_file(words[1], words[2]);
  if (words.size() == 4 && words[0] == "--unpack") {
    const Target* target = find_target(words[2]);
    return target != nullptr && write_files(words[3], inputs_of(*target, words[1])) ? 0 : 2;
  }
  if (words.size() == 3 && words[0] == "--generate") {
    return generate(std::strtoull(words[1].c_str(), nullptr, 10),
                    std::strtoull(words[2].c_str(), nullptr, 10));
  }
  if (words.size() == 4 && words[0] == "--collect") {
    return collect(std::strtoull(words[1].c_str(), nullptr, 10),
                   std::strtoull(words[2].c_str(), nullptr, 10), words[3]);
  }
  if (words.size() == 2 && words[0] == "--reached") return check_reached(words[1]);
  if (words.size() == 2 && words[0] == "--others") {
    std::vector<std::string> names;
    for (const Target& target : targets()) {
      if (!counts_what_it_reaches(target)) names.emplace_back(target.name);
    }
    return replay(words[1], names);
  }
  if (words.size() == 3 && words[0] == "--pack") {
    return write_corpus(words[2], read_inputs(words[1])) ? 0 : 2;
  }
  if (!words.empty() && !words[0].starts_with("--")) {
    return replay(words[0], {words.begin() + 1, words.end()});
  }
  std::fprintf(stderr,
               "usage: jccl-fuzz-replay CORPORA [TARGET...] | --file TARGET FILE |\n"
               "       --unpack CORPORA TARGET DIR | --pack DIR FILE | --list\n");
  return 2;
}

}  // namespace
}  // namespace jccl::fuzz

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  jccl::fuzz::hostile_trace = std::erase(words, "--trace") > 0;
  return jccl::fuzz::main_of(words);
}
