// A codec is one row: its number and name, how it is built, how many bytes it takes, and how wrong
// one encoding may be. Whoever needs one of these facts reads it here; what the loops do is in
// body_*.h and, as the definition, in reference_codecs.cc. Plain data without functions, so that
// the loops may see it (kernels_body.h). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jccl::codec {

// The numbers travel in descriptors and plans, are those of jccl.h, and are never reused.
enum class CodecId : std::uint8_t {
  kNone = 0,
  kBf16 = 1,
  kFp16 = 2,
  kInt8 = 3,
  kFp8 = 4,
  kInt4 = 5,
  kE3m0 = 6,
  kTopK = 7,
  kInt2 = 8,
  kStat2 = 9,
  kTopK2 = 10,
};

enum class CodecForm : std::uint8_t {
  kWhole,   // each element as the dtype it is
  kHalf,    // each rounded to 16 bits; finite values stay finite
  kScaled,  // blocks: a scale, then a code for each element
  kStat,    // blocks: two bf16 magnitudes, then sign and choice of each element
  kSparse,  // of each block the `kept` largest elements, by index
};

struct CodecSpec {
  CodecId id;
  const char* name;  // in Python; in C after JCCL_CODEC_
  CodecForm form;
  std::size_t block = 1;  // elements that are encoded together

  // kScaled: bytes of a scale (4: an f32 whose low byte is 0; 2: a bf16), bits of a code, the
  // largest magnitude of one, and the code that no encoder writes: that whose bits under `masked`
  // are `never`. 0: there is none.
  std::size_t scale_bytes = 0;
  std::size_t code_bits = 0;
  float code_most = 0;
  std::uint8_t never = 0, masked = 0;

  std::size_t kept_max = 0;  // kSparse: entries of a block

  // |decode(encode(x)) - x| <= relative·|x| + of_largest·(the largest of its block), but for values
  // at the ends of the ranges (ALGORITHMS.md, "Error bounds of one encoding"). Of what a sparse
  // codec leaves out nothing is left.
  double relative = 0, of_largest = 0;
};

// By number.
inline constexpr CodecSpec kCodecs[] = {
    {.id = CodecId::kNone, .name = "none", .form = CodecForm::kWhole},
    {.id = CodecId::kBf16, .name = "bf16", .form = CodecForm::kHalf, .relative = 0x1p-8},
    {.id = CodecId::kFp16, .name = "fp16", .form = CodecForm::kHalf, .relative = 0x1p-11},
    {.id = CodecId::kInt8,
     .name = "int8",
     .form = CodecForm::kScaled,
     .block = 256,
     .scale_bytes = 4,
     .code_bits = 8,
     .code_most = 127,
     .never = 0x80,
     .masked = 0xFF,
     .of_largest = 0x1.0004p0 / 254},
    {.id = CodecId::kFp8,  // e4m3
     .name = "fp8",
     .form = CodecForm::kScaled,
     .block = 256,
     .scale_bytes = 2,
     .code_bits = 8,
     .code_most = 448,
     .never = 0x7F,
     .masked = 0x7F,
     .relative = 0x1.0004p-4},
    {.id = CodecId::kInt4,
     .name = "int4",
     .form = CodecForm::kScaled,
     .block = 64,
     .scale_bytes = 2,
     .code_bits = 4,
     .code_most = 7,
     .never = 0x8,
     .masked = 0xF,
     .of_largest = 0x1.04p0 / 14},
    {.id = CodecId::kE3m0,  // sign and 3 exponent bits
     .name = "e3m0",
     .form = CodecForm::kScaled,
     .block = 64,
     .scale_bytes = 2,
     .code_bits = 4,
     .code_most = 64,
     .relative = 0x1.0004p0 / 3,
     .of_largest = 0x1.04p0 / 128},
    {.id = CodecId::kTopK,  // index and f32 of each
     .name = "topk",
     .form = CodecForm::kSparse,
     .block = 4096,
     .kept_max = 4096,
     .relative = 1},
    {.id = CodecId::kInt2,  // -1, 0, 1
     .name = "int2",
     .form = CodecForm::kScaled,
     .block = 64,
     .scale_bytes = 2,
     .code_bits = 2,
     .code_most = 1,
     .never = 0x2,
     .masked = 0x3,
     .of_largest = 0x1.04p0 / 2},
    {.id = CodecId::kStat2,
     .name = "stat2",
     .form = CodecForm::kStat,
     .block = 64,
     .of_largest = 0x1.01p0},
    {.id = CodecId::kTopK2,  // index of 12 bits, then as stat2; more entries take more than stat2
     .name = "topk2",
     .form = CodecForm::kSparse,
     .block = 4096,
     .kept_max = 704,
     .of_largest = 0x1.01p0},
};

inline constexpr std::uint8_t kCodecNumberMax = sizeof(kCodecs) / sizeof(kCodecs[0]) - 1;

}  // namespace jccl::codec
