// Direct plans alone: their contributors ascend, each chunk has one owner, and contributions travel
// in the codec of the call.
#include "collective/audit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"
#include "codec/encoded.h"
#include "codec/noise.h"
#include "collective/kernels/aggregate.h"
#include "collective/kernels/kernels.h"

namespace jccl::collective {
namespace {

using base::cat;
using base::Code;

// Of a contribution and of a result, whichever is larger.
std::size_t widest(const codec::Codec& codec, codec::Dtype dtype, std::size_t count) {
  return std::max(codec::encoded_bytes(codec, dtype, count),
                  codec::encoded_bytes(result_codec(codec, 1), dtype, count));
}

std::uint64_t grid_of(const codec::Codec& codec, const Aggregator& aggregator) {
  return grid_elements(result_codec(codec, 1), collective::grid_of(aggregator));
}

// Elements of a cell; 0: not even one step of the grid fits.
std::uint64_t cell_elements(const codec::Codec& codec, codec::Dtype dtype,
                            const Aggregator& aggregator) {
  const std::uint64_t grid = grid_of(codec, aggregator);
  const std::size_t step = widest(codec, dtype, grid);
  return step == 0 ? 0 : base::kCellBytesMax / step * grid;
}

bool is_piece(const CellTerms& terms) {
  const std::uint64_t most = cell_elements(terms.codec, terms.dtype, terms.aggregator);
  const std::uint64_t grid = grid_of(terms.codec, terms.aggregator);
  return terms.piece.count > 0 && terms.piece.count <= most && terms.piece.first % grid == 0;
}

}  // namespace

std::vector<Cell> cells_of(const Plan& plan, const Chunk& chunk,
                           const std::vector<LeafSpec>& leaves, const codec::Codec& codec,
                           const Aggregator& aggregator) {
  const codec::Codec of_part = contribution_codec(plan, codec);
  const codec::Codec of_result = result_codec(plan, codec);
  std::vector<Cell> cells;
  std::size_t part_at = 0, result_at = 0;
  for (const Segment& segment : chunk.segments) {
    const codec::Dtype dtype = leaves[segment.leaf].dtype;
    const std::uint64_t most = cell_elements(codec, dtype, aggregator);
    JCCL_CHECK(most > 0);
    for (std::uint64_t done = 0; done < segment.count;) {
      const std::uint64_t count = std::min(most, segment.count - done);
      Cell cell{chunk.index, {segment.leaf, segment.first + done, count}, part_at, 0, result_at, 0};
      cell.part_bytes = codec::encoded_bytes(of_part, dtype, count);
      cell.result_bytes = codec::encoded_bytes(of_result, dtype, count);
      part_at += cell.part_bytes;
      result_at += cell.result_bytes;
      cells.push_back(cell);
      done += count;
    }
  }
  return cells;
}

Auditable auditable(const std::vector<LeafSpec>& leaves, const codec::Codec& codec,
                    const Aggregator& aggregator) {
  if (codec::is_sparse(codec.id)) return Auditable::kSparse;
  const bool wide = std::any_of(leaves.begin(), leaves.end(), [&](const LeafSpec& leaf) {
    return leaf.count > 0 && cell_elements(codec, leaf.dtype, aggregator) == 0;
  });
  return wide ? Auditable::kWide : Auditable::kYes;
}

std::string unauditable(const Plan& plan, const Hint& hint) {
  if (plan.kind == PlanKind::kExchange) {
    return "under plan exchange every member adds up all of the result itself, and the results are "
           "compared";
  }
  if (plan.kind == PlanKind::kGather) return "a gather adds nothing up";
  if (plan.kind == PlanKind::kAllToAll) return "an all_to_all adds nothing up";
  if (plan.kind == PlanKind::kScatter) return "a reduce_scatter hands no result round";
  if (plan.kind != PlanKind::kDirect) {
    return cat("under plan ", name_of(plan.kind),
               " partial sums travel, which nobody can tell "
               "apart: ask for plan=direct");
  }
  if (hint.audit == Auditable::kSparse)
    return "a sparse codec's result depends on all cells' sizes";
  if (hint.audit == Auditable::kWide) {
    return "a block of its aggregator is longer than a cell: f64 leaves under a robust aggregator";
  }
  return {};
}

std::string unauditable(base::ByteView plan, base::ByteView hint) {
  const auto chosen = decode(plan);
  const auto asked = decode_hint(hint);
  if (!chosen.ok() || !asked.ok()) return "its plan is none of this release";
  return unauditable(chosen.value(), asked.value());
}

base::Bytes encode_terms(const CellTerms& terms) {
  base::Writer w;
  w.u8(static_cast<std::uint8_t>(terms.op));
  w.u8(static_cast<std::uint8_t>(terms.aggregator.id));
  w.f64(terms.aggregator.parameter);
  w.u8(static_cast<std::uint8_t>(terms.codec.id));
  w.flag(terms.codec.stochastic);
  w.u16(terms.codec.kept);
  w.u64(terms.codec.seed);
  w.u8(static_cast<std::uint8_t>(terms.dtype));
  w.u32(terms.chunk);
  w.u32(terms.piece.leaf);
  w.u64(terms.piece.first);
  w.u64(terms.piece.count);
  return w.take();
}

base::Result<CellTerms> decode_terms(base::ByteView bytes) {
  base::Reader r(bytes);
  CellTerms terms;
  const auto op = op_from_number(r.u8());
  terms.aggregator.id = static_cast<AggregatorId>(r.u8());
  terms.aggregator.parameter = r.f64();
  const auto id = codec::codec_from_number(r.u8());
  terms.codec.stochastic = r.flag();
  terms.codec.kept = r.u16();
  terms.codec.seed = r.u64();
  const auto dtype = codec::dtype_from_number(r.u8());
  terms.chunk = r.u32();
  terms.piece.leaf = r.u32();
  terms.piece.first = r.u64();
  terms.piece.count = r.u64();
  const base::Status none{Code::kInvalid, "terms of a cell that no call has"};
  if (!r.finished() || !op || !id || !dtype) return none;
  terms.op = *op;
  terms.codec.id = *id;
  terms.dtype = *dtype;
  const bool good = codec::check(terms.codec).ok() && check(terms.aggregator).ok() &&
                    !codec::is_sparse(terms.codec.id) &&
                    is_supported(terms.op, terms.dtype, terms.codec) &&
                    check_aggregator(terms.aggregator, terms.op, terms.dtype, terms.codec).ok();
  if (!good || !is_piece(terms)) return none;
  return terms;
}

namespace {

// Whose part is none, if somebody's; `sum` gets the weights'.
AddedUp checked(const CellTerms& terms, const Summands& in, double* sum) {
  AddedUp out;
  const std::size_t count = terms.piece.count;
  const std::size_t bytes = codec::encoded_bytes(terms.codec, terms.dtype, count);
  for (const double weight : in.weights) {
    const base::Status usable = check_weight(terms.op, terms.dtype, weight);
    if (!usable.ok()) out.why = usable.text;
    *sum += weight;
  }
  if (!(*sum > 0)) out.why = "the weights add up to 0";
  for (std::size_t i = 0; i < in.parts.size() && out.why.empty(); ++i) {
    const bool whole = in.parts[i].size() == bytes;
    if (!whole) out.why = cat("it has ", in.parts[i].size(), " bytes, not ", bytes);
    if (whole && codec::is_lossy(terms.codec)) {
      out.why = codec::check_received(terms.codec, in.parts[i].data(), count, false).text;
    }
    if (!out.why.empty()) out.wrong = i;
  }
  return out;
}

}  // namespace

AddedUp add_up(const Summands& in) {
  const auto read = decode_terms(in.terms);
  AddedUp out;
  if (!read.ok()) {
    out.why = read.status().text;
    return out;
  }
  const CellTerms& terms = read.value();
  const std::size_t count = terms.piece.count, n = in.parts.size();
  JCCL_CHECK(n > 0 && in.weights.size() == n);
  double weight_sum = 0;
  out = checked(terms, in, &weight_sum);
  if (!out.why.empty()) return out;
  const codec::Codec to = result_codec(terms.codec, n);
  base::Bytes sum(accumulator_bytes(terms.dtype, count) + sizeof(double));
  if (is_robust(terms.aggregator)) {
    Contributions all{terms.dtype, terms.codec, {}, count};
    for (const base::ByteView& part : in.parts) all.encoded.push_back(part.data());
    AggregateScratch scratch;
    aggregate(terms.aggregator, all, &scratch, sum.data());
    weight_sum = 1;
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = JCCL_PLANTED("audited-in-another-order") ? n - 1 - i : i;
      accumulate(terms.op, terms.dtype, terms.codec, i == 0, in.parts[at].data(), count,
                 JCCL_PLANTED("audited-without-weights") ? 1 : in.weights[at], sum.data());
    }
  }
  const codec::NoiseName name{in.round, 0, terms.piece.leaf};
  out.result.emplace(codec::encoded_bytes(to, terms.dtype, count));
  finish(terms.op, terms.dtype, to, sum.data(), count, weight_sum, out.result->data(),
         {codec::noise_seed(terms.codec, name), terms.piece.first});
  return out;
}

}  // namespace jccl::collective
