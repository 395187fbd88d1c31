// Looks at a contribution before it is sent: is everything finite, and how long is the vector?
// The sum of squares is formed in f64 in one fixed order, so it is the same on every processor.
// Integers are always finite and count as norm 0. Pure; runs on any thread.
#pragma once

#include <cstddef>

#include "codec/dtype.h"

namespace jccl::codec {

struct GuardResult {
  bool finite = true;
  double norm2 = 0;  // sum of squares; meaningless if not finite
};

GuardResult scan(Dtype dtype, const void* in, std::size_t count);

// The first half of it, several times as fast. See also encode_checked() in codec.h.
bool all_finite(Dtype dtype, const void* in, std::size_t count);

}  // namespace jccl::codec
