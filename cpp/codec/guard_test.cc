#include "codec/guard.h"

#include <gtest/gtest.h>

#include "codec/codec.h"
#include "codec/kernels/isa.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

TEST(GuardTest, one_bad_element_anywhere_is_seen) {
  for (const Isa isa : available_isas()) {
    force_isa(isa);
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16}) {
      for (const std::size_t size : {1, 15, 16, 17, 100, 1024, 1025, 3000}) {
        for (std::size_t at = 0; at < size; at += 1 + size / 9) {
          auto values = normal_values(size, size);
          ASSERT_TRUE(scan(dtype, leaf_of(dtype, values).data(), size).finite);
          for (const float bad :
               {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                -std::numeric_limits<float>::infinity()}) {
            values[at] = bad;
            ASSERT_FALSE(scan(dtype, leaf_of(dtype, values).data(), size).finite)
                << name_of(dtype) << " " << size << " " << at;
          }
        }
      }
    }
  }
  force_isa(available_isas().back());
}

TEST(GuardTest, the_norm_is_right_and_has_the_same_bits_on_every_instruction_set) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16}) {
    for (const std::size_t size : test_sizes()) {
      const auto bytes = leaf_of(dtype, normal_values(size, size + 9));
      std::vector<double> values(size);
      const CodecId same = dtype == Dtype::kF16 ? CodecId::kFp16 : CodecId::kBf16;
      if (dtype == Dtype::kF64 && size > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
      if (dtype == Dtype::kF32) {
        for (std::size_t i = 0; i < size; ++i) {
          float v = 0;
          std::memcpy(&v, bytes.data() + 4 * i, 4);
          values[i] = v;
        }
      }
      if (size_of(dtype) == 2) decode(same, Dtype::kF64, bytes.data(), size, values.data());
      long double exact = 0;
      for (const double v : values) exact += static_cast<long double>(v) * v;
      force_isa(Isa::kBaseline);
      const double first = scan(dtype, bytes.data(), size).norm2;
      EXPECT_NEAR(first, static_cast<double>(exact), static_cast<double>(exact) * 1e-13);
      for (const Isa isa : available_isas()) {
        force_isa(isa);
        EXPECT_EQ(scan(dtype, bytes.data(), size).norm2, first) << name_of(dtype) << size;
      }
    }
  }
}

TEST(GuardTest, integers_pass) {
  const std::vector<std::uint8_t> ones(64, 0xFF);
  const GuardResult result = scan(Dtype::kI32, ones.data(), 16);
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.norm2, 0);
}

}  // namespace
}  // namespace jccl::codec
