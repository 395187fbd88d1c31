// Numbers that say whose they are. Every input is its own: most elements are integers of which each
// is shared by few, so that a sum says who was counted how often and with which weight; the others
// have all their bits in use, so that a sum also says in which order it was made. Pure.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/text.h"
#include "exchange/call.h"
#include "sim/events.h"

namespace jccl::sim {

inline constexpr std::size_t kElements = 40;    // of every array
inline constexpr std::size_t kChunkBytes = 64;  // so that the last chunk is a short one
inline constexpr float kUntouched = -77;
using Array = std::array<float, kElements>;

inline Array input_of(std::uint64_t call) {
  Array array{};
  for (std::size_t k = 0; k < kElements; ++k) {
    const std::uint64_t bits = mix_in(call, k);
    if (k % 8 == 7) {
      const float whole = static_cast<float>(static_cast<std::int32_t>(bits & 0xFFFFFF) - 0x800000);
      array[k] = std::ldexp(whole, static_cast<int>(bits >> 32 & 15));
    } else if (k % 7 == call % 7) {
      array[k] = static_cast<float>(1 + bits % 1000);
    }
  }
  return array;
}

// Bit for bit: what an input holds may be no number.
inline bool same(const Array& a, const Array& b) {
  return std::memcmp(a.data(), b.data(), sizeof(Array)) == 0;
}

inline Array filled(float value) {
  Array array;
  array.fill(value);
  return array;
}

// One call's arrays. In place, results land where the input was.
struct Buffers final : exchange::Call {
  const exchange::Terms& terms() const override { return agreed; }
  const exchange::Incoming* incoming() const override { return nullptr; }
  exchange::Comparison comparison() const override { return compared; }
  std::string difference() const override { return "edited"; }
  void note_sent(std::uint64_t) override {}
  void note_received(std::uint64_t) override {}

  std::uint64_t id = 0;
  exchange::Terms agreed;
  exchange::Comparison compared = exchange::Comparison::kEqual;
  bool in_place = false;
  Array input{};                   // at call time: what the user may expect to find again
  Array memory{};                  // what the transport was given
  Array out = filled(kUntouched);  // not in place
  // `out` is nobody's business before the call ended.
  bool may_change_out() const { return !in_place && agreed.out_private; }
  bool as_given() const {
    return same(memory, input) && (may_change_out() || same(out, filled(kUntouched)));
  }
};
using BuffersRef = std::shared_ptr<Buffers>;

inline base::Digest digest_of(const Array& array) {
  base::Digest digest{0x6A636C, 1};
  for (const float value : array) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    digest.low = mix_in(digest.low, bits);
    digest.high = mix_in(digest.high, digest.low);
  }
  return digest;
}

// Where two arrays part, in words.
inline std::string difference_of(const Array& given, const Array& due) {
  for (std::size_t k = 0; k < kElements; ++k) {
    if (std::memcmp(&given[k], &due[k], 4) == 0) continue;
    return base::cat("element ", k, " is ", given[k], ", due ", due[k]);
  }
  return "equal";
}

}  // namespace jccl::sim
