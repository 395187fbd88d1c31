// What an audit looks at: a cell, a piece of a chunk that fits one control frame; and its sum,
// formed anew from every contributor's part of it, bit for bit as its owner has to. Refuses
// whatever its bytes come with that no attempt has: they were made elsewhere. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/audit_limits.h"
#include "base/bytes.h"
#include "collective/aggregator.h"
#include "collective/hint.h"
#include "collective/plan.h"

namespace jccl::collective {

// Cuts at the grid of the layout's codec, inside one segment, so that a cell's encoded part and its
// encoded result stand in one piece in those of their chunk.
struct Cell {
  std::uint32_t chunk = 0;
  Segment piece;
  std::size_t part_at = 0, part_bytes = 0;      // in the chunk's encoded contribution
  std::size_t result_at = 0, result_bytes = 0;  // … and result
};

// In the order of the chunk's bytes. The call is one that `unauditable` has no word against.
std::vector<Cell> cells_of(const Plan& plan, const Chunk& chunk,
                           const std::vector<LeafSpec>& leaves, const codec::Codec& codec,
                           const Aggregator& aggregator);

// Whether the cells of a call can be looked at one by one; and of an attempt at it, under the
// plan: empty, or why not.
Auditable auditable(const std::vector<LeafSpec>& leaves, const codec::Codec& codec,
                    const Aggregator& aggregator);
std::string unauditable(const Plan& plan, const Hint& hint);
std::string unauditable(base::ByteView plan, base::ByteView hint);  // as they travel

// What a cell is. All who contribute say the same of it, which the roots of their trees bind.
struct CellTerms {
  Op op = Op::kMean;
  Aggregator aggregator;
  codec::Codec codec;  // of the call
  codec::Dtype dtype = codec::Dtype::kF32;
  std::uint32_t chunk = 0;
  Segment piece;
  bool operator==(const CellTerms&) const = default;
};
base::Bytes encode_terms(const CellTerms& terms);
base::Result<CellTerms> decode_terms(base::ByteView bytes);  // kInvalid: none that we write

struct Summands {
  base::ByteView terms;
  std::uint64_t round = 0;            // n
  std::vector<double> weights;        // in the plan's order
  std::vector<base::ByteView> parts;  // likewise: encoded contributions
};
struct AddedUp {
  std::optional<base::Bytes> result;  // encoded
  std::optional<std::size_t> wrong;   // whose part no encoder writes; neither: no such cell is
  std::string why;
  bool is(base::ByteView told) const {
    return result.has_value() && std::ranges::equal(*result, told);
  }
};
AddedUp add_up(const Summands& summands);

}  // namespace jccl::collective
