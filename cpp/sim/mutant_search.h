// Looks for a seed that catches each planted bug. One child process per bug, for some end in a
// broken invariant, which aborts: that is a catch too. Main thread only.
#pragma once

#include <string>
#include <vector>

#include "sim/mutants.h"
#include "sim/script.h"

namespace jccl::sim {

struct MutantSearch {
  std::vector<const MutantRow*> rows;
  std::uint64_t seeds = 100'000;  // at most, for each
  unsigned jobs = 1;              // processes at once
  bool hostile = false;           // in runs with a member that lies
  Catches known;                  // tried first
  std::vector<Script> scripts;    // each of one bug, for those that hardly a seed shows
};

struct MutantFound {
  const MutantRow* row = nullptr;
  std::uint64_t seed = 0;  // 0: survived; of its script, if by that
  bool by_script = false;
  std::uint64_t tried = 0;
  double seconds = 0;
  std::string promise, what;
};

std::vector<MutantFound> search_mutants(const MutantSearch& search);
void print_found(const std::vector<MutantFound>& all);

}  // namespace jccl::sim
