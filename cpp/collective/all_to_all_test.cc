// all_to_all under every codec, in worlds of 1 to 16: who gets which bytes, and how many travel.
#include <gtest/gtest.h>

#include <cstring>

#include "codec/test_values.h"
#include "collective/exchange_harness.h"

namespace jccl::collective {
namespace {

constexpr std::uint64_t kBlockCounts[] = {300, 0, 1, 17, 1025};

Exchange blocks_of(std::uint32_t world, const Codec& codec) {
  base::Rng rng(world);
  Exchange x;
  x.plan.kind = PlanKind::kAllToAll;
  x.codec = codec;
  x.chunk_bytes = 1000 + rng.below(3000);
  x.shuffle = world;
  for (const std::uint64_t count : kBlockCounts) x.leaves.push_back({Dtype::kF32, count});
  for (std::uint32_t p = 0; p < world; ++p) {
    x.plan.order.push_back(3 + 2 * p);
    x.weights.push_back(1);
    x.inputs.emplace_back();
    for (const std::uint64_t count : kBlockCounts) {
      std::vector<float> values(count * world);
      for (float& v : values) v = static_cast<float>(codec::normal(rng));
      Bytes bytes(values.size() * sizeof(float));
      if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
      x.inputs.back().push_back(std::move(bytes));
    }
  }
  return x;
}

// What this peer encodes of a segment.
Bytes sent_of(const Exchange& x, std::uint32_t from, const Segment& s) {
  Bytes bytes(codec::encoded_bytes(x.codec, Dtype::kF32, s.count));
  codec::encode(x.codec, Dtype::kF32, x.inputs[from][s.leaf].data() + 4 * s.first, s.count,
                bytes.data(),
                {codec::noise_seed(x.codec, {1, x.plan.order[from], s.leaf}), s.first});
  return bytes;
}

void expect_exchanged(const Exchange& x) {
  const auto world = static_cast<std::uint32_t>(x.plan.order.size());
  const Outcome outcome = Executor(x).run();
  ASSERT_TRUE(outcome.complete);
  for (const Chunk& chunk : outcome.chunks) {
    const auto& got = outcome.results.at(x.plan.order[chunk.owner])[chunk.index];
    Bytes due;
    for (std::uint32_t from = 0; from < world; ++from) {
      for (const Segment& s : chunk.segments) {
        ASSERT_EQ(s.first / x.leaves[s.leaf].count, chunk.owner);
        const Bytes sent = sent_of(x, from, s);
        due.insert(due.end(), sent.begin(), sent.end());
      }
    }
    ASSERT_EQ(*got, due) << "chunk " << chunk.index;
  }
  std::uint64_t block = 0;
  for (const LeafSpec& leaf : x.leaves)
    block += codec::encoded_bytes(x.codec, leaf.dtype, leaf.count);
  for (const auto& [peer, sent] : outcome.sent_bytes) EXPECT_EQ(sent, (world - 1) * block) << peer;
}

TEST(AllToAllTest, every_peer_gets_the_blocks_for_its_slot_and_sends_each_block_once) {
  for (std::uint32_t world = 1; world <= 16; ++world) {
    for (const auto& codecs : {codec::all_codecs(), codec::stochastic_codecs()}) {
      for (const Codec& codec : codecs) {
        SCOPED_TRACE(std::string(codec::name_of(codec)) + " world " + std::to_string(world));
        expect_exchanged(blocks_of(world, codec));
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace jccl::collective
