// The answer to "how is the run?": the machine's view and the driver's own facts as one JSON
// object of at most kStatusBytesMax. With more peers or links than fit, the last are counted, not
// listed.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "master/plan_cache.h"
#include "protocol/master/master_machine.h"

namespace jccl::master {

struct DriverFacts {
  std::string run, address, store;
  std::uint32_t start_peers = 1, min_peers = 1;
  double silence_s = 0;
  std::string straggler;
  double audit = 0;
  double max_rate = 0;
  double uptime_s = 0;
  std::uint64_t journal_sequence = 0;
  std::size_t connections = 0;
  std::size_t memory_held = 0, memory_max = 0;  // by what others sent, or do not read
  std::uint64_t answers_made = 0;      // to questions for the status; the others were told again
  std::size_t pending = 0;             // sockets that have not said hello
  std::uint64_t strangers_closed = 0;  // refused, late, excess or garbage
  std::string failure;                 // empty while serving
  std::string group;                   // empty: of the run itself
  struct Group {
    std::string name;
    std::size_t sites = 0, connections = 0;
    std::uint64_t journal_sequence = 0;
  };
  std::vector<Group> groups;  // of the run, that are open
  bool tls = false;
};

// Where peers listen is told to members, by the roster, and to operators.
enum class Audience : std::uint8_t { kAnybody, kOperator };

std::string status_object(const protocol::MasterView& view, const DriverFacts& facts,
                          const PlanCache& planner, Audience audience = Audience::kOperator);

}  // namespace jccl::master
