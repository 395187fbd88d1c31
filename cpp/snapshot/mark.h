// Marks of state: 64 bits per leaf by which a peer recognises its own state, so that a mistake (an
// older checkpoint, an edited parameter) is noticed before it is in any result. Sums of mixed
// words: in any order, in any pieces, on any device, with the same bits; jccl/_marks.py is the same
// in XLA. One changed word is always noticed. No cryptographic hash: whoever wants to can make two
// states with one mark, and between peers the digest decides. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace jccl::snapshot {

// Sums modulo 2^32 over a leaf's words: of an element of 1, 2 or 4 bytes its bits, zero-extended;
// of one of 8 bytes its lower and its upper half. So NaNs and -0 count as bits, and an element's
// word has the element's place, however a leaf is cut. Of word w at place i (modulo 2^32):
//   x = w ^ (0x9E3779B9 i + 0x7F4A7C15)
//   x = (x ^ x >> 16) 0x85EBCA6B;  x = (x ^ x >> 13) 0xC2B2AE35;  x = x ^ x >> 16
//   first += x;  second += x ^ x << 11 ^ x >> 15
// For one place, w -> x is one to one: that a single word's change can't cancel.
struct Mark {
  std::uint32_t first = 0, second = 0;
  bool operator==(const Mark&) const = default;
  Mark& operator+=(const Mark& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

// Of whole elements of `element_bytes` (1, 2, 4 or 8) that begin at element `at` of their leaf.
// Marks of the pieces of a leaf add up to the leaf's.
Mark mark_of(base::ByteView bytes, std::size_t element_bytes, std::uint64_t at = 0);

}  // namespace jccl::snapshot
