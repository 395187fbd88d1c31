// The outer optimizer's step over a committed result, element by element in f32. Every product and
// sum is rounded by itself (the build forbids contraction), so all peers get the same bits from the
// same bytes, whatever their processor or compiler flags of XLA. Refuses nothing; the caller checks
// types and counts. `out` pointers may equal their inputs. Runs on the calling thread.
#pragma once

#include <cstddef>

namespace jccl::xla_ext {

enum class OuterKind { kSgd, kMomentum, kNesterov };

struct OuterRates {
  float learning_rate = 0;
  float momentum = 0;
};

// With delta = anchor - local parameters, averaged over the peers:
//   kSgd:       anchor <- anchor - lr delta                       (momentum pointers are null)
//   kMomentum:  m <- mu m + delta;  anchor <- anchor - lr m
//   kNesterov:  m <- mu m + delta;  anchor <- anchor - lr (delta + mu m)
struct OuterLeaf {
  const float* anchor = nullptr;
  const float* momentum = nullptr;
  const float* delta = nullptr;
  float* anchor_out = nullptr;
  float* momentum_out = nullptr;
  std::size_t count = 0;
};

void outer_step(OuterKind kind, const OuterRates& rates, const OuterLeaf& leaf);

}  // namespace jccl::xla_ext
