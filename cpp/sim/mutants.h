// The planted bugs that the simulator chooses from (strata protocol and sim of planted.txt), and
// the table of seeds that caught them last. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/planted.h"
#include "base/status.h"

namespace jccl::sim {

struct MutantRow {
  std::string_view name;
  base::Planted mutant = base::planted(name);
};
std::span<const MutantRow> mutants();
std::span<const MutantRow> hostile_mutants();         // hostile_mutants.cc: defences that are off
const MutantRow* find_mutant(std::string_view name);  // null: no such bug

// Lines "name seed promise"; what follows # is a comment.
struct Catch {
  std::uint64_t seed = 0;
  std::string promise;
};
using Catches = std::map<std::string, Catch, std::less<>>;
base::Result<Catches> read_catches(std::string_view text);
std::string write_catches(const Catches& catches);

}  // namespace jccl::sim
