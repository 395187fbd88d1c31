// Symbolic numbers: every input is a term of its own (one-hot), so a sum is a bag of terms and
// says who was counted how often. Double counting, loss and ghosts read off it. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/text.h"
#include "sim/events.h"

namespace jccl::sim {

struct Term {
  std::uint64_t call = 0;  // whose input: one call of one peer
  std::uint32_t count = 0;
  bool operator==(const Term&) const = default;
};
using Sum = std::vector<Term>;  // ascending by call

inline void add(Sum& to, const Sum& from) {
  for (const Term& term : from) {
    const auto at =
        std::lower_bound(to.begin(), to.end(), term.call,
                         [](const Term& t, std::uint64_t call) { return t.call < call; });
    if (at != to.end() && at->call == term.call) {
      at->count += term.count;
    } else {
      to.insert(at, term);
    }
  }
}

inline constexpr std::size_t kElements = 3;  // of every array
using Array = std::array<Sum, kElements>;

inline Array one_hot(std::uint64_t call) {
  Array array;
  for (Sum& sum : array) sum.push_back({call, 1});
  return array;
}

// One call's arrays. In place, results land where the input was, and an abort brings it back.
struct Buffers {
  bool in_place = false;
  Array input;   // at call time: what the user may expect to find again
  Array memory;  // in place: input and output; else the input
  Array out;     // out of place
};

inline base::Digest digest_of(const Array& array) {
  base::Digest digest{0x6A636C, 1};
  for (const Sum& sum : array) {
    digest.low = mix_in(digest.low, 77);
    for (const Term& term : sum) {
      digest.low = mix_in(mix_in(digest.low, term.call), term.count);
      digest.high = mix_in(digest.high, digest.low);
    }
  }
  return digest;
}

inline std::string to_text(const Sum& sum) {
  std::string text = "{";
  for (const Term& term : sum) text += base::cat(" ", term.count, "*x", term.call);
  return text + " }";
}

}  // namespace jccl::sim
