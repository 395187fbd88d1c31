// A collective is one row: its number and name, the form of its arrays, the plans that carry it,
// what it takes of a call's terms, and whether all peers end with the same result. Whoever needs
// one of these facts reads it here. What codecs and dtypes it may be combined with follows from its
// op (op.h). Pure; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "collective/hint.h"
#include "collective/op.h"
#include "collective/plan.h"

namespace jccl::collective {

// The numbers travel in descriptors, are those of jccl.h, and are never reused.
enum class Collective : std::uint8_t {
  kAllReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kBroadcast = 4,
  kBarrier = 5,
  kAllToAll = 6,
};

struct CollectiveSpec {
  // Which arrays have a leading axis of slots: blocks of one form, one for each contributor, by
  // position among their ids.
  enum class Slots : std::uint8_t { kNone, kOut, kInAndOut };
  enum class Contributors : std::uint8_t { kAny, kOne, kSlots };  // at most
  // Of a contribution: the caller's, or 1, or 1 for the root and 0 for all others.
  enum class Weight : std::uint8_t { kGiven, kOne, kRoot };
  // What DONE says: a digest of the result, which all peers have, or none where each has its own.
  enum class Digest : std::uint8_t { kCommon, kNone };

  Collective collective;
  std::string_view name;  // in Python; in C after "jccl_"
  Slots slots;
  Contributors contributors;
  std::uint32_t plans;  // a bit for each PlanKind; where there are several, the caller may name one
  std::optional<Op> op;  // nullopt: the caller's
  Weight weight;
  Digest digest;
  bool aggregators;  // other ones than mean
  bool quorums;      // it has a use without those that are late

  constexpr bool has_slots() const { return slots != Slots::kNone; }
  constexpr bool carried_by(PlanKind kind) const {
    return (plans >> static_cast<unsigned>(kind) & 1U) != 0;
  }
  // The one plan that carries it, if there is one only.
  constexpr std::optional<PlanKind> only_plan() const {
    if ((plans & (plans - 1)) != 0) return std::nullopt;
    unsigned kind = 0;
    while ((plans >> kind) > 1) ++kind;
    return static_cast<PlanKind>(kind);
  }
};

constexpr std::uint32_t plan_bits(std::initializer_list<PlanKind> kinds) {
  std::uint32_t bits = 0;
  for (const PlanKind kind : kinds) bits |= 1U << static_cast<unsigned>(kind);
  return bits;
}

// By number, from 1 on.
inline constexpr CollectiveSpec kCollectives[] = {
    {.collective = Collective::kAllReduce,
     .name = "all_reduce",
     .slots = CollectiveSpec::Slots::kNone,
     .contributors = CollectiveSpec::Contributors::kAny,
     .plans = plan_bits({PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}),
     .op = std::nullopt,
     .weight = CollectiveSpec::Weight::kGiven,
     .digest = CollectiveSpec::Digest::kCommon,
     .aggregators = true,
     .quorums = true},
    {.collective = Collective::kAllGather,
     .name = "all_gather",
     .slots = CollectiveSpec::Slots::kOut,
     .contributors = CollectiveSpec::Contributors::kSlots,
     .plans = plan_bits({PlanKind::kGather}),
     .op = Op::kSum,
     .weight = CollectiveSpec::Weight::kOne,
     .digest = CollectiveSpec::Digest::kCommon,
     .aggregators = false,
     .quorums = true},
    // Only the elements of the own share are written.
    {.collective = Collective::kReduceScatter,
     .name = "reduce_scatter",
     .slots = CollectiveSpec::Slots::kNone,
     .contributors = CollectiveSpec::Contributors::kAny,
     .plans = plan_bits({PlanKind::kScatter}),
     .op = std::nullopt,
     .weight = CollectiveSpec::Weight::kGiven,
     .digest = CollectiveSpec::Digest::kNone,
     .aggregators = false,
     .quorums = false},
    {.collective = Collective::kBroadcast,
     .name = "broadcast",
     .slots = CollectiveSpec::Slots::kNone,
     .contributors = CollectiveSpec::Contributors::kOne,
     .plans = plan_bits({PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}),
     .op = Op::kSum,
     .weight = CollectiveSpec::Weight::kRoot,
     .digest = CollectiveSpec::Digest::kCommon,
     .aggregators = false,
     .quorums = false},
    // Without arrays; the op is one of the things that peers compare.
    {.collective = Collective::kBarrier,
     .name = "barrier",
     .slots = CollectiveSpec::Slots::kNone,
     .contributors = CollectiveSpec::Contributors::kAny,
     .plans = plan_bits({PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}),
     .op = Op::kMean,
     .weight = CollectiveSpec::Weight::kGiven,
     .digest = CollectiveSpec::Digest::kCommon,
     .aggregators = false,
     .quorums = false},
    {.collective = Collective::kAllToAll,
     .name = "all_to_all",
     .slots = CollectiveSpec::Slots::kInAndOut,
     .contributors = CollectiveSpec::Contributors::kSlots,
     .plans = plan_bits({PlanKind::kAllToAll}),
     .op = Op::kSum,
     .weight = CollectiveSpec::Weight::kOne,
     .digest = CollectiveSpec::Digest::kNone,
     .aggregators = false,
     .quorums = false},
};

constexpr const CollectiveSpec& spec_of(Collective collective) {
  return kCollectives[static_cast<std::size_t>(collective) - 1];
}
constexpr std::string_view name_of(Collective collective) { return spec_of(collective).name; }

std::optional<Collective> collective_from_number(std::int64_t number);
std::optional<Collective> collective_from_name(std::string_view name);

// How a caller asks for the plan that is predicted to be the fastest, in whatever order it adds.
inline constexpr std::string_view kFastestPlan = "fastest";

// What a call asks the master for. `plan`: as its caller named it, or empty. Where no ring can
// carry the call, the fastest plan is what the master chooses anyhow.
HintKind hint_for(const CollectiveSpec& spec, std::string_view plan, bool robust,
                  const codec::Codec& codec);

}  // namespace jccl::collective
