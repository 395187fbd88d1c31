// See plan_cache.h.
#include "master/plan_cache.h"

#include <algorithm>
#include <limits>

#include "base/limits.h"
#include "base/planted.h"

namespace jccl::master {
namespace {

using collective::Candidate;
using collective::HintKind;

constexpr double kDrift = 1.25;
constexpr double kDriftOfRing = 1.1;  // of a ring that was taken for its speed
constexpr double kEqualPart = 0.6;    // of an uplink by links, as noisy as rates are
constexpr std::uint32_t kWholeCore = 1000;
constexpr std::size_t kKeptMax = 64;  // kinds of requests
constexpr std::size_t kMeasuredMax = 2 * base::kPeersMax;
constexpr std::size_t kLinksAskedMax = 1 << 16;  // of one plan: the slowest of each member decide

// At most `count` of the links, ascending.
std::vector<wire::LinkMeasured> slowest(std::vector<wire::LinkMeasured> links, std::size_t count) {
  if (links.size() <= count) return links;
  const auto rate = [](const wire::LinkMeasured& l) {
    return l.bytes_per_s == 0 ? UINT64_MAX : l.bytes_per_s;
  };
  std::nth_element(links.begin(), links.begin() + static_cast<std::ptrdiff_t>(count), links.end(),
                   [&](const auto& a, const auto& b) {
                     return std::pair(rate(a), a.peer) < std::pair(rate(b), b.peer);
                   });
  links.resize(count);
  std::sort(links.begin(), links.end(),
            [](const auto& a, const auto& b) { return a.peer < b.peer; });
  return links;
}

// Whether the rate of a link says no more than that all links of the peer share its uplink: it is
// their equal part of that, or more. As the bound of a link it would speak for the plan in which it
// was measured, and against a ring, which uses one link.
bool shares_uplink(const wire::LinkMeasured& link, const wire::Measured& all) {
  const double part =
      static_cast<double>(all.up_bytes_per_s) / static_cast<double>(all.links.size());
  return link.bytes_per_s == 0 || (static_cast<double>(link.bytes_per_s) >= kEqualPart * part &&
                                   !JCCL_PLANTED("part-of-uplink-bounds-link"));
}

// A plan in use stays until another is so much faster.
double drift(const collective::PlannerOptions& options, const Candidate& old,
             const Candidate& fresh) {
  if (JCCL_PLANTED("plan-of-no-drift")) return 1;
  const bool was_ring = old.plan.kind == collective::PlanKind::kRing;
  const bool is_ring = fresh.plan.kind == collective::PlanKind::kRing;
  if (!options.any_order || was_ring == is_ring) return kDrift;
  // A ring that is first has gained what it has to (planner.h): the plan in use may be of a time
  // when nothing was measured.
  return is_ring && !JCCL_PLANTED("first-plan-stays") ? 1 : kDriftOfRing;
}

}  // namespace

// Two requests of one key may have the same plan: another membership, size or failed link is
// another key.
PlanCache::Key PlanCache::key_of(const protocol::PlanRequest& request) {
  std::vector<wire::PeerId> links;
  for (const auto& [a, b] : request.bad_links) {
    if (!JCCL_PLANTED("plan-without-links")) links.insert(links.end(), {a, b});
  }
  return {request.hint, {request.contributors, request.receivers, request.dial_only, links}};
}

base::Result<base::Bytes> PlanCache::plan(const protocol::PlanRequest& request) {
  const Key key = key_of(request);
  Kept& kept = kept_[key];
  // Planning again after every note would cost a thousand peers more than it gains.
  const std::uint64_t patience = std::max<std::uint64_t>(1, request.contributors.size() / 2);
  if (kept.bytes.empty() ||
      (!JCCL_PLANTED("plan-never-made-anew") && notes_ - kept.planned_at >= patience)) {
    const base::Status status = choose(request, kept);
    if (!status.ok()) {
      kept_.erase(key);
      return status;
    }
    kept.planned_at = notes_;
  }
  kept.used_at = ++requests_;
  ++kept.view.uses;
  base::Bytes bytes = kept.bytes;
  forget_some();
  return bytes;
}

base::Status PlanCache::choose(const protocol::PlanRequest& request, Kept& kept) const {
  const auto hint = collective::decode_hint(request.hint);
  if (!hint.ok()) return hint.status();
  collective::PlannerOptions options;
  options.may_ring = request.may_ring && hint.value().kind != HintKind::kNoRing;
  options.any_order = hint.value().kind == HintKind::kFastest;
  options.kind = collective::plan_of(hint.value().kind);
  options.receivers = request.receivers;
  options.avoid = request.bad_links;
  options.dial_only = request.dial_only;
  options.network = network_of(request.contributors, options.any_order);
  options.work = {static_cast<double>(hint.value().data_bytes),
                  static_cast<double>(hint.value().encoded_bytes),
                  static_cast<double>(hint.value().accumulator_bytes)};
  auto found = collective::candidates(request.contributors, options);
  if (!found.ok()) return found.status();
  std::vector<Candidate> all = std::move(found.value());
  if (!kept.bytes.empty()) {
    Candidate old = kept.view.candidates.front();
    old.seconds =
        collective::predict_for(old.plan, request.contributors, options.network, options.work);
    if (old.seconds <= drift(options, old, all.front()) * all.front().seconds) {
      std::erase_if(all, [&](const Candidate& c) { return c.plan == old.plan; });
      all.insert(all.begin(), std::move(old));
    }
  }
  kept.bytes = collective::encode(all.front().plan);
  kept.view.contributors = request.contributors;
  kept.view.hint = hint.value();
  kept.view.candidates = std::move(all);
  return {};
}

void PlanCache::note(wire::PeerId peer, wire::Measured measured) {
  ++notes_;
  measured_[peer] = std::move(measured);
  // Ids are never given twice: the lowest are those of the longest gone.
  while (measured_.size() > kMeasuredMax)
    measured_.erase(JCCL_PLANTED("newest-measure-forgotten") ? std::prev(measured_.end())
                                                             : measured_.begin());
}

collective::Network PlanCache::network_of(const std::vector<wire::PeerId>& members,
                                          bool any_order) const {
  collective::Network network(members.size());
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const auto found = measured_.find(members[i]);
    if (found == measured_.end()) continue;
    if (found->second.up_bytes_per_s > 0) {
      network.set_up(i, static_cast<double>(found->second.up_bytes_per_s));
    }
    if (const std::uint32_t core = found->second.core; core > 0 && any_order) {
      network.set_core(i, std::min(core, kWholeCore) / double{kWholeCore});
    }
    for (const wire::LinkMeasured& link :
         slowest(found->second.links, kLinksAskedMax / members.size())) {
      const auto at = std::lower_bound(members.begin(), members.end(), link.peer);
      if (at == members.end() || *at != link.peer || link.peer == members[i]) continue;
      collective::LinkCost cost;
      if (link.rtt_us > 0)
        cost.delay_s = link.rtt_us / (JCCL_PLANTED("delay-is-round-trip") ? 1e6 : 2e6);
      if (link.bytes_per_s > 0) cost.bytes_per_s = static_cast<double>(link.bytes_per_s);
      if (any_order && shares_uplink(link, found->second))
        cost.bytes_per_s = std::numeric_limits<double>::infinity();
      network.set(i, static_cast<std::uint32_t>(at - members.begin()), cost);
    }
  }
  return network;
}

void PlanCache::forget_some() {
  if (kept_.size() <= kKeptMax || JCCL_PLANTED("plans-kept-for-ever")) return;
  kept_.erase(std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
    return a.second.used_at < b.second.used_at;
  }));
}

std::vector<PlanView> PlanCache::plans() const {
  std::vector<std::pair<std::uint64_t, const Kept*>> by_use;
  for (const auto& [key, kept] : kept_) by_use.emplace_back(kept.used_at, &kept);
  std::sort(by_use.rbegin(), by_use.rend());
  std::vector<PlanView> views;
  for (const auto& [used, kept] : by_use) views.push_back(kept->view);
  return views;
}

}  // namespace jccl::master
