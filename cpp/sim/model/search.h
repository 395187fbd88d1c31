// Every world that can be reached from the first, each once (by a 64-bit fingerprint; of 10⁸ worlds
// one pair in four thousand searches would be taken for one). Breadth first as long as the edge is
// short, so that a broken promise is found by one of the shortest ways; then depth first, for whose
// edge is short, in several threads. Pure; a search owns its threads.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/model/world.h"

namespace jccl::sim::model {

inline constexpr std::size_t kLayers = 8;

struct Limits {
  std::uint64_t states_max = 30'000'000;  // up to 24 bytes of memory each, as they are reached
  std::size_t edge_max = 20'000;          // longer: depth first
  unsigned threads = 1;
  void (*report)(std::uint64_t states) = nullptr;  // now and then
};

struct Found {
  std::uint64_t states = 0, transitions = 0, depth = 0, quiet = 0;
  std::uint64_t ends = 0, ends_sum = 0;         // quiet with no fault left; their fingerprints
  std::array<std::uint64_t, kLayers> layers{};  // states by faults that are left
  bool whole = true;                            // false: stopped at states_max
  std::string promise, what;                    // empty: all kept
  std::vector<std::string> trace;
};

Found search(const Scope& scope, const Limits& limits);

}  // namespace jccl::sim::model
