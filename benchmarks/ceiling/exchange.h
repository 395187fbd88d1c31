// The direct exchange of two peers without any protection: what the sockets and the memory of a
// machine give. Each peer sends all of its values over n TCP connections (cubic, no delay) in
// chunks of 256 KiB, and adds what it receives, while that is in the cache, to its own. One sending
// and one receiving thread per connection. No frames, checks, retries, votes, memory of its own: an
// upper bound for what a library with all that can reach here, and the yardstick beside it.
#pragma once

#include <cstddef>
#include <vector>

namespace jccl::bench {

class Exchange {
 public:
  // Peer 0 listens on 127.0.0.1:port, peer 1 dials it. Ends the process if that fails.
  Exchange(int peer, int port, int connections);
  ~Exchange();
  void meet();  // returns when both are there
  // out = in + the other's in; with int8, the other's values come in blocks of 256 with a scale.
  void sum(const float* in, float* out, std::size_t count, bool int8);

 private:
  void send_share(std::size_t connection, const float* in, std::size_t count, bool int8);
  void receive_share(std::size_t connection, const float* in, float* out, std::size_t count,
                     bool int8);

  std::vector<int> sockets_;  // the last one is for meet()
};

}  // namespace jccl::bench
