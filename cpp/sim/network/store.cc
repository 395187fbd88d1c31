// What a disk keeps, and how rows rot.
#include "sim/network/store.h"

#include <utility>

#include "base/planted.h"

namespace jccl::sim {

void Disk::sync() {
  rows.insert(rows.end(), unsynced.begin(), unsynced.end());
  unsynced.clear();
}

void Disk::crash(base::Rng& rng, double torn) {
  const std::size_t kept = rng.below(unsynced.size() + 1);
  rows.insert(rows.end(), unsynced.begin(), unsynced.begin() + static_cast<std::ptrdiff_t>(kept));
  if (kept < unsynced.size() && rng.chance(torn)) {
    wire::Row row = unsynced[kept];
    if (rng.chance(0.5)) {
      row.payload.resize(rng.below(row.payload.size()));
    } else {
      row.payload[rng.below(row.payload.size())] ^= static_cast<std::uint8_t>(1U << rng.below(8));
    }
    rows.push_back(std::move(row));
  }
  unsynced.clear();
}

base::Result<wire::Chain> read_journal(std::vector<wire::Row> rows, const wire::RunId& run) {
  base::Result<wire::Chain> chain = wire::walk(rows, &run);
  while (JCCL_PLANTED("damage-taken-for-tear") && !chain.ok() && rows.size() > 1) {
    rows.pop_back();
    chain = wire::walk(rows, &run);
  }
  return chain;
}

std::vector<wire::Row> rotten(std::vector<wire::Row> rows, std::uint64_t bits) {
  wire::Row& row = rows[bits % (rows.size() - 1)];
  const std::uint64_t bit = bits >> 16;
  switch (bits >> 8 & 3) {
    case 0:
      row.crc ^= 1U << (bit % 32);
      break;
    case 1:
      row.previous ^= std::uint64_t{1} << (bit % 64);
      break;
    case 2:
      row.sequence ^= std::uint64_t{1} << (bit % 64);
      break;
    default:
      row.payload[(bit >> 3) % row.payload.size()] ^= static_cast<std::uint8_t>(1U << (bit & 7));
  }
  return rows;
}

}  // namespace jccl::sim
