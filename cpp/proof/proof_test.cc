#include "proof/proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "base/rng.h"
#include "proof/field.h"

namespace jccl::proof {
namespace {

using base::Bytes;
using base::Code;

// As tests/data/make_proof_golden.py has them.
std::vector<Point> golden_points(std::uint64_t seed, std::uint64_t values, std::size_t count) {
  base::Rng rng(seed);
  std::vector<Point> out;
  std::map<std::uint32_t, bool> known;
  while (out.size() < count) {
    const auto index = static_cast<std::uint32_t>(rng.next() % values);
    auto bits = static_cast<std::uint16_t>(rng.next());
    if ((bits & 0x7F80) == 0x7F80) bits ^= 0x4000;
    if (!std::exchange(known[index], true)) out.push_back({index, bits});
  }
  return out;
}

struct Golden {
  std::vector<Point> points;
  Bytes bytes;
};

std::vector<Golden> golden() {
  std::ifstream in(std::string(JCCL_TEST_DATA) + "/proof_golden.txt");
  std::vector<Golden> out;
  std::uint64_t seed = 0, values = 0;
  std::size_t count = 0;
  std::string hex;
  while (in >> seed >> values >> count >> hex) {
    Golden one{golden_points(seed, values, count), {}};
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      one.bytes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<std::uint16_t> any_values(std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<std::uint16_t> out(count);
  for (std::uint16_t& bits : out) bits = static_cast<std::uint16_t>(rng.next() & 0xBFFF);
  return out;
}

Proof proof_of(std::span<const Point> points) { return std::move(build(points).value()); }

TEST(Field, every_number_has_its_inverse) {
  for (std::uint32_t a = 1; a < kPrime; ++a) ASSERT_EQ(multiply(a, inverses()[a]), 1u) << a;
}

TEST(Proof, of_two_hundred_chunks_the_bytes_are_those_of_the_authors) {
  const std::vector<Golden> all = golden();
  ASSERT_EQ(all.size(), 200u);
  std::size_t smaller = 0;
  for (const Golden& one : all) {
    const Proof proof = proof_of(one.points);
    ASSERT_EQ(print(proof), one.bytes);
    ASSERT_EQ(parse(one.bytes).value(), proof);
    if (proof.modulus < kPrime) ++smaller;
    for (const Point& point : one.points) ASSERT_EQ(evaluate(proof, point.index), point.bits);
  }
  EXPECT_GE(smaller, 8u);
}

TEST(Proof, the_order_of_its_points_does_not_matter) {
  std::vector<Point> points = golden_points(7, 131072, 128);
  const Bytes bytes = print(proof_of(points));
  std::reverse(points.begin(), points.end());
  EXPECT_EQ(print(proof_of(points)), bytes);
}

// The authors' verifier looks up the raw index in lists, and refuses its own proof where indices
// were reduced.
TEST(Proof, a_chunk_agrees_with_its_own_proof_also_where_indices_collide) {
  std::size_t collided = 0;
  for (const Golden& one : golden()) {
    const Proof proof = proof_of(one.points);
    if (proof.modulus < kPrime) ++collided;
    const Comparison same = compare(proof, one.points, Format::kBf16);
    ASSERT_EQ(same.exponents, 0u);
    ASSERT_EQ(same.signs, 0u);
    ASSERT_EQ(same.mean, 0);
    ASSERT_EQ(same.median, 0);
  }
  EXPECT_GE(collided, 8u);
}

TEST(Proof, negated_values_are_found_by_their_signs) {
  std::vector<Point> points = golden_points(3, 131072, 128);
  const Proof proof = proof_of(points);
  for (Point& point : points) point.bits ^= 0x8000;
  const Comparison turned = compare(proof, points, Format::kBf16);
  EXPECT_EQ(turned.exponents, 0u);
  EXPECT_EQ(turned.mean, 0);
  EXPECT_EQ(turned.signs, 128u);
}

TEST(Proof, what_no_prover_writes_is_refused_in_words) {
  const Bytes good = print(proof_of(golden_points(1, 131072, 128)));
  const auto refused = [](const Bytes& bytes) {
    const auto parsed = parse(bytes);
    return parsed.ok() ? std::string() : parsed.status().text;
  };
  EXPECT_EQ(refused(good), "");
  EXPECT_EQ(refused(Bytes(258, 0)), "the modulus of a proof of 128 points is 128 to 65497, not 0");
  EXPECT_NE(refused({}), "");
  EXPECT_NE(refused({0xFF}), "");
  EXPECT_NE(refused({0xFF, 0xD9}), "");
  EXPECT_NE(refused(Bytes(2 + 2 * 513, 1)), "");
  Bytes odd = good;
  odd.pop_back();
  EXPECT_NE(refused(odd), "");
  Bytes large = good;
  large[1] = 0xDA;  // modulus 65498
  EXPECT_NE(refused(large), "");
  Bytes small = good;
  small[0] = 0, small[1] = 127;
  EXPECT_NE(refused(small), "");
  Bytes coefficient = good;
  coefficient[256] = 0xFF, coefficient[257] = 0xD9;
  EXPECT_EQ(refused(coefficient), "coefficient 127 of a proof is 65497, which is not below 65497");
}

TEST(Proof, points_that_cannot_be_proved_are_refused) {
  const std::vector<Point> twice = {{5, 1}, {5, 2}};
  EXPECT_EQ(build(twice).status().code, Code::kInvalid);
  EXPECT_EQ(build({}).status().code, Code::kInvalid);
  EXPECT_EQ(build(golden_points(1, 131072, kPointsMax + 1)).status().code, Code::kInvalid);
  const std::vector<Point> nan = {{5, 0xFFFF}};
  EXPECT_EQ(build(nan).status().code, Code::kGuard);
}

TEST(Largest, are_those_that_sorting_finds_and_of_equal_ones_the_first) {
  for (const std::size_t count : {1, 2, 127, 128, 1001, 40001}) {
    std::vector<std::uint16_t> values = any_values(count, count);
    for (std::uint16_t& bits : values) bits &= 0xBFF0;  // many equal ones
    values.back() = 0xBFF8;                             // in a block of its own at the end
    for (const std::size_t k : {1, 2, 128, 512}) {
      if (k > count) continue;
      std::vector<Point> expected;
      for (std::size_t i = 0; i < count; ++i) {
        expected.push_back({static_cast<std::uint32_t>(i), values[i]});
      }
      std::stable_sort(expected.begin(), expected.end(), [](const Point& a, const Point& b) {
        return (a.bits & 0x7FFF) > (b.bits & 0x7FFF);
      });
      expected.resize(k);
      std::sort(expected.begin(), expected.end(),
                [](const Point& a, const Point& b) { return a.index < b.index; });
      ASSERT_EQ(largest(values, k, Format::kBf16).value(), expected) << count << " " << k;
    }
  }
}

TEST(Largest, chunks_that_are_too_short_or_not_finite_are_refused) {
  std::vector<std::uint16_t> values = any_values(200, 1);
  EXPECT_EQ(largest(values, 201, Format::kBf16).status().code, Code::kInvalid);
  EXPECT_EQ(largest(values, 0, Format::kBf16).status().code, Code::kInvalid);
  EXPECT_EQ(largest(any_values(1000, 1), 513, Format::kBf16).status().code, Code::kInvalid);
  values[3] = 0xFF80;
  EXPECT_EQ(largest(values, 128, Format::kBf16).status().code, Code::kGuard);
  values[3] = 0x7C01;  // a NaN of fp16, a large number of bf16
  EXPECT_EQ(largest(values, 128, Format::kFp16).status().code, Code::kGuard);
  EXPECT_TRUE(largest(values, 128, Format::kBf16).ok());
}

// Worked by hand: bf16 has 8 bits of exponent and 7 of mantissa, fp16 5 and 10.
TEST(Compare, counts_exponents_signs_and_mantissas_of_either_format) {
  const std::vector<Point> said = {{0, 0x3F80}, {1, 0x4000}, {2, 0x4010}, {3, 0xC100}, {4, 0x4200}};
  const Proof proof = proof_of(said);
  const std::vector<Point> found = {
      {0, 0x3F83}, {1, 0x4008}, {2, 0x4010}, {3, 0x4101}, {4, 0x4380}};
  const Comparison bf16 = compare(proof, found, Format::kBf16);
  EXPECT_EQ(bf16.exponents, 1u);
  EXPECT_EQ(bf16.signs, 1u);
  EXPECT_EQ(bf16.mean, (3 + 8 + 0 + 1) / 4.0);
  EXPECT_EQ(bf16.median, 2.0);  // between 1 and 3
  const Comparison fp16 = compare(proof, found, Format::kFp16);
  EXPECT_EQ(fp16.exponents, 0u);
  EXPECT_EQ(fp16.signs, 1u);
  EXPECT_EQ(fp16.mean, (3 + 8 + 0 + 1 + 384) / 5.0);
  EXPECT_EQ(fp16.median, 3.0);
}

TEST(Compare, where_no_exponent_is_equal_the_error_is_beyond_all_limits) {
  const std::vector<Point> said = {{0, 0x3F80}};
  const std::vector<Point> found = {{0, 0x4F80}};
  const Comparison nothing = compare(proof_of(said), found, Format::kBf16);
  EXPECT_EQ(nothing.exponents, 1u);
  EXPECT_EQ(nothing.mean, kNothingAlike);
  EXPECT_EQ(nothing.median, kNothingAlike);
}

// An index that the prover did not have yields any number of the field: so 258 bytes say which
// values are largest, too.
TEST(Compare, of_other_values_hardly_an_exponent_agrees) {
  const auto mine = largest(any_values(131072, 1), 128, Format::kBf16).value();
  const auto others = largest(any_values(131072, 2), 128, Format::kBf16).value();
  EXPECT_GE(compare(proof_of(mine), others, Format::kBf16).exponents, 120u);
}

}  // namespace
}  // namespace jccl::proof
