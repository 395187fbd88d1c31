// Durations that another process named are any 64 bits: bounded before they meet the clock.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace jccl::protocol {

inline constexpr base::Duration kNamedMax = 10 * 365 * 86'400 * base::kSecond;

inline base::Duration bounded(base::Duration named) {
  return std::clamp<base::Duration>(named, 0, kNamedMax);
}

// The master ends a call a little before its deadline, so that its reason still arrives.
inline base::Duration margin_of(base::Duration left) {
  return std::min<base::Duration>(left / 8, 500 * base::kMillisecond);
}

}  // namespace jccl::protocol
