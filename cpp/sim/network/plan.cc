#include "sim/network/plan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "collective/audit.h"
#include "collective/hint.h"
#include "collective/planner.h"
#include "collective/spec.h"
#include "snapshot/digest.h"

namespace jccl::sim {

using collective::PlanKind;

namespace {

constexpr double kSlowCore = 1e-12;

const std::vector<collective::LeafSpec> kLeaves = {{codec::Dtype::kF32, kElements}};

std::vector<collective::Chunk> chunks_of(const collective::Plan& plan,
                                         const collective::Aggregator& aggregator = {}) {
  return collective::make_layout(plan, kLeaves, {}, kChunkBytes, collective::grid_of(aggregator));
}

// Of one element, after ALGORITHMS.md: what stays when as many as that are dropped at each end.
float mean_of_ranks(std::vector<float> values, std::size_t dropped) {
  std::sort(values.begin(), values.end(), [](float a, float b) {
    return a < b || (a == b && std::signbit(a) && !std::signbit(b));
  });
  double sum = values[dropped];
  for (std::size_t i = dropped + 1; i + dropped < values.size(); ++i) sum += values[i];
  return static_cast<float>(sum / static_cast<double>(values.size() - 2 * dropped));
}

Array ranked(const collective::Plan& plan, const std::map<wire::PeerId, Part>& parts,
             const collective::Aggregator& aggregator) {
  const std::size_t n = plan.order.size();
  const bool trims = aggregator.id == collective::AggregatorId::kTrimmedMean;  // a quarter
  const std::size_t quarter = n < 3 ? 0 : std::max<std::size_t>(1, n / 4);
  const std::size_t dropped = trims ? quarter : (n - 1) / 2;
  Array out{};
  for (std::size_t k = 0; k < kElements; ++k) {
    std::vector<float> values;
    for (const wire::PeerId id : plan.order) values.push_back(parts.at(id).input[k]);
    out[k] = mean_of_ranks(std::move(values), dropped);
  }
  return out;
}

}  // namespace

base::Bytes hint_of(const exchange::Terms& terms) {
  collective::Hint hint{
      collective::hint_for(collective::spec_of(collective::Collective::kAllReduce), terms.plan,
                           collective::is_robust(terms.aggregator), terms.codec)};
  hint.data_bytes = hint.encoded_bytes = hint.accumulator_bytes = sizeof(Array);
  return collective::encode_hint(hint);
}

protocol::Auditor auditor_of(base::Rng& rng) {
  protocol::Auditor auditor;
  auditor.refusal = [](base::ByteView hint, base::ByteView plan) {
    return collective::unauditable(plan, hint);
  };
  auditor.add_up = [](const protocol::ShownCell& cell) -> protocol::Sum {
    collective::AddedUp sum = collective::add_up({cell.terms, cell.n, cell.weights, cell.parts});
    return {sum.is(cell.result), sum.wrong, std::move(sum.why)};
  };
  auditor.random = [&rng] { return rng.next(); };
  auditor.senders = collective::senders_of;
  return auditor;
}

void Planner::note(wire::PeerId peer, std::uint64_t bytes_per_s) {
  speeds_[peer] = bytes_per_s;
  kept_.clear();
}

base::Result<base::Bytes> Planner::plan(const protocol::PlanRequest& request) {
  std::vector<wire::PeerId> links;
  for (const auto& [a, b] : request.bad_links) links.insert(links.end(), {a, b});
  const Key key = {request.hint,
                   {request.contributors, request.receivers, request.dial_only, links}};
  if (const auto kept = kept_.find(key); kept != kept_.end()) return kept->second;
  auto plan = make(request);
  if (!plan.ok()) return plan;
  kept_[key] = plan.value();
  const auto hint = collective::decode_hint(request.hint);
  const bool any_order = hint.ok() && hint.value().kind == collective::HintKind::kFastest;
  rings_ += any_order && collective::decode(plan.value()).value().kind == PlanKind::kRing;
  return plan;
}

base::Result<base::Bytes> Planner::make(const protocol::PlanRequest& request) const {
  const auto hint = collective::decode_hint(request.hint);
  if (!hint.ok()) return hint.status();
  collective::PlannerOptions options;
  options.may_ring = request.may_ring && hint.value().kind != collective::HintKind::kNoRing;
  options.any_order = hint.value().kind == collective::HintKind::kFastest;
  options.kind = collective::plan_of(hint.value().kind);
  options.receivers = request.receivers;
  options.avoid = request.bad_links;
  options.dial_only = request.dial_only;
  options.work = {sizeof(Array), sizeof(Array), sizeof(Array)};
  options.network = collective::Network(request.contributors.size());
  for (std::uint32_t i = 0; i < request.contributors.size(); ++i) {
    const auto speed = speeds_.find(request.contributors[i]);
    if (speed == speeds_.end()) continue;
    options.network.set_up(i, static_cast<double>(speed->second));
    // Arrays of a few bytes are nothing to a processor, unless it is a slow one.
    if (options.any_order && speed->second % 4 == 0) options.network.set_core(i, kSlowCore);
  }
  const auto plan = collective::choose(request.contributors, options);
  if (!plan.ok()) return plan.status();
  return collective::encode(plan.value());
}

bool covers(const base::Bytes& bytes, const std::map<wire::PeerId, Part>& parts) {
  const auto plan = collective::decode(bytes);
  if (!plan.ok() || plan.value().order.size() != parts.size()) return false;
  return std::all_of(plan.value().order.begin(), plan.value().order.end(),
                     [&](wire::PeerId id) { return parts.count(id) > 0; });
}

Array result_of(const base::Bytes& bytes, const std::map<wire::PeerId, Part>& parts,
                const exchange::Terms& terms) {
  const collective::Plan plan = collective::decode(bytes).value();
  if (collective::is_robust(terms.aggregator)) return ranked(plan, parts, terms.aggregator);
  const bool mean = terms.op == collective::Op::kMean;
  const auto count = static_cast<std::uint32_t>(plan.order.size());
  double all = 0;
  for (const wire::PeerId id : plan.order) all += parts.at(id).weight;
  Array out{};
  for (const collective::Chunk& chunk : chunks_of(plan)) {
    // A ring's sums go round to the owner, beginning behind it.
    const std::uint32_t first = plan.kind == PlanKind::kRing ? chunk.owner + 1 : 0;
    for (const collective::Segment& segment : chunk.segments) {
      for (std::uint64_t k = segment.first; k < segment.first + segment.count; ++k) {
        float sum = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
          const Part& part = parts.at(plan.order[(first + i) % count]);
          const float term = static_cast<float>(part.weight) * part.input[k];
          sum = i == 0 ? term : sum + term;
        }
        out[k] = mean ? sum / static_cast<float>(all) : sum;
      }
    }
  }
  return out;
}

wire::PeerId owner_of(const collective::Plan& plan, std::uint32_t chunk,
                      const collective::Aggregator& aggregator) {
  const auto chunks = chunks_of(plan, aggregator);
  return chunk < chunks.size() ? plan.order[chunks[chunk].owner] : 0;
}

std::vector<std::size_t> chunk_bytes_of(const collective::Plan& plan,
                                        const collective::Aggregator& aggregator) {
  std::vector<std::size_t> bytes;
  for (const collective::Chunk& chunk : chunks_of(plan, aggregator)) {
    bytes.push_back(chunk.encoded_bytes);
  }
  return bytes;
}

base::Digest reported_digest(const base::Bytes& plan, const Array& result,
                             const collective::Aggregator& aggregator) {
  base::Writer digests;
  for (const collective::Chunk& chunk : chunks_of(collective::decode(plan).value(), aggregator)) {
    base::Bytes bytes;
    for (const collective::Segment& segment : chunk.segments) {
      const auto* from = reinterpret_cast<const std::uint8_t*>(result.data() + segment.first);
      bytes.insert(bytes.end(), from, from + segment.count * sizeof(float));
    }
    digests.digest(snapshot::digest_of(bytes));
  }
  return snapshot::digest_of(digests.bytes());
}

std::uint64_t documented_bytes(const base::Bytes& bytes) {
  const collective::Plan plan = collective::decode(bytes).value();
  const std::uint64_t others = plan.order.size() - 1;
  if (plan.kind == PlanKind::kExchange) return plan.order.size() * others * sizeof(Array);
  return 2 * others * sizeof(Array);  // towards the owners, and back
}

HeldMax held_max(const wire::Start& start, wire::PeerId self, const Buffers& call) {
  HeldMax held;
  const auto decoded = collective::decode(start.plan);
  if (!decoded.ok()) return held;
  const collective::Plan& plan = decoded.value();
  const auto own = std::find(plan.order.begin(), plan.order.end(), self);
  const bool contributes = own != plan.order.end();
  const auto position = static_cast<std::uint32_t>(own - plan.order.begin());
  // What nobody else sees takes results and sums where they belong, unless they are served later.
  const bool serves = contributes && !start.receivers.empty();
  const bool in_output = call.may_change_out() && !serves;
  for (const collective::Chunk& chunk : chunks_of(plan, call.agreed.aggregator)) {
    const collective::Route route =
        contributes ? collective::route(plan, chunk, position) : receiver_route(plan, chunk);
    const std::size_t sum = chunk.accumulator_bytes, each = chunk.encoded_bytes;
    const std::size_t result = in_output ? 0 : each;
    if (!route.owner) {  // in a ring its sum may go again, and the result may come before it
      held.running += route.partial ? sum + each : result;
      held.done += (route.partial ? sum : 0) + result;
      continue;
    }
    const std::size_t apart = in_output && !route.partial ? 0 : sum;
    const std::size_t waiting = route.partial ? 0 : (route.add_order.size() - 1) * each;
    held.running += apart + std::max(waiting, result);
    held.done += result;
  }
  return held;
}

}  // namespace jccl::sim
