// See planner.h.
#include "collective/planner.h"

#include <algorithm>
#include <set>

#include "base/limits.h"
#include "base/text.h"
#include "collective/planner_reach.h"

namespace jccl::collective {
namespace {

using base::Code;
using base::PeerId;

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

// Peers that every receiver has a link with own the results, as far as there are any.
void serve_receivers(const std::vector<PeerId>& members, const PlannerOptions& options,
                     std::vector<bool>* owners) {
  const std::set<PeerId> receivers(options.receivers.begin(), options.receivers.end());
  const std::set<PeerId> dial_only(options.dial_only.begin(), options.dial_only.end());
  const bool dialling = std::any_of(receivers.begin(), receivers.end(),
                                    [&](PeerId id) { return dial_only.count(id) > 0; });
  std::set<PeerId> apart;
  for (const auto& [a, b] : options.avoid) {
    if (receivers.count(a) > 0) apart.insert(b);
    if (receivers.count(b) > 0) apart.insert(a);
  }
  std::vector<bool> serving = *owners;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (apart.count(members[i]) > 0) serving[i] = false;
    if (dialling && dial_only.count(members[i]) > 0) serving[i] = false;
  }
  if (any(serving)) *owners = serving;
}

// What each owns, in the order of the plan; empty: equal.
std::vector<std::uint32_t> shares_of(const std::vector<PeerId>& members,
                                     const std::vector<PeerId>& order,
                                     const std::vector<bool>& owners,
                                     const PlannerOptions& options) {
  std::vector<std::uint32_t> wanted(members.size(), 1);
  for (const auto& [peer, share] : options.shares) {
    const auto at = std::find(members.begin(), members.end(), peer);
    if (at != members.end()) wanted[static_cast<std::size_t>(at - members.begin())] = share;
  }
  std::vector<std::uint32_t> owned(members.size(), 0);
  for (std::size_t i = 0; i < members.size(); ++i) owned[i] = owners[i] ? wanted[i] : 0;
  if (std::all_of(owned.begin(), owned.end(), [](std::uint32_t s) { return s == 0; })) {
    for (std::size_t i = 0; i < members.size(); ++i) owned[i] = owners[i] ? 1 : 0;
  }
  const bool equal = options.shares.empty() && owned == wanted;
  std::vector<std::uint32_t> shares;
  for (std::size_t i = 0; i < order.size() && !equal; ++i) {
    const auto at = std::lower_bound(members.begin(), members.end(), order[i]);
    shares.push_back(owned[static_cast<std::size_t>(at - members.begin())]);
  }
  return shares;
}

PlanKind kind_for(const std::vector<PeerId>& members, const Reach& reach) {
  if (reach.complete()) return members.size() == 2 ? PlanKind::kExchange : PlanKind::kDirect;
  return any(reach.hubs()) ? PlanKind::kDirect : PlanKind::kRing;
}

}  // namespace

base::Result<Plan> choose(std::vector<PeerId> members, const PlannerOptions& options) {
  std::sort(members.begin(), members.end());
  if (members.size() > base::kPeersMax) {
    return base::Status{Code::kLimit,
                        base::cat(members.size(), " contributors, at most ", base::kPeersMax)};
  }
  Plan plan;
  plan.order = members;
  base::Status status = check(plan);
  if (!status.ok()) return status;
  const auto count = static_cast<std::uint32_t>(members.size());
  const Reach reach(members, options.avoid, options.dial_only);
  plan.kind = options.kind.value_or(kind_for(members, reach));
  const std::string what = options.kind ? base::cat(name_of(plan.kind), " plan") : "plan";
  std::vector<bool> owners(count, true);
  if (plan.kind == PlanKind::kDirect) {
    owners = reach.hubs();
    if (!any(owners)) return reach.no_way_around(what);
  } else if (plan.kind == PlanKind::kRing && !reach.complete()) {
    const auto ring = reach.ring();
    if (!ring) return reach.no_way_around(options.kind ? "ring" : what);
    for (std::size_t i = 0; i < count; ++i) plan.order[i] = members[(*ring)[i]];
  } else if (!reach.complete()) {
    return reach.no_way_around(what);
  }
  if (has_shares(plan.kind)) {
    serve_receivers(members, options, &owners);
    plan.shares = shares_of(members, plan.order, owners, options);
  } else if (!options.shares.empty()) {
    plan.shares.assign(count, 1);  // refused below
  }
  status = check(plan);
  if (!status.ok()) return status;
  return plan;
}

}  // namespace jccl::collective
