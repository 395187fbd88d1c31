// The arithmetic of the robust aggregators: all contributions to one segment at once, from their
// bytes to the accumulator that kernels.h finishes. The result depends on the contributions in the
// order of the plan and on nothing else: the same bits on every processor and under every plan.
// Refuses (JCCL_CHECK) the plain mean, which kernels.h adds up as it comes. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/codec.h"
#include "collective/aggregator.h"

namespace jccl::collective {

struct Contributions {
  codec::Dtype dtype = codec::Dtype::kF32;
  codec::Codec codec;
  std::vector<const std::uint8_t*> encoded;  // in the plan's order, at least one
  std::size_t count = 0;                     // elements; they begin at a block of their leaf
};

// Memory for one block of every contribution, kept from one segment to the next. For n
// contributions it is at most (17/16·n + 2)·kAggregateBlock·8 bytes.
class AggregateScratch {
 public:
  // At least so many bytes, aligned for any number; holding anything.
  void* rows(std::size_t bytes) { return grown(rows_, bytes); }
  void* sorted(std::size_t bytes) { return grown(sorted_, bytes); }
  double* centre() { return static_cast<double*>(grown(centre_, kBytes)); }
  double* sum() { return static_cast<double*>(grown(sum_, kBytes)); }
  std::size_t bytes() const {
    return 8 * (rows_.size() + sorted_.size() + centre_.size() + sum_.size());
  }

 private:
  static constexpr std::size_t kBytes = kAggregateBlock * sizeof(double);
  static void* grown(std::vector<double>& words, std::size_t bytes) {
    if (words.size() * sizeof(double) < bytes) words.resize((bytes + 7) / sizeof(double));
    return words.data();
  }

  std::vector<double> rows_, sorted_, centre_, sum_;
};

// `acc` gets what the aggregator makes of the contributions, in accumulator form: f64 for f64
// leaves, else f32. finish() with a weight sum of 1 turns it into the result.
void aggregate(const Aggregator& aggregator, const Contributions& contributions,
               AggregateScratch* scratch, void* acc);

// How many values of n a trimmed mean drops at each end.
std::size_t trimmed(double share, std::size_t n);

}  // namespace jccl::collective
