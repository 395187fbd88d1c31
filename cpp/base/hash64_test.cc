#include "base/hash64.h"

#include <gtest/gtest.h>

#include <set>

namespace jccl::base {
namespace {

std::uint64_t of(std::string_view text, std::uint64_t seed = 0) {
  return hash64({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, seed);
}

TEST(Hash64Test, it_is_xxh64) {
  EXPECT_EQ(of(""), 0xEF46DB3751D8E999ULL);
  EXPECT_EQ(of("a"), 0xD24EC4F1A98C6E5BULL);
  EXPECT_EQ(of("abc"), 0x44BC2CF5AD770999ULL);
  EXPECT_EQ(of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1ULL);
}

TEST(Hash64Test, every_bit_and_the_seed_matter) {
  Bytes bytes(77, 0x5A);
  std::set<std::uint64_t> seen{hash64(bytes), hash64(bytes, 1)};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    seen.insert(hash64(bytes));
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
  EXPECT_EQ(seen.size(), 77U * 8 + 2);
}

}  // namespace
}  // namespace jccl::base
