// Which endpoints a peer dials because another one advertised them. A member could otherwise make
// all others knock at whatever its addresses name: their own services, their routers, a machine
// that is nobody's business. Refuses, saying why, what no peer can be at, and what lies inside a
// network that this run has nothing to do with. Pure but for own_endpoints(); any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/socket/address.h"

namespace jccl::net {

enum class Reach : std::uint8_t {
  kNowhere = 1,   // port 0, unspecified, link-local, multicast, broadcast, reserved
  kLoopback = 2,  // of this machine alone
  kPrivate = 3,   // RFC 1918, RFC 4193, RFC 6598
  kGlobal = 4,
};
Reach reach_of(const Endpoint& endpoint);

// Of an address without its port: "10.0.0.0/8", "fd00::/8", "192.0.2.7".
struct Network {
  std::array<std::uint8_t, 16> bytes{};  // IPv4 mapped into IPv6
  unsigned bits = 0;                     // of them
  bool holds(const Endpoint& endpoint) const;
};
// Separated by commas; "" is none. kInvalid names the one that is no network.
base::Result<std::vector<Network>> parse_networks(std::string_view text);

class DialPolicy {
 public:
  DialPolicy() = default;  // global ones only
  // What lies in one of these, and nothing else.
  explicit DialPolicy(std::vector<Network> named) : named_(std::move(named)) {}
  // Loopback: if the master was reached over loopback. Private: if it was reached at a loopback or
  // private address, or if one of this machine's own addresses is in the same private range.
  DialPolicy(const Endpoint& master, const std::vector<Endpoint>& own);
  base::Status check(const Endpoint& endpoint) const;  // kInvalid: not to be dialled

 private:
  std::vector<Network> named_;
  bool loopback_ = false, private_ = false;
  std::vector<int> ranges_;  // private ones that this machine has an address in
};

std::vector<Endpoint> own_endpoints();  // of the interfaces that are up; asks the system

// The network that a connection comes from, to count what one party can multiply: an IPv4 address,
// or the first 64 bits of an IPv6 one, as 4 or 8 bytes; empty for what is neither. `remote`: as
// ByteStream::remote_text() says it; what is no address is its own network.
std::string network_of(const Endpoint& endpoint);
std::string network_of(std::string_view remote);
Endpoint endpoint_of(std::string_view remote);  // size 0: not an address

}  // namespace jccl::net
