// XXH3-128 of the xxHash library, compiled once per instruction set like the codecs' loops: its
// vector forms are 3 to 5 times faster than the scalar one, and all give the same digest. Internal
// to this folder. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jccl::snapshot {

struct Xxh3Result {
  std::uint64_t low = 0, high = 0;
};

inline constexpr std::size_t kXxh3StateBytes = 640;  // ≥ sizeof(XXH3_state_t), 64-byte aligned

struct Xxh3 {
  Xxh3Result (*digest)(const void* data, std::size_t size);
  void (*reset)(void* state);
  void (*update)(void* state, const void* data, std::size_t size);
  Xxh3Result (*finish)(const void* state);
};

extern const Xxh3 kXxh3Baseline;
#if defined(__x86_64__)
extern const Xxh3 kXxh3V3;
extern const Xxh3 kXxh3V4;
#endif

}  // namespace jccl::snapshot
