// Chooses a plan for the members of an attempt. Unless something else is asked for: an exchange for
// two, direct for more. If a link is missing, direct with only such owners as everybody can reach
// (the same bits), who so relay between the others; else a ring that does without the link.
// Refuses, naming a link, when no plan avoids them all. The same request gives the same plan. Pure;
// any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "collective/plan.h"

namespace jccl::collective {

struct PlannerOptions {
  std::optional<PlanKind> kind = {};         // nothing: the bits of direct if possible, else ring
  std::vector<base::PeerId> receivers = {};  // get the result; nothing waits for them
  // Links that failed, either way round, and peers that only dial out: no two of them have a link.
  std::vector<std::pair<base::PeerId, base::PeerId>> avoid = {};
  std::vector<base::PeerId> dial_only = {};
  std::vector<std::pair<base::PeerId, std::uint32_t>> shares = {};  // others own 1 share each
};

// kInvalid: no members, or a share for a kind without shares; kLimit: too many; kLinkLost: no way
// around a link.
base::Result<Plan> choose(std::vector<base::PeerId> members, const PlannerOptions& options);

}  // namespace jccl::collective
