// The benchmarks' own check: what the documented formulas give passes, anything else is counted.
#include "pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "codec/codec.h"
#include "collective/kernels/kernels.h"
#include "options.h"

namespace jccl::bench {
namespace {

constexpr std::size_t kCount = 10'000;

std::vector<float> reduced(codec::CodecId codec, const std::vector<std::uint32_t>& peers,
                           collective::Op op) {
  std::vector<float> acc(kCount), mine(kCount);
  std::vector<std::uint8_t> bytes(codec::encoded_bytes(codec, codec::Dtype::kF32, kCount));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    fill_contribution(peers[i], mine.data(), kCount);
    codec::encode(codec, codec::Dtype::kF32, mine.data(), kCount, bytes.data());
    collective::accumulate(op, codec::Dtype::kF32, codec, i == 0, bytes.data(), kCount, 1,
                           acc.data());
  }
  const auto sum = static_cast<double>(peers.size());
  collective::finish(op, codec::Dtype::kF32, codec, acc.data(), kCount, sum, bytes.data());
  codec::decode(codec, codec::Dtype::kF32, bytes.data(), kCount, mine.data());
  return mine;
}

void check(codec::CodecId codec, collective::Op op, const ErrorBound& bound) {
  const std::vector<std::uint32_t> peers = {1, 2, 5};
  const bool mean = op == collective::Op::kMean;
  std::vector<float> out = reduced(codec, peers, op);
  EXPECT_EQ(count_wrong(out.data(), kCount, peers, mean, bound), 0U) << name_of(codec);
  out[0] = std::numeric_limits<float>::quiet_NaN();
  out[5000] = std::numeric_limits<float>::infinity();
  out[kCount - 1] = 1e6F;
  EXPECT_EQ(count_wrong(out.data(), kCount, peers, mean, bound), 3U) << name_of(codec);
  // A contribution counted twice does not pass for a rounding, unless the codec is that coarse.
  if (bound.relative + bound.of_largest < 0.02) {
    const std::vector<float> other = reduced(codec, {1, 2, 2, 5}, op);
    EXPECT_GT(count_wrong(other.data(), kCount, peers, mean, bound), kCount / 4) << name_of(codec);
  }
}

TEST(Pattern, what_the_formulas_give_is_right_and_anything_else_is_counted) {
  int checked = 0;
  for (std::uint8_t number = 0; number < 32; ++number) {
    const auto codec = codec::codec_from_number(number);
    const auto bound = codec ? bound_of(std::string(name_of(*codec))) : std::nullopt;
    if (!bound) continue;  // results of a codec without a bound count as wrong
    check(*codec, collective::Op::kSum, *bound);
    check(*codec, collective::Op::kMean, *bound);
    ++checked;
  }
  EXPECT_GE(checked, 4);
}

TEST(Batch, is_read_from_a_line_and_refused_beyond_its_limits) {
  const auto batch = read_batch("size=4096 codec=int8 iterations=3 in-place=1", {});
  ASSERT_TRUE(batch.ok()) << batch.status().text;
  EXPECT_EQ(batch.value().bytes, 4096U);
  EXPECT_EQ(batch.value().codec, codec::CodecId::kInt8);
  EXPECT_TRUE(batch.value().in_place);
  for (const char* line : {"size=4095", "size=0", "size=1073741824 concurrent=2", "codec=none2",
                           "leaves=0", "leaves=5 size=16", "what=1", "size", "size=-4", "op=max",
                           "iterations=99999999999", "in-place=yes"}) {
    EXPECT_FALSE(read_batch(line, {}).ok()) << line;
  }
}

}  // namespace
}  // namespace jccl::bench
