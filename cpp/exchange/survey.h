// A peer's measurements of its links and its core for the master, and when to report them: taken
// from the traffic of rounds, reported when one changed by a fifth, and now and then. Sends nothing
// itself. Pure; confined to its owner's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "wire/messages.h"

namespace jccl::exchange {

class Survey {
 public:
  // At a steady beat: payload bytes sent so far by all links, and whether more waited to be sent.
  // Only a stretch at both ends of which something waited says what the uplink can carry.
  void sample(base::Time now, std::uint64_t sent_bytes, bool waiting);
  // Links need not be looked at more often than this says.
  bool time_to_look(base::Time now);
  // What the master should hear now, if anything. `links` in ascending order of id; `core`: as in
  // Measured.
  std::optional<wire::Measured> due(base::Time now, std::vector<wire::LinkMeasured> links,
                                    std::uint32_t core = 0);

 private:
  base::Time sampled_at_ = 0;
  std::uint64_t sent_bytes_ = 0;
  bool waiting_ = false;
  std::uint64_t stretches_ = 0;  // that counted
  double up_ = 0;                // bytes/s, the most that was seen, slowly forgotten
  base::Time looked_at_ = 0, told_at_ = 0;
  wire::Measured told_;
};

}  // namespace jccl::exchange
