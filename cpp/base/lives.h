// How a process numbers its lives: the upper 48 bits of an incarnation are random and of the
// process (of one communicator), the lower 16 count. So a later life is known to have what an
// earlier one held. Pure.
#pragma once

#include "base/ids.h"

namespace jccl::base {

inline constexpr int kLifeBits = 16;

inline std::uint64_t process_of(Incarnation life) { return life >> kLifeBits; }
inline Incarnation first_life(std::uint64_t random) { return (random << kLifeBits) | 1; }
// With the last life of the count a process forgets that it is one.
inline Incarnation next_life(Incarnation life, std::uint64_t random) {
  return process_of(life + 1) == process_of(life) ? life + 1 : first_life(random);
}

}  // namespace jccl::base
