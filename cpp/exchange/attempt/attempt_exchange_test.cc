// Whole exchanges of attempts as peers run them, and each must give the formula's bits: what
// collective/exchange_test.cc asks of a test's executor is asked of the product's here.
#include "exchange/attempt/attempt_bench.h"

namespace jccl::exchange {
namespace {

using codec::CodecId;

constexpr PlanKind kReducing[] = {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing,
                                  PlanKind::kScatter};

std::vector<double> weights_for(std::size_t world, std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<double> weights;
  for (std::size_t p = 0; p < world; ++p) weights.push_back(stress::weight_of(p + 1, seed, rng));
  return weights;
}

bool is_refused(PlanKind kind, CodecId codec) {
  return kind == PlanKind::kRing && codec::is_sparse(codec);
}

std::vector<float> result_wanted(const Bench::Setting& s, std::size_t end, std::size_t first = 0) {
  const bool ring = s.kind == PlanKind::kRing, mean = s.op == collective::Op::kMean;
  return stress::result_of<float>({mean, s.codec, ring}, s.weights, end, first);
}

// Delivers everything in any order and commits.
void run_whole(Bench& bench) {
  bench.begin();
  bench.deliver_all();
  for (auto& peer : bench.peers_) {
    ASSERT_EQ(peer->done, 1) << "peer " << peer->index << ": " << peer->text;
    peer->run->commit();
  }
}

constexpr float kUntouched = 0x1.234567p-40F;  // no result here is that

// Each peer has a range, one after the other, and nothing else is written.
void expect_scattered(const Bench& bench, const Bench::Setting& setting) {
  std::size_t at = 0;
  for (const auto& peer : bench.peers_) {
    const auto written = [](float v) { return v != kUntouched; };
    const auto first = std::find_if(peer->out.begin(), peer->out.end(), written);
    const auto last = std::find_if(peer->out.rbegin(), peer->out.rend(), written).base();
    if (first == peer->out.end()) continue;  // more peers than elements
    ASSERT_EQ(static_cast<std::size_t>(first - peer->out.begin()), at) << "peer " << peer->index;
    const std::size_t end = static_cast<std::size_t>(last - peer->out.begin());
    ASSERT_EQ(std::vector<float>(first, last), result_wanted(setting, end, at))
        << "peer " << peer->index;
    at = end;
  }
  ASSERT_EQ(at, setting.count);
}

void expect_right(const Bench::Setting& setting) {
  SCOPED_TRACE(base::cat("kind ", static_cast<int>(setting.kind), " world ", setting.peers, " ",
                         codec::name_of(setting.codec), " ", name_of(setting.op), " seed ",
                         setting.seed));
  Bench bench(setting);
  for (auto& peer : bench.peers_) std::fill(peer->out.begin(), peer->out.end(), kUntouched);
  run_whole(bench);
  if (testing::Test::HasFatalFailure()) return;
  if (setting.kind == PlanKind::kScatter) return expect_scattered(bench, setting);
  const std::vector<float> result = result_wanted(setting, setting.count);
  for (const auto& peer : bench.peers_) {
    EXPECT_EQ(peer->result, bench.peers_[0]->result);
    ASSERT_EQ(peer->out, result) << "peer " << peer->index;
  }
}

TEST(AttemptExchangeTest, every_world_plan_op_and_codec_gives_the_formulas_bits) {
  std::uint64_t seed = 0;
  for (const std::size_t world : {1, 2, 3, 5, 8, 16}) {
    for (const PlanKind kind : kReducing) {
      for (std::uint8_t number = 0; number <= codec::kCodecNumberMax; ++number) {
        for (const auto op : {collective::Op::kSum, collective::Op::kMean}) {
          Bench::Setting setting{kind, world};
          setting.codec = static_cast<CodecId>(number);
          if (is_refused(kind, setting.codec)) continue;
          setting.op = op;
          setting.seed = ++seed;
          setting.count = codec::is_sparse(setting.codec) ? 9001 : 2039;
          setting.weights = weights_for(world, seed);
          setting.out_private = seed % 2 == 0;
          setting.receivers = kind == PlanKind::kScatter ? 0 : seed % 3;
          expect_right(setting);
          if (HasFatalFailure() || HasNonfatalFailure()) return;
        }
      }
    }
  }
}

TEST(AttemptExchangeTest, uneven_shares_and_any_order_of_arrival_change_no_bit) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    base::Rng rng(seed);
    Bench::Setting setting{seed % 2 == 0 ? PlanKind::kDirect : PlanKind::kRing, 5};
    setting.codec = seed % 3 == 0 ? CodecId::kInt4 : CodecId::kNone;
    setting.op = seed % 4 < 2 ? collective::Op::kSum : collective::Op::kMean;
    setting.seed = seed;
    setting.count = 5003;
    setting.weights = weights_for(5, 7);  // the same call each time
    for (int p = 0; p < 5; ++p) {
      setting.shares.push_back(static_cast<std::uint32_t>(1 + rng.below(9)));
    }
    expect_right(setting);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(AttemptExchangeTest, a_gather_gives_all_what_each_sent_in_the_order_of_ids) {
  for (std::uint8_t number = 0; number <= codec::kCodecNumberMax; ++number) {
    for (const std::size_t world : {1, 3, 5}) {
      Bench::Setting setting{PlanKind::kGather, world};
      setting.codec = static_cast<CodecId>(number);
      setting.weights = weights_for(world, number + 1U);
      Bench bench(setting);
      run_whole(bench);
      if (HasFatalFailure()) return;
      std::vector<float> all;
      for (const double weight : setting.weights) {
        const std::vector<float> sent = stress::travelled(
            setting.codec, stress::kKept, stress::input_of<float>(weight, setting.count));
        all.insert(all.end(), sent.begin(), sent.end());
      }
      for (const auto& peer : bench.peers_) {
        ASSERT_EQ(peer->out, all) << codec::name_of(setting.codec) << ", world " << world;
      }
    }
  }
}

}  // namespace
}  // namespace jccl::exchange
