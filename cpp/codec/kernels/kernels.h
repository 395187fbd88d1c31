// The inner loops of the codecs, one table of them per instruction set. Internal to cpp/codec.
// Pointers need no alignment; `in` and `out` must not overlap. All call them under FloatMode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jccl::codec {

inline constexpr std::size_t kScanLanes = 16;
inline constexpr std::size_t kLossyCodecs = 10;

inline constexpr std::size_t kStatBlock = 64;
inline constexpr std::size_t kStatHead = 4;  // small, large

// Of so many elements as stat2. Static: no variant may run another's copy (kernels_body.h).
[[maybe_unused]] static constexpr std::size_t stat_bytes(std::size_t count) {
  return kStatHead * ((count + kStatBlock - 1) / kStatBlock) + (count + 3) / 4;
}

// Element i of a leaf belongs to lane i % 16; the lanes are added up at the end in one fixed tree.
struct ScanLanes {
  double squares[kScanLanes];
  std::uint64_t magnitude_max;  // largest bit pattern without sign, of f32 or f64
};

// Plain numbers: the loops must not see a type with inline functions (kernels_body.h).
struct LoopSettings {
  std::size_t kept = 0;             // top-k
  std::uint64_t seed = 0;           // noise
  std::uint64_t first_element = 0;  // likewise
};

// Of f32 values. Encoding gives the largest bit pattern without sign among them.
struct CodecLoops {
  std::uint32_t (*encode)(const LoopSettings& with, const void* in, std::size_t count,
                          std::uint8_t* out);
  std::uint32_t (*encode_noisy)(const LoopSettings& with, const void* in, std::size_t count,
                                std::uint8_t* out);  // null: there is no such form
  void (*decode)(const LoopSettings& with, const std::uint8_t* in, std::size_t count, void* out);
};

struct Kernels {
  void (*bf16_to_f32)(const void* in, std::size_t count, void* out);
  void (*f16_to_f32)(const void* in, std::size_t count, void* out);
  void (*f64_to_f32)(const void* in, std::size_t count, void* out);  // finite stays finite
  void (*f32_to_f64)(const void* in, std::size_t count, void* out);
  void (*f32_to_bf16)(const void* in, std::size_t count, void* out);
  void (*f32_to_f16)(const void* in, std::size_t count, void* out);
  void (*subtract_f32)(const void* a, const void* b, std::size_t count, void* out);  // any overlap
  void (*subtract_f64)(const void* a, const void* b, std::size_t count, void* out);
  // `count` is a multiple of kScanLanes unless it is the last call of a leaf.
  void (*scan_f32)(const void* in, std::size_t count, ScanLanes* lanes);
  void (*scan_f64)(const void* in, std::size_t count, ScanLanes* lanes);
  // Whether all are finite, of 16-bit patterns that hold their exponent in `mask`, f32 or f64.
  bool (*finite_16)(const void* in, std::size_t count, std::uint16_t mask);
  bool (*finite_32)(const void* in, std::size_t count);
  bool (*finite_64)(const void* in, std::size_t count);
  CodecLoops codecs[kLossyCodecs];  // number 1 first
};

extern const Kernels kKernelsBaseline;
#if defined(__x86_64__)
extern const Kernels kKernelsV3;
extern const Kernels kKernelsV4;
#endif

const Kernels& kernels();  // those of active_isa()

}  // namespace jccl::codec
