// How this machine looks from outside: a host to name when a master is bound to every interface,
// and the wall clock for people. Nothing is decided by either.
#pragma once

#include <cstdint>
#include <string>

namespace jccl::master {

bool is_wildcard(const std::string& host);  // "", 0.0.0.0, ::
std::string outward_host();                 // first address off loopback, else 127.0.0.1
std::int64_t unix_milliseconds();

}  // namespace jccl::master
