// What etcd holds of one run, as far as it was read: who is the active master, and the journal's
// rows. A standby keeps one warm. Keys under the prefix:
//   /leader          "<address> <random id>"; dies with its lease. Its creation revision is the
//                    term: every write is fenced by it.
//   /journal         the format; another revision is another journal, after all was wiped
//   /rows/<16 hex>   the rows of one append, named by the first one's sequence; never overwritten
// and of each group of the run, whose term is the run's:
//   /group-journals/<group>, /group-rows/<group>/<16 hex>
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "master/etcd/etcd_kv.h"
#include "wire/chain.h"

namespace jccl::master {

inline constexpr std::string_view kEtcdFormat = "jccl journal 1";

struct EtcdKeys {
  explicit EtcdKeys(const std::string& prefix, const std::string& group = {});
  std::string row(std::uint64_t sequence) const;
  const std::string leader, journal, rows, rows_end;
};

std::string encode_rows(const std::vector<wire::Row>& rows);
// Code: kDamaged.
base::Result<std::vector<wire::Row>> decode_rows(std::string_view value);

class EtcdCopy {
 public:
  explicit EtcdCopy(EtcdKeys keys) : keys_(std::move(keys)) {}

  // Leader, journal and the rows behind those known, at most `groups_max` appends of them.
  EtcdTxn ask(std::uint32_t groups_max) const;
  // The answer to ask(). True: there is more to ask for. Codes: kDamaged, kVersion.
  base::Result<bool> take(const EtcdReply& reply);
  void forget();  // read all again

  const EtcdKeys& keys() const { return keys_; }
  const std::optional<EtcdPair>& leader() const { return leader_; }
  std::uint64_t journal_mod() const { return journal_mod_; }  // 0: nothing was ever written here
  std::vector<wire::Row> take_rows() { return std::move(rows_); }

  // The appends: first sequence of each, and the last one's revision.
  const std::vector<std::uint64_t>& groups() const { return groups_; }
  std::uint64_t last_mod() const { return last_mod_; }
  void appended(std::uint64_t first, std::size_t rows, std::uint64_t mod);

 private:
  base::Status take_group(const EtcdPair& pair);

  EtcdKeys keys_;
  std::optional<EtcdPair> leader_;
  std::uint64_t journal_mod_ = 0, last_mod_ = 0, next_ = 1;
  std::vector<std::uint64_t> groups_;
  std::vector<wire::Row> rows_;
};

}  // namespace jccl::master
