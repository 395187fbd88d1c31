// Whether a sanitizer watches. Code takes ten to fifty times as long then: tests of pure code try
// fewer cases, never fewer paths, threads or faults. For tests only.
#pragma once

namespace jccl::base {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace jccl::base
