// Takes values off the front of a fuzz input. After its end everything is zero, so that every input
// is a valid script and a short one is a quiet one.
#pragma once

#include <cstring>
#include <string>

#include "fuzz/target.h"

namespace jccl::fuzz {

class Input {
 public:
  explicit Input(ByteView bytes) : left_(bytes) {}

  bool done() const { return left_.empty(); }
  std::size_t left() const { return left_.size(); }
  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint16_t u16() { return number<std::uint16_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  bool flag() { return (u8() & 1) != 0; }
  // Small numbers come from one byte: a flipped bit of the input moves one choice.
  std::size_t below(std::size_t bound) { return bound <= 256 ? u8() % bound : u32() % bound; }
  ByteView take(std::size_t size) {
    const ByteView out = left_.first(size < left_.size() ? size : left_.size());
    left_ = left_.subspan(out.size());
    return out;
  }
  Bytes bytes(std::size_t size_max) {
    const ByteView out = take(below(size_max + 1));
    return {out.begin(), out.end()};
  }
  std::string text(std::size_t size_max) {
    const Bytes out = bytes(size_max);
    return {out.begin(), out.end()};
  }
  ByteView rest() { return take(left_.size()); }

 private:
  template <typename T>
  T number() {
    T value{};
    const ByteView from = take(sizeof(T));
    if (!from.empty()) std::memcpy(&value, from.data(), from.size());
    return value;
  }

  ByteView left_;
};

}  // namespace jccl::fuzz
