// Bounds on what clients of the page may take. Tests make them small.
#pragma once

#include <cstddef>

#include "base/time.h"
#include "net/socket/allowance.h"

namespace jccl::page {

struct Limits {
  std::size_t connections = 64, streams = 16;
  net::Rate accepts{500, 500};                      // the others wait in the kernel's queue
  std::size_t head_bytes = 8192;                    // of a request
  base::Duration head_max = 5 * base::kSecond;      // from accept to the end of the head
  base::Duration write_max = 10 * base::kSecond;    // for what a client has to take
  base::Duration fresh = 250 * base::kMillisecond;  // a snapshot is used for so long
  base::Duration pause = 200 * base::kMillisecond;  // between two questions to the master
  base::Duration patience = base::kSecond;          // for its answer; then the last one is told
  base::Duration stuck = 5 * base::kSecond;         // without an answer: not healthy
  base::Duration beat = 10 * base::kSecond;         // a word on a stream that has no events
  std::size_t events_waiting = 4096;                // handed over and not yet taken
};

}  // namespace jccl::page
