#include "master/etcd/etcd_where.h"

#include <charconv>
#include <optional>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::master {
namespace {

using base::cat;
using base::Code;
using base::Status;

constexpr std::string_view kPlain = "etcd://", kTls = "etcds://";
constexpr std::string_view kDefaultPort = ":2379";
constexpr std::size_t kEndpointsMax = 16, kPrefixBytesMax = 200;
constexpr int kLeaseSecondsMax = 600;

Status wrong(std::string_view where, std::string_view why) {
  return {Code::kInvalid, cat("store '", without_password(where), "': ", why,
                              "; the form is etcd://HOST:PORT,HOST:PORT/PREFIX")};
}

// Everything up to `mark`, which goes too.
std::string_view cut(std::string_view* text, char mark) {
  const std::size_t at = std::min(text->find(mark), text->size());
  const std::string_view head = text->substr(0, at);
  text->remove_prefix(std::min(at + 1, text->size()));
  return head;
}

// "a%40b" as "a@b"; nothing if it isn't of this form.
std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char head = text.front();
    text.remove_prefix(1);
    if (head == '%') {
      unsigned char byte = 0;
      const char* digits = text.data();
      if (text.size() < 2 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
        return std::nullopt;
      }
      text.remove_prefix(2);
      out += static_cast<char>(byte);
    } else {
      out += head;
    }
  }
  return out;
}

// "user:password@", which goes from `hosts`.
Status read_user(std::string_view* hosts, EtcdWhere* out) {
  const std::size_t at = hosts->rfind('@');
  if (at == std::string_view::npos) return {};
  std::string_view who = hosts->substr(0, at);
  hosts->remove_prefix(at + 1);
  const auto user = unescaped(cut(&who, ':')), password = unescaped(who);
  if (!user || !password || user->empty() || password->empty()) {
    return {Code::kInvalid,
            "before @ write USER:PASSWORD, with %XX for other characters than letters"};
  }
  out->user = *user;
  out->password = *password;
  return {};
}

base::Result<net::Address> endpoint(std::string_view text) {
  const std::size_t bracket = text.rfind(']');  // "[::1]:2379"
  const std::size_t colon = text.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  auto address = net::parse_address(cat(text, has_port ? "" : kDefaultPort));
  if (address.ok() && (address.value().host.empty() || address.value().port == 0)) {
    return Status{Code::kInvalid, cat("'", text, "' names no HOST:PORT to connect to")};
  }
  return address;
}

Status read_option(std::string_view name, std::string_view value, EtcdWhere* out) {
  if (value.empty()) return {Code::kInvalid, cat(name, "= is empty")};
  if (name == "lease") {
    int seconds = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (error != std::errc{} || end != value.data() + value.size() ||
        seconds < (JCCL_PLANTED("lease-of-zero") ? 0 : 1) || seconds > kLeaseSecondsMax) {
      return {Code::kInvalid, cat("lease= takes 1 to ", kLeaseSecondsMax, " whole seconds")};
    }
    out->lease = seconds * base::kSecond;
    return {};
  }
  std::string* file = name == "ca"     ? &out->ca
                      : name == "cert" ? &out->cert
                      : name == "key"  ? &out->key
                                       : nullptr;
  if (file == nullptr) return {Code::kInvalid, cat("unknown option ", name, "=")};
  if (!out->tls) return {Code::kInvalid, cat(name, "= needs etcds://")};
  *file = value;
  return {};
}

}  // namespace

bool is_etcd(std::string_view where) {
  return where.starts_with(kPlain) || where.starts_with(kTls);
}

std::string without_password(std::string_view where) {
  if (!is_etcd(where)) return std::string(where);
  const std::size_t begin = where.find("//") + 2;
  const std::string_view hosts = where.substr(begin, where.find_first_of("/?", begin) - begin);
  const std::size_t colon = hosts.find(':'), at = hosts.rfind('@');
  if (at == std::string_view::npos || JCCL_PLANTED("password-in-the-log") || colon > at)
    return std::string(where);
  return cat(where.substr(0, begin + colon), ":…", where.substr(begin + at));
}

base::Result<EtcdWhere> parse_etcd(std::string_view where) {
  EtcdWhere out;
  if (!is_etcd(where)) return wrong(where, "it is no etcd's");
  out.tls = where.starts_with(kTls);
  std::string_view rest = where.substr(out.tls ? kTls.size() : kPlain.size());
  std::string_view place = cut(&rest, '?');
  std::string_view hosts = cut(&place, '/');
  while (!place.empty() && place.back() == '/') place.remove_suffix(1);
  if (!place.empty()) out.prefix = cat("/", place);
  if (out.prefix.size() > kPrefixBytesMax) return wrong(where, "its prefix is too long");
  if (const Status status = read_user(&hosts, &out); !status.ok()) return wrong(where, status.text);
  while (!hosts.empty()) {
    const auto address = endpoint(cut(&hosts, ','));
    if (!address.ok()) return wrong(where, address.status().text);
    out.endpoints.push_back(address.value());
  }
  if (out.endpoints.empty()) return wrong(where, "it names no etcd");
  if (out.endpoints.size() > kEndpointsMax) return wrong(where, "it names too many");
  while (!rest.empty()) {
    std::string_view value = cut(&rest, '&');
    const std::string_view name = cut(&value, '=');
    const Status read = read_option(name, value, &out);
    if (!read.ok()) return wrong(where, read.text);
  }
  if (out.cert.empty() != out.key.empty() && !JCCL_PLANTED("cert-without-key"))
    return wrong(where, "cert= and key= go together");
  return out;
}

}  // namespace jccl::master
