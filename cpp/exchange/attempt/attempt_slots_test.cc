// An all_to_all as peers run it: out[i] of a peer is the block that peer i had for its slot,
// whatever comes when, and nothing else of the outputs is anybody's.
#include "exchange/attempt/attempt_bench.h"

namespace jccl::exchange {
namespace {

using codec::CodecId;

// No two blocks of a world are alike.
std::vector<float> block_of(std::size_t from, std::size_t to, std::size_t count) {
  base::Rng rng(1000 * from + to + 1);
  std::vector<float> block;
  for (std::size_t i = 0; i < count; ++i) block.push_back(static_cast<float>(rng.unit()) - 0.4F);
  return block;
}

struct Blocks : Bench {
  explicit Blocks(const Setting& setting) : Bench(setting), slots(peers_[0]->call->options.slots) {
    for (auto& peer : peers_) {
      for (std::size_t slot = 0; slot < slots; ++slot) {
        const std::vector<float> block = block_of(peer->index, slot, setting_.count);
        std::copy(block.begin(), block.end(), peer->in.begin() + at(slot));
      }
    }
  }
  std::ptrdiff_t at(std::size_t slot) const {
    return static_cast<std::ptrdiff_t>(slot * setting_.count);
  }
  void in_place() {
    for (auto& peer : peers_) peer->call->leaves[0].out = peer->in.data();
  }
  void expect_transposed() {
    for (auto& peer : peers_) {
      ASSERT_EQ(peer->done, 1) << "peer " << peer->index << ": " << peer->text;
      EXPECT_EQ(peer->result, base::Digest{}) << "each has another result";
      const bool own_place = peer->call->leaves[0].out == peer->in.data();
      if (!setting_.out_private && !own_place) {
        EXPECT_EQ(peer->out, std::vector<float>(slots * setting_.count, -1.0F)) << "before commit";
      }
      peer->run->commit();
      const std::vector<float>& out = own_place ? peer->in : peer->out;
      const bool part = peer->index < setting_.peers;
      EXPECT_EQ(peer->call->scatter_count, part ? setting_.peers : 0);
      EXPECT_EQ(peer->call->scatter_first, part ? peer->index : 0);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        std::vector<float> due(setting_.count, 0.0F);
        if (part && slot < setting_.peers) {
          due = stress::travelled(setting_.codec, stress::kKept,
                                  block_of(slot, peer->index, setting_.count));
        }
        ASSERT_EQ(std::vector<float>(out.begin() + at(slot), out.begin() + at(slot + 1)), due)
            << "peer " << peer->index << ", slot " << slot;
      }
    }
  }
  std::size_t slots;
};

TEST(AttemptSlotsTest, each_gets_the_blocks_for_its_slot_and_zeros_where_nobody_is) {
  std::uint64_t seed = 0;
  for (std::uint8_t number = 0; number <= codec::kCodecNumberMax; ++number) {
    for (const std::size_t world : {1, 2, 3, 5}) {
      for (const std::size_t more : {0, 2}) {
        for (const bool out_private : {false, true}) {
          Bench::Setting setting{PlanKind::kAllToAll, world, seed % 3, 2039, out_private};
          setting.codec = static_cast<CodecId>(number);
          setting.seed = ++seed;
          setting.slots = world + more;
          setting.sealed = seed % 2 == 0;
          SCOPED_TRACE(base::cat(codec::name_of(setting.codec), " world ", world, " slots ",
                                 setting.slots, " private ", out_private, " seed ", seed));
          Blocks bench(setting);
          bench.begin();
          bench.deliver_all();
          bench.expect_transposed();
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(AttemptSlotsTest, results_may_lie_where_the_inputs_lie) {
  for (const CodecId codec : {CodecId::kNone, CodecId::kInt8}) {
    Bench::Setting setting{PlanKind::kAllToAll, 3, 0, 5000};
    setting.codec = codec;
    setting.slots = 4;
    Blocks bench(setting);
    bench.in_place();
    for (auto& peer : bench.peers_) peer->start();
    bench.begin();
    bench.deliver_all();
    bench.expect_transposed();
  }
}

// Frames come twice, and one copy overtakes another that is on its way into the output.
TEST(AttemptSlotsTest, copies_and_losses_change_no_block) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Bench::Setting setting{PlanKind::kAllToAll, 3, 0, 3000, seed % 2 == 0};
    setting.codec = seed % 4 < 2 ? CodecId::kNone : CodecId::kInt8;
    setting.seed = seed;
    Blocks bench(setting);
    bench.begin();
    while (!bench.frames_.empty()) {
      const Bench::Frame f = bench.take_any();
      const auto frame = bench.made(f);
      if (!frame) continue;
      const Placement first = bench.place(f, *frame);
      if (first.kind == Placement::Kind::kDrain) continue;
      ASSERT_EQ(first.kind, Placement::Kind::kInto);
      Bench::fill(first, *frame, 100);
      if (bench.rng_.below(3) == 0) {  // its stripe breaks; it goes again
        bench.lost(f, first);
        bench.frames_.push_back(f);
        continue;
      }
      const Placement second = bench.place(f, *frame);
      ASSERT_EQ(second.kind, Placement::Kind::kInto);
      Bench::fill(second, *frame, SIZE_MAX);
      ASSERT_TRUE(bench.arrived(f, *frame, second).ok());
      ASSERT_TRUE(bench.arrived(f, *frame, first).ok()) << "it counts no more";
      bench.deliver(f);
    }
    for (auto& peer : bench.peers_) EXPECT_TRUE(peer->violations.empty());
    bench.expect_transposed();
    if (HasFatalFailure()) return;
  }
}

// It waits for the block of each, and says for whose.
TEST(AttemptSlotsTest, one_block_that_is_missing_is_waited_for) {
  Blocks bench({PlanKind::kAllToAll, 3});
  bench.begin();
  while (!bench.frames_.empty()) {
    const Bench::Frame f = bench.take_any();
    if (f.from != 2 || f.to != 0) bench.deliver(f);
  }
  EXPECT_EQ(bench.peers_[0]->done, 0);
  EXPECT_EQ(bench.peers_[1]->done, 1);
  EXPECT_EQ(bench.peers_[2]->done, 0) << "what it gives to peer 0 was not looked at yet";
  const auto awaited = bench.peers_[0]->run->awaited();
  ASSERT_EQ(awaited.size(), 1U);
  EXPECT_EQ(awaited[0].peer, Bench::id(2));
  EXPECT_EQ(awaited[0].bytes, 5000 * sizeof(float));
  EXPECT_EQ(bench.peers_[0]->run->moving().waits_on, Bench::id(2));
}

// A call that is tried again without the last of its peers: what was in its slot is gone.
TEST(AttemptSlotsTest, a_retry_with_fewer_peers_leaves_nothing_of_the_one_that_is_gone) {
  Bench::Setting setting{PlanKind::kAllToAll, 3, 0, 2000, true};
  Blocks bench(setting);
  bench.begin();
  while (!bench.frames_.empty()) {
    const Bench::Frame f = bench.take_any();
    if (f.from != 0 || f.to != 1) bench.deliver(f);
  }
  bench.setting_.peers = 2;
  bench.start_.contributors.pop_back();
  collective::Plan plan{PlanKind::kAllToAll, {10, 11}, {}};
  bench.start_.plan = collective::encode(plan);
  bench.peers_.pop_back();
  bench.retry();
  bench.deliver_all();
  bench.expect_transposed();
}

}  // namespace
}  // namespace jccl::exchange
