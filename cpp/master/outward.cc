// Reads the interfaces' addresses; IPv4 first, link-local never.
#include "master/outward.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <chrono>

#include "base/planted.h"

namespace jccl::master {

bool is_wildcard(const std::string& host) {
  return host.empty() || (host == "0.0.0.0" && !JCCL_PLANTED("wildcard-told-to-peers")) ||
         host == "::" || host == "*";
}

std::string outward_host() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "127.0.0.1";
  std::string v4, v6;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_UP)) {
      continue;
    }
    char text[INET6_ADDRSTRLEN] = {};
    if (at->ifa_addr->sa_family == AF_INET && v4.empty()) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      v4 = ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    } else if (at->ifa_addr->sa_family == AF_INET6 && v6.empty()) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      v6 = ::inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text);
    }
  }
  ::freeifaddrs(list);
  if (!v4.empty()) return v4;
  return v6.empty() ? "127.0.0.1" : v6;
}

std::int64_t unix_milliseconds() {
  using std::chrono::milliseconds;
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(since).count();
}

}  // namespace jccl::master
