#include "snapshot/mark.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "snapshot/mark_kernels.h"

namespace jccl::snapshot {
namespace {

std::vector<std::uint8_t> noise(std::size_t size, std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<std::uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
  return bytes;
}

// The definition in mark.h, word by word.
Mark by_definition(const std::vector<std::uint8_t>& bytes, std::size_t element_bytes) {
  const std::size_t size = std::min<std::size_t>(element_bytes, 4);
  Mark mark;
  for (std::uint64_t i = 0; i < bytes.size() / size; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + i * size, size);
    std::uint32_t x = word ^ static_cast<std::uint32_t>(0x9E3779B9U * i + 0x7F4A7C15U);
    x = (x ^ (x >> 16)) * 0x85EBCA6BU;
    x = (x ^ (x >> 13)) * 0xC2B2AE35U;
    x = x ^ (x >> 16);
    mark += {x, x ^ (x << 11) ^ (x >> 15)};
  }
  return mark;
}

TEST(MarkTest, it_is_what_its_definition_says_on_every_instruction_set) {
  for (const std::size_t element : {1, 2, 4, 8}) {
    for (const std::size_t count : {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 4099}) {
      const auto bytes = noise(element * count, count);
      EXPECT_EQ(mark_of(bytes, element), by_definition(bytes, element)) << element << " " << count;
    }
  }
  const auto bytes = noise(4099 * 4, 3);
  const Mark wanted = by_definition(bytes, 4);
  EXPECT_EQ(kMarkBaseline.words32(bytes.data(), 4099, 0), wanted);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
    EXPECT_EQ(kMarkV3.words32(bytes.data(), 4099, 0), wanted);
  }
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    EXPECT_EQ(kMarkV4.words32(bytes.data(), 4099, 0), wanted);
  }
#endif
}

TEST(MarkTest, these_values_are_known_to_jax_too) {  // tests/python/test_marks.py has the same
  std::vector<std::uint8_t> bytes(24);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 11);
  EXPECT_EQ(mark_of(bytes, 4).first, 0xF23CCB32U);
  EXPECT_EQ(mark_of(bytes, 4).second, 0x999709A9U);
}

TEST(MarkTest, the_pieces_of_a_leaf_add_up_to_it_in_any_order) {
  for (const std::size_t element : {1, 2, 4, 8}) {
    const auto bytes = noise(element * 1001, element);
    const base::ByteView all(bytes);
    Mark sum;
    for (const std::size_t first : {600, 0, 999, 17}) {  // up to 17, 600, 999, and the end
      const std::size_t last = first == 0 ? 17 : first == 17 ? 600 : first == 600 ? 999 : 1001;
      sum += mark_of(all.subspan(first * element, (last - first) * element), element, first);
    }
    EXPECT_EQ(sum, mark_of(all, element));
  }
}

TEST(MarkTest, any_single_changed_bit_is_noticed) {
  for (const std::size_t element : {1, 2, 4, 8}) {
    auto bytes = noise(element * 67, 9);
    const Mark before = mark_of(bytes, element);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      EXPECT_NE(mark_of(bytes, element), before) << element << " " << bit;
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    }
  }
}

TEST(MarkTest, changes_of_all_words_alike_do_not_cancel) {
  for (const std::size_t count : {std::size_t{1} << 16, std::size_t{1} << 18}) {
    std::vector<std::uint32_t> words(count, 0);
    const auto mark = [&] {
      return mark_of({reinterpret_cast<const std::uint8_t*>(words.data()), count * 4}, 4);
    };
    const Mark zeros = mark();
    for (const std::uint32_t all : {0x80000000U, 0x3F800000U, 1U, 0x7FC00000U}) {
      std::fill(words.begin(), words.end(), all);  // -0, 1, a denormal, NaN
      EXPECT_NE(mark().first, zeros.first) << all;
      EXPECT_NE(mark().second, zeros.second) << all;
    }
    for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<std::uint32_t>(i);
    const Mark rising = mark();
    std::swap(words[3], words[count - 5]);
    EXPECT_NE(mark(), rising);
    std::swap(words[3], words[count - 5]);
    for (std::uint32_t& word : words) word ^= 0x80000000U;  // every sign
    EXPECT_NE(mark().first, rising.first);
    EXPECT_NE(mark().second, rising.second);
    std::rotate(words.begin(), words.begin() + 1, words.end());
    EXPECT_NE(mark(), rising);
  }
}

}  // namespace
}  // namespace jccl::snapshot
