// Plays a recording into a machine of its kind, and compares the machine with the recording: effect
// by effect, and the whole state wherever the recording has it. Pure; any one thread. A forged
// recording can bring a machine into a state that no events reach. Then one of the machine's own
// checks may end the process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "protocol/recorder/recording.h"

namespace jccl::protocol {

struct Replayed {  // one entry
  base::Time at = 0;
  std::string event;
  std::vector<std::string> effects;      // that came out now
  std::vector<std::string> differences;  // from then; none: all as it was
};

struct ReplayCounts {
  std::uint64_t events = 0, effects = 0, states = 0;
  std::uint64_t differing = 0;  // entries
};

// kVersion: of a build whose machines have other fields. kDamaged: an entry holds no event or
// state.
base::Result<ReplayCounts> replay(const Recording& recording,
                                  const std::function<void(const Replayed&)>& tell);

}  // namespace jccl::protocol
