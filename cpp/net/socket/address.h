// Where a peer listens: "host:port", "[::1]:port", ":port" (every interface). Parsing refuses
// what cannot be dialled; names are resolved on a thread of their own, so that a slow name server
// never holds a loop.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/socket/loop.h"

namespace jccl::net {

using base::Code;
using base::Result;
using base::Status;

struct Address {
  std::string host;  // name, IPv4 or IPv6 without brackets; empty = every interface
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

Result<Address> parse_address(std::string_view text);
// Comma-separated, in the order they are to be tried.
Result<std::vector<Address>> parse_addresses(std::string_view text);
std::string to_text(const Address& address);
std::string to_text(const std::vector<Address>& addresses);

// "localhost" and literal loopback addresses. Any other name is not loopback, whatever it
// resolves to; nor is the empty host.
bool is_loopback(const Address& address);

// A resolved address, ready for connect().
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
std::string to_text(const Endpoint& endpoint);
bool is_loopback(const Endpoint& endpoint);
std::uint16_t port_of(const Endpoint& endpoint);
Endpoint local_endpoint(int fd);
Endpoint remote_endpoint(int fd);

// Blocks while a name server is asked; literals and "localhost" never block. The empty host
// becomes [::] then 0.0.0.0.
Result<std::vector<Endpoint>> resolve_now(const Address& address);
// The same without blocking; `done` runs on the loop's thread, unless the loop has gone.
void resolve(Loop& loop, const Address& address,
             std::function<void(Result<std::vector<Endpoint>>)> done);

}  // namespace jccl::net
