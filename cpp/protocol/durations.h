// Durations that another process named are any 64 bits: bounded before they meet the clock.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace jccl::protocol {

inline constexpr base::Duration kNamedMax = 10 * 365 * 86'400 * base::kSecond;

inline base::Duration bounded(base::Duration named) {
  return std::clamp<base::Duration>(named, 0, kNamedMax);
}

}  // namespace jccl::protocol
