// The journal's rows: writing continues a chain, walking proves it.
#include "wire/chain.h"

#include "base/crc32c.h"
#include "base/hash64.h"
#include "base/planted.h"
#include "base/text.h"
#include "wire/serialize.h"

namespace jccl::wire {
namespace {

base::Bytes covered(const Row& row) {
  base::Writer w;
  w.u64(row.sequence);
  w.u64(row.previous);
  w.raw(row.payload.data(), row.payload.size());
  return w.take();
}

// Where a walk stands: the chain so far, and the hash that the next row must name.
struct Walk {
  Chain chain;
  std::uint64_t sequence = 0;
  std::uint64_t hash = 0;
  const RunId* expected_run = nullptr;
};

base::Status damaged(std::uint64_t row, std::string_view what) {
  return {Code::kDamaged, base::cat("journal row ", row, ": ", what,
                                    "; restore the journal from a copy or start a new run")};
}

base::Status check_run(const Walk& walk, const Record& record) {
  const RunRecord* run = std::get_if<RunRecord>(&record);
  if (walk.sequence > 0) {
    return run == nullptr || JCCL_PLANTED("second-run-record-taken")
               ? base::Status{}
               : damaged(walk.sequence + 1, "a second RunRecord");
  }
  if (run == nullptr) return damaged(1, "the first record is not a RunRecord");
  if (run->version != kVersion &&
      !(JCCL_PLANTED("version-of-journal-not-compared") && run->version < kVersion)) {
    return {Code::kVersion,
            base::cat("journal row 1: written by protocol version ", run->version,
                      "; this master speaks ", kVersion,
                      ": use the jccl that wrote it, or a new journal and a checkpoint")};
  }
  if (walk.expected_run != nullptr && !JCCL_PLANTED("run-of-journal-not-compared") &&
      run->run != *walk.expected_run) {
    return {Code::kWrongRun,
            base::cat("journal row 1: the journal belongs to run ", base::to_hex(run->run),
                      ", not ", base::to_hex(*walk.expected_run))};
  }
  return {};
}

base::Status step(Walk& walk, const Row& row, const base::Bytes& bytes) {
  const std::uint64_t at = walk.sequence + 1;
  if (row.sequence != at) {
    return damaged(at, base::cat("a row is missing (found sequence ", row.sequence, ")"));
  }
  if (row.previous != walk.hash && !JCCL_PLANTED("row-hash-not-chained"))
    return damaged(at, "it does not follow the row before it");
  base::Result<Record> record = decode_record(row.payload);
  if (!record.ok()) return damaged(at, record.status().text);
  if (base::Status status = check_run(walk, record.value()); !status.ok()) return status;
  walk.chain.records.push_back(std::move(record.value()));
  walk.sequence = at;
  walk.hash = base::hash64(bytes);
  return {};
}

}  // namespace

Row ChainWriter::append(const Record& record) {
  Row row;
  row.sequence = ++sequence_;
  row.payload = encode_record(record);
  row.previous = hash_;
  const base::Bytes bytes = covered(row);
  row.crc = base::crc32c(bytes);
  hash_ = base::hash64(bytes);
  return row;
}

base::Result<Chain> walk(const std::vector<Row>& rows, const RunId* expected_run) {
  Walk walk;
  walk.expected_run = expected_run;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const base::Bytes bytes = covered(rows[i]);
    // Only a wrong checksum speaks of a write that was cut short. A last row that is whole but does
    // not belong was put there by somebody, and cutting it could undo a commit.
    if (base::crc32c(bytes) != rows[i].crc) {
      if (i + (JCCL_PLANTED("any-row-cut-as-torn") ? 2 : 1) < rows.size())
        return damaged(walk.sequence + 1, "its CRC32C differs");
      walk.chain.cut_rows = 1;
      break;
    }
    if (base::Status status = step(walk, rows[i], bytes); !status.ok()) return status;
  }
  walk.chain.writer = ChainWriter(walk.sequence, walk.hash);
  return std::move(walk.chain);
}

}  // namespace jccl::wire
