// What each peer contributes, and how far a result may be from the exact one. Peer p gives
// (1 + p)·x with x = (k mod 251 − 125)/64: exact in f32, and any 256 neighbours hold every value,
// so the largest magnitude of a block is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace jccl::bench {

// Error of one encoding: |decode(encode(x)) − x| <= relative·|x| + of_largest·max|x| of the block.
struct ErrorBound {
  double relative = 0, of_largest = 0;
};
std::optional<ErrorBound> bound_of(const std::string& codec);

void fill_contribution(std::uint32_t peer, float* out, std::size_t count);

// Elements of the sum (or mean) over `contributors` that are further from the exact result than one
// encoding of each contribution and one of the result allow. NaN is wrong.
std::uint64_t count_wrong(const float* out, std::size_t count,
                          const std::vector<std::uint32_t>& contributors, bool mean,
                          const ErrorBound& bound);

}  // namespace jccl::bench
