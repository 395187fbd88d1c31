// Runs one batch of iterations on an open communicator and says what they cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"
#include "peer/communicator.h"
#include "usage.h"

namespace jccl::bench {

struct Measured {
  base::Status status;
  std::uint32_t peer = 0;
  std::vector<std::int64_t> begin_ns, times_ns, user_ns, system_ns;  // per iteration
  std::uint64_t wrong = 0;                                           // of the last iteration
  std::uint32_t world = 0, attempts = 0;             // the most of any call; 1: no retry
  std::uint64_t sent_bytes = 0, received_bytes = 0;  // per iteration, all calls
  std::int64_t peak_bytes = 0;                       // resident, of the whole process
  std::int64_t extra_bytes = 0;  // the peak over inputs, outputs and what the process began with
};

// The arrays of a batch; kept while batches of one shape follow each other.
class Bench {
 public:
  Bench(peer::Communicator& comm, std::uint32_t peers);
  Measured run(const Batch& batch);

 private:
  struct Call {
    Buffer in, out;  // out is empty if the call is in place
    std::vector<peer::Leaf> leaves;
    peer::RoundOptions options;
  };

  base::Status meet();  // returns when all peers are there
  void prepare(const Batch& batch);
  void refill(const Batch& batch, bool last);
  base::Status once(const Batch& batch, Measured* out);
  std::uint64_t wrong_of(const Batch& batch);

  peer::Communicator& comm_;
  const std::uint32_t peers_;
  std::int64_t resident_first_ = 0;
  std::string shape_;  // what `calls_` was made for
  std::vector<Call> calls_;
  std::vector<std::uint32_t> contributors_;
};

// One line of JSON.
std::string to_json(const Batch& batch, const Measured& measured);

}  // namespace jccl::bench
