// Chooses a plan for the members of an attempt: among those with the bits of direct, unless another
// kind is asked for or any order of addition will do, the one that the cost model (cost.h) predicts
// to be the fastest. If a link is missing, direct with only such owners as everybody can reach, who
// so relay between the others; else a ring that does without the link. Refuses, naming a link, when
// no plan avoids them all. The same request gives the same plan. Pure; any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "collective/cost.h"
#include "collective/plan.h"

namespace jccl::collective {

struct PlannerOptions {
  std::optional<PlanKind> kind = {};         // nothing: the bits of direct if possible, else ring
  std::vector<base::PeerId> receivers = {};  // get the result; nothing waits for them
  bool may_ring = true;                      // where links leave nothing else
  bool any_order = false;  // a ring may be taken for its speed too, whatever bits it gives
  // Links that failed, either way round, and peers that only dial out: no two of them have a link.
  std::vector<std::pair<base::PeerId, base::PeerId>> avoid = {};
  std::vector<base::PeerId> dial_only = {};
  Network network{};  // of the members in ascending order; empty: nothing was measured
  Work work{};
};

struct Candidate {
  Plan plan;
  double seconds = 0;  // predicted
};

// What is possible, the best first: two plans within a hundredth of each other are equally good,
// and the one with less work for processors is taken. A ring that is taken for its speed has to
// gain a twentieth: bits that change from round to round are to be worth it. kInvalid: no members;
// kLimit: too many; kLinkLost: no way around a link.
base::Result<std::vector<Candidate>> candidates(std::vector<base::PeerId> members,
                                                const PlannerOptions& options);
base::Result<Plan> choose(std::vector<base::PeerId> members, const PlannerOptions& options);

// Of a plan for these members: what candidates() would say.
double predict_for(const Plan& plan, const std::vector<base::PeerId>& members,
                   const Network& network, const Work& work);

}  // namespace jccl::collective
