// Which receivers were reached by what, and how it ended: counted over all executions of a process,
// printed as a table, and demanded of the stored inputs by `jccl-fuzz-replay --reached`. Test only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/hostile/hostile_plane.h"
#include "wire/messages.h"

namespace jccl::fuzz {

enum class Heard : std::uint8_t { kQuiet, kAnswered, kSpread, kClosed };
inline constexpr std::size_t kHeardKinds = 4;
inline constexpr std::size_t kFates = 6, kFrameKinds = 10;

struct HostileCoverage {
  static constexpr std::size_t kMessages = std::variant_size_v<wire::Message>;
  // By the message's place in wire::Message: what the hostile member said to the master, what
  // honest peers heard of the master (did nothing, did something), frames by kind.
  std::array<std::array<std::uint64_t, kHeardKinds>, kMessages> at_master{};
  std::array<std::array<std::uint64_t, 2>, kMessages> at_peer{};
  std::array<std::array<std::uint64_t, kFates>, kFrameKinds> frames{};
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> bends;  // message, field
  std::uint64_t undecodable = 0, executions = 0, rounds = 0, restarts = 0, evictions = 0;
};
HostileCoverage& hostile_coverage();

// With `--trace`: what is delivered, and the master's history, on stderr.
extern bool hostile_trace;

std::string coverage_text();
// What must be reached and was not, in words: receivers and their outcomes, frames and their
// fates, fields of the table that were never bent.
std::vector<std::string> not_reached();
// What was reached, as a set: an input that adds to it is worth keeping.
std::set<std::string> reached();

}  // namespace jccl::fuzz
