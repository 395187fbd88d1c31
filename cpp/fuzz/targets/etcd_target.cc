// What names an etcd, and what answers in etcd's place: an address that parses is within its bounds
// and is the same once written out again; an answer is taken whole, for what was asked, or refused.
#include <boost/json.hpp>

#include "base/text.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "master/etcd/etcd_copy.h"
#include "master/etcd/etcd_kv.h"
#include "master/etcd/etcd_where.h"
#include "wire/samples.h"

namespace jccl::fuzz {
namespace {

std::string rest_of(Input& in) {
  const ByteView rest = in.rest();
  return {rest.begin(), rest.end()};
}

std::string written_out(const master::EtcdWhere& where) {
  std::string out = base::cat(where.tls ? "etcds://" : "etcd://", net::to_text(where.endpoints),
                              where.prefix, "?lease=", where.lease / base::kSecond);
  if (!where.ca.empty()) out += base::cat("&ca=", where.ca);
  if (!where.cert.empty()) out += base::cat("&cert=", where.cert, "&key=", where.key);
  return out;
}

void check_where(const std::string& text) {
  const auto found = master::parse_etcd(text);
  if (!found.ok()) {
    JCCL_CHECK(found.status().code == base::Code::kInvalid && !found.status().text.empty());
    return;
  }
  const master::EtcdWhere& where = found.value();
  JCCL_CHECK(master::is_etcd(text) && !where.endpoints.empty());
  for (const net::Address& one : where.endpoints) JCCL_CHECK(!one.host.empty() && one.port != 0);
  JCCL_CHECK(where.prefix.starts_with('/') && !where.prefix.ends_with('/'));
  JCCL_CHECK(where.lease >= base::kSecond && where.lease % base::kSecond == 0);
  JCCL_CHECK(where.tls || (where.ca + where.cert + where.key).empty());
  const auto again = master::parse_etcd(written_out(where));
  JCCL_CHECK(again.ok() && written_out(again.value()) == written_out(where));
}

std::vector<master::EtcdOp> any_ops(Input& in) {
  std::vector<master::EtcdOp> out;
  for (std::size_t count = in.below(4); count > 0; --count) {
    if (in.flag()) {
      out.emplace_back(master::EtcdPut{in.text(8), in.text(8), static_cast<std::int64_t>(in.u8())});
    } else {
      out.emplace_back(master::EtcdRange{in.text(8), in.text(4), in.u8(), in.flag()});
    }
  }
  return out;
}

void check_txn(Input& in) {
  master::EtcdTxn asked;
  if (in.flag()) asked.when.push_back({in.text(8), master::EtcdCompare::Of::kMod, in.u64()});
  asked.then = any_ops(in);
  asked.otherwise = any_ops(in);
  JCCL_CHECK(boost::json::parse(master::to_json(asked)).is_object());
  const auto found = master::parse_txn_reply(rest_of(in), asked);
  if (!found.ok()) {
    JCCL_CHECK(found.status().code == base::Code::kLinkLost);
    return;
  }
  const master::EtcdReply& reply = found.value();
  const auto& ops = reply.succeeded ? asked.then : asked.otherwise;
  JCCL_CHECK(reply.revision > 0 && reply.found.size() == ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool put = std::holds_alternative<master::EtcdPut>(ops[i]);
    JCCL_CHECK(!put || (reply.found[i].pairs.empty() && reply.found[i].count == 0));
    for (const master::EtcdPair& pair : reply.found[i].pairs) {
      JCCL_CHECK(!pair.key.empty() && pair.mod > 0);
    }
  }
}

}  // namespace

void run_etcd(ByteView bytes) {
  Input in(bytes);
  switch (in.below(5)) {
    case 0:
      return check_where(rest_of(in));
    case 1:
      return check_txn(in);
    case 2: {
      const auto lease = master::parse_lease_reply(rest_of(in));
      if (lease.ok()) JCCL_CHECK(lease.value().id != 0 && lease.value().seconds >= 0);
      return;
    }
    case 3: {
      const std::string text = rest_of(in);
      const auto rows = master::decode_rows(text);
      if (rows.ok()) JCCL_CHECK(master::encode_rows(rows.value()) == text);
      return;
    }
    default: {
      const std::string text = rest_of(in);
      JCCL_CHECK(master::from_base64(master::base64(text)).value() == text);
      const auto plain = master::from_base64(text);
      if (plain.ok()) JCCL_CHECK(plain.value().size() <= text.size() / 4 * 3);
    }
  }
}

std::vector<Bytes> etcd_seeds() {
  std::vector<Bytes> out;
  const auto add = [&out](std::initializer_list<std::uint8_t> head, std::string_view text) {
    Bytes& bytes = out.emplace_back(head);
    bytes.insert(bytes.end(), text.begin(), text.end());
  };
  add({0}, "etcd://10.0.0.1:2379,[::1],name/run/one?lease=7");
  add({0}, "etcds://host/?ca=a.pem&cert=b.pem&key=c.pem");
  // Asked: nothing compared; one read when it holds, one write when not.
  const std::initializer_list<std::uint8_t> read = {1, 0, 1, 0, 1,   'k', 0, 0,
                                                    0, 1, 1, 1, 'k', 0,   0};
  add(read,
      R"({"header":{"revision":"7"},"succeeded":true,"responses":[{"response_range":{"kvs":[)"
      R"({"key":"aw==","value":"dg==","create_revision":"3","mod_revision":"5"}],"count":"1"}}]})");
  add(read, R"({"header":{"revision":"7"},"responses":[{"response_put":{}}]})");
  add({2}, R"({"ID":"101","TTL":"5"})");
  add({2}, R"({"result":{"ID":"101"}})");
  wire::ChainWriter writer;
  add({3}, master::encode_rows({writer.append(wire::sample_records()[0])}));
  add({4}, "aGVsbG8gd29ybGQ=");
  return out;
}

}  // namespace jccl::fuzz
