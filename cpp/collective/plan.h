// A plan as data: who adds, in which order, and who sends what to whom. The master chooses it
// (planner.h), START carries its bytes, every peer derives its own routes from it. Refuses any
// bytes that are not exactly one well-formed plan. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "collective/layout.h"

namespace jccl::collective {

// The numbers travel and are never reused.
enum class PlanKind : std::uint8_t {
  kDirect = 1,    // everyone sends each owner its part; owners send the result to all
  kRing = 2,      // partial sums go round to the owner, results go round from it
  kGather = 3,    // all_gather: every contributor owns its own data
  kScatter = 4,   // reduce_scatter: direct without sending the result
  kExchange = 5,  // everyone sends everyone all it has and adds for itself; same bits as direct
  kAllToAll = 6,  // all_to_all: everyone sends each owner its block, and nothing is added
};

std::string_view name_of(PlanKind kind);

struct Plan {
  PlanKind kind = PlanKind::kDirect;
  std::vector<base::PeerId> order;  // contributors: ascending, but for a ring, where it is the ring
  std::vector<std::uint32_t>
      shares;  // relative, one per position; empty: equal (not gather, scatter)
  bool operator==(const Plan&) const = default;
};

// Kinds whose plans may have shares: what each owns. In an exchange the owner only serves
// receivers.
constexpr bool has_shares(PlanKind kind) {
  return kind == PlanKind::kDirect || kind == PlanKind::kRing || kind == PlanKind::kExchange;
}

// Kinds after which all peers have the same result. In the others each contributor has its own, and
// a receiver none.
constexpr bool has_common_result(PlanKind kind) {
  return kind != PlanKind::kScatter && kind != PlanKind::kAllToAll;
}

// Kinds whose contributions are results as they are: each has its slot in the outputs.
constexpr bool fills_slots(PlanKind kind) {
  return kind == PlanKind::kGather || kind == PlanKind::kAllToAll;
}

base::Status check(const Plan& plan);  // kInvalid if it breaks a rule above or a limit
base::Bytes encode(const Plan& plan);
base::Result<Plan> decode(base::ByteView bytes);

// The cut that belongs to the plan's kind. `leaves`: of an all_to_all what goes to one peer.
// `grid_least`: see LayoutOptions.
std::vector<Chunk> make_layout(const Plan& plan, const std::vector<LeafSpec>& leaves,
                               const codec::Codec& codec, std::size_t chunk_bytes,
                               std::uint64_t grid_least = 1);

// How a contribution is encoded before it is added, by its sender or by the adder itself. In a
// ring nothing is quantised before the result is, and in a gather the result is the contribution.
constexpr codec::Codec contribution_codec(const Plan& plan, const codec::Codec& codec) {
  const bool once = plan.kind == PlanKind::kRing || plan.kind == PlanKind::kGather;
  return once ? codec::Codec{} : codec;
}

// How a result of n contributions is encoded. A sum of n blocks with k entries each has up to n·k,
// and all of them stay: nothing that a sparse contribution carried is lost. Error feedback makes up
// for what a contribution of stat2 leaves out, but nobody keeps what a result leaves out: it has 4
// bits.
constexpr codec::Codec result_codec(const codec::Codec& codec, std::size_t contributors) {
  if (codec.id == codec::CodecId::kStat2) return codec::CodecId::kInt4;
  if (!codec::is_sparse(codec.id)) return codec;
  const std::uint64_t entries = std::uint64_t{codec.kept} * contributors;
  return codec::top_k(static_cast<std::uint32_t>(
      entries < codec::kTopKBlock ? entries : std::uint64_t{codec::kTopKBlock}));
}

// Of this plan.
constexpr codec::Codec result_codec(const Plan& plan, const codec::Codec& codec) {
  return fills_slots(plan.kind) ? codec : result_codec(codec, plan.order.size());
}

// Whose chance the result of a chunk takes under a stochastic codec: everyone's, for it must not
// depend on who the owner is, but in a gather the owner's own. For codec/noise.h.
constexpr base::PeerId result_noise_peer(const Plan& plan, const Chunk& chunk) {
  return plan.kind == PlanKind::kGather ? plan.order[chunk.owner] : base::PeerId{0};
}

// kInvalid for a codec that a kind of plan cannot carry: a sparse one in a ring, whose partial sums
// would have to travel whole.
base::Status check_codec(PlanKind kind, const codec::Codec& codec);

// What one peer does for one chunk. All numbers are positions in Plan::order.
struct Route {
  std::vector<std::uint32_t> add_order;  // whose data this peer adds, itself included; empty: none
  bool partial = false;  // what is awaited and sent on are partial sums, not contributions
  std::vector<std::uint32_t> send_to;  // get this peer's contribution, or one its partial sum
  bool owner = false;             // finishes the result, or keeps it; in an exchange everyone does
  std::int32_t result_from = -1;  // sends the result; -1: this is the owner, or no result wanted
  std::vector<std::uint32_t> result_to;  // get the result from this peer, besides receivers
  bool operator==(const Route&) const = default;
};

Route route(const Plan& plan, const Chunk& chunk, std::uint32_t my_position);  // contributors
Route receiver_route(const Plan& plan, const Chunk& chunk);  // only result_from, if any

// Whose frames `whom` takes for what each of the owners owns: of the result, in an exchange of the
// contribution. `whom` itself: it makes it. 0: that is no plan, or one of the two is not in it, or
// owns nothing.
std::vector<base::PeerId> senders_of(base::ByteView plan, base::PeerId whom,
                                     const std::vector<base::PeerId>& owners);

// Everyone this contributor sends the result of the chunk to; the chunk's owner also serves
// receivers.
std::vector<base::PeerId> result_targets(const Plan& plan, const Chunk& chunk,
                                         std::uint32_t my_position,
                                         const std::vector<base::PeerId>& receivers);

}  // namespace jccl::collective
