// The planted bugs by name: what each is, and the table of seeds that caught them last. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "protocol/mutants.h"

namespace jccl::sim {

struct MutantRow {
  protocol::Mutant mutant = protocol::Mutant::kNone;
  std::string_view name;
  std::string_view breaks;  // in words: what goes wrong
};
std::span<const MutantRow> mutants();
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
