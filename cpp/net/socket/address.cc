#include "net/socket/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <thread>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

Status malformed(std::string_view text, std::string_view why) {
  return Status{Code::kInvalid, base::cat("address '", text.substr(0, base::kAddressBytesMax),
                                          "': ", why, "; write host:port, [::1]:port or :port")};
}

bool literal(const std::string& host, std::uint16_t port, Endpoint* endpoint) {
  *endpoint = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&endpoint->storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    endpoint->size = sizeof(sockaddr_in);
    return true;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&endpoint->storage);
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    endpoint->size = sizeof(sockaddr_in6);
    return true;
  }
  return false;
}

// The endpoints of what needs no name server; empty for names that do.
std::vector<Endpoint> without_asking(const Address& address) {
  std::vector<const char*> hosts;
  if (address.host.empty()) hosts = {"::", "0.0.0.0"};
  if (address.host == "localhost") hosts = {"127.0.0.1", "::1"};
  std::vector<Endpoint> out;
  Endpoint endpoint;
  for (const char* host : hosts) {
    JCCL_CHECK(literal(host, address.port, &endpoint));
    out.push_back(endpoint);
  }
  if (hosts.empty() && literal(address.host, address.port, &endpoint)) out.push_back(endpoint);
  return out;
}

bool good_host(std::string_view host) {
  for (const char c : host) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    if (!good && !JCCL_PLANTED("any-character-in-host")) return false;
  }
  return true;
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  if (text.size() > base::kAddressBytesMax) return malformed(text, "too long");
  Address address;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return malformed(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} ||
      (end != port.data() + port.size() && !JCCL_PLANTED("port-with-tail"))) {
    return malformed(text, "the port is not a number from 0 to 65535");
  }
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return malformed(text, "the bracket is not closed");
    host = host.substr(1, host.size() - 2);
    in6_addr ignored;
    if (inet_pton(AF_INET6, std::string(host).c_str(), &ignored) != 1) {
      return malformed(text, "not an IPv6 address in the brackets");
    }
  } else if (host.find(':') != std::string_view::npos) {
    const bool url = text.find("://") != std::string_view::npos;
    return malformed(text, url ? "a URL, where a host is meant" : "an IPv6 address needs brackets");
  } else if (!good_host(host)) {
    return malformed(text, "a character that no host name has");
  }
  address.host = std::string(host);
  return address;
}

Result<std::vector<Address>> parse_addresses(std::string_view text) {
  std::vector<Address> out;
  while (true) {
    const std::size_t comma = text.find(',');
    Result<Address> one = parse_address(text.substr(0, comma));
    if (!one.ok()) return one.status();
    out.push_back(std::move(one.value()));
    if (out.size() > base::kAddressesMax + (JCCL_PLANTED("too-many-addresses") ? 1 : 0))
      return malformed(text, "too many addresses");
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

std::string to_text(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return base::cat(v6 ? "[" : "", address.host, v6 ? "]" : "", ":", address.port);
}

std::string to_text(const std::vector<Address>& addresses) {
  std::string out;
  for (const Address& address : addresses) {
    if (!out.empty()) out += ',';
    out += to_text(address);
  }
  return out;
}

bool is_loopback(const Address& address) {
  if (address.host == "localhost") return true;
  Endpoint endpoint;
  return literal(address.host, address.port, &endpoint) && is_loopback(endpoint);
}

std::string to_text(const Endpoint& endpoint) {
  char host[INET6_ADDRSTRLEN] = "?";
  const bool v6 = endpoint.storage.ss_family == AF_INET6;
  if (v6) {
    const auto* a = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage);
    inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof(host));
    constexpr std::string_view kMapped = "::ffff:";  // an IPv4 peer on a dual-stack listener
    if (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr)) {
      return base::cat(std::string_view(host).substr(kMapped.size()), ":", port_of(endpoint));
    }
  } else if (endpoint.storage.ss_family == AF_INET) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(&endpoint.storage);
    inet_ntop(AF_INET, &a->sin_addr, host, sizeof(host));
  }
  return base::cat(v6 ? "[" : "", host, v6 ? "]" : "", ":", port_of(endpoint));
}

bool is_loopback(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family == AF_INET) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(&endpoint.storage);
    return (ntohl(a->sin_addr.s_addr) >> 24) >=
               (JCCL_PLANTED("loopback-by-first-bit") ? 126U : 127U) &&
           (ntohl(a->sin_addr.s_addr) >> 24) <= 127;
  }
  if (endpoint.storage.ss_family != AF_INET6) return false;
  const in6_addr& a = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&a) ||
         (IN6_IS_ADDR_V4MAPPED(&a) &&
          (JCCL_PLANTED("mapped-loopback-unknown") || a.s6_addr[12] == 127));
}

std::uint16_t port_of(const Endpoint& endpoint) {
  // The port is at the same place in both forms.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&endpoint.storage)->sin_port);
}

Endpoint local_endpoint(int fd) {
  Endpoint out;
  out.size = sizeof(out.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.size) != 0) out = {};
  return out;
}

Endpoint remote_endpoint(int fd) {
  Endpoint out;
  out.size = sizeof(out.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.size) != 0) out = {};
  return out;
}

Result<std::vector<Endpoint>> resolve_now(const Address& address) {
  std::vector<Endpoint> out = without_asking(address);
  if (!out.empty()) return out;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return Status{Code::kIo,
                  base::cat("cannot resolve '", address.host, "': ", gai_strerror(error))};
  }
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, entry->ai_addr, entry->ai_addrlen);
    endpoint.size = entry->ai_addrlen;
    out.push_back(endpoint);
  }
  freeaddrinfo(list);
  if (out.empty()) return Status{Code::kIo, base::cat("'", address.host, "' has no address")};
  return out;
}

void resolve(Loop& loop, const Address& address,
             std::function<void(Result<std::vector<Endpoint>>)> done) {
  std::vector<Endpoint> known = without_asking(address);
  if (!known.empty()) {
    loop.post([known = std::move(known), done = std::move(done)] { done(known); });
    return;
  }
  // Detached: getaddrinfo cannot be interrupted, and nobody should wait for it at shutdown.
  std::thread([poster = loop.poster(), address, done = std::move(done)]() mutable {
    auto result = std::make_shared<Result<std::vector<Endpoint>>>(resolve_now(address));
    poster.post([result, done = std::move(done)] { done(std::move(*result)); });
  }).detach();
}

}  // namespace jccl::net
