// See planner.h.
#include "collective/planner.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "collective/planner_reach.h"

namespace jccl::collective {
namespace {

using base::Code;
using base::PeerId;

// Every contributor of an exchange sends a frame to every other: for few of them only.
constexpr std::size_t kExchangeMax = 16;
constexpr double kTie = 0.01;
constexpr double kRingGainMin = 0.05;  // of a ring where plans with the bits of direct are left

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
    if (receivers.count(b) > 0 && !JCCL_PLANTED("newer-receivers-reach-all")) apart.insert(a);
  }
  std::vector<bool> serving = *owners;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (apart.count(members[i]) > 0 && !JCCL_PLANTED("owner-without-link-to-receiver"))
      serving[i] = false;
    if (dialling && !JCCL_PLANTED("dial-only-owner") && dial_only.count(members[i]) > 0)
      serving[i] = false;
  }
  if (any(serving)) *owners = serving;
}

std::vector<std::uint32_t> places(const Plan& plan, const std::vector<PeerId>& members) {
  std::vector<std::uint32_t> out;
  for (const PeerId id : plan.order) {
    out.push_back(static_cast<std::uint32_t>(std::lower_bound(members.begin(), members.end(), id) -
                                             members.begin()));
  }
  return out;
}

// One request on its way through the kinds of plans.
class Chooser {
 public:
  Chooser(std::vector<PeerId> members, const PlannerOptions& options)
      : options_(options),
        members_(std::move(members)),
        network_(options.network.count() == members_.size() && !JCCL_PLANTED("network-of-others")
                     ? options.network
                     : Network(members_.size())),
        reach_(members_, options.avoid, options.dial_only) {}

  base::Result<std::vector<Candidate>> run() {
    base::Status status;
    if (options_.kind) {
      status = add(*options_.kind, base::cat(name_of(*options_.kind), " plan"));
    } else if (members_.size() == 1) {
      status = add(PlanKind::kDirect, "plan");
    } else if (reach_.complete()) {
      if (members_.size() <= kExchangeMax + (JCCL_PLANTED("exchange-for-many") ? 1000 : 0))
        status = add(PlanKind::kExchange, "plan");
      if (status.ok()) status = add(PlanKind::kDirect, "plan");
    } else {
      const bool ring = options_.may_ring || JCCL_PLANTED("ring-for-robust-calls");
      status = add(any(reach_.hubs()) || !ring ? PlanKind::kDirect : PlanKind::kRing, "plan");
    }
    if (!status.ok()) return status;
    sort();
    if (options_.any_order) prefer_ring();
    return std::move(found_);
  }

 private:
  void sort() {
    // Simpler plans were added first.
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return JCCL_PLANTED("slowest-plan-chosen") ? a.seconds > b.seconds : a.seconds < b.seconds;
    });
    const double best = found_.front().seconds;
    const auto simplest = std::min_element(
        found_.begin(), found_.end(),
        [&](const Candidate& a, const Candidate& b) { return rank(a, best) < rank(b, best); });
    std::rotate(found_.begin(), simplest, simplest + 1);
  }

  // Of two, a ring is direct in another order. What no ring goes round has the plan that it has.
  void prefer_ring() {
    const PlanKind kind = found_.front().plan.kind;
    if (!options_.may_ring || members_.size() < 3 || kind == PlanKind::kRing) return;
    const double seconds = found_.front().seconds;
    if (!add(PlanKind::kRing, "plan").ok()) return;
    const bool gains = found_.back().seconds * (1 + kRingGainMin) < seconds ||
                       (JCCL_PLANTED("ring-for-any-gain") && found_.back().seconds < seconds);
    if (gains && !JCCL_PLANTED("fastest-never-rings"))
      std::rotate(found_.begin(), found_.end() - 1, found_.end());
  }

  // Among equally good ones: the one with the least work for processors, then equal shares.
  static int rank(const Candidate& c, double best) {
    if (c.seconds > best * (1 + kTie)) return 3;
    if (c.plan.kind == PlanKind::kExchange) return 1;
    return c.plan.shares.empty() ? 0 : 2;
  }

  base::Status add(PlanKind kind, const std::string& what) {
    Plan plan;
    plan.kind = kind;
    plan.order = members_;
    std::vector<bool> owners(members_.size(), true);
    if (kind == PlanKind::kDirect) {
      owners = reach_.hubs();
      if (!any(owners)) return reach_.no_way_around(what);
    } else if (kind == PlanKind::kRing) {
      std::vector<std::uint32_t> ring = places(plan, members_);
      if (!reach_.complete()) {
        auto found = reach_.ring();
        if (!found) return reach_.no_way_around(options_.kind ? "ring" : what);
        ring = std::move(*found);
      }
      ring = ordered_ring(std::move(ring), network_, options_.work,
                          [this](auto a, auto b) { return reach_.linked(a, b); });
      for (std::size_t i = 0; i < ring.size(); ++i) plan.order[i] = members_[ring[i]];
    } else if (!reach_.complete() && !JCCL_PLANTED("broken-link-in-exchange")) {
      return reach_.no_way_around(what);
    }
    if (!has_shares(kind)) return keep(std::move(plan));
    serve_receivers(members_, options_, &owners);
    // In an exchange owners only serve receivers: without any, fewer owners are fewer chunks.
    if (kind == PlanKind::kExchange && options_.receivers.empty()) {
      std::fill(owners.begin() + 1, owners.end(), false);
    }
    const std::vector<std::uint32_t> equal(owners.begin(), owners.end());
    base::Status status = keep(with_shares(plan, equal));
    if (kind != PlanKind::kDirect || !status.ok()) return status;
    const auto balanced = balanced_shares(network_, options_.work, owners);
    return balanced == equal ? status : keep(with_shares(plan, balanced));
  }

  // From shares by member to shares by place in the plan; equal ones are left out.
  Plan with_shares(Plan plan, const std::vector<std::uint32_t>& shares) const {
    if (std::adjacent_find(shares.begin(), shares.end(), std::not_equal_to<>()) == shares.end()) {
      return plan;
    }
    for (const std::uint32_t place : places(plan, members_)) plan.shares.push_back(shares[place]);
    return plan;
  }

  base::Status keep(Plan plan) {
    const base::Status status = check(plan);
    if (!status.ok()) return status;
    const double seconds = predict_for(plan, members_, network_, options_.work);
    found_.push_back({std::move(plan), seconds});
    return {};
  }

  const PlannerOptions& options_;
  std::vector<PeerId> members_;
  Network network_;
  Reach reach_;
  std::vector<Candidate> found_;
};

}  // namespace

double predict_for(const Plan& plan, const std::vector<PeerId>& members, const Network& network,
                   const Work& work) {
  return predict(plan, places(plan, members), network, work);
}

base::Result<std::vector<Candidate>> candidates(std::vector<PeerId> members,
                                                const PlannerOptions& options) {
  std::sort(members.begin(), members.end());
  if (members.size() > base::kPeersMax) {
    return base::Status{Code::kLimit,
                        base::cat(members.size(), " contributors, at most ", base::kPeersMax)};
  }
  Plan plain;
  plain.order = members;
  const base::Status status = check(plain);
  if (!status.ok()) return status;
  return Chooser(std::move(members), options).run();
}

base::Result<Plan> choose(std::vector<PeerId> members, const PlannerOptions& options) {
  auto found = candidates(std::move(members), options);
  if (!found.ok()) return found.status();
  return std::move(found.value().front().plan);
}

}  // namespace jccl::collective
