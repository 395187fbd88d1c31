// Three forms of CRC-32C. With SSE 4.2 three independent streams of the crc32 instruction are in
// flight (latency 3, throughput 1), joined by a table that multiplies by x^(8·bytes); method: Gopal
// et al., "Fast CRC computation using CRC32 instruction", and M. Adler's crc32c.c. With AVX-512 and
// VPCLMULQDQ long inputs are folded 256 bytes at a time; method: Gopal et al., "Fast CRC
// computation for generic polynomials using PCLMULQDQ instruction".
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
// gcc 12 takes the undefined operands inside its own intrinsics for mistakes of their users.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "base/planted.h"
#endif

namespace jccl::base {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables t{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t crc = n;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    t[0][n] = crc;
  }
  for (std::uint32_t n = 0; n < 256; ++n) {
    for (std::size_t k = 1; k < 8; ++k) t[k][n] = t[0][t[k - 1][n] & 0xFF] ^ (t[k - 1][n] >> 8);
  }
  return t;
}

constexpr Tables kTables = make_tables();

std::uint64_t load64(const std::uint8_t* at) {
  std::uint64_t v = 0;
  std::memcpy(&v, at, sizeof v);
  return v;
}

#if defined(__x86_64__)

using Matrix = std::array<std::uint32_t, 32>;  // column i: image of bit i
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr std::uint32_t times(const Matrix& m, std::uint32_t v) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; v != 0; v >>= 1, ++i) sum ^= (v & 1) != 0 ? m[i] : 0;
  return sum;
}

// What appending `bytes` zeros (a power of two) does to a CRC, as one look-up per byte of it.
constexpr Shift make_shift(std::size_t bytes) {
  Matrix m{};
  m[0] = kPolynomial;  // one zero bit
  for (std::size_t i = 1; i < 32; ++i) m[i] = 1U << (i - 1);
  for (std::size_t bits = 1; bits < 8 * bytes; bits *= 2) {
    Matrix square{};
    for (std::size_t i = 0; i < 32; ++i) square[i] = times(m, m[i]);
    m = square;
  }
  Shift shift{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    for (std::size_t k = 0; k < 4; ++k) shift[k][n] = times(m, n << (8 * k));
  }
  return shift;
}

constexpr std::size_t kLong = 4096;
constexpr std::size_t kShort = 256;
constexpr Shift kLongShift = make_shift(kLong);
constexpr Shift kShortShift = make_shift(kShort);

std::uint32_t shifted(const Shift& s, std::uint32_t crc) {
  return s[0][crc & 0xFF] ^ s[1][(crc >> 8) & 0xFF] ^ s[2][(crc >> 16) & 0xFF] ^ s[3][crc >> 24];
}

// Consumes as many triples of `stride` bytes as there are.
__attribute__((target("sse4.2"))) std::uint32_t triples(const std::uint8_t*& at, std::size_t& left,
                                                        std::uint32_t crc, std::size_t stride,
                                                        const Shift& shift) {
  while (left >= 3 * stride) {
    std::uint64_t a = crc;
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < stride; i += 8) {
      a = _mm_crc32_u64(a, load64(at + i));
      b = _mm_crc32_u64(b, load64(at + stride + i));
      c = _mm_crc32_u64(c, load64(at + 2 * stride + i));
    }
    crc = shifted(shift, static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
    crc = shifted(shift, crc) ^ static_cast<std::uint32_t>(c);
    at += 3 * stride;
    left -= 3 * stride;
  }
  return crc;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(ByteView bytes, std::uint32_t seed) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~seed;
  crc = triples(at, left, crc, kLong, kLongShift);
  crc = triples(at, left, crc, kShort, kShortShift);
  std::uint64_t wide = crc;
  for (; left >= 8; at += 8, left -= 8) wide = _mm_crc32_u64(wide, load64(at));
  crc = static_cast<std::uint32_t>(wide);
  for (; left > (JCCL_PLANTED("crc-tail-left-out") ? 1 : 0); ++at, --left)
    crc = _mm_crc32_u8(crc, *at);
  return ~crc;
}

// Multiplying a 64-bit half of 128 reflected bits by x^D modulo the polynomial: D + 32 for the half
// that comes first, D - 32 for the other; the product of reflected numbers lacks one bit.
constexpr long long fold_factor(int power) {
  std::uint32_t v = 0x80000000;  // x^0
  for (int i = 0; i < power; ++i) v = (v >> 1) ^ ((v & 1) != 0 ? kPolynomial : 0);
  return static_cast<long long>(std::uint64_t{v} << 1);
}

struct Fold {
  long long first, second;
};
constexpr Fold fold_by(int bits) { return {fold_factor(bits + 32), fold_factor(bits - 32)}; }

constexpr Fold kFold2048 = fold_by(2048);
constexpr Fold kFold512 = fold_by(512);
constexpr Fold kFold128 = fold_by(128);
constexpr std::size_t kFoldBytesMin = 512;

#define JCCL_FOLD_TARGET __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))

JCCL_FOLD_TARGET inline __m512i folded(__m512i x, __m512i factors, __m512i next) {
  const __m512i first = _mm512_clmulepi64_epi128(x, factors, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(x, factors, 0x11);
  return _mm512_ternarylogic_epi64(first, second, next, 0x96);
}

JCCL_FOLD_TARGET inline __m128i folded(__m128i x, __m128i factors, __m128i next) {
  const __m128i first = _mm_clmulepi64_si128(x, factors, 0x00);
  const __m128i second = _mm_clmulepi64_si128(x, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

// Needs kFoldBytesMin bytes. What folding leaves is 16 bytes with the same CRC as all before.
JCCL_FOLD_TARGET std::uint32_t crc32c_folded(ByteView bytes, std::uint32_t seed) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  __m512i x[4];
  for (std::size_t i = 0; i < 4; ++i) x[i] = _mm512_loadu_si512(at + 64 * i);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~seed))));
  at += 256;
  left -= 256;
  const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(kFold2048.second, kFold2048.first));
  for (; left >= 256; at += 256, left -= 256) {
    for (std::size_t i = 0; i < 4; ++i)
      x[i] = folded(x[i], by_2048, _mm512_loadu_si512(at + 64 * i));
  }
  const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(kFold512.second, kFold512.first));
  for (std::size_t i = 1; i < 4; ++i) x[i] = folded(x[i - 1], by_512, x[i]);
  for (; left >= 64; at += 64, left -= 64) x[3] = folded(x[3], by_512, _mm512_loadu_si512(at));
  const __m128i by_128 = _mm_set_epi64x(kFold128.second, kFold128.first);
  __m128i y = _mm512_extracti32x4_epi32(x[3], 0);
  y = folded(y, by_128, _mm512_extracti32x4_epi32(x[3], 1));
  y = folded(y, by_128, _mm512_extracti32x4_epi32(x[3], 2));
  y = folded(y, by_128, _mm512_extracti32x4_epi32(x[3], 3));
  std::uint64_t crc = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_extract_epi64(y, 0)));
  crc = _mm_crc32_u64(crc, static_cast<std::uint64_t>(_mm_extract_epi64(y, 1)));
  return crc32c_sse42({at, left}, ~static_cast<std::uint32_t>(crc));
}

bool can_fold() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("pclmul") != 0;
}

#endif

}  // namespace

std::uint32_t crc32c_tables(ByteView bytes, std::uint32_t seed) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~seed;
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t v = load64(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(v >> (8 * k)) & 0xFF];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(ByteView bytes, std::uint32_t seed) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  static const bool folds = has_instruction && can_fold();
  if (folds && bytes.size() >= kFoldBytesMin) return crc32c_folded(bytes, seed);
  if (has_instruction) return crc32c_sse42(bytes, seed);
#endif
  return crc32c_tables(bytes, seed);
}

}  // namespace jccl::base
