// What a peer tells the master about the plan a round needs: which kind, and how many bytes. Opaque
// to the protocol; part of what all peers of a round must agree on. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/plan.h"

namespace jccl::collective {

enum class HintKind : std::uint8_t {
  kAuto = 0,  // the master chooses among plans of the default result class
  kDirect = 1,
  kRing = 2,
  kGather = 3,   // every contributor owns its own data (all_gather)
  kScatter = 4,  // direct without handing the result round (reduce_scatter)
  kExchange = 5,
  kNoRing = 6,    // as kAuto, but whoever forms a result must have all contributions to it
  kAllToAll = 7,  // its sizes are those of what goes to one peer
  kFastest = 8,   // as kAuto, and any documented order of addition will do: a ring too
};

// Leaves the choice to the master.
constexpr bool is_open(HintKind kind) {
  return kind == HintKind::kAuto || kind == HintKind::kNoRing || kind == HintKind::kFastest;
}

// Asks for a plan of that kind and no other.
constexpr HintKind hint_of(PlanKind kind) {
  return kind == PlanKind::kAllToAll ? HintKind::kAllToAll : static_cast<HintKind>(kind);
}
// The kind that is asked for; nullopt: any that the hint leaves open.
constexpr std::optional<PlanKind> plan_of(HintKind kind) {
  if (is_open(kind)) return std::nullopt;
  return kind == HintKind::kAllToAll ? PlanKind::kAllToAll : static_cast<PlanKind>(kind);
}

// Whether the sums of a call can be audited cell by cell (audit.h).
enum class Auditable : std::uint8_t {
  kYes = 0,
  kSparse = 1,  // its codec is sparse
  kWide = 2,    // a block of its aggregator does not fit a cell
};

struct Hint {
  HintKind kind = HintKind::kAuto;
  // Of one contributor: all leaves as they are, encoded, and in accumulator form.
  std::uint64_t data_bytes = 0, encoded_bytes = 0, accumulator_bytes = 0;
  Auditable audit = Auditable::kYes;
  auto operator<=>(const Hint&) const = default;
};

base::Bytes encode_hint(const Hint& hint);
base::Result<Hint> decode_hint(base::ByteView bytes);  // kInvalid for anything else

}  // namespace jccl::collective
