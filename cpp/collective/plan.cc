// Bytes: u8 kind | u32 n | n × (u32 first peer, u32 count of neighbouring ids in a row) | u32 m |
// m × u32 share, little-endian. Mostly the order ascends without a gap: one run, whatever the
// world.
#include "collective/plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::collective {
namespace {

using base::Code;

constexpr std::string_view kPlanNames[] = {"?",       "direct",   "ring",      "gather",
                                           "scatter", "exchange", "all_to_all"};

base::Status invalid(const std::string& text) { return {Code::kInvalid, "plan: " + text}; }

std::vector<std::pair<base::PeerId, std::uint32_t>> runs_of(
    const std::vector<base::PeerId>& order) {
  std::vector<std::pair<base::PeerId, std::uint32_t>> runs;
  for (const base::PeerId peer : order) {
    if (!runs.empty() && peer == runs.back().first + runs.back().second)
      ++runs.back().second;
    else
      runs.emplace_back(peer, 1);
  }
  return runs;
}

bool has_duplicate(std::vector<base::PeerId> ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

std::vector<std::uint32_t> all_but(std::size_t count, std::uint32_t left_out) {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t p = 0; p < count; ++p) {
    if (p != left_out) positions.push_back(p);
  }
  return positions;
}

Route direct_route(const Plan& plan, std::uint32_t owner, std::uint32_t me) {
  const bool returns = plan.kind == PlanKind::kDirect;
  Route r;
  if (me != owner) {
    r.send_to = {owner};
    if (returns) r.result_from = static_cast<std::int32_t>(owner);
    return r;
  }
  r.owner = true;
  for (std::uint32_t p = 0; p < plan.order.size(); ++p) r.add_order.push_back(p);
  if (returns) r.result_to = all_but(plan.order.size(), me);
  return r;
}

// The owner differs from the others only in that it serves receivers.
Route exchange_route(const Plan& plan, std::uint32_t me) {
  Route r;
  r.owner = true;
  for (std::uint32_t p = 0; p < plan.order.size(); ++p) r.add_order.push_back(p);
  r.send_to = all_but(plan.order.size(), me);
  return r;
}

Route gather_route(const Plan& plan, std::uint32_t owner, std::uint32_t me) {
  Route r;
  if (me != owner) {
    r.result_from = static_cast<std::int32_t>(owner);
    return r;
  }
  r.owner = true;
  r.add_order = {me};
  r.result_to = all_but(plan.order.size(), me);
  return r;
}

// The partial sum starts after the owner and ends there; the result takes the same way.
Route ring_route(const Plan& plan, std::uint32_t owner, std::uint32_t me) {
  const auto size = static_cast<std::uint32_t>(plan.order.size());
  const std::uint32_t before = (me + size - 1) % size;
  const std::uint32_t after = (me + 1) % size;
  Route r;
  r.partial = size > 1;
  if (size > 1 && before != owner) r.add_order.push_back(before);
  r.add_order.push_back(me);
  if (size > 1 && after != owner && !(JCCL_PLANTED("result-not-passed-on") && me != owner))
    r.result_to.push_back(after);
  if (me == owner) {
    r.owner = true;
    return r;
  }
  r.send_to = {after};
  r.result_from = static_cast<std::int32_t>(before);
  return r;
}

}  // namespace

std::string_view name_of(PlanKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  return number < std::size(kPlanNames) ? kPlanNames[number] : kPlanNames[0];
}

base::Status check(const Plan& plan) {
  if (plan.kind < PlanKind::kDirect || plan.kind > PlanKind::kAllToAll) {
    return invalid(base::cat("unknown kind ", static_cast<int>(plan.kind)));
  }
  if (plan.order.empty()) return invalid("nobody contributes");
  if (plan.order.size() > base::kPeersMax) {
    return invalid(base::cat(plan.order.size(), " contributors, at most ", base::kPeersMax));
  }
  if (std::count(plan.order.begin(), plan.order.end(), base::PeerId{0}) != 0 &&
      !JCCL_PLANTED("peer-zero-in-plan")) {
    return invalid("peer 0 is no member");
  }
  if (has_duplicate(plan.order)) return invalid("a peer is named twice");
  const bool sorted = std::is_sorted(plan.order.begin(), plan.order.end());
  if (plan.kind != PlanKind::kRing && !sorted) return invalid("contributors are not ascending");
  if (plan.shares.empty()) return base::ok_status();
  if (!has_shares(plan.kind)) {
    return invalid(base::cat(name_of(plan.kind), " has no shares"));
  }
  if (plan.shares.size() != plan.order.size()) {
    return invalid(base::cat(plan.shares.size(), " shares for ", plan.order.size(), " peers"));
  }
  const auto zeros = std::count(plan.shares.begin(), plan.shares.end(), 0U);
  if (static_cast<std::size_t>(zeros) == plan.shares.size()) return invalid("all shares are 0");
  return base::ok_status();
}

base::Status check_codec(PlanKind kind, const codec::Codec& codec) {
  if (kind != PlanKind::kRing || !codec::is_sparse(codec.id)) return base::ok_status();
  return {Code::kInvalid, base::cat("codec ", codec::name_of(codec.id),
                                    " in a ring: partial sums would travel whole; use direct")};
}

base::Bytes encode(const Plan& plan) {
  JCCL_CHECK(check(plan).ok());
  base::Writer w;
  w.u8(static_cast<std::uint8_t>(plan.kind));
  const std::vector<std::pair<base::PeerId, std::uint32_t>> runs = runs_of(plan.order);
  w.u32(static_cast<std::uint32_t>(runs.size()));
  for (const auto& [first, count] : runs) w.u32(first), w.u32(count);
  w.u32(static_cast<std::uint32_t>(plan.shares.size()));
  for (const std::uint32_t share : plan.shares) w.u32(share);
  JCCL_CHECK(w.size() <= base::kPlanBytesMax);
  return w.take();
}

base::Result<Plan> decode(base::ByteView bytes) {
  base::Reader r(bytes);
  Plan plan;
  plan.kind = static_cast<PlanKind>(r.u8());
  for (std::size_t runs = r.count(base::kPeersMax, 8); runs > 0 && !r.failed(); --runs) {
    const std::uint32_t first = r.u32(), count = r.u32();
    const bool joins = !plan.order.empty() && first == plan.order.back() + 1;
    if (count == 0 || count > base::kPeersMax - plan.order.size() ||
        (joins && !JCCL_PLANTED("joined-runs-taken")))
      r.fail();
    for (std::uint32_t i = 0; i < count && !r.failed(); ++i) plan.order.push_back(first + i);
  }
  plan.shares.resize(r.count(base::kPeersMax, 4));
  for (std::uint32_t& share : plan.shares) share = r.u32();
  if (!r.finished()) return invalid("cut short, too long, or beyond a limit");
  const base::Status status = check(plan);
  if (!status.ok()) return status;
  return plan;
}

std::vector<Chunk> make_layout(const Plan& plan, const std::vector<LeafSpec>& leaves,
                               const codec::Codec& codec, std::size_t chunk_bytes,
                               std::uint64_t grid_least) {
  LayoutOptions options{result_codec(plan, codec), chunk_bytes, plan.shares, grid_least};
  if (options.shares.empty()) options.shares.assign(plan.order.size(), 1);
  if (plan.kind == PlanKind::kGather) return make_gather_layout(leaves, options);
  if (plan.kind == PlanKind::kScatter) return make_scatter_layout(leaves, options);
  if (plan.kind == PlanKind::kAllToAll) return make_all_to_all_layout(leaves, options);
  return make_layout(leaves, options);
}

Route route(const Plan& plan, const Chunk& chunk, std::uint32_t my_position) {
  JCCL_CHECK(my_position < plan.order.size());
  JCCL_CHECK(chunk.owner < plan.order.size());
  if (plan.kind == PlanKind::kRing) return ring_route(plan, chunk.owner, my_position);
  if (plan.kind == PlanKind::kGather) return gather_route(plan, chunk.owner, my_position);
  if (plan.kind == PlanKind::kExchange) return exchange_route(plan, my_position);
  return direct_route(plan, chunk.owner, my_position);
}

Route receiver_route(const Plan& plan, const Chunk& chunk) {
  JCCL_CHECK(chunk.owner < plan.order.size());
  Route r;
  if (has_common_result(plan.kind)) r.result_from = static_cast<std::int32_t>(chunk.owner);
  return r;
}

std::vector<base::PeerId> senders_of(base::ByteView bytes, base::PeerId whom,
                                     const std::vector<base::PeerId>& owners) {
  std::vector<base::PeerId> senders(owners.size(), 0);
  const auto plan = decode(bytes);
  if (!plan.ok()) return senders;
  const std::vector<base::PeerId>& order = plan.value().order;
  const auto at = [&order](base::PeerId id) { return std::find(order.begin(), order.end(), id); };
  const auto me = at(whom);
  if (me == order.end()) return senders;
  const base::PeerId before = me == order.begin() ? order.back() : *std::prev(me);
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const auto owner = at(owners[i]);
    if (owner == order.end()) continue;
    const auto& shares = plan.value().shares;
    const bool owns = shares.empty() || plan.value().kind == PlanKind::kExchange ||
                      shares[static_cast<std::size_t>(owner - order.begin())] > 0;
    if (!owns) continue;
    const bool passed_on = plan.value().kind == PlanKind::kRing && owners[i] != whom;
    senders[i] = passed_on ? before : owners[i];
  }
  return senders;
}

std::vector<base::PeerId> result_targets(const Plan& plan, const Chunk& chunk,
                                         std::uint32_t my_position,
                                         const std::vector<base::PeerId>& receivers) {
  const Route mine = route(plan, chunk, my_position);
  std::vector<base::PeerId> targets;
  for (const std::uint32_t position : mine.result_to) targets.push_back(plan.order[position]);
  if (my_position == chunk.owner && has_common_result(plan.kind) &&
      !(JCCL_PLANTED("receivers-not-served") && plan.kind == PlanKind::kExchange)) {
    targets.insert(targets.end(), receivers.begin(), receivers.end());
  }
  return targets;
}

}  // namespace jccl::collective
