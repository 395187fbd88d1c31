// The commitments of one contributor to an audited attempt: hashes of each cell that it sent, that
// it received as an owner, and that it made or got as a result. DONE carries the roots over them.
// Makes proofs for the cells that the master then asks for. Holds 32 bytes a cell for each of the
// three, no payload. Confined to its attempt's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/merkle.h"
#include "collective/audit.h"
#include "wire/messages.h"

namespace jccl::exchange {

using Views = std::vector<base::ByteView>;  // of one chunk, end to end; cut between segments only

class AuditBook {
 public:
  struct Of {
    wire::RunId run{};
    wire::Attempt attempt;
    collective::Plan plan;
    std::uint32_t position = 0;   // own, in the plan
    collective::CellTerms terms;  // of all cells, but for what differs
    std::vector<collective::LeafSpec> leaves;
  };
  AuditBook(Of of, const std::vector<collective::Chunk>& chunks);

  bool has_own(std::uint32_t chunk) const { return noted_[chunk]; }
  void note_own(std::uint32_t chunk, const Views& views);  // the first time counts
  void note_received(std::uint32_t chunk, std::uint32_t contributor, const Views& views);
  void note_result(std::uint32_t chunk, const Views& views);
  // When all of them are noted. Later proofs have to fit these roots.
  wire::AuditRoots seal();

  std::size_t cells() const { return cells_.size(); }
  const collective::Cell& cell(std::uint32_t index) const { return cells_[index].cell; }
  bool owns(std::uint32_t index) const { return cells_[index].owner == of_.position; }
  // Of a sealed book; `chunk` is all of the cell's chunk.
  wire::AuditPart part(std::uint32_t index, bool result, const Views& chunk) const;

 private:
  struct Placed {
    collective::Cell cell;
    std::uint32_t owner = 0;
  };
  wire::Bytes terms_of(std::uint32_t index) const;
  wire::Sha256 leaf(std::uint32_t index, base::PeerId contributor, base::ByteView bytes) const;
  static base::ByteView slice(const Views& views, std::size_t at, std::size_t size);

  Of of_;
  std::vector<Placed> cells_;                        // of all chunks, in their order
  std::vector<std::uint32_t> first_;                 // by chunk: its first cell; and one more
  std::vector<std::uint32_t> begins_;                // by owner: its first cell; and one more
  std::vector<bool> noted_;                          // by chunk
  std::vector<wire::Sha256> own_, result_;           // by cell
  std::vector<std::vector<wire::Sha256>> received_;  // by contributor, own cells
  std::vector<base::MerkleTree> parts_;              // by owner, when sealed
  base::MerkleTree results_;
};

}  // namespace jccl::exchange
