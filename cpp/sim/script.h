// A run written down: the mix it was made of and every fault with its choices. What a seed draws
// can be written as a script, made smaller, kept, and run again. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "sim/mix.h"

namespace jccl::sim {

struct Script {
  std::uint64_t seed = 1;
  std::string promise;  // what it broke when it was written
  std::string mutant;   // the planted bug it is about; empty: none
  Mix mix;
  std::vector<Injected> faults;
};

// One line per number that is not a new Mix's, one per fault; what follows # is for people.
std::string to_text(const Script& script);
// Code: kInvalid, naming the line.
base::Result<Script> read_script(const std::string& text);

}  // namespace jccl::sim
