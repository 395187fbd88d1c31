// Bugs planted on purpose, one line each, to try the tests: a test that no bug can fail proves
// nothing. In the product JCCL_PLANTED is the constant false: no code, no branch, no symbol. Builds
// with sanitizers and the preset `planted` have all of them; one is chosen for a process by the
// environment (JCCL_PLANTED=name) or, by the simulator, for a thread. What each is, and which test
// catches it, stands in cpp/planted.txt.
#pragma once

#ifdef JCCL_PLANTED_BUGS

#include <cstdint>
#include <string_view>

namespace jccl::base {

enum class Planted : std::uint64_t { kNone = 0 };  // a hash of the name

constexpr Planted planted(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3;
  return static_cast<Planted>(hash);
}

extern const Planted planted_in_process;
extern constinit thread_local Planted planted_in_thread;
bool planted_bug_reached();  // true; says so on stderr, once

// Inlined, so that a file that compiles for newer processors keeps no copy for all.
[[gnu::always_inline]] inline bool is_planted(Planted bug) {
  if (planted_in_thread == bug) return true;
  return planted_in_process == bug && planted_bug_reached();
}

}  // namespace jccl::base

#define JCCL_PLANTED(name)                             \
  ([] {                                                \
    constexpr auto kBug = ::jccl::base::planted(name); \
    return ::jccl::base::is_planted(kBug);             \
  }())

#else

#define JCCL_PLANTED(name) false

#endif
