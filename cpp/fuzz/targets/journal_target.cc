// Rows that were written, damaged and invented, in any order: a walk takes a chain as it was
// written, or without a last row whose checksum is wrong, and nothing else.
#include "base/crc32c.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "wire/chain.h"
#include "wire/samples.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

constexpr std::size_t kRowsMax = 24;

std::uint32_t checksum(const wire::Row& row) {
  base::Writer w;
  w.u64(row.sequence);
  w.u64(row.previous);
  w.raw(row.payload.data(), row.payload.size());
  return base::crc32c(w.bytes());
}

void damage(Input& in, wire::Row* row) {
  switch (in.below(6)) {
    case 0:
      row->sequence ^= std::uint64_t{1} << in.below(64);
      break;
    case 1:
      row->previous ^= std::uint64_t{1} << in.below(64);
      break;
    case 2:
      row->crc ^= 1U << in.below(32);
      break;
    case 3:
      if (!row->payload.empty()) {
        const std::size_t at = in.u16() % row->payload.size();
        row->payload[at] ^= static_cast<std::uint8_t>(1U << in.below(8));
      }
      break;
    case 4:
      row->payload.resize(in.u16() % (row->payload.size() + 1));
      break;
    default:
      row->payload = in.bytes(64);
  }
  if (in.flag()) row->crc = checksum(*row);  // damage that nobody's checksum shows
}

wire::Record any_record(Input& in, bool first) {
  static const std::vector<wire::Record> samples = wire::sample_records();
  if (first && !in.flag()) return samples[0];
  if (in.below(4) > 0) return samples[in.below(samples.size())];
  const Bytes bytes = in.bytes(200);
  const auto record = wire::decode_record(bytes);
  return record.ok() ? record.value() : samples[1];
}

void check_walk(const std::vector<wire::Row>& rows, const base::Result<wire::Chain>& found,
                const std::vector<wire::Row>& written) {
  if (!found.ok()) {
    const base::Code code = found.status().code;
    JCCL_CHECK(code == base::Code::kDamaged || code == base::Code::kVersion ||
               code == base::Code::kWrongRun);
    JCCL_CHECK(!found.status().text.empty());
    return;
  }
  const wire::Chain& chain = found.value();
  JCCL_CHECK(chain.cut_rows <= 1);
  JCCL_CHECK(chain.records.size() + chain.cut_rows == rows.size());
  // The rows that were taken are those that the writer makes of their records.
  wire::ChainWriter writer;
  for (std::size_t i = 0; i < chain.records.size(); ++i) {
    JCCL_CHECK(writer.append(chain.records[i]) == rows[i]);
  }
  if (chain.cut_rows == 1) JCCL_CHECK(checksum(rows.back()) != rows.back().crc);
  if (rows == written) JCCL_CHECK(chain.cut_rows == 0);
  // And the chain goes on from there.
  wire::ChainWriter next = chain.writer;
  std::vector<wire::Row> more(rows.begin(), rows.end() - static_cast<long>(chain.cut_rows));
  if (more.empty()) return;
  more.push_back(next.append(wire::sample_records()[1]));
  JCCL_CHECK(wire::walk(more, nullptr).ok());
}

}  // namespace

void run_journal(ByteView bytes) {
  Input in(bytes);
  const bool expects_run = in.flag();
  wire::ChainWriter writer;
  std::vector<wire::Row> rows;
  for (std::size_t count = in.below(kRowsMax + 1); count > 0; --count) {
    rows.push_back(writer.append(any_record(in, rows.empty())));
  }
  const std::vector<wire::Row> written = rows;
  for (std::size_t count = in.below(4); count > 0 && !rows.empty(); --count) {
    const std::size_t at = in.below(rows.size());
    const std::uint8_t what = in.u8() % 5;
    if (what == 0)
      rows.erase(rows.begin() + static_cast<long>(at));
    else if (what == 1)
      rows.insert(rows.begin() + static_cast<long>(at), rows[at]);
    else if (what == 2)
      std::swap(rows[at], rows[in.below(rows.size())]);
    else
      damage(in, &rows[at]);
  }
  const wire::RunId run = wire::sample_run();
  check_walk(rows, wire::walk(rows, expects_run ? &run : nullptr), written);
}

}  // namespace jccl::fuzz
