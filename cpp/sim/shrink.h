// Makes a script that breaks a promise smaller, as long as it breaks the same one: fewer faults
// (ddmin), fewer peers, tags, masters and calls, fewer things that are left to chance. Pure.
#pragma once

#include "sim/script.h"
#include "sim/world.h"

namespace jccl::sim {

struct Shrunk {
  Script script;
  Report report;  // of its last run
  std::uint64_t runs = 0;
};

// The script of a run that was drawn from its seed.
Script script_of(const Report& report);

// `from` must break `from.promise`; ends after `runs_max` runs at the latest.
Shrunk shrink(const Script& from, base::Planted mutant, std::uint64_t runs_max);

}  // namespace jccl::sim
