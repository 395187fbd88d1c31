// Runs the stored inputs of every target (or of those named), in any build:
//
//   jccl-fuzz-replay CORPORA [TARGET…]            CORPORA/TARGET/… and each target's own seeds
//   jccl-fuzz-replay --file TARGET FILE           one input, e.g. one that ended a search
//   jccl-fuzz-replay --unpack CORPORA TARGET DIR  one file per input, for libFuzzer
//   jccl-fuzz-replay --pack DIR FILE              the other way
//   jccl-fuzz-replay --list
#include <algorithm>
#include <cstdio>
#include <string>

#include "fuzz/corpus.h"

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
    std::printf("%-10s %6zu inputs\n", std::string(target.name).c_str(), inputs.size());
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

int main(int argc, char** argv) { return jccl::fuzz::main_of({argv + 1, argv + argc}); }
