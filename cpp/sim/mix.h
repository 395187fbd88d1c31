// What one seed's run is made of: how many peers, which tags, how rough the network, which faults
// at which rates. Drawn whole from the seed (swarm testing: some runs know no fault at all, some
// one kind at an absurd rate). Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace jccl::sim {

enum class Fault : std::uint8_t {
  kPeerCrash,
  kPeerPause,
  kPeerLeave,
  kControlReset,
  kControlCut,
  kDataReset,
  kDataCut,
  kClog,
  kMasterCrash,
  kMasterPause,
  kDiskError,
  kOperatorEvicts,
  kLateJoin,
  kCount,
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::kCount);
std::string_view name_of(Fault fault);

struct Mix {
  std::uint32_t slots = 3;   // peers that exist, some of them later
  std::uint32_t shards = 1;  // per site
  std::uint32_t late = 0;    // slots that join during the run
  std::uint32_t tags = 1;
  std::vector<bool> is_state;      // per tag
  bool same_birth = false;         // all first states equal
  std::uint32_t named_source = 0;  // slot + 1 that is the source; 0: none
  std::uint32_t min_peers = 1, start_peers = 1;
  std::size_t history = 1024;

  std::array<double, kFaults> rate{};  // per second
  double vanish = 0.3;                 // share of crashes nobody is told of
  double torn = 0.5;                   // share of master crashes that tear the last row
  double weight_zero = 0, guard = 0, mismatch = 0, corrupt = 0, cancel = 0;  // per call
  double in_place = 0.5;
  double moves_site = 0.1;  // share of returns under a new site name

  base::Duration latency = 0, jitter = 0, data_latency = 0, sync_pause = 0, think = 0;
  double spike = 0.02, split = 0.05, coalesce = 0.2;
  base::Duration deadline = 0, downtime = 0, pause = 0, cut = 0, master_down = 0;
  base::Duration heartbeat = 0, silence = 0, reset_grace = 0, restart_grace = 0, master_grace = 0;
  base::Duration faults_until = 0;

  std::string describe() const;
};

Mix draw_mix(std::uint64_t seed);

}  // namespace jccl::sim
