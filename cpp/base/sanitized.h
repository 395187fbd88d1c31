// Whether a sanitizer watches. Code takes ten to fifty times as long then: tests of pure code try
// fewer cases, never fewer paths, threads or faults. For tests only.
#pragma once

#if defined(__has_feature)  // clang's way to say so; gcc defines names
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define JCCL_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define JCCL_SANITIZED
#endif

namespace jccl::base {

#ifdef JCCL_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace jccl::base
