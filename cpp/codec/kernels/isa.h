// Which compiled variant of the kernels runs. One source is compiled per instruction set; all
// variants give the same bytes, so the choice is only about speed. Also the floating-point mode
// that this promise needs. Pure but for one process-wide choice, which tests may force.
#pragma once

#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace jccl::codec {

enum class Isa : std::uint8_t {
  kBaseline = 0,
  kV3 = 1,
  kV4 = 2
};  // x86-64, -v3 (AVX2), -v4 (AVX-512)

std::vector<Isa> available_isas();  // on this processor, slowest first
Isa active_isa();                   // the fastest, unless forced
void force_isa(Isa isa);            // tests and benchmarks; must be available

// Round to nearest, denormals kept, for the time it lives: numerical libraries leave threads in
// flush-to-zero mode, and peers whose threads differ in it would not agree bit for bit.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : saved_(_mm_getcsr()) {
    if ((saved_ & kBits) != 0) _mm_setcsr(saved_ & ~kBits);
  }
  ~FloatMode() {
    if ((saved_ & kBits) != 0) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kBits = 0xE040;  // FTZ, rounding control, DAZ
  unsigned saved_;
#elif defined(__aarch64__)
  FloatMode() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
  }
  ~FloatMode() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  std::uint64_t saved_ = 0;
#else
  FloatMode() {}
  ~FloatMode() {}

 public:
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

}  // namespace jccl::codec
