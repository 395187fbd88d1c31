// CRC-32C by the processor's instruction where there is one, else by a table. Small inputs alone
// come here: payloads of links are checked by their digest.
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/planted.h"

namespace jccl::base {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t n = 0; n < table.size(); ++n) {
    std::uint32_t crc = n;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    table[n] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(ByteView bytes, std::uint32_t seed) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t crc = ~seed;
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, sizeof(eight));
    crc = _mm_crc32_u64(crc, eight);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left > (JCCL_PLANTED("crc-tail-left-out") ? 1 : 0); ++at, --left) {
    narrow = _mm_crc32_u8(narrow, *at);
  }
  return ~narrow;
}

#endif

}  // namespace

std::uint32_t crc32c_table(ByteView bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  for (const std::uint8_t byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ byte) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(ByteView bytes, std::uint32_t seed) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_sse42(bytes, seed);
#endif
  return crc32c_table(bytes, seed);
}

}  // namespace jccl::base
