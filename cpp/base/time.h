// Time as plain nanoseconds of a monotonic clock that the driver owns. Pure code is handed the
// time; it never asks for it.
#pragma once

#include <cstdint>

namespace jccl::base {

using Time = std::int64_t;      // ns since an arbitrary origin
using Duration = std::int64_t;  // ns

inline constexpr Duration kMillisecond = 1'000'000;
inline constexpr Duration kSecond = 1'000'000'000;
inline constexpr Time kNever = INT64_MAX;

}  // namespace jccl::base
