// What bench-peer is asked to do: its command line, and the lines it reads in --stepped form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "collective/op.h"
#include "peer/communicator.h"

namespace jccl::bench {

inline constexpr std::uint64_t kInFlightBytesMax = 1ULL << 30;

// One set of iterations: all of one size and kind.
struct Batch {
  std::uint64_t bytes = 1 << 20;  // of f32, of one call
  codec::Codec codec;
  collective::Op op = collective::Op::kSum;
  std::uint32_t leaves = 1;
  std::uint32_t concurrent = 1;  // calls in flight, each with a tag and arrays of its own
  std::uint32_t warmup = 2;
  std::uint32_t iterations = 10;
  std::string plan;           // "": automatic
  bool in_place = false;      // out is in
  bool out_private = true;    // nobody looks at out before the end; not with in_place
  bool barrier_only = false;  // measures the barrier itself
};

struct Options {
  peer::ConnectOptions connect;
  std::string with_master;  // bind address of a master in this process; empty: none
  std::uint32_t peers = 2;
  std::vector<std::uint64_t> sizes{1 << 20};
  Batch batch;           // what `sizes` does not say
  bool stepped = false;  // batches come as lines on standard input
  bool help = false;
  base::Duration deadline = 300 * base::kSecond;
};

extern const char* const kHelp;

base::Status read_options(int argc, char** argv, Options* out);

// "size=4096 codec=int8 iterations=3": what a line does not name is as in `defaults`.
base::Result<Batch> read_batch(const std::string& line, const Batch& defaults);

base::Status check(const Batch& batch);

}  // namespace jccl::bench
