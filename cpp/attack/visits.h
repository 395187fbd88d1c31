// Connections of one process that say what they are told to, in whomever's name, and stay until the
// other side closes them; a place whose connection ended gets another one. Each pool brings a loop
// of its own and blocks the calling thread until it is told to stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "net/security/credentials.h"
#include "net/security/introduction.h"
#include "net/socket/address.h"

namespace jccl::attack {

struct Visit {
  net::Address to;
  net::Credentials credentials;
  net::Purpose purpose = net::Purpose::kControl;
  base::Bytes hello;                             // the first frame
  std::vector<base::Bytes> words;                // to a master: frames, once it is welcomed
  base::Bytes behind;                            // to a peer: right behind the hello …
  std::function<base::Bytes()> again = nullptr;  // … and more of it, again and again
  bool reads = true;
  bool refused = false;  // nobody may answer it
};

// With a fresh key.
net::Credentials fresh_credentials(const std::string& secret);
base::Incarnation fresh_life();

struct Pool {
  std::size_t places = 1;
  base::Duration breath = 0;                       // between one connection and the next
  std::atomic<std::uint64_t>* answered = nullptr;  // of those that nobody may answer
  // Of that place; nothing: not now.
  std::function<std::optional<Visit>(std::size_t place)> next;
};
void keep_visiting(const Pool& pool, const std::atomic<bool>& stop,
                   std::atomic<std::uint64_t>& count);

}  // namespace jccl::attack
