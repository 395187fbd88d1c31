#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>

#include "base/rng.h"

namespace jccl::base {
namespace {

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Rng rng(seed);
  Bytes bytes(size);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(rng.next());
  return bytes;
}

// The definition, one bit at a time.
std::uint32_t by_bits(ByteView bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  for (const std::uint8_t b : bytes) {
    crc ^= b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

TEST(Crc32cTest, the_known_answers_of_rfc_3720_come_out) {
  const std::string_view digits = "123456789";
  const Bytes text(digits.begin(), digits.end());
  Bytes rising(32);
  Bytes falling(32);
  for (std::size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<std::uint8_t>(i);
    falling[i] = static_cast<std::uint8_t>(31 - i);
  }
  for (auto* crc : {&crc32c, &crc32c_table}) {
    EXPECT_EQ(crc({}, 0), 0U);
    EXPECT_EQ(crc(text, 0), 0xE3069283U);
    EXPECT_EQ(crc(Bytes(32, 0x00), 0), 0x8A9136AAU);
    EXPECT_EQ(crc(Bytes(32, 0xFF), 0), 0x62A8AB43U);
    EXPECT_EQ(crc(rising, 0), 0x46DD794EU);
    EXPECT_EQ(crc(falling, 0), 0x113FDB5CU);
  }
}

TEST(Crc32cTest, both_forms_follow_the_definition_at_every_size_and_alignment) {
  const Bytes bytes = random_bytes(40000, 1);
  for (std::size_t size : {1, 7, 8, 9, 15, 16, 17, 36, 255, 256, 1087, 39000}) {
    for (std::size_t at = 0; at < 9; ++at) {
      const ByteView view = ByteView(bytes).subspan(at, size);
      const std::uint32_t seed = at == 0 ? 0 : static_cast<std::uint32_t>(0x9E3779B9U * at);
      const std::uint32_t expected = by_bits(view, seed);
      EXPECT_EQ(crc32c(view, seed), expected) << size << " at " << at;
      EXPECT_EQ(crc32c_table(view, seed), expected) << size << " at " << at;
    }
  }
}

TEST(Crc32cTest, a_crc_can_be_continued_at_any_cut) {
  const Bytes bytes = random_bytes(3000, 2);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 37) {
    const ByteView view(bytes);
    EXPECT_EQ(crc32c(view.subspan(cut), crc32c(view.first(cut))), whole) << cut;
  }
}

TEST(Crc32cTest, every_flipped_bit_is_seen) {
  Bytes bytes = random_bytes(900, 3);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 11) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_NE(crc32c(bytes), whole);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
}

}  // namespace
}  // namespace jccl::base
