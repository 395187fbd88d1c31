// How a mean treats values that lie: the aggregators, their one parameter each, and their names.
// Formulas and sources are in ALGORITHMS.md. Everything an aggregator cannot be combined with is
// refused here with a text for the user. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "codec/codec.h"
#include "collective/op.h"
#include "collective/plan.h"

namespace jccl::collective {

// The numbers travel in descriptors and are never reused.
enum class AggregatorId : std::uint8_t {
  kMean = 0,          // by weight; no parameter
  kTrimmedMean = 1,   // parameter: the share dropped at each end
  kMedian = 2,        // of each coordinate; no parameter
  kCenteredClip = 3,  // parameter: the radius, in medians of the distances from the centre
  kNormLimit = 4,     // parameter: the longest norm, in medians of the norms
};

inline constexpr std::uint8_t kAggregatorNumberMax = 4;

// Norms are of so many elements of a leaf, its last block may be shorter. Every codec's block
// divides it, and chunks are cut at its multiples: so no norm depends on plan, shares or chunks.
inline constexpr std::size_t kAggregateBlock = 4096;
static_assert(kAggregateBlock % codec::kTopKBlock == 0);

struct Aggregator {
  AggregatorId id = AggregatorId::kMean;
  double parameter = 0;
  bool operator==(const Aggregator&) const = default;
};

// Needs every contribution to a chunk at once, instead of one after the other.
constexpr bool is_robust(const Aggregator& aggregator) {
  return aggregator.id != AggregatorId::kMean;
}

// What the layout of a call must not cut through.
constexpr std::uint64_t grid_of(const Aggregator& aggregator) {
  return is_robust(aggregator) ? kAggregateBlock : 1;
}

// "mean", "median", "trimmed_mean:trim=0.25", "centered_clip:radius=1", "norm_limit:times=2".
// aggregator_from_name() reads what name_of() writes, bit for bit; a parameter may be left out.
std::string name_of(const Aggregator& aggregator);
std::optional<Aggregator> aggregator_from_name(std::string_view name);

// kInvalid: an unknown aggregator, or a parameter out of its range.
base::Status check(const Aggregator& aggregator);
// kInvalid, with what to use instead, for what a robust aggregator is not defined for.
base::Status check_aggregator(const Aggregator& aggregator, Op op, codec::Dtype dtype,
                              const codec::Codec& codec);
// kInvalid for a plan in which nobody has all contributions to a chunk.
base::Status check_aggregator(const Aggregator& aggregator, PlanKind kind);

}  // namespace jccl::collective
