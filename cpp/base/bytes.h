// Bounded little-endian reader and writer: the only way bytes from outside become values.
// A reader never throws and never reads past its end; after the first short or invalid field it
// stays failed and yields zeros, so a parser checks once, at `finished()`.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace jccl::base {

using Bytes = std::vector<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;
using MutableView = std::span<std::uint8_t>;

static_assert(std::endian::native == std::endian::little, "wire code copies integers as they are");

class Writer {
 public:
  void u8(std::uint8_t v) { raw(&v, 1); }
  void u16(std::uint16_t v) { raw(&v, 2); }
  void u32(std::uint32_t v) { raw(&v, 4); }
  void u64(std::uint64_t v) { raw(&v, 8); }
  void i64(std::int64_t v) { raw(&v, 8); }
  void f64(double v) { raw(&v, 8); }
  void flag(bool v) { u8(v ? 1 : 0); }
  // u16 length, then the bytes.
  void text(std::string_view v, std::size_t bytes_max) {
    JCCL_CHECK(v.size() <= bytes_max && v.size() <= 0xFFFF);
    u16(static_cast<std::uint16_t>(v.size()));
    raw(v.data(), v.size());
  }
  // u32 length, then the bytes.
  void blob(ByteView v, std::size_t bytes_max) {
    JCCL_CHECK(v.size() <= bytes_max);
    u32(static_cast<std::uint32_t>(v.size()));
    raw(v.data(), v.size());
  }
  void attempt(const Attempt& v) { u64(v.epoch), u64(v.counter); }
  void digest(const Digest& v) { u64(v.low), u64(v.high); }
  void run(const RunId& v) { raw(v); }
  template <std::size_t N>
  void raw(const std::array<std::uint8_t, N>& v) {
    raw(v.data(), N);
  }
  void raw(const void* data, std::size_t size) {
    const auto* from = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
  }
  void reserve(std::size_t size) { bytes_.reserve(size); }
  std::size_t size() const { return bytes_.size(); }
  Bytes take() { return std::move(bytes_); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(ByteView bytes) : bytes_(bytes) {}
  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint16_t u16() { return number<std::uint16_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  std::int64_t i64() { return number<std::int64_t>(); }
  double f64() { return number<double>(); }
  bool flag() {
    const std::uint8_t v = u8();
    if (v > 1) failed_ = true;
    return v == 1;
  }
  std::string text(std::size_t bytes_max) {
    const ByteView v = take(u16(), bytes_max);
    return {reinterpret_cast<const char*>(v.data()), v.size()};
  }
  Bytes blob(std::size_t bytes_max) {
    const ByteView v = take(u32(), bytes_max);
    return {v.begin(), v.end()};
  }
  // So many bytes as they lie there: no copy.
  ByteView view(std::size_t size) { return take(size, bytes_.size()); }
  // Number of items that follow, each at least `item_bytes_min` long: bounds any reserve().
  std::size_t count(std::size_t count_max, std::size_t item_bytes_min) {
    const std::size_t n = u32();
    if (n > count_max || n * item_bytes_min > left()) failed_ = true;
    return failed_ ? 0 : n;
  }
  Attempt attempt() {
    Attempt v;
    v.epoch = u64();
    v.counter = u64();
    return v;
  }
  Digest digest() {
    Digest v;
    v.low = u64();
    v.high = u64();
    return v;
  }
  RunId run() {
    RunId v{};
    raw(&v);
    return v;
  }
  template <std::size_t N>
  void raw(std::array<std::uint8_t, N>* out) {
    const ByteView b = take(N, N);
    if (b.size() == N) std::memcpy(out->data(), b.data(), N);
  }
  std::size_t left() const { return failed_ ? 0 : bytes_.size() - at_; }
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }
  bool finished() const { return !failed_ && at_ == bytes_.size(); }  // all read, nothing over

 private:
  ByteView take(std::size_t size, std::size_t size_max) {
    if (failed_ || size > size_max || size > bytes_.size() - at_) {
      failed_ = true;
      return {};
    }
    const ByteView v = bytes_.subspan(at_, size);
    at_ += size;
    return v;
  }
  template <typename T>
  T number() {
    T v{};
    const ByteView b = take(sizeof(T), sizeof(T));
    if (b.size() == sizeof(T)) std::memcpy(&v, b.data(), sizeof(T));
    return v;
  }

  ByteView bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace jccl::base
