// Element types of leaves. The numbers travel in descriptors and are never reused.
// bf16 and f16 are handled as their 16 raw bits; no C++ type for them crosses a boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace jccl::codec {

enum class Dtype : std::uint8_t {
  kF32 = 1,
  kF64 = 2,
  kBf16 = 3,
  kF16 = 4,
  kI8 = 5,
  kI16 = 6,
  kI32 = 7,
  kI64 = 8,
  kU8 = 9,
  kU16 = 10,
  kU32 = 11,
  kU64 = 12,
};

inline constexpr std::uint8_t kDtypeNumberMax = 12;

constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kI8:
    case Dtype::kU8:
      return 1;
    case Dtype::kBf16:
    case Dtype::kF16:
    case Dtype::kI16:
    case Dtype::kU16:
      return 2;
    case Dtype::kF32:
    case Dtype::kI32:
    case Dtype::kU32:
      return 4;
    case Dtype::kF64:
    case Dtype::kI64:
    case Dtype::kU64:
      return 8;
  }
  return 0;
}

constexpr bool is_float(Dtype dtype) { return dtype <= Dtype::kF16; }

constexpr std::string_view name_of(Dtype dtype) {
  constexpr std::string_view kNames[] = {"?",   "f32", "f64", "bf16", "f16", "i8", "i16",
                                         "i32", "i64", "u8",  "u16",  "u32", "u64"};
  const auto number = static_cast<std::size_t>(dtype);
  return number <= kDtypeNumberMax ? kNames[number] : kNames[0];
}

constexpr std::optional<Dtype> dtype_from_number(std::uint8_t number) {
  if (number < 1 || number > kDtypeNumberMax) return std::nullopt;
  return static_cast<Dtype>(number);
}

constexpr std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (std::uint8_t n = 1; n <= kDtypeNumberMax; ++n) {
    if (name_of(static_cast<Dtype>(n)) == name) return static_cast<Dtype>(n);
  }
  return std::nullopt;
}

}  // namespace jccl::codec
