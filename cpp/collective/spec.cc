// Look-ups in the table of collectives, and what must hold for each of its rows.
#include "collective/spec.h"

#include <algorithm>
#include <iterator>

#include "base/planted.h"

namespace jccl::collective {
namespace {

constexpr PlanKind kPlanKinds[] = {PlanKind::kDirect,  PlanKind::kRing,     PlanKind::kGather,
                                   PlanKind::kScatter, PlanKind::kExchange, PlanKind::kAllToAll};

constexpr bool is_sound(const CollectiveSpec& spec) {
  const bool by_slots = spec.contributors == CollectiveSpec::Contributors::kSlots;
  const bool common = spec.digest == CollectiveSpec::Digest::kCommon;
  for (const PlanKind kind : kPlanKinds) {
    if (spec.carried_by(kind) && has_common_result(kind) != common) return false;
  }
  return spec.plans != 0 && by_slots == spec.has_slots();
}

constexpr bool are_sound() {
  for (std::size_t i = 0; i < std::size(kCollectives); ++i) {
    if (static_cast<std::size_t>(kCollectives[i].collective) != i + 1) return false;
    if (!is_sound(kCollectives[i])) return false;
  }
  return true;
}
static_assert(are_sound(), "rows are by number, and say of digests what their plans do");

}  // namespace

std::optional<Collective> collective_from_number(std::int64_t number) {
  if (number < 1 || number > static_cast<std::int64_t>(std::size(kCollectives))) {
    return std::nullopt;
  }
  return static_cast<Collective>(number);
}

std::optional<Collective> collective_from_name(std::string_view name) {
  const auto* at = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                [&](const CollectiveSpec& spec) { return spec.name == name; });
  if (at == std::end(kCollectives)) return std::nullopt;
  return at->collective;
}

HintKind hint_for(const CollectiveSpec& spec, std::string_view plan, bool robust,
                  const codec::Codec& codec) {
  if (const auto only = spec.only_plan()) return hint_of(*only);
  for (const PlanKind kind : kPlanKinds) {
    if (spec.carried_by(kind) && name_of(kind) == plan) return hint_of(kind);
  }
  const HintKind automatic = robust ? HintKind::kNoRing : HintKind::kAuto;
  if (plan != kFastestPlan || JCCL_PLANTED("fastest-asked-as-automatic")) return automatic;
  const bool ring = !robust && check_codec(PlanKind::kRing, codec).ok();
  return ring || JCCL_PLANTED("fastest-where-no-ring-can-be") ? HintKind::kFastest : automatic;
}

}  // namespace jccl::collective
