#include "collective/kernels/kernels.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/bytes.h"
#include "base/sanitized.h"
#include "codec/f32_form.h"
#include "codec/kernels/isa.h"
#include "codec/test_values.h"
#include "collective/test_oracle.h"

namespace jccl::collective {
namespace {

using base::Bytes;
using codec::Codec;
using codec::CodecId;
using codec::Dtype;
using codec::Isa;

constexpr codec::Noise kNoise = {77, 512};

struct Case {
  Op op;
  Dtype dtype;
  Codec codec;
};

// The registry: every supported (op, dtype, codec) inherits every test below.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Op op : kOps) {
    for (std::uint8_t d = 1; d <= codec::kDtypeNumberMax; ++d) {
      const auto dtype = static_cast<Dtype>(d);
      for (const auto& codecs : {codec::all_codecs(), codec::stochastic_codecs()}) {
        for (const Codec& codec : codecs) {
          if (is_supported(op, dtype, codec)) cases.push_back({op, dtype, codec});
        }
      }
    }
  }
  return cases;
}

// A leaf's bytes: any bits for integers, wild or tame values for floats.
Bytes leaf_bytes(Dtype dtype, std::size_t count, std::uint64_t seed) {
  base::Rng rng(seed);
  Bytes bytes(count * codec::size_of(dtype));
  if (!codec::is_float(dtype)) {
    for (auto& b : bytes) b = static_cast<std::uint8_t>(rng.next());
    return bytes;
  }
  const auto values =
      seed % 2 == 0 ? codec::normal_values(count, seed) : codec::wild_values(count, seed);
  const CodecId via = dtype == Dtype::kF16 ? CodecId::kFp16 : CodecId::kBf16;
  if (dtype == Dtype::kF32) {
    if (count > 0) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  Bytes half(2 * count);
  codec::encode(via, Dtype::kF32, values.data(), count, half.data());
  codec::decode(via, dtype, half.data(), count, bytes.data());
  return bytes;
}

template <typename T>
T combined(Op op, T a, T b) {
  if (op == Op::kMin) return std::isnan(a) || std::isnan(b) ? a + b : (b < a ? b : a);
  if (op == Op::kMax) return std::isnan(a) || std::isnan(b) ? a + b : (b > a ? b : a);
  return op == Op::kProd ? a * b : a + b;
}

// The formula of ALGORITHMS.md, one element at a time. T: f32 or f64.
template <typename T>
Bytes float_result(const Case& c, const std::vector<Bytes>& encoded, std::size_t count,
                   const std::vector<double>& weights) {
  std::vector<T> acc(count);
  double weight_sum = 0;
  for (std::size_t p = 0; p < encoded.size(); ++p) {
    std::vector<T> x(count);
    if constexpr (sizeof(T) == 8) {
      codec::decode(c.codec, c.dtype, encoded[p].data(), count, x.data());
    } else {
      codec::decode_f32(c.codec, c.dtype, encoded[p].data(), count, x.data());
    }
    weight_sum += weights[p];
    for (std::size_t i = 0; i < count; ++i) {
      const T weighted = static_cast<T>(weights[p]) * x[i];
      acc[i] = p == 0 ? weighted : combined(c.op, acc[i], weighted);
    }
  }
  for (T& v : acc) {
    if (c.op == Op::kMean) v /= static_cast<T>(weight_sum);
    if (std::isnan(v)) v = std::numeric_limits<T>::quiet_NaN();
  }
  Bytes out(codec::encoded_bytes(c.codec, c.dtype, count));
  if constexpr (sizeof(T) == 8) {
    codec::encode(c.codec, c.dtype, acc.data(), count, out.data(), kNoise);
  } else {
    codec::encode_f32(c.codec, c.dtype, acc.data(), count, out.data(), kNoise);
  }
  return out;
}

Bytes integer_result(const Case& c, const std::vector<Bytes>& leaves, std::size_t count) {
  const std::size_t size = codec::size_of(c.dtype);
  Bytes out(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    Wide acc = integer_at(c.dtype, leaves[0], i);
    std::uint64_t product = static_cast<std::uint64_t>(acc);
    for (std::size_t p = 1; p < leaves.size(); ++p) {
      const Wide x = integer_at(c.dtype, leaves[p], i);
      product *= static_cast<std::uint64_t>(x);
      if (c.op == Op::kSum || c.op == Op::kMean) acc += x;
      if (c.op == Op::kMin) acc = std::min(acc, x);
      if (c.op == Op::kMax) acc = std::max(acc, x);
    }
    if (c.op == Op::kMean) acc /= static_cast<Wide>(leaves.size());
    const std::uint64_t low = c.op == Op::kProd ? product : static_cast<std::uint64_t>(acc);
    std::memcpy(out.data() + i * size, &low, size);
  }
  return out;
}

Bytes kernel_result(const Case& c, const std::vector<Bytes>& encoded, std::size_t count,
                    const std::vector<double>& weights) {
  Bytes acc(accumulator_bytes(c.dtype, count));
  double weight_sum = 0;
  for (std::size_t p = 0; p < encoded.size(); ++p) {
    accumulate(c.op, c.dtype, c.codec, p == 0, encoded[p].data(), count, weights[p], acc.data());
    weight_sum += weights[p];
  }
  Bytes out(codec::encoded_bytes(c.codec, c.dtype, count));
  finish(c.op, c.dtype, c.codec, acc.data(), count, weight_sum, out.data(), kNoise);
  return out;
}

class KernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { codec::force_isa(GetParam()); }
  void TearDown() override { codec::force_isa(codec::available_isas().back()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, ::testing::ValuesIn(codec::available_isas()));

void expect_formula(const Case& c, std::size_t size, std::size_t world, bool weighted) {
  std::vector<Bytes> leaves;
  std::vector<Bytes> encoded;
  std::vector<double> weights;
  for (std::size_t p = 0; p < world; ++p) {
    leaves.push_back(leaf_bytes(c.dtype, size, size * 31 + 2 * p + (size % 2)));
    encoded.emplace_back(codec::encoded_bytes(c.codec, c.dtype, size));
    codec::encode(c.codec, c.dtype, leaves[p].data(), size, encoded[p].data());
    weights.push_back(weighted ? 0.1 + 1.7 * static_cast<double>(p) : 1.0);
  }
  const Bytes result = kernel_result(c, encoded, size, weights);
  const Bytes expected = !codec::is_float(c.dtype) ? integer_result(c, leaves, size)
                         : c.dtype == Dtype::kF64  ? float_result<double>(c, encoded, size, weights)
                                                   : float_result<float>(c, encoded, size, weights);
  ASSERT_EQ(result, expected) << name_of(c.op) << " " << codec::name_of(c.dtype) << " "
                              << codec::name_of(c.codec) << " size " << size << " world " << world;
}

TEST_P(KernelsTest, every_supported_case_follows_the_formula_bit_for_bit) {
  for (const Case& c : all_cases()) {
    for (const std::size_t size : codec::test_sizes()) {
      if (base::kSanitized && size > 5000) continue;
      for (const std::size_t world : {1, 2, 3, 7}) {
        if (base::kSanitized && world % 2 == 0) continue;
        if (base::kSanitized && world > 3 && size > 600) continue;
        expect_formula(c, size, world, false);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(KernelsTest, weights_apply_to_sum_and_mean_of_floats) {
  for (const Case& c : all_cases()) {
    if (!is_weight(c.op, c.dtype, 0.1)) continue;
    for (const std::size_t size : {1, 255, 257, 2000}) {
      expect_formula(c, size, 3, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(KernelsTest, a_partial_sum_carries_on_where_it_stopped) {
  for (const Case& c : all_cases()) {
    if (codec::is_lossy(c.codec)) continue;
    const std::size_t size = 1003;
    std::vector<Bytes> leaves;
    for (std::size_t p = 0; p < 3; ++p) leaves.push_back(leaf_bytes(c.dtype, size, 2 * p));
    Bytes partial(accumulator_bytes(c.dtype, size));
    Bytes last(partial.size());
    accumulate(c.op, c.dtype, c.codec, true, leaves[0].data(), size, 1, partial.data());
    accumulate(c.op, c.dtype, c.codec, false, leaves[1].data(), size, 1, partial.data());
    accumulate(c.op, c.dtype, c.codec, true, leaves[2].data(), size, 1, last.data());
    add_partial(c.op, c.dtype, last.data(), size, partial.data());
    Bytes out(codec::encoded_bytes(c.codec, c.dtype, size));
    finish(c.op, c.dtype, c.codec, partial.data(), size, 3, out.data());
    EXPECT_EQ(out, kernel_result(c, leaves, size, {1, 1, 1}))
        << name_of(c.op) << " " << codec::name_of(c.dtype);
  }
}

TEST_P(KernelsTest, a_result_may_be_finished_in_place_and_at_any_address) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64}) {
    const std::size_t size = 777;
    const Bytes leaf = leaf_bytes(dtype, size, 4);
    Bytes odd(1);
    odd.insert(odd.end(), leaf.begin(), leaf.end());
    Bytes acc(leaf.size() + 3);
    accumulate(Op::kMean, dtype, CodecId::kNone, true, odd.data() + 1, size, 1, acc.data() + 3);
    accumulate(Op::kMean, dtype, CodecId::kNone, false, odd.data() + 1, size, 1, acc.data() + 3);
    finish(Op::kMean, dtype, CodecId::kNone, acc.data() + 3, size, 2, acc.data() + 3);
    EXPECT_EQ(std::memcmp(acc.data() + 3, leaf.data(), leaf.size()), 0);
  }
}

TEST_P(KernelsTest, the_sum_of_two_in_one_pass_has_the_bytes_of_the_long_way) {
  const double weights[][2] = {{1, 1}, {0.5, 2}, {1, 0}, {0, 0.3}, {0.1, 1}, {0x1p100, 0x1p100}};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64}) {
    const std::size_t width = codec::size_of(dtype);
    for (const Op op : {Op::kSum, Op::kMean}) {
      for (const auto& w : weights) {
        for (const std::size_t size : codec::test_sizes()) {
          std::vector<Bytes> in = {leaf_bytes(dtype, size, 2 * size + 1),
                                   leaf_bytes(dtype, size, 9)};
          for (const std::size_t at : {size / 3, size / 2}) {  // NaN and Inf − Inf
            if (size > 2) std::memset(in[at % 2].data() + at * width, 0xFF, width - 1);
          }
          const Bytes expected = kernel_result({op, dtype, CodecId::kNone}, in, size, {w[0], w[1]});
          Bytes b(1), out(3 + size * width);  // at odd addresses
          b.insert(b.end(), in[1].begin(), in[1].end());
          ASSERT_TRUE(reduce2(op, dtype, in[0].data(), w[0], b.data() + 1, w[1], size, w[0] + w[1],
                              out.data() + 3));
          ASSERT_EQ(Bytes(out.begin() + 3, out.end()), expected) << name_of(op) << size << w[1];
          ASSERT_TRUE(reduce2(op, dtype, in[0].data(), w[0], b.data() + 1, w[1], size, w[0] + w[1],
                              b.data() + 1));
          ASSERT_EQ(Bytes(b.begin() + 1, b.end()), expected) << "onto the second";
          ASSERT_TRUE(reduce2(op, dtype, in[0].data(), w[0], in[1].data(), w[1], size, w[0] + w[1],
                              in[0].data()));
          ASSERT_EQ(in[0], expected) << "onto the first";
        }
      }
    }
  }
  float x = 0;
  EXPECT_FALSE(reduce2(Op::kMax, Dtype::kF32, &x, 1, &x, 1, 1, 2, &x));
  EXPECT_FALSE(reduce2(Op::kSum, Dtype::kBf16, &x, 1, &x, 1, 1, 2, &x));
}

TEST_P(KernelsTest, a_mean_divides_alike_whether_the_divisor_has_an_exact_inverse_or_not) {
  for (const double by : {2.0, 0.25, 3.0, 0x1p100, 0x1p-126, 0x1p126, 0x1p127, 1.0}) {
    const std::size_t size = 5000;
    const auto x = codec::wild_values(size, 77);
    std::vector<float> out(size), expected(size);
    for (std::size_t i = 0; i < size; ++i) expected[i] = x[i] / static_cast<float>(by);
    std::vector<float> acc = x;
    finish(Op::kMean, Dtype::kF32, CodecId::kNone, acc.data(), size, by,
           reinterpret_cast<std::uint8_t*>(out.data()));
    ASSERT_EQ(std::memcmp(out.data(), expected.data(), size * 4), 0) << by;
  }
}

TEST_P(KernelsTest, nan_wins_in_min_and_max_and_leaves_as_the_one_canonical_nan) {
  std::vector<float> a(100, 1.0F);
  std::vector<float> b(100, 2.0F);
  const std::uint32_t payload = 0xFFC12345;
  std::memcpy(&a[7], &payload, 4);
  std::memcpy(&b[40], &payload, 4);
  for (const Op op : kOps) {
    std::vector<float> acc(100);
    const auto bytes_of = [](const std::vector<float>& v) {
      return reinterpret_cast<const std::uint8_t*>(v.data());
    };
    accumulate(op, Dtype::kF32, CodecId::kNone, true, bytes_of(a), 100, 1, acc.data());
    accumulate(op, Dtype::kF32, CodecId::kNone, false, bytes_of(b), 100, 1, acc.data());
    Bytes out(400);
    finish(op, Dtype::kF32, CodecId::kNone, acc.data(), 100, 2, out.data());
    for (const std::size_t i : {7, 40}) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, out.data() + 4 * i, 4);
      EXPECT_EQ(bits, 0x7FC00000U) << name_of(op);
    }
  }
}

TEST_P(KernelsTest, the_mean_of_integers_truncates_and_their_sum_wraps) {
  const std::int8_t a[] = {-3, 127, -128, 5};
  const std::int8_t b[] = {-4, 127, -128, -6};
  const std::int8_t mean[] = {-3, 127, -128, 0};
  const std::int8_t sum[] = {-7, -2, 0, -1};
  const auto run = [&](Op op) {
    Bytes acc(accumulator_bytes(Dtype::kI8, 4));
    const auto* x = reinterpret_cast<const std::uint8_t*>(a);
    const auto* y = reinterpret_cast<const std::uint8_t*>(b);
    accumulate(op, Dtype::kI8, CodecId::kNone, true, x, 4, 1, acc.data());
    accumulate(op, Dtype::kI8, CodecId::kNone, false, y, 4, 1, acc.data());
    Bytes out(4);
    finish(op, Dtype::kI8, CodecId::kNone, acc.data(), 4, 2, out.data());
    return out;
  };
  EXPECT_EQ(std::memcmp(run(Op::kMean).data(), mean, 4), 0);
  EXPECT_EQ(std::memcmp(run(Op::kSum).data(), sum, 4), 0);
}

#if defined(__x86_64__)
// Flush to zero, round toward zero.
Bytes in_another_mode(const std::function<Bytes()>& make) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0xE040);
  Bytes made = make();
  _mm_setcsr(saved);
  return made;
}

TEST_P(KernelsTest, the_floating_point_mode_of_the_thread_changes_nothing) {
  for (const Case& c : all_cases()) {
    std::vector<Bytes> encoded;
    for (std::uint64_t seed : {1, 3}) {
      const Bytes leaf = leaf_bytes(c.dtype, 1500, seed);
      encoded.emplace_back(codec::encoded_bytes(c.codec, c.dtype, 1500));
      codec::encode(c.codec, c.dtype, leaf.data(), 1500, encoded.back().data());
    }
    const auto result = [&] { return kernel_result(c, encoded, 1500, {1, 1}); };
    EXPECT_EQ(in_another_mode(result), result()) << name_of(c.op) << " " << codec::name_of(c.dtype);
  }
}

TEST_P(KernelsTest, nor_what_rings_and_pairs_add) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64}) {
    const std::size_t size = codec::size_of(dtype) * 1500;
    Bytes one = leaf_bytes(dtype, 1500, 1), two = leaf_bytes(dtype, 1500, 3);
    for (std::size_t i = 0; i < size; i += 7) one[i] ^= two[i];  // denormal and odd ones as well
    for (const Op op : {Op::kSum, Op::kMean}) {
      const auto pair = [&] {
        Bytes out(size);
        EXPECT_TRUE(reduce2(op, dtype, one.data(), 0.3, two.data(), 1.7, 1500, 2.0, out.data()));
        return out;
      };
      EXPECT_EQ(in_another_mode(pair), pair()) << name_of(op) << " " << codec::name_of(dtype);
      const auto partial = [&] {
        Bytes sum = one;
        add_partial(op, dtype, two.data(), 1500, sum.data());
        return sum;
      };
      EXPECT_EQ(in_another_mode(partial), partial()) << name_of(op) << codec::name_of(dtype);
    }
  }
}
#endif

TEST(OpTest, the_table_refuses_lossy_codecs_for_all_but_sum_and_mean_of_floats) {
  int refused = 0;
  for (const Op op : kOps) {
    for (std::uint8_t d = 1; d <= codec::kDtypeNumberMax; ++d) {
      for (const Codec& codec : codec::all_codecs()) {
        const auto status = check_supported(op, static_cast<Dtype>(d), codec);
        const bool adds = op == Op::kSum || op == Op::kMean;
        EXPECT_EQ(status.ok(), codec.id == CodecId::kNone || (adds && d <= 4));
        refused += status.ok() ? 0 : 1;
      }
    }
  }
  const int lossy = static_cast<int>(codec::lossy_codecs().size());
  EXPECT_EQ(refused, 2 * 8 * lossy + 3 * 12 * lossy);
  EXPECT_EQ(check_supported(Op::kMax, Dtype::kF32, CodecId::kInt8).text,
            "max of f32 with codec int8: the codec quantises, so it applies to sum and mean only; "
            "use codec none");
  EXPECT_EQ(check_supported(Op::kSum, Dtype::kI32, CodecId::kBf16).code, base::Code::kInvalid);
}

TEST(OpTest, weights_are_for_sums_and_means_of_floats_and_must_be_sane) {
  EXPECT_TRUE(check_weight(Op::kMean, Dtype::kF32, 0.25).ok());
  EXPECT_TRUE(check_weight(Op::kSum, Dtype::kBf16, 0).ok());
  EXPECT_TRUE(check_weight(Op::kMax, Dtype::kI8, 1).ok());
  for (const double bad : {-1.0, 1e300, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(check_weight(Op::kMean, Dtype::kF32, bad).code, base::Code::kInvalid) << bad;
  }
  EXPECT_EQ(check_weight(Op::kMax, Dtype::kF32, 2).code, base::Code::kInvalid);
  EXPECT_EQ(check_weight(Op::kMean, Dtype::kI32, 2).code, base::Code::kInvalid);
  EXPECT_EQ(op_from_name("mean"), Op::kMean);
  EXPECT_FALSE(op_from_name("?").has_value());
  EXPECT_FALSE(op_from_number(0).has_value());
  EXPECT_FALSE(op_from_number(6).has_value());
}

}  // namespace
}  // namespace jccl::collective
