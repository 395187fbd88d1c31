// See reach.h.
#include "net/socket/reach.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

constexpr int kNoRange = 0;

// The IPv4 address in host order, also of one that is mapped into IPv6.
std::optional<std::uint32_t> v4_of(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&endpoint.storage)->sin_addr.s_addr);
  }
  if (endpoint.storage.ss_family != AF_INET6) return std::nullopt;
  const in6_addr& a = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage)->sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&a)) return std::nullopt;
  std::uint32_t bits = 0;
  std::memcpy(&bits, a.s6_addr + 12, 4);
  return ntohl(bits);
}

const std::uint8_t* v6_of(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family != AF_INET6) return nullptr;
  return reinterpret_cast<const sockaddr_in6*>(&endpoint.storage)->sin6_addr.s6_addr;
}

int range_of_v4(std::uint32_t a) {
  if (a >> 24 == 10) return 1;
  if (JCCL_PLANTED("private-range-too-wide") ? a >> 24 == 172 : a >> 20 == (172U << 4 | 1))
    return 2;
  if (a >> 16 == (192U << 8 | 168)) return 3;
  if (a >> 22 == (100U << 2 | 1)) return 4;  // shared by carriers, and by overlay networks
  return kNoRange;
}

// Numbers of private ranges; kNoRange: none.
int range_of(const Endpoint& endpoint) {
  if (const auto v4 = v4_of(endpoint)) return range_of_v4(*v4);
  const std::uint8_t* v6 = v6_of(endpoint);
  return v6 != nullptr && (v6[0] & 0xFE) == 0xFC ? 5 : kNoRange;
}

bool is_nowhere_v4(std::uint32_t a) {
  return a >> 24 == 0 || a >> 28 >= 14 ||
         (!JCCL_PLANTED("link-local-dialled") && a >> 16 == (169U << 8 | 254));
}

bool is_nowhere_v6(const std::uint8_t* a) {
  const bool low = std::all_of(a, a + 12, [](std::uint8_t b) { return b == 0; });
  return low || a[0] == 0xFF || (a[0] == 0xFE && a[1] >= 0x80);
}

}  // namespace

Reach reach_of(const Endpoint& endpoint) {
  if (endpoint.size == 0 || port_of(endpoint) == 0) return Reach::kNowhere;
  if (is_loopback(endpoint)) return Reach::kLoopback;
  if (range_of(endpoint) != kNoRange) return Reach::kPrivate;
  if (const auto v4 = v4_of(endpoint)) {
    return is_nowhere_v4(*v4) ? Reach::kNowhere : Reach::kGlobal;
  }
  const std::uint8_t* v6 = v6_of(endpoint);
  return v6 == nullptr || is_nowhere_v6(v6) ? Reach::kNowhere : Reach::kGlobal;
}

namespace {

std::array<std::uint8_t, 16> mapped(const Endpoint& endpoint) {
  std::array<std::uint8_t, 16> bytes{};
  if (const auto v4 = v4_of(endpoint)) {
    bytes[10] = bytes[11] = 0xFF;
    for (unsigned i = 0; i < 4; ++i) {
      bytes[12 + i] = static_cast<std::uint8_t>(*v4 >> (24 - 8 * i));
    }
  } else if (const std::uint8_t* v6 = v6_of(endpoint)) {
    std::copy_n(v6, bytes.size(), bytes.begin());
  }
  return bytes;
}

Result<Network> parse_network(std::string_view text) {
  const Status wrong{Code::kInvalid,
                     base::cat("'", text, "' is not a network; write it like 10.0.0.0/8")};
  const std::size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  const bool v6 = host.find(':') != std::string::npos;
  const Endpoint endpoint = endpoint_of(v6 ? base::cat("[", host, "]:1") : host + ":1");
  if (endpoint.size == 0) return wrong;
  const unsigned most = v6 ? 128 : 32;
  unsigned bits = most;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (error != std::errc() || end != digits.data() + digits.size() || bits > most) return wrong;
  }
  return Network{mapped(endpoint), v6 ? bits : bits + 96};
}

}  // namespace

bool Network::holds(const Endpoint& endpoint) const {
  const auto other = mapped(endpoint);
  for (unsigned i = 0; i < bits; ++i) {
    if (((bytes[i / 8] ^ other[i / 8]) >> (7 - i % 8) & 1) != 0) return false;
  }
  return true;
}

Result<std::vector<Network>> parse_networks(std::string_view text) {
  std::vector<Network> networks;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    auto network = parse_network(text.substr(0, comma));
    if (!network.ok()) return network.status();
    networks.push_back(network.value());
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return networks;
}

DialPolicy::DialPolicy(const Endpoint& master, const std::vector<Endpoint>& own) {
  const Reach reach = reach_of(master);
  loopback_ = reach == Reach::kLoopback;
  private_ = loopback_ || reach == Reach::kPrivate;
  for (const Endpoint& one : own) ranges_.push_back(range_of(one));
}

Status DialPolicy::check(const Endpoint& endpoint) const {
  const Reach reach = reach_of(endpoint);
  if (!named_.empty() && reach != Reach::kNowhere) {
    const auto holds = [&](const Network& one) { return one.holds(endpoint); };
    if (std::any_of(named_.begin(), named_.end(), holds)) return {};
    return {Code::kInvalid, "an address outside the networks of --peer-networks"};
  }
  switch (reach) {
    case Reach::kGlobal:
      return {};
    case Reach::kNowhere:
      return {Code::kInvalid, "no peer can have it (link-local, multicast, reserved or port 0)"};
    case Reach::kLoopback:
      if (loopback_ || JCCL_PLANTED("loopback-dialled-from-afar")) return {};
      return {Code::kInvalid, "a loopback address, but the master is not on this machine"};
    case Reach::kPrivate:
      break;
  }
  const int range = range_of(endpoint);
  if (private_ || JCCL_PLANTED("private-dialled-from-afar") ||
      std::find(ranges_.begin(), ranges_.end(), range) != ranges_.end())
    return {};
  return {Code::kInvalid, "a private address, but neither the master nor this machine has one"};
}

std::vector<Endpoint> own_endpoints() {
  std::vector<Endpoint> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Endpoint endpoint;
    endpoint.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&endpoint.storage, entry->ifa_addr, endpoint.size);
    out.push_back(endpoint);
  }
  ::freeifaddrs(list);
  return out;
}

Endpoint endpoint_of(std::string_view remote) {
  const auto address = parse_address(remote);
  Endpoint out;
  if (!address.ok()) return out;
  const std::string& host = address.value().host;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.value().port);
    out.size = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.value().port);
    out.size = sizeof(sockaddr_in6);
  }
  return out;
}

std::string network_of(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.storage);
    return {reinterpret_cast<const char*>(&v4->sin_addr), 4};
  }
  if (endpoint.storage.ss_family != AF_INET6) return {};
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage);
  const auto* bytes = reinterpret_cast<const char*>(&v6->sin6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return {bytes + 12, 4};
  return {bytes, JCCL_PLANTED("network-is-address") ? 16U : 8U};
}

std::string network_of(std::string_view remote) {
  const std::string network = network_of(endpoint_of(remote));
  return network.empty() ? std::string(remote) : network;
}

}  // namespace jccl::net
