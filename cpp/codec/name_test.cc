#include <gtest/gtest.h>

#include "codec/codec.h"
#include "codec/test_values.h"

namespace jccl::codec {
namespace {

TEST(CodecNamesTest, names_and_numbers_lead_back_to_the_value) {
  for (const Codec& codec : all_codecs()) {
    EXPECT_EQ(codec_from_name(name_of(codec)), codec) << name_of(codec);
    EXPECT_EQ(codec_from_name(name_of(codec.id)), Codec(codec.id));
    EXPECT_EQ(codec_from_number(static_cast<std::uint8_t>(codec.id)), codec.id);
    EXPECT_TRUE(check(codec).ok());
  }
  for (const Codec& codec : stochastic_codecs()) {
    EXPECT_EQ(codec_from_name(name_of(codec)), codec) << name_of(codec);
    EXPECT_TRUE(check(codec).ok());
  }
  for (std::uint8_t n = 1; n <= kDtypeNumberMax; ++n) {
    EXPECT_EQ(dtype_from_name(name_of(static_cast<Dtype>(n))), static_cast<Dtype>(n));
    EXPECT_EQ(dtype_from_number(n), static_cast<Dtype>(n));
  }
  EXPECT_FALSE(codec_from_number(kCodecNumberMax + 1).has_value());
  EXPECT_FALSE(dtype_from_number(0).has_value());
  EXPECT_FALSE(dtype_from_number(13).has_value());
  EXPECT_FALSE(dtype_from_name("complex64").has_value());
}

TEST(CodecNamesTest, parameters_follow_the_name) {
  EXPECT_EQ(name_of(top_k(9)), "topk:kept=9");
  EXPECT_EQ(codec_from_name("topk"), top_k(64));
  EXPECT_EQ(codec_from_name("int4:stochastic"), stochastic(CodecId::kInt4, 0));
  EXPECT_EQ(name_of(stochastic(CodecId::kFp8, 12)), "fp8:stochastic:seed=12");
  for (const char* wrong :
       {"int9", "", "int8:", "int8:kept=3", "topk:kept=0", "topk2:kept=0", "topk2:kept=705",
        "stat2:stochastic", "topk:kept=4097", "topk:kept=", "topk:kept=1x", "topk:stochastic",
        "none:stochastic", "int8:seed=4", "int8:stochastic:stochastic", "int8:stochastic:seed=-1",
        "int8:stochastic:seed=99999999999999999999", "int8 "}) {
    EXPECT_FALSE(codec_from_name(wrong).has_value()) << wrong;
  }
}

TEST(CodecNamesTest, a_wrong_parameter_is_named) {
  Codec codec = CodecId::kTopK;
  codec.kept = 5000;
  EXPECT_EQ(check(codec).text, "codec topk: kept 5000; 1 to 4096 of each block");
  codec = CodecId::kInt8;
  codec.kept = 1;
  EXPECT_EQ(check(codec).text, "codec int8: kept is a parameter of topk and topk2 alone");
  codec = stochastic(CodecId::kTopK, 0);
  EXPECT_EQ(check(codec).code, base::Code::kInvalid);
  codec = CodecId::kInt8;
  codec.seed = 1;
  EXPECT_EQ(check(codec).text, "codec int8: a seed is for stochastic rounding");
}

TEST(CodecSizesTest, fewer_bytes_than_f32_as_documented) {
  const auto ratio = [](const Codec& codec) {
    return 4.0 * 4096 / static_cast<double>(encoded_bytes(codec, Dtype::kF32, 4096));
  };
  EXPECT_NEAR(ratio(CodecId::kInt8), 3.938, 0.001);
  EXPECT_NEAR(ratio(CodecId::kFp8), 3.969, 0.001);
  EXPECT_NEAR(ratio(CodecId::kInt4), 7.529, 0.001);
  EXPECT_NEAR(ratio(CodecId::kE3m0), 7.529, 0.001);
  EXPECT_NEAR(ratio(CodecId::kInt2), 14.222, 0.001);
  EXPECT_NEAR(ratio(CodecId::kTopK), 42.67, 0.01);
  EXPECT_NEAR(ratio(CodecId::kStat2), 12.8, 0.001);
  EXPECT_NEAR(ratio(CodecId::kTopK2), 141.24, 0.01);
  EXPECT_EQ(encoded_bytes(CodecId::kTopK2, Dtype::kF32, 4096 + 64), 116U + 20);
  EXPECT_LT(
      encoded_bytes(top_k(spec_of(CodecId::kTopK2).kept_max, CodecId::kTopK2), Dtype::kF32, 4096),
      encoded_bytes(CodecId::kStat2, Dtype::kF32, 4096));
  EXPECT_EQ(encoded_bytes(top_k(4096), Dtype::kF32, 4096), 4U * 4096) << "never more than f32";
  EXPECT_EQ(encoded_bytes(top_k(64), Dtype::kF32, 4096 + 10), 64U * 6 + 40);
  EXPECT_EQ(encoded_bytes(CodecId::kInt4, Dtype::kF32, 64 + 7), 34U + 2 + 4);
}

}  // namespace
}  // namespace jccl::codec
