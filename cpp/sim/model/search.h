// Every world that can be reached from the first, breadth first, each once (by a 128-bit hash): the
// first broken promise found is one of the nearest. Pure; one thread per search.
#pragma once

#include <string>
#include <vector>

#include "sim/model/world.h"

namespace jccl::sim::model {

struct Limits {
  std::uint64_t states_max = 100'000'000;
  void (*report)(std::uint64_t depth, std::uint64_t states, std::uint64_t frontier) = nullptr;
};

struct Found {
  std::uint64_t states = 0, transitions = 0, depth = 0, quiet = 0;
  bool whole = true;          // false: stopped at states_max
  std::string promise, what;  // empty: all kept
  std::vector<std::string> trace;
};

Found search(const Scope& scope, const Limits& limits);

}  // namespace jccl::sim::model
