#include "exchange/audit_book.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "wire/cell_leaf.h"

namespace jccl::exchange {

using wire::Sha256;

AuditBook::AuditBook(Of of, const std::vector<collective::Chunk>& chunks) : of_(std::move(of)) {
  begins_.assign(of_.plan.order.size() + 1, 0);
  for (const collective::Chunk& chunk : chunks) {
    first_.push_back(static_cast<std::uint32_t>(cells_.size()));
    for (const collective::Cell& cell :
         collective::cells_of(of_.plan, chunk, of_.leaves, of_.terms.codec, of_.terms.aggregator)) {
      cells_.push_back({cell, chunk.owner});
      ++begins_[chunk.owner + 1];
    }
  }
  first_.push_back(static_cast<std::uint32_t>(cells_.size()));
  for (std::size_t owner = 1; owner < begins_.size(); ++owner) begins_[owner] += begins_[owner - 1];
  noted_.resize(chunks.size());
  own_.resize(cells_.size());
  result_.resize(cells_.size());
  received_.resize(of_.plan.order.size());
  const std::uint32_t mine = begins_[of_.position + 1] - begins_[of_.position];
  for (auto& leaves : received_) leaves.resize(mine);
}

wire::Bytes AuditBook::terms_of(std::uint32_t index) const {
  const collective::Cell& cell = cells_[index].cell;
  collective::CellTerms terms = of_.terms;
  terms.chunk = cell.chunk;
  terms.piece = cell.piece;
  terms.dtype = of_.leaves[cell.piece.leaf].dtype;
  return collective::encode_terms(terms);
}

Sha256 AuditBook::leaf(std::uint32_t index, base::PeerId contributor, base::ByteView bytes) const {
  return wire::cell_leaf(of_.run, of_.attempt, contributor, index, terms_of(index), bytes);
}

// A cell lies in one segment, and views are cut between segments.
base::ByteView AuditBook::slice(const Views& views, std::size_t at, std::size_t size) {
  for (const base::ByteView& view : views) {
    if (at < view.size()) return view.subspan(at, size);
    at -= view.size();
  }
  JCCL_CHECK(false);
}

void AuditBook::note_own(std::uint32_t chunk, const Views& views) {
  if (noted_[chunk]) return;
  noted_[chunk] = true;
  for (std::uint32_t i = first_[chunk]; i < first_[chunk + 1]; ++i) {
    const collective::Cell& cell = cells_[i].cell;
    own_[i] = leaf(i, of_.plan.order[of_.position], slice(views, cell.part_at, cell.part_bytes));
  }
}

void AuditBook::note_received(std::uint32_t chunk, std::uint32_t contributor, const Views& views) {
  for (std::uint32_t i = first_[chunk]; i < first_[chunk + 1]; ++i) {
    const collective::Cell& cell = cells_[i].cell;
    received_[contributor][i - begins_[of_.position]] =
        leaf(i, of_.plan.order[contributor], slice(views, cell.part_at, cell.part_bytes));
  }
}

void AuditBook::note_result(std::uint32_t chunk, const Views& views) {
  if (JCCL_PLANTED("result-of-one-chunk-hashed") && chunk > 0) return;
  for (std::uint32_t i = first_[chunk]; i < first_[chunk + 1]; ++i) {
    const collective::Cell& cell = cells_[i].cell;
    result_[i] = leaf(i, 0, slice(views, cell.result_at, cell.result_bytes));
  }
}

wire::AuditRoots AuditBook::seal() {
  const std::uint32_t mine = begins_[of_.position];
  wire::AuditRoots roots;
  roots.cells = begins_[of_.position + 1] - mine;
  for (std::size_t owner = 0; owner + 1 < begins_.size(); ++owner) {
    const auto begin = own_.begin() + begins_[owner], end = own_.begin() + begins_[owner + 1];
    parts_.emplace_back(std::vector<Sha256>(begin, end));
    roots.parts.push_back({begins_[owner + 1] - begins_[owner], parts_.back().root()});
  }
  received_[of_.position].assign(own_.begin() + mine, own_.begin() + mine + roots.cells);
  for (auto& leaves : received_) {
    roots.receipts.push_back(base::MerkleTree(std::exchange(leaves, {})).root());
  }
  results_ = base::MerkleTree(std::exchange(result_, {}));
  roots.result = results_.root();
  own_ = {};
  return roots;
}

wire::AuditPart AuditBook::part(std::uint32_t index, bool result, const Views& chunk) const {
  const auto& [cell, owner] = cells_[index];
  wire::AuditPart part;
  part.attempt = of_.attempt;
  part.cell = index;
  part.result = result;
  part.terms = terms_of(index);
  part.path = result ? results_.path(index) : parts_[owner].path(index - begins_[owner]);
  const base::ByteView bytes = result ? slice(chunk, cell.result_at, cell.result_bytes)
                                      : slice(chunk, cell.part_at, cell.part_bytes);
  part.bytes.assign(bytes.begin(), bytes.end());
  return part;
}

}  // namespace jccl::exchange
