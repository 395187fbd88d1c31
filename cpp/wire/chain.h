// The journal as a chain of rows: sequence, payload, CRC32C and the hash of the predecessor, so
// that a torn tail is told from damage. Pure; the store and the simulator's disk both hold rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/messages.h"

namespace jccl::wire {

struct Row {
  std::uint64_t sequence = 0;  // 1, 2, 3 …
  base::Bytes payload;         // encode_record
  std::uint32_t crc = 0;       // CRC32C over sequence, previous and payload
  std::uint64_t previous = 0;  // chain hash of the row before; 0 for the first
  bool operator==(const Row&) const = default;
};

class ChainWriter {
 public:
  ChainWriter() = default;
  ChainWriter(std::uint64_t sequence, std::uint64_t hash) : sequence_(sequence), hash_(hash) {}
  Row append(const Record& record);

 private:
  std::uint64_t sequence_ = 0;
  std::uint64_t hash_ = 0;
};

struct Chain {
  std::vector<Record> records;
  ChainWriter writer;        // continues after the last good row
  std::size_t cut_rows = 0;  // rows dropped from a torn tail (0 or 1)
};

// Walks the rows. A bad last row is a torn tail and is cut; any other damage, a gap, a first record
// that is not a RunRecord, or another run id is refused with Code::kDamaged / kWrongRun and a text
// that names the row.
base::Result<Chain> walk(const std::vector<Row>& rows, const RunId* expected_run);

}  // namespace jccl::wire
