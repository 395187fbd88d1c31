// A forger of states, for tests: other bytes with the same XXH3-128 digest, made in a microsecond.
// XXH3 adds, for each word w of a lane and its part k of the secret, w to one sum and
// low32(w ^ k) · high32(w ^ k) to another. Four words of one lane are chosen anew: two have the old
// products' sum; two have no product, since half of w ^ k is 0, and mend the sum of the words.
// Test only; pure.
#pragma once

#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "snapshot/digest.h"

namespace jccl::snapshot {

// Changes 32 of the bytes [0, 200) of a part of 2 KiB or more.
inline void forge_in_place(std::span<std::uint8_t> part) {
  constexpr std::size_t kWords = 4, kStripe = 64;
  JCCL_CHECK(part.size() >= 2048);
  const auto load = [](const std::uint8_t* from) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
  };
  std::uint64_t secret[kWords], words = 0, products = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    secret[i] = load(XXH3_kSecret + 8 * i);
    const std::uint64_t word = load(part.data() + i * kStripe), mixed = word ^ secret[i];
    words += word;
    products += (mixed & UINT32_MAX) * (mixed >> 32);
  }
  constexpr std::uint64_t kFactor = UINT32_MAX;
  std::uint64_t mixed[kWords] = {kFactor << 32, products % kFactor << 32 | 1, 0, 0};
  std::uint64_t quotient = products / kFactor;
  JCCL_CHECK(quotient <= UINT32_MAX);  // all but two of 2^32 are
  mixed[0] |= quotient;
  const std::uint64_t left = words - (mixed[0] ^ secret[0]) - (mixed[1] ^ secret[1]);
  // The third keeps its low half and has the high half of what is left, the fourth the other way.
  const std::uint64_t low3 = secret[2] & UINT32_MAX, high4 = secret[3] & ~kFactor;
  const std::uint64_t rest = left - low3 - high4;
  const std::uint64_t forged[kWords] = {mixed[0] ^ secret[0], mixed[1] ^ secret[1],
                                        (rest & ~kFactor) | low3, high4 | (rest & kFactor)};
  const Digest before = digest_of(part);
  for (std::size_t i = 0; i < kWords; ++i) {
    std::memcpy(part.data() + i * kStripe, &forged[i], sizeof forged[i]);
  }
  JCCL_CHECK(digest_of(part) == before);
}

}  // namespace jccl::snapshot
