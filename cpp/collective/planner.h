// Chooses a plan for the members of an attempt. Unless something else is asked for: an
// exchange for two, direct for more (the same bits); if a link must be avoided, a ring that does
// without it. Refuses, naming a link, when no
// plan avoids them all. The same request gives the same plan. Pure; any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "collective/plan.h"

namespace jccl::collective {

struct PlannerOptions {
  std::optional<PlanKind> kind = {};  // nothing: the bits of direct if possible, else ring
  std::vector<std::pair<base::PeerId, base::PeerId>> avoid = {};    // links, either way round
  std::vector<std::pair<base::PeerId, std::uint32_t>> shares = {};  // others own 1 share each
};

// kInvalid: no members, or a share for a kind without shares; kLimit: too many; kLinkLost: no way
// around a link.
base::Result<Plan> choose(std::vector<base::PeerId> members, const PlannerOptions& options);

}  // namespace jccl::collective
