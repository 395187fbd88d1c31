// etcd's transactions and leases as the JSON of its gateway: requests out, answers in. Keys and
// values are bytes. An answer of another form is refused, never half read. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace jccl::master {

struct EtcdCompare {  // the key's revision equals; 0: the key is absent
  enum class Of { kCreate, kMod };
  std::string key;
  Of of = Of::kCreate;
  std::uint64_t revision = 0;
};
struct EtcdPut {
  std::string key, value;
  std::int64_t lease = 0;  // 0: stays
};
struct EtcdRange {
  std::string key, end;     // [key, end); no end: the one key
  std::uint32_t limit = 0;  // 0: none
  bool count_only = false;
};
using EtcdOp = std::variant<EtcdPut, EtcdRange>;

struct EtcdTxn {
  std::vector<EtcdCompare> when;
  std::vector<EtcdOp> then, otherwise;
};

struct EtcdPair {
  std::string key, value;
  std::uint64_t create = 0, mod = 0;
};
struct EtcdFound {  // of one operation; empty for a put
  std::vector<EtcdPair> pairs;
  std::uint64_t count = 0;
  bool more = false;
};
struct EtcdReply {
  bool succeeded = false;
  std::uint64_t revision = 0;  // of the store, after the transaction
  std::vector<EtcdFound> found;
};
struct EtcdLeaseReply {
  std::int64_t id = 0;
  std::int64_t seconds = 0;  // 0: there is no such lease (any more)
};

std::string to_json(const EtcdTxn& txn);
std::string lease_grant_json(std::int64_t seconds);
std::string lease_json(std::int64_t id);  // keepalive and revoke

// kLinkLost: not an answer to `asked`.
base::Result<EtcdReply> parse_txn_reply(const std::string& body, const EtcdTxn& asked);
base::Result<EtcdLeaseReply> parse_lease_reply(const std::string& body);  // also in {"result":…}

std::string base64(std::string_view bytes);
base::Result<std::string> from_base64(std::string_view text);

}  // namespace jccl::master
