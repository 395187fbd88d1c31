// The inner loops of the reductions, one table of them per instruction set. Internal to
// cpp/collective. Pointers need no alignment. All call them under codec::FloatMode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/op.h"

namespace jccl::collective {

// One pass for the whole sum of two: tidied( (wa·a + wb·b) / by ).
struct Sum2 {
  const void* a = nullptr;
  double wa = 1;
  const void* b = nullptr;
  double wb = 1;
  double by = 1;
};

// f32 or f64; `acc` and `x` are arrays of that type.
struct FloatLoops {
  void (*add)(const void* x, std::size_t count, void* acc);
  void (*add_scaled)(const void* x, std::size_t count, double weight, void* acc);
  void (*min)(const void* x, std::size_t count, void* acc);
  void (*max)(const void* x, std::size_t count, void* acc);
  void (*prod)(const void* x, std::size_t count, void* acc);
  void (*scale)(const void* x, std::size_t count, double weight, void* out);  // out may be x
  void (*divide)(const void* x, std::size_t count, double by, void* out);     // likewise
  void (*tidy)(const void* x, std::size_t count, void* out);  // likewise; divide tidies NaNs too
  void (*sum2)(const Sum2& terms, std::size_t count, void* out);  // out may be a or b
};

// `acc` and `partial` are arrays of the accumulator type, `x` and `out` of the leaf's.
struct IntegerLoops {
  void (*combine)(Op op, bool first, const void* x, std::size_t count, void* acc);
  void (*merge)(Op op, const void* partial, std::size_t count, void* acc);
  void (*finish)(Op op, const void* acc, std::size_t count, std::uint32_t contributors, void* out);
  std::size_t accumulator_bytes;  // of one element
};

struct Loops {
  FloatLoops f32;
  FloatLoops f64;
  IntegerLoops integers[8];  // i8 i16 i32 i64 u8 u16 u32 u64
  void (*add_int8)(const std::uint8_t* encoded, std::size_t count, void* acc);
  void (*add_int8_scaled)(const std::uint8_t* encoded, std::size_t count, double weight, void* acc);
};

extern const Loops kLoopsBaseline;
#if defined(__x86_64__)
extern const Loops kLoopsV3;
extern const Loops kLoopsV4;
#endif

}  // namespace jccl::collective
