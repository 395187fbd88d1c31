#include "snapshot/digest.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "snapshot/xxh3.h"

namespace jccl::snapshot {
namespace {

base::Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  base::Rng rng(seed);
  base::Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
  return bytes;
}

TEST(DigestTest, it_is_xxh3_of_128_bits) {
  EXPECT_EQ(to_hex(digest_of({})), "99aa06d3014798d86001c324468d497f");
  // The reference implementation's buffer: a multiplicative generator's top bytes.
  base::Bytes buffer(2367);
  std::uint64_t generator = 2654435761U;
  for (auto& byte : buffer) {
    byte = static_cast<std::uint8_t>(generator >> 56);
    generator *= 11400714785074694797ULL;
  }
  const base::ByteView view(buffer);
  EXPECT_EQ(digest_of(view.first(1)), (Digest{0xC44BDFF4074EECDB, 0xA6CD5E9392000F6A}));
  EXPECT_EQ(digest_of(view.first(6)), (Digest{0x3E7039BDDA43CFC6, 0x082AFE0B8162D12A}));
  EXPECT_EQ(digest_of(view.first(12)), (Digest{0x061A192713F69AD9, 0x6E3EFD8FC7802B18}));
  EXPECT_EQ(digest_of(view), (Digest{0xCB37AEB9E5D361ED, 0xE89C0F6FF369B427}));
}

TEST(DigestTest, pieces_of_any_size_give_the_digest_of_the_whole) {
  for (const std::size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1024, 5000}) {
    const base::Bytes bytes = random_bytes(size, size);
    const Digest whole = digest_of(bytes);
    base::Rng rng(7);
    Hasher hasher;
    for (int turn = 0; turn < 20; ++turn) {
      for (std::size_t at = 0; at < size;) {
        const std::size_t take = std::min<std::size_t>(size - at, rng.below(300));
        hasher.update(base::ByteView(bytes).subspan(at, take));
        at += take;
      }
      EXPECT_EQ(hasher.finish(), whole) << size;
    }
  }
}

// Ends of the stream in every place of the hash's blocks of 1024 bytes.
TEST(DigestTest, pieces_that_end_anywhere_in_a_block_give_the_digest_of_the_whole) {
  base::Rng rng(11);
  for (int turn = 0; turn < 2000; ++turn) {
    const base::Bytes bytes = random_bytes(rng.below(9000), static_cast<std::uint64_t>(turn));
    const std::size_t longest = turn % 3 == 0 ? 300 : turn % 3 == 1 ? 3000 : 9000;
    Hasher hasher;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t take = std::min<std::size_t>(bytes.size() - at, rng.below(longest));
      hasher.update(base::ByteView(bytes).subspan(at, take));
      at += take;
    }
    EXPECT_EQ(hasher.finish(), digest_of(bytes)) << bytes.size();
  }
}

TEST(DigestTest, every_bit_and_the_order_of_a_list_matter) {
  base::Bytes bytes = random_bytes(300, 1);
  std::set<Digest> seen{digest_of(bytes)};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    seen.insert(digest_of(bytes));
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
  EXPECT_EQ(seen.size(), 2401U);
  const Digest a{1, 2}, b{3, 4};
  EXPECT_NE(combine(std::vector{a, b}), combine(std::vector{b, a}));
  EXPECT_NE(combine(std::vector{a}), a);
  base::Writer both;
  both.digest(a), both.digest(b);
  EXPECT_EQ(combine(std::vector{a, b}), digest_of(both.bytes()));
}

TEST(DigestTest, every_instruction_set_gives_the_same_digest) {
  std::vector<const Xxh3*> variants{&kXxh3Baseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
    variants.push_back(&kXxh3V3);
  }
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    variants.push_back(&kXxh3V4);
  }
#endif
  for (const std::size_t size : {0, 3, 9, 100, 200, 241, 1024, 1025, 70000}) {
    const base::Bytes bytes = random_bytes(size + 1, size);
    const base::ByteView view = base::ByteView(bytes).subspan(1);  // at an odd address
    for (const Xxh3* variant : variants) {
      alignas(64) std::uint8_t state[kXxh3StateBytes];
      variant->reset(state);
      variant->update(state, view.data(), size / 3);
      variant->update(state, view.data() + size / 3, size - size / 3);
      for (const Xxh3Result got : {variant->digest(view.data(), size), variant->finish(state)}) {
        EXPECT_EQ((Digest{.low = got.low, .high = got.high}), digest_of(view)) << size;
      }
    }
  }
}

}  // namespace
}  // namespace jccl::snapshot
