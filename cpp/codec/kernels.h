// The inner loops of the codecs, one table of them per instruction set. Internal to cpp/codec.
// Pointers need no alignment; `in` and `out` must not overlap. All call them under FloatMode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jccl::codec {

inline constexpr std::size_t kScanLanes = 16;

// Element i of a leaf belongs to lane i % 16; the lanes are added up at the end in one fixed tree.
struct ScanLanes {
  double squares[kScanLanes];
  std::uint64_t magnitude_max;  // largest bit pattern without sign, of f32 or f64
};

struct Kernels {
  void (*bf16_to_f32)(const void* in, std::size_t count, void* out);
  void (*f16_to_f32)(const void* in, std::size_t count, void* out);
  void (*f64_to_f32)(const void* in, std::size_t count, void* out);  // finite stays finite
  void (*f32_to_f64)(const void* in, std::size_t count, void* out);
  void (*f32_to_bf16)(const void* in, std::size_t count, void* out);
  void (*f32_to_f16)(const void* in, std::size_t count, void* out);
  void (*f32_to_bf16_finite)(const void* in, std::size_t count, void* out);  // finite stays finite
  void (*f32_to_f16_finite)(const void* in, std::size_t count, void* out);
  void (*int8_encode)(const void* in, std::size_t count, std::uint8_t* out);
  void (*int8_decode)(const std::uint8_t* in, std::size_t count, void* out);
  // `count` is a multiple of kScanLanes unless it is the last call of a leaf.
  void (*scan_f32)(const void* in, std::size_t count, ScanLanes* lanes);
  void (*scan_f64)(const void* in, std::size_t count, ScanLanes* lanes);
};

extern const Kernels kKernelsBaseline;
#if defined(__x86_64__)
extern const Kernels kKernelsV3;
extern const Kernels kKernelsV4;
#endif

const Kernels& kernels();  // those of active_isa()

}  // namespace jccl::codec
