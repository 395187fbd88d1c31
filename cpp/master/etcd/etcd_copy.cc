#include "master/etcd/etcd_copy.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::master {
namespace {

using base::cat;
using base::Code;
using base::Result;
using base::Status;

constexpr std::size_t kRowBytesMin = 8 + 4 + 8 + 4;
constexpr std::size_t kRowsMax = 1 << 20;
constexpr std::size_t kPayloadBytesMax = 64 << 20;

std::string hex16(std::uint64_t v) {
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; v >>= 4) out[i] = "0123456789abcdef"[v & 15];
  return out;
}

}  // namespace

EtcdKeys::EtcdKeys(const std::string& prefix, const std::string& group)
    : leader(prefix + "/leader"),
      journal(prefix + (group.empty() ? "/journal" : "/group-journals/" + group)),
      rows(prefix + (group.empty() ? "/rows/" : "/group-rows/" + group + "/")),
      rows_end(rows.substr(0, rows.size() - 1) + "0") {}  // '0' follows '/'

std::string EtcdKeys::row(std::uint64_t sequence) const { return rows + hex16(sequence); }

std::string encode_rows(const std::vector<wire::Row>& rows) {
  base::Writer out;
  out.u32(static_cast<std::uint32_t>(rows.size()));
  for (const wire::Row& row : rows) {
    out.u64(row.sequence);
    out.u32(row.crc);
    out.u64(row.previous);
    out.blob(row.payload, kPayloadBytesMax);
  }
  return {reinterpret_cast<const char*>(out.bytes().data()), out.size()};
}

Result<std::vector<wire::Row>> decode_rows(std::string_view value) {
  base::Reader in({reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
  std::vector<wire::Row> rows(in.count(kRowsMax, kRowBytesMin));
  for (wire::Row& row : rows) {
    row.sequence = in.u64();
    row.crc = in.u32();
    row.previous = in.u64();
    row.payload = in.blob(kPayloadBytesMax);
  }
  if (!in.finished() || rows.empty()) return Status{Code::kDamaged, "not rows of a jccl journal"};
  return rows;
}

EtcdTxn EtcdCopy::ask(std::uint32_t groups_max) const {
  EtcdTxn txn;
  txn.then = {EtcdRange{keys_.leader, ""}, EtcdRange{keys_.journal, ""},
              EtcdRange{keys_.row(next_), keys_.rows_end, groups_max}};
  return txn;
}

Result<bool> EtcdCopy::take(const EtcdReply& reply) {
  JCCL_CHECK(reply.found.size() == 3);
  const auto one = [&](std::size_t i) {
    const auto& pairs = reply.found[i].pairs;
    return pairs.empty() ? std::nullopt : std::optional<EtcdPair>(pairs.front());
  };
  leader_ = one(0);
  const auto journal = one(1);
  if (journal.has_value() && !JCCL_PLANTED("format-of-etcd-not-compared") &&
      journal->value != kEtcdFormat) {
    return Status{Code::kVersion, cat(keys_.journal, " is not '", kEtcdFormat,
                                      "': another program's keys, or a newer jccl's; name "
                                      "another prefix")};
  }
  const std::uint64_t mod = journal.has_value() ? journal->mod : 0;
  if (mod != journal_mod_ && journal_mod_ != 0 &&
      !JCCL_PLANTED("wiped-journal-read-on")) {  // wiped, and begun anew
    forget();
    return true;
  }
  if (mod == 0 && !JCCL_PLANTED("rows-without-journal") && !reply.found[2].pairs.empty()) {
    return Status{Code::kDamaged, cat(keys_.rows, " holds rows, but ", keys_.journal, " is gone")};
  }
  journal_mod_ = mod;
  for (const EtcdPair& pair : reply.found[2].pairs) {
    if (const Status taken = take_group(pair); !taken.ok()) return taken;
  }
  return reply.found[2].more;
}

Status EtcdCopy::take_group(const EtcdPair& pair) {
  const auto damaged = [&](std::string_view why) {
    return Status{Code::kDamaged, cat(pair.key, ": ", why)};
  };
  if (pair.key != keys_.row(next_) && !JCCL_PLANTED("missing-key-not-noticed"))
    return damaged(cat("row ", next_, " is missing before it"));
  auto rows = decode_rows(pair.value);
  if (!rows.ok()) return damaged(rows.status().text);
  for (const wire::Row& row : rows.value()) {
    if (row.sequence != next_++ && !JCCL_PLANTED("row-sequence-not-compared"))
      return damaged("its rows are not in sequence");
  }
  groups_.push_back(rows.value().front().sequence);
  last_mod_ = pair.mod;
  rows_.insert(rows_.end(), std::make_move_iterator(rows.value().begin()),
               std::make_move_iterator(rows.value().end()));
  return {};
}

void EtcdCopy::forget() {
  journal_mod_ = last_mod_ = 0;
  next_ = 1;
  groups_.clear();
  rows_.clear();
}

void EtcdCopy::appended(std::uint64_t first, std::size_t rows, std::uint64_t mod) {
  JCCL_CHECK(first == next_);
  groups_.push_back(first);
  next_ += rows;
  last_mod_ = mod;
}

}  // namespace jccl::master
