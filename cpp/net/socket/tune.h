// Socket options of a data or control connection. Internal to this folder.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace jccl::net {

// For a connected socket: no Nagle delay, keepalive, a bound on unacknowledged data, congestion
// control by measured round-trip time, and on long paths little unsent data in the kernel.
void tune(int fd);
// The kernel sends at most so many bytes a second, evenly; 0: as fast as it likes.
void pace(int fd, std::uint64_t bytes_per_second);

// Where it runs BBR, the connection looks for its rate anew, as at its start; within pace().
void probe(int fd);

struct KernelCounts {
  std::uint64_t bytes_acked = 0;
  std::uint64_t bytes_delivered = 0;
  std::uint64_t bytes_unacked = 0;
  base::Duration rtt_ns = 0;
};
KernelCounts kernel_counts(int fd);

}  // namespace jccl::net
