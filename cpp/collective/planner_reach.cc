// See planner_reach.h.
#include "collective/planner_reach.h"

#include <algorithm>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::collective {
namespace {

using base::Code;
using base::PeerId;
using Order = std::vector<std::uint32_t>;  // indices of members

constexpr std::size_t kExhaustiveMax = 16;

// ends[s]: the members at which a path that starts at 0 and visits exactly the set s can end.
std::optional<Order> exhaustive(std::uint32_t count, const Reach& links) {
  const std::uint32_t full = (1U << count) - 1;
  std::vector<std::uint32_t> ends(std::size_t{1} << count, 0);
  std::vector<std::uint32_t> near(count, 0);
  for (std::uint32_t a = 0; a < count; ++a) {
    for (std::uint32_t b = 0; b < count; ++b) {
      if (a != b && links.linked(a, b)) near[a] |= 1U << b;
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
  std::uint32_t candidates =
      count == 1 ? 1 : ends[full] & (JCCL_PLANTED("ring-not-closed") ? ~0U : near[0]);
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
bool repair(Order& ring, std::size_t at, const Reach& links) {
  const std::size_t size = ring.size();
  std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>((at + 1) % size),
              ring.end());  // the bad step is now from the last to the first
  for (std::size_t i = 1; i + 2 < size; ++i) {
    const bool joins = links.linked(ring[size - 1], ring[i]) && links.linked(ring[0], ring[i + 1]);
    if (!joins) continue;
    std::reverse(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return true;
  }
  return false;
}

std::optional<Order> repaired(std::uint32_t count, const Reach& links) {
  Order ring(count);
  for (std::uint32_t i = 0; i < count; ++i) ring[i] = i;
  for (std::uint32_t steps = 0; steps <= count; ++steps) {
    bool found = false;
    bool moved = false;
    for (std::size_t i = 0; i < count && !moved; ++i) {
      if (links.linked(ring[i], ring[(i + 1) % count])) continue;
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

}  // namespace

Reach::Reach(const std::vector<PeerId>& members,
             const std::vector<std::pair<PeerId, PeerId>>& failed,
             const std::vector<PeerId>& dial_only)
    : count_(static_cast<std::uint32_t>(members.size())), dial_only_(members.size(), false) {
  const auto index = [&](PeerId id) -> std::optional<std::uint32_t> {
    const auto at = std::lower_bound(members.begin(), members.end(), id);
    if (at == members.end() || *at != id) return std::nullopt;
    return static_cast<std::uint32_t>(at - members.begin());
  };
  for (const PeerId id : dial_only) {
    const auto at = index(id);
    if (!at || dial_only_[*at]) continue;
    dial_only_[*at] = true;
    ++dial_only_count_;
    if (dial_only_count_ == 1) first_dialling_.first = id;
    if (dial_only_count_ == 2) first_dialling_.second = id;
  }
  for (const auto& [a, b] : failed) {
    const auto at_a = index(a);
    const auto at_b = index(b);
    if (a == b || !at_a || !at_b) continue;
    if (failed_.empty()) first_failed_ = std::minmax(a, b);
    failed_.insert(std::minmax(*at_a, *at_b));
  }
}

bool Reach::linked(std::uint32_t a, std::uint32_t b) const {
  if (dial_only_[a] && dial_only_[b]) return false;
  return failed_.count(JCCL_PLANTED("link-broken-one-way")
                           ? std::pair<std::uint32_t, std::uint32_t>(a, b)
                           : std::pair<std::uint32_t, std::uint32_t>(std::minmax(a, b))) == 0;
}

std::vector<bool> Reach::hubs() const {
  std::vector<bool> hubs(count_, true);
  for (std::uint32_t i = 0; i < count_ && dial_only_count_ > 1; ++i) hubs[i] = !dial_only_[i];
  for (const auto& [a, b] : failed_)
    hubs[a] = JCCL_PLANTED("hub-with-broken-link"), hubs[b] = false;
  return hubs;
}

std::optional<Order> Reach::ring() const {
  return count_ <= kExhaustiveMax ? exhaustive(count_, *this) : repaired(count_, *this);
}

base::Status Reach::no_way_around(std::string_view plan) const {
  if (failed_.empty()) {
    return {Code::kLinkLost,
            base::cat("peers ", first_dialling_.first, " and ", first_dialling_.second,
                      " can both only dial out, and no ", plan,
                      " does without a link between them: let one listen (bind, advertise), or "
                      "add a peer that all can reach")};
  }
  return {Code::kLinkLost, base::cat("no ", plan, " does without the link between peers ",
                                     first_failed_.first, " and ", first_failed_.second)};
}

}  // namespace jccl::collective
