#include "collective/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/limits.h"
#include "base/rng.h"
#include "collective/kernels/kernels.h"

namespace jccl::collective {
namespace {

using codec::CodecId;
using codec::Dtype;

// Every element of every leaf exactly once and in order; sizes add up; cuts lie on the grid.
void expect_valid(const std::vector<LeafSpec>& leaves, const LayoutOptions& options,
                  const std::vector<Chunk>& chunks) {
  const std::uint64_t grid = grid_elements(options.codec);
  std::uint32_t leaf = 0;
  std::uint64_t at = 0;
  std::uint32_t owner = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Chunk& chunk = chunks[c];
    ASSERT_EQ(chunk.index, c);
    ASSERT_GE(chunk.owner, owner);
    owner = chunk.owner;
    ASSERT_LT(owner, options.shares.size());
    std::uint64_t bytes = 0;
    Chunk sums;
    for (const Segment& s : chunk.segments) {
      while (leaf < leaves.size() && at == leaves[leaf].count) ++leaf, at = 0;
      ASSERT_EQ(s.leaf, leaf);
      ASSERT_EQ(s.first, at);
      ASSERT_GT(s.count, 0U);
      ASSERT_EQ(s.first % grid, 0U);
      at += s.count;
      ASSERT_TRUE(at % grid == 0 || at == leaves[leaf].count);
      bytes += s.count * codec::size_of(leaves[leaf].dtype);
      sums.encoded_bytes += codec::encoded_bytes(options.codec, leaves[leaf].dtype, s.count);
      sums.accumulator_bytes += accumulator_bytes(leaves[leaf].dtype, s.count);
      sums.elements += s.count;
    }
    ASSERT_EQ(chunk.encoded_bytes, sums.encoded_bytes);
    ASSERT_EQ(chunk.accumulator_bytes, sums.accumulator_bytes);
    ASSERT_EQ(chunk.elements, sums.elements);
    ASSERT_LE(bytes, std::max<std::uint64_t>(options.chunk_bytes, 8 * grid));
  }
  while (leaf < leaves.size() && at == leaves[leaf].count) ++leaf, at = 0;
  ASSERT_EQ(leaf, leaves.size());
}

std::vector<std::uint64_t> bytes_of_owners(const std::vector<LeafSpec>& leaves,
                                           const LayoutOptions& options) {
  std::vector<std::uint64_t> bytes(options.shares.size());
  for (const Chunk& chunk : make_layout(leaves, options)) {
    for (const Segment& s : chunk.segments) {
      bytes[chunk.owner] += s.count * codec::size_of(leaves[s.leaf].dtype);
    }
  }
  return bytes;
}

TEST(LayoutTest, any_leaves_are_covered_once_on_the_grid) {
  base::Rng rng(1);
  for (int round = 0; round < 400; ++round) {
    std::vector<LeafSpec> leaves(rng.below(12));
    for (LeafSpec& leaf : leaves) {
      leaf.dtype = static_cast<Dtype>(1 + rng.below(12));
      leaf.count = rng.chance(0.2) ? 0 : rng.below(rng.chance(0.5) ? 40 : 30000);
    }
    LayoutOptions options;
    options.codec = static_cast<CodecId>(rng.below(8));
    options.chunk_bytes = 1 + rng.below(40000);
    options.shares.resize(1 + rng.below(16));
    for (auto& share : options.shares) share = static_cast<std::uint32_t>(rng.below(1000));
    options.shares[0] += 1;
    expect_valid(leaves, options, make_layout(leaves, options));
    EXPECT_EQ(make_layout(leaves, options), make_layout(leaves, options));
    if (HasFatalFailure()) return;
  }
}

TEST(LayoutTest, each_owner_is_within_one_grid_step_of_its_share) {
  const std::vector<LeafSpec> leaves = {
      {Dtype::kF32, 1000003}, {Dtype::kF64, 77777}, {Dtype::kF32, 5}};
  const std::uint64_t all = 4 * 1000003 + 8 * 77777 + 20;
  for (const CodecId codec : {CodecId::kNone, CodecId::kInt8}) {
    for (const auto& shares : {std::vector<std::uint32_t>(7, 1), {1, 2, 3, 4}, {0, 5, 0, 5}}) {
      const LayoutOptions options{codec, 256 * 1024, shares};
      const auto bytes = bytes_of_owners(leaves, options);
      const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        const double ideal = static_cast<double>(all) * shares[i] / sum;
        EXPECT_NEAR(static_cast<double>(bytes[i]), ideal, 8.0 * grid_elements(codec));
      }
    }
  }
}

TEST(LayoutTest, a_share_that_ends_on_the_grid_is_met_exactly) {
  const LayoutOptions options{CodecId::kInt8, 256 * 1024, {1, 2, 1}};
  EXPECT_EQ(bytes_of_owners({{Dtype::kF32, 4 * 256}}, options),
            (std::vector<std::uint64_t>{1024, 2048, 1024}));
  EXPECT_EQ(bytes_of_owners({{Dtype::kF32, 256}, {Dtype::kF64, 256}, {Dtype::kI8, 1024}}, options),
            (std::vector<std::uint64_t>{1024, 2048, 1024}));
}

// Every peer cuts alike, whatever its version: a step is of the owner of its first byte.
TEST(LayoutTest, a_step_belongs_to_the_owner_of_its_first_byte) {
  const LayoutOptions options{CodecId::kNone, 256 * 1024, {1, 2}};
  EXPECT_EQ(bytes_of_owners({{Dtype::kF32, 160}}, options),
            (std::vector<std::uint64_t>{256, 384}));  // 213 and a third, in steps of 64
}

TEST(LayoutTest, no_block_of_any_codec_is_cut) {
  for (std::uint8_t id = 0; id <= codec::kCodecNumberMax; ++id) {
    const codec::Codec codec = static_cast<CodecId>(id);
    const std::uint64_t block = codec::block_elements(codec);
    const LayoutOptions options{codec, 5000, {1, 2, 3}};
    const auto chunks = make_layout({{Dtype::kF32, 60'000}, {Dtype::kBf16, 30'001}}, options);
    for (const Chunk& chunk : chunks) {
      for (const Segment& s : chunk.segments) EXPECT_EQ(s.first % block, 0U) << name_of(codec);
    }
  }
}

TEST(LayoutTest, tiny_leaves_share_a_chunk) {
  const std::vector<LeafSpec> leaves(2000, {Dtype::kF32, 3});
  const auto chunks = make_layout(leaves, {CodecId::kInt8, 256 * 1024, {1, 1}});
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].segments.size(), 1000U);
  EXPECT_EQ(chunks[0].encoded_bytes, 7000U);
}

// Whoever forms norms of blocks gets whole blocks, whatever the shares and the chunk size.
TEST(LayoutTest, a_coarser_grid_is_cut_through_by_no_chunk_and_no_share) {
  const std::vector<LeafSpec> leaves = {
      {Dtype::kF32, 20000}, {Dtype::kBf16, 5}, {Dtype::kF64, 9000}, {Dtype::kF32, 4096}};
  for (const codec::CodecId codec : {CodecId::kNone, CodecId::kInt8, CodecId::kInt4}) {
    for (const std::size_t chunk_bytes : {1024, 50'000, 1 << 20}) {
      const LayoutOptions options{codec, chunk_bytes, {3, 1, 5}, 4096};
      const auto chunks = make_layout(leaves, options);
      std::uint64_t elements = 0;
      for (const Chunk& chunk : chunks) {
        elements += chunk.elements;
        for (const Segment& s : chunk.segments) {
          EXPECT_EQ(s.first % 4096, 0U);
          const std::uint64_t end = s.first + s.count;
          EXPECT_TRUE(end % 4096 == 0 || end == leaves[s.leaf].count) << end;
        }
      }
      EXPECT_EQ(elements, 20000U + 5 + 9000 + 4096);
    }
  }
}

TEST(LayoutTest, nothing_to_send_gives_no_chunks) {
  EXPECT_TRUE(make_layout({}, {CodecId::kNone, 1024, {1, 1}}).empty());
  EXPECT_TRUE(
      make_layout({{Dtype::kF32, 0}, {Dtype::kI8, 0}}, {CodecId::kNone, 1024, {1}}).empty());
}

TEST(LayoutTest, fewer_elements_than_owners_still_reach_an_owner) {
  const std::vector<LeafSpec> leaves = {{Dtype::kF32, 3}};
  const auto chunks =
      make_layout(leaves, {CodecId::kNone, 1024, std::vector<std::uint32_t>(16, 1)});
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].elements, 3U);
}

TEST(LayoutTest, the_largest_round_allowed_is_cut_without_overflow) {
  const std::vector<LeafSpec> leaves = {{Dtype::kF32, base::kRoundBytesMax / 4}};
  const LayoutOptions options{CodecId::kInt8, std::size_t{1} << 34,
                              std::vector<std::uint32_t>(base::kPeersMax, UINT32_MAX)};
  expect_valid(leaves, options, make_layout(leaves, options));
}

TEST(LayoutTest, a_gather_gives_every_owner_every_leaf) {
  const std::vector<LeafSpec> leaves = {{Dtype::kF32, 5000}, {Dtype::kI8, 7}, {Dtype::kF64, 0}};
  const LayoutOptions options{CodecId::kInt8, 4096, {1, 1, 1}};
  const auto chunks = make_gather_layout(leaves, options);
  for (std::uint32_t owner = 0; owner < 3; ++owner) {
    std::vector<Chunk> own;
    for (Chunk chunk : chunks) {
      if (chunk.owner != owner) continue;
      chunk.index = static_cast<std::uint32_t>(own.size());
      own.push_back(chunk);
    }
    expect_valid(leaves, options, own);
  }
}

TEST(LayoutTest, a_scatter_gives_each_owner_its_equal_part_of_each_leaf) {
  const std::vector<LeafSpec> leaves = {{Dtype::kF32, 4000}, {Dtype::kF32, 10}};
  const auto chunks = make_scatter_layout(leaves, {CodecId::kInt8, 2048, {1, 1, 1, 1}});
  std::vector<std::vector<std::uint64_t>> next = {{0, 0}, {1000, 2}, {2000, 5}, {3000, 7}};
  for (const Chunk& chunk : chunks) {
    for (const Segment& s : chunk.segments) {
      EXPECT_EQ(s.first, next[chunk.owner][s.leaf]);
      next[chunk.owner][s.leaf] += s.count;
    }
  }
  EXPECT_EQ(next,
            (std::vector<std::vector<std::uint64_t>>{{1000, 2}, {2000, 5}, {3000, 7}, {4000, 10}}));
}

// The grid begins anew in each block, so that its bytes do not depend on its slot.
TEST(LayoutTest, an_all_to_all_gives_each_owner_its_block_of_each_leaf) {
  const std::vector<LeafSpec> blocks = {{Dtype::kF32, 1000}, {Dtype::kF32, 3}};
  const auto chunks = make_all_to_all_layout(blocks, {CodecId::kInt8, 2048, {1, 1, 1}});
  std::vector<std::vector<std::uint64_t>> next = {{0, 0}, {1000, 3}, {2000, 6}};
  for (const Chunk& chunk : chunks) {
    for (const Segment& s : chunk.segments) {
      EXPECT_EQ(s.first, next[chunk.owner][s.leaf]);
      next[chunk.owner][s.leaf] += s.count;
      const std::uint64_t block = blocks[s.leaf].count;
      EXPECT_TRUE((s.first % block) % 256 == 0) << "cut inside a block of the codec";
    }
  }
  EXPECT_EQ(next, (std::vector<std::vector<std::uint64_t>>{{1000, 3}, {2000, 6}, {3000, 9}}));
}

}  // namespace
}  // namespace jccl::collective
