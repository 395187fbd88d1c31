// A ring without the avoided links is a Hamiltonian cycle: searched exhaustively for up to 16
// members, above that by repairing an order (E. Palmer, 1997), which always succeeds if every peer
// has links to at least half of the others and gives up otherwise only when no repair step is left.
#include "collective/planner.h"

#include <algorithm>
#include <set>

#include "base/limits.h"
#include "base/text.h"

namespace jccl::collective {
namespace {

using base::Code;
using base::PeerId;
using Order = std::vector<std::uint32_t>;  // indices of members

constexpr std::size_t kExhaustiveMax = 16;

class Links {
 public:
  Links(const std::vector<PeerId>& members, const std::vector<std::pair<PeerId, PeerId>>& avoid) {
    const auto index = [&](PeerId id) {
      return std::lower_bound(members.begin(), members.end(), id) - members.begin();
    };
    const auto is_member = [&](PeerId id) {
      return std::binary_search(members.begin(), members.end(), id);
    };
    for (const auto& [a, b] : avoid) {
      if (a == b || !is_member(a) || !is_member(b)) continue;
      if (avoided_.empty()) first_ = std::minmax(a, b);
      avoided_.insert(std::minmax<std::uint32_t>(static_cast<std::uint32_t>(index(a)),
                                                 static_cast<std::uint32_t>(index(b))));
    }
  }
  bool all_good() const { return avoided_.empty(); }
  bool good(std::uint32_t a, std::uint32_t b) const {
    return avoided_.count(std::minmax(a, b)) == 0;
  }
  std::pair<PeerId, PeerId> first() const { return first_; }

 private:
  std::set<std::pair<std::uint32_t, std::uint32_t>> avoided_;
  std::pair<PeerId, PeerId> first_{0, 0};
};

// ends[s]: the members at which a path that starts at 0 and visits exactly the set s can end.
std::optional<Order> exhaustive(std::uint32_t count, const Links& links) {
  const std::uint32_t full = (1U << count) - 1;
  std::vector<std::uint32_t> ends(std::size_t{1} << count, 0);
  std::vector<std::uint32_t> near(count, 0);
  for (std::uint32_t a = 0; a < count; ++a) {
    for (std::uint32_t b = 0; b < count; ++b) {
      if (a != b && links.good(a, b)) near[a] |= 1U << b;
    }
  }
  ends[1] = 1;
  for (std::uint32_t set = 1; set <= full; set += 2) {
    for (std::uint32_t last = 0; last < count; ++last) {
      if ((ends[set] >> last & 1) == 0) continue;
      for (std::uint32_t next = 1; next < count; ++next) {
        if ((near[last] & ~set) >> next & 1) ends[set | 1U << next] |= 1U << next;
      }
    }
  }
  std::uint32_t candidates = count == 1 ? 1 : ends[full] & near[0];
  if (candidates == 0) return std::nullopt;
  Order order;  // backwards
  for (std::uint32_t set = full; candidates != 0;) {
    const auto last = static_cast<std::uint32_t>(31 - __builtin_clz(candidates));
    order.push_back(last);
    set &= ~(1U << last);
    candidates = ends[set] & near[last];
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Turns round a stretch of the ring so that the bad step from `at` goes away and none comes in.
bool repair(Order& ring, std::size_t at, const Links& links) {
  const std::size_t size = ring.size();
  std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>((at + 1) % size),
              ring.end());  // the bad step is now from the last to the first
  for (std::size_t i = 1; i + 2 < size; ++i) {
    const bool joins = links.good(ring[size - 1], ring[i]) && links.good(ring[0], ring[i + 1]);
    if (!joins) continue;
    std::reverse(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return true;
  }
  return false;
}

std::optional<Order> repaired(std::uint32_t count, const Links& links) {
  Order ring(count);
  for (std::uint32_t i = 0; i < count; ++i) ring[i] = i;
  for (std::uint32_t steps = 0; steps <= count; ++steps) {
    bool found = false;
    bool moved = false;
    for (std::size_t i = 0; i < count && !moved; ++i) {
      if (links.good(ring[i], ring[(i + 1) % count])) continue;
      found = true;
      Order attempt = ring;
      if (!repair(attempt, i, links)) continue;
      ring = attempt;
      moved = true;
    }
    if (!found) {
      const auto zero = std::find(ring.begin(), ring.end(), 0U);
      std::rotate(ring.begin(), zero, ring.end());
      return ring;
    }
    if (!moved) return std::nullopt;
  }
  return std::nullopt;
}

base::Status no_way_around(const Links& links, std::string_view plan) {
  const auto [a, b] = links.first();
  return {Code::kLinkLost,
          base::cat("no ", plan, " does without the link between peers ", a, " and ", b)};
}

}  // namespace

base::Result<Plan> choose(std::vector<PeerId> members, const PlannerOptions& options) {
  std::sort(members.begin(), members.end());
  if (members.size() > base::kPeersMax) {
    return base::Status{Code::kLimit,
                        base::cat(members.size(), " contributors, at most ", base::kPeersMax)};
  }
  const Links links(members, options.avoid);
  Plan plan;
  const PlanKind good = members.size() == 2 ? PlanKind::kExchange : PlanKind::kDirect;
  plan.kind = options.kind.value_or(links.all_good() ? good : PlanKind::kRing);
  plan.order = members;
  if (plan.kind == PlanKind::kRing && !members.empty() && !links.all_good()) {
    const auto count = static_cast<std::uint32_t>(members.size());
    const auto ring = count <= kExhaustiveMax ? exhaustive(count, links) : repaired(count, links);
    if (!ring) return no_way_around(links, options.kind ? "ring" : "plan");
    for (std::size_t i = 0; i < count; ++i) plan.order[i] = members[(*ring)[i]];
  }
  if (plan.kind != PlanKind::kRing && !links.all_good()) {
    return no_way_around(links, base::cat(name_of(plan.kind), " plan"));
  }
  if (!options.shares.empty()) plan.shares.assign(plan.order.size(), 1);
  for (const auto& [peer, share] : options.shares) {
    const auto at = std::find(plan.order.begin(), plan.order.end(), peer);
    if (at != plan.order.end())
      plan.shares[static_cast<std::size_t>(at - plan.order.begin())] = share;
  }
  const base::Status status = check(plan);
  if (!status.ok()) return status;
  return plan;
}

}  // namespace jccl::collective
