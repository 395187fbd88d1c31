// The gateway writes 64-bit numbers as strings and leaves out what is zero, false or empty.
#include "master/etcd/etcd_kv.h"

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <optional>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::master {
namespace {

namespace json = boost::json;
using base::cat;
using base::Code;
using base::Result;
using base::Status;

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

json::object op_json(const EtcdOp& op) {
  if (const auto* put = std::get_if<EtcdPut>(&op)) {
    json::object out{{"key", base64(put->key)}, {"value", base64(put->value)}};
    if (put->lease != 0) out["lease"] = std::to_string(put->lease);
    return {{"request_put", out}};
  }
  const auto& range = std::get<EtcdRange>(op);
  json::object out{{"key", base64(range.key)}};
  if (!range.end.empty()) out["range_end"] = base64(range.end);
  if (range.limit != 0) out["limit"] = std::to_string(range.limit);
  if (range.count_only) out["count_only"] = true;
  return {{"request_range", out}};
}

json::array ops_json(const std::vector<EtcdOp>& ops) {
  json::array out;
  for (const EtcdOp& op : ops) out.push_back(op_json(op));
  return out;
}

// Reads fields of an object; the first that has another form makes the whole answer refused.
class Fields {
 public:
  explicit Fields(const json::value* from) {
    if (from == nullptr) return;
    object_ = from->if_object();
    if (object_ == nullptr) failed_ = true;
  }
  bool failed() const { return failed_; }
  const json::value* at(std::string_view name) const {
    return object_ == nullptr ? nullptr : object_->if_contains(name);
  }
  Fields within(std::string_view name) {
    Fields out(at(name));
    return out;
  }
  std::int64_t number(std::string_view name) {
    const json::value* v = at(name);
    if (v == nullptr) return 0;
    if (v->is_int64()) return v->as_int64();
    std::int64_t out = 0;
    if (!v->is_string()) return fail<std::int64_t>();
    const std::string_view text = v->as_string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc{} || end != text.data() + text.size()) return fail<std::int64_t>();
    return out;
  }
  std::uint64_t positive(std::string_view name) {
    const std::int64_t v = number(name);
    return v < 0 && !JCCL_PLANTED("negative-count-taken") ? fail<std::uint64_t>()
                                                          : static_cast<std::uint64_t>(v);
  }
  bool flag(std::string_view name) {
    const json::value* v = at(name);
    if (v == nullptr) return false;
    return v->is_bool() ? v->as_bool() : fail<bool>();
  }
  std::string bytes(std::string_view name) {
    const json::value* v = at(name);
    if (v == nullptr) return {};
    if (!v->is_string()) return fail<std::string>();
    auto out = from_base64(v->as_string());
    return out.ok() ? std::move(out.value()) : fail<std::string>();
  }
  const json::array* list(std::string_view name) {
    static const json::array kNone;
    const json::value* v = at(name);
    if (v == nullptr) return &kNone;
    if (v->is_array()) return &v->as_array();
    failed_ = true;
    return &kNone;
  }

 private:
  template <typename T>
  T fail() {
    failed_ = true;
    return {};
  }
  const json::object* object_ = nullptr;
  bool failed_ = false;
};

Status odd(const std::string& body) {
  return {Code::kLinkLost, cat("an answer that is not etcd's: '", body.substr(0, 80), "'")};
}

std::optional<EtcdFound> read_found(const json::value& response) {
  EtcdFound out;
  Fields all(&response);
  const json::value* range_value = all.at("response_range");
  if (all.failed()) return std::nullopt;
  if (range_value == nullptr) return out;
  Fields range(range_value);
  out.count = range.positive("count");
  out.more = range.flag("more");
  for (const json::value& one : *range.list("kvs")) {
    Fields kv(&one);
    out.pairs.push_back({kv.bytes("key"), kv.bytes("value"), kv.positive("create_revision"),
                         kv.positive("mod_revision")});
    if (kv.failed() || out.pairs.back().key.empty() || out.pairs.back().mod == 0) {
      return std::nullopt;
    }
  }
  if (range.failed()) return std::nullopt;
  return out;
}

// A range must be answered as one: an answer without it would read as "no such key". And a put as
// one, which finds nothing.
bool fits(const EtcdOp& op, const json::value& response) {
  const bool range = std::holds_alternative<EtcdRange>(op);
  const auto* object = response.if_object();
  return object != nullptr && object->contains("response_range") == range &&
         object->contains("response_put") != range;
}

}  // namespace

std::string to_json(const EtcdTxn& txn) {
  json::array when;
  for (const EtcdCompare& one : txn.when) {
    const bool create = one.of == EtcdCompare::Of::kCreate;
    when.push_back({{"target", create ? "CREATE" : "MOD"},
                    {"result", "EQUAL"},
                    {"key", base64(one.key)},
                    {create ? "create_revision" : "mod_revision", std::to_string(one.revision)}});
  }
  return json::serialize(json::object{{"compare", std::move(when)},
                                      {"success", ops_json(txn.then)},
                                      {"failure", ops_json(txn.otherwise)}});
}

std::string lease_grant_json(std::int64_t seconds) {
  return json::serialize(json::object{{"TTL", std::to_string(seconds)}});
}

std::string lease_json(std::int64_t id) {
  return json::serialize(json::object{{"ID", std::to_string(id)}});
}

Result<EtcdReply> parse_txn_reply(const std::string& body, const EtcdTxn& asked) {
  boost::system::error_code bad;
  const json::value value = json::parse(body, bad);
  if (bad) return odd(body);
  Fields all(&value);
  Fields header = all.within("header");
  EtcdReply out;
  out.succeeded = all.flag("succeeded");
  out.revision = header.positive("revision");
  const json::array& responses = *all.list("responses");
  const std::vector<EtcdOp>& ops = out.succeeded ? asked.then : asked.otherwise;
  if (all.failed() || header.failed() || out.revision == 0 || responses.size() != ops.size()) {
    return odd(body);
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!fits(ops[i], responses[i])) return odd(body);
    auto found = read_found(responses[i]);
    if (!found.has_value()) return odd(body);
    out.found.push_back(std::move(*found));
  }
  return out;
}

Result<EtcdLeaseReply> parse_lease_reply(const std::string& body) {
  boost::system::error_code bad;
  const json::value value = json::parse(body, bad);
  if (bad) return odd(body);
  Fields outer(&value);
  Fields fields = outer.at("result") != nullptr ? outer.within("result") : outer;
  EtcdLeaseReply out;
  out.id = fields.number("ID");
  out.seconds = fields.number("TTL");
  if (outer.failed() || fields.failed() || out.id == 0 || out.seconds < 0) return odd(body);
  return out;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < n ? static_cast<std::uint8_t>(bytes[at + i]) : 0u);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out += i <= n - (JCCL_PLANTED("base64-pad-one-off") && n < 3 ? 1 : 0)
                 ? kDigits[bits >> (18 - 6 * i) & 63]
                 : '=';
    }
  }
  return out;
}

Result<std::string> from_base64(std::string_view text) {
  static const auto kValues = [] {
    std::array<std::int8_t, 256> out;
    out.fill(-1);
    for (std::size_t i = 0; i < kDigits.size(); ++i) {
      out[static_cast<std::uint8_t>(kDigits[i])] = static_cast<std::int8_t>(i);
    }
    return out;
  }();
  const Status bad{Code::kLinkLost, "not base64"};
  if (text.size() % 4 != 0) return bad;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const std::size_t pad = !last ? 0 : text[at + 3] != '=' ? 0 : text[at + 2] != '=' ? 1 : 2;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const int v = i >= 4 - pad ? 0 : kValues[static_cast<std::uint8_t>(text[at + i])];
      if (v < 0) return bad;
      bits = bits << 6 | static_cast<std::uint32_t>(v);
    }
    for (std::size_t i = 0; i < 3 - pad; ++i) out += static_cast<char>(bits >> (16 - 8 * i) & 255);
  }
  return out;
}

}  // namespace jccl::master
