// See cost.h. Letters as in ALGORITHMS.md: n contributors, E encoded bytes, s_i the share of i.
#include "collective/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::collective {
namespace {

using Places = std::vector<std::uint32_t>;

// Measured on one core: a byte moved through the kernel, a byte of a leaf encoded, decoded or
// added, and a frame handled. Only their order of magnitude matters: they decide where links are
// fast.
constexpr double kMoveSeconds = 0.15e-9;
constexpr double kTouchSeconds = 0.08e-9;
constexpr double kFrameSeconds = 10e-6;
// A byte of a contribution that waits for those before it: by then it is out of the caches.
constexpr double kColdSeconds = 0.2e-9;
constexpr double kNearCore = 8;  // times slower than predicted of a core: other work goes on there

constexpr double kGainMin = 0.1;  // less is noise of the measurements
constexpr int kHalvings = 30;
constexpr int kSweeps = 6;
constexpr double kShareUnits = 4096;
constexpr std::size_t kOrderedMax = 32;
constexpr int kTurnsMax = 32;

std::vector<double> fractions(const std::vector<std::uint32_t>& shares, std::size_t count) {
  std::vector<double> out(count, 1.0 / static_cast<double>(count));
  double sum = 0;
  for (const std::uint32_t share : shares) sum += share;
  for (std::size_t i = 0; i < shares.size(); ++i) out[i] = shares[i] / sum;
  return out;
}

// What one contributor does in a plan without partial sums.
struct Load {
  double sent = 0, received = 0;  // bytes
  double touched = 0;             // bytes of leaves encoded, added or decoded
  double frames = 0;              // at least
  double cold = 0;                // bytes that wait before they are added
};

Load load_of(PlanKind kind, double n, double share, const Work& work) {
  const double coded = work.encoded != work.data ? 1 : 0;
  const double others = n - 1;
  switch (kind) {
    case PlanKind::kExchange:
      return {others * work.encoded, others * work.encoded, (n + 3 * coded) * work.data, 2 * others,
              (n - 2) * work.encoded};
    case PlanKind::kGather:
      return {others * work.encoded, others * work.encoded, n * coded * work.data, 2 * others};
    case PlanKind::kAllToAll:  // of a block for each
      return {others * work.encoded, others * work.encoded, (n + n * coded) * work.data,
              2 * others};
    case PlanKind::kScatter:
      return {others / n * work.encoded, others / n * work.encoded, (1 + 2 * coded) * work.data,
              2 * others, (n - 2) / n * work.encoded};
    default: {
      const double bytes = (1 + (n - 2) * share) * work.encoded;
      return {bytes, bytes, (n * share + 2 * coded) * work.data, 4 * others,
              (n - 2) * share * work.encoded};
    }
  }
}

double processor_seconds(const Load& load) {
  return kMoveSeconds * (load.sent + load.received) + kTouchSeconds * load.touched +
         kColdSeconds * (JCCL_PLANTED("waiting-costs-nothing") ? 0 : load.cold);
}

// On a shared core a rate near what the core moves is the core's, seen in rounds with equal shares
// (`usual`): less work per byte raises it, and a line that was never full bounds nothing.
double busy_seconds(const Load& load, const Load& usual, const Network& network,
                    std::uint32_t peer) {
  const double core = JCCL_PLANTED("shared-core-counts-as-whole") ? 1 : network.core(peer);
  const double processor = processor_seconds(load) / core;
  const double line = usual.sent / network.up(peer);
  if (core < 1 && kNearCore * processor_seconds(usual) / core >= line) {
    return std::max(line * processor_seconds(load) / processor_seconds(usual), processor);
  }
  return std::max({load.sent / network.up(peer),
                   JCCL_PLANTED("download-not-counted") ? 0.0 : load.received / network.down(peer),
                   processor});
}

// Bytes from i to j.
double bytes_between(PlanKind kind, double n, double share_i, double share_j, const Work& work) {
  if (kind == PlanKind::kDirect) return (share_i + share_j) * work.encoded;
  return kind == PlanKind::kScatter ? work.encoded / n : work.encoded;
}

double predict_star(const Plan& plan, const Places& place, const Network& network,
                    const Work& work) {
  const std::size_t count = plan.order.size();
  const auto n = static_cast<double>(count);
  const std::vector<double> s = fractions(plan.shares, count);
  std::vector<std::uint32_t> at(network.count(), UINT32_MAX);  // place in the order, by position
  for (std::uint32_t i = 0; i < count; ++i) at[place[i]] = i;
  const Load usual = load_of(PlanKind::kDirect, n, 1 / n, work);
  double busy = 0;
  double frames = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Load load = load_of(plan.kind, n, s[i], work);
    busy = std::max(busy, busy_seconds(load, usual, network, place[i]));
    frames = std::max(frames, load.frames);
  }
  double delay = LinkCost{}.delay_s;
  for (const Network::Measure& m : network.measured()) {
    const std::uint32_t i = at[m.from];
    const std::uint32_t j = at[m.to];
    if (i == UINT32_MAX || j == UINT32_MAX) continue;
    const double bytes = bytes_between(plan.kind, n, s[i], s[j], work);
    if (bytes <= 0 && work.encoded > 0) continue;
    busy = std::max(busy, bytes / m.cost.bytes_per_s);
    delay = std::max(delay, m.cost.delay_s);
  }
  const double steps =
      plan.kind == PlanKind::kDirect && !JCCL_PLANTED("delay-counted-once") ? 2 : 1;
  return busy + steps * delay + kFrameSeconds * frames;
}

double ring_seconds(const Places& ring, const Network& network, const Work& work) {
  const auto n = static_cast<double>(ring.size());
  const double bytes = (n - 1) / n * (work.accumulator + work.encoded);
  const double coded = work.encoded != work.data ? 1 : 0;
  const Load usual = load_of(PlanKind::kDirect, n, 1 / n, work);
  double busy = 0;
  double delays = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const std::uint32_t from = ring[i];
    const std::uint32_t to = ring[(i + 1) % ring.size()];
    const LinkCost cost = network.at(from, to);
    // Nothing waits: what comes is added to what is here, and goes on.
    const Load load{bytes, bytes, (1 + (1 + 1 / n) * coded) * work.data};
    busy = std::max({busy,
                     JCCL_PLANTED("slowest-link-of-ring-unseen") ? 0.0 : bytes / cost.bytes_per_s,
                     busy_seconds(load, usual, network, from)});
    delays += cost.delay_s;
  }
  return busy + 2 * (n - 1) / n * delays + kFrameSeconds * 4 * (n - 1);
}

// The most that owners can own so that nothing takes longer than `seconds`:
//   every peer   (1 + (n-2)·s_i)·E ≤ seconds · capacity_i
//   every link   (s_i + s_j)·E ≤ seconds · rate_ij
// A linear program of which this finds a feasible point by cutting both ends of overfull links in
// proportion to how overfull their links are in all, and by filling what is left. Every peer is
// treated alike, so the result does not depend on their order.
class Balancer {
 public:
  Balancer(const Network& network, const Work& work, const std::vector<bool>& owners)
      : network_(network), encoded_(std::max(work.encoded, 1.0)), owners_(owners) {
    for (const Network::Measure& m : network.measured()) {
      if (owners[m.from] || owners[m.to]) links_.push_back(m);
    }
  }

  std::vector<double> within(double seconds) const {
    const auto count = static_cast<std::uint32_t>(network_.count());
    std::vector<double> most(count, 0);
    for (std::uint32_t i = 0; i < count; ++i) {
      const double spare = seconds * network_.capacity(i) / encoded_ - 1;
      if (owners_[i]) most[i] = std::clamp(spare / (count - 2), 0.0, 1.0);
    }
    std::vector<double> s = most;
    for (int sweep = 0; sweep < kSweeps && cut(seconds, &s); ++sweep) {
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep) fill(seconds, most, &s);
    return s;
  }

 private:
  double over(const Network::Measure& m, double seconds, const std::vector<double>& s) const {
    return s[m.from] + s[m.to] - seconds * m.cost.bytes_per_s / encoded_;
  }
  bool cut(double seconds, std::vector<double>* s) const {
    std::vector<double> total(s->size(), 0), cut(s->size(), 0);
    bool any = false;
    for (const Network::Measure& m : links_) {
      const double v = over(m, seconds, *s);
      if (v <= 1e-12) continue;
      any = true;
      total[m.from] += v;
      total[m.to] += v;
    }
    for (const Network::Measure& m : links_) {
      const double v = over(m, seconds, *s);
      if (v <= 1e-12) continue;
      const double a = total[m.from] * total[m.from];
      const double b = total[m.to] * total[m.to];
      // What one end does not have the other gives up.
      const double from = std::min((*s)[m.from], std::max(v - (*s)[m.to], v * a / (a + b)));
      cut[m.from] = std::max(cut[m.from], from);
      cut[m.to] = std::max(cut[m.to], v - from);
    }
    for (std::size_t i = 0; i < s->size(); ++i) (*s)[i] = std::max(0.0, (*s)[i] - cut[i]);
    return any;
  }
  void fill(double seconds, const std::vector<double>& most, std::vector<double>* s) const {
    std::vector<double> room(s->size());
    for (std::size_t i = 0; i < s->size(); ++i) room[i] = most[i] - (*s)[i];
    for (const Network::Measure& m : links_) {
      const double half = std::max(0.0, -over(m, seconds, *s) / 2);
      room[m.from] = std::min(room[m.from], half);
      room[m.to] = std::min(room[m.to], half);
    }
    for (std::size_t i = 0; i < s->size(); ++i) (*s)[i] += room[i];
  }

  const Network& network_;
  double encoded_;
  const std::vector<bool>& owners_;
  std::vector<Network::Measure> links_;
};

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

Plan direct_with(const std::vector<std::uint32_t>& shares) {
  Plan plan;
  plan.order.resize(shares.size());  // whom it names does not matter here
  plan.shares = shares;
  return plan;
}

Places identity(std::size_t count) {
  Places place(count);
  std::iota(place.begin(), place.end(), 0);
  return place;
}

}  // namespace

Network::Network(std::size_t count)
    : up_(count, LinkCost{}.bytes_per_s), down_(count, LinkCost{}.bytes_per_s), core_(count, 1) {}

namespace {

bool before(const Network::Measure& a, const Network::Measure& b) {
  return std::pair(a.from, a.to) < std::pair(b.from, b.to);
}

}  // namespace

void Network::set(std::uint32_t from, std::uint32_t to, LinkCost cost) {
  JCCL_CHECK(from < count() && to < count() && from != to);
  const Measure measure{from, to, cost};
  if (measured_.empty() || before(measured_.back(), measure)) {
    measured_.push_back(measure);
    return;
  }
  const auto at = std::lower_bound(measured_.begin(), measured_.end(), measure, before);
  if (at != measured_.end() && !before(measure, *at)) {
    if (!JCCL_PLANTED("second-measure-dropped")) *at = measure;
  } else {
    measured_.insert(at, measure);
  }
}

double Network::capacity(std::uint32_t peer) const { return std::min(up_[peer], down_[peer]); }

LinkCost Network::at(std::uint32_t from, std::uint32_t to) const {
  const Measure wanted{from, to, {}};
  const auto at = std::lower_bound(measured_.begin(), measured_.end(), wanted, before);
  return at != measured_.end() &&
                 (JCCL_PLANTED("measure-of-other-direction") || !before(wanted, *at))
             ? at->cost
             : LinkCost{.bytes_per_s = std::numeric_limits<double>::infinity()};
}

double predict(const Plan& plan, const std::vector<std::uint32_t>& place, const Network& network,
               const Work& work) {
  JCCL_CHECK(place.size() == plan.order.size());
  if (plan.order.size() < 2) return 0;
  return plan.kind == PlanKind::kRing ? ring_seconds(place, network, work)
                                      : predict_star(plan, place, network, work);
}

std::vector<std::uint32_t> balanced_shares(const Network& network, const Work& work,
                                           const std::vector<bool>& owners) {
  JCCL_CHECK(owners.size() == network.count());
  const std::size_t count = network.count();
  std::vector<std::uint32_t> equal(owners.begin(), owners.end());
  if (count <= 2 || std::count(owners.begin(), owners.end(), true) < 2) return equal;
  const Places place = identity(count);
  const double equal_seconds = predict(direct_with(equal), place, network, work);
  const Balancer balancer(network, work, owners);
  double slow = equal_seconds;
  double fast = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    fast = std::max(fast, work.encoded / network.capacity(i));
  }
  if (fast >= slow) return equal;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (slow + fast) / 2;
    (sum(balancer.within(middle)) >= 1 ? slow : fast) = middle;
  }
  const std::vector<double> s = balancer.within(slow);
  const double all = sum(s);
  if (!(all > 0)) return equal;
  std::vector<std::uint32_t> shares(count);
  for (std::size_t i = 0; i < count; ++i) {
    shares[i] = static_cast<std::uint32_t>(std::lround(kShareUnits * s[i] / all));
  }
  if (std::accumulate(shares.begin(), shares.end(), 0U) == 0) return equal;
  const double seconds = predict(direct_with(shares), place, network, work);
  return seconds * (1 + kGainMin) < equal_seconds ? shares : equal;
}

std::vector<std::uint32_t> ordered_ring(std::vector<std::uint32_t> ring, const Network& network,
                                        const Work& work, const Linked& linked) {
  const std::size_t count = ring.size();
  if (count < 4 || count > kOrderedMax || network.measured().empty()) return ring;
  double best = ring_seconds(ring, network, work);
  const auto improve = [&] {
    for (std::size_t i = 1; i + 1 < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        if (!linked(ring[i - 1], ring[j]) || !linked(ring[i], ring[(j + 1) % count])) continue;
        Places turned = ring;
        std::reverse(turned.begin() + static_cast<std::ptrdiff_t>(i),
                     turned.begin() + static_cast<std::ptrdiff_t>(j) + 1);
        const double seconds = ring_seconds(turned, network, work);
        if (seconds >= best * (1 - 1e-9)) continue;
        ring = std::move(turned);
        best = seconds;
        return true;
      }
    }
    return false;
  };
  for (int turn = 0; turn < kTurnsMax && improve(); ++turn) {
  }
  return ring;
}

}  // namespace jccl::collective
