// Attempts of calls with a robust aggregator: every plan that carries one gives the bits of one
// aggregate over whole leaves, whatever arrives when, and whoever lies.
#include "collective/kernels/aggregate.h"
#include "exchange/attempt/attempt_bench.h"
#include "snapshot/digest.h"

namespace jccl::exchange {
namespace {

using codec::CodecId;
using collective::Aggregator;
using collective::AggregatorId;

constexpr Aggregator kRobust[] = {{AggregatorId::kTrimmedMean, 0.25},
                                  {AggregatorId::kMedian, 0},
                                  {AggregatorId::kCenteredClip, 1},
                                  {AggregatorId::kNormLimit, 2}};

// Contributions that are random reals, so that order and cuts would show.
void randomise(Bench& bench, std::uint64_t seed) {
  for (auto& peer : bench.peers_) {
    base::Rng rng(seed * 1000 + peer->index);
    for (float& v : peer->in) v = static_cast<float>(rng.unit() - 0.5) * (1 + 1e3F * (v > 4));
  }
}

// Of all leaves, each aggregated as a whole by nobody's chunks and shares.
std::vector<float> wanted_of(const Bench& bench, const Bench::Setting& setting) {
  std::vector<float> all;
  std::size_t at = 0;
  for (const std::size_t count : {setting.count, setting.second}) {
    collective::Contributions given{codec::Dtype::kF32, setting.codec, {}, count};
    std::vector<base::Bytes> bytes;
    for (std::size_t p = 0; p < setting.peers; ++p) {
      bytes.emplace_back(codec::encoded_bytes(setting.codec, codec::Dtype::kF32, count));
      codec::encode(setting.codec, codec::Dtype::kF32, bench.peers_[p]->in.data() + at, count,
                    bytes.back().data());
    }
    for (const base::Bytes& b : bytes) given.encoded.push_back(b.data());
    std::vector<float> result(count);
    collective::AggregateScratch scratch;
    if (count > 0) {
      collective::aggregate(setting.aggregator, given, &scratch, result.data());
      const codec::Codec codec = collective::result_codec(setting.codec, setting.peers);
      base::Bytes encoded(codec::encoded_bytes(codec, codec::Dtype::kF32, count));
      codec::encode(codec, codec::Dtype::kF32, result.data(), count, encoded.data());
      codec::decode(codec, codec::Dtype::kF32, encoded.data(), count, result.data());
    }
    all.insert(all.end(), result.begin(), result.end());
    at += count;
  }
  return all;
}

void expect_the_aggregate(const Bench::Setting& setting) {
  SCOPED_TRACE(base::cat(collective::name_of(setting.aggregator), " ",
                         collective::name_of(setting.kind), " world ", setting.peers, " ",
                         codec::name_of(setting.codec), " seed ", setting.seed));
  Bench bench(setting);
  randomise(bench, setting.seed);
  const std::vector<float> wanted = wanted_of(bench, setting);
  if (setting.feeds) {
    for (auto& peer : bench.peers_) {  // what was hidden was the old input
      peer->whole.clear();
      peer->hide_inputs();
    }
  }
  bench.begin();
  if (setting.feeds) {
    bench.deliver_and_feed();
  } else {
    bench.deliver_all();
  }
  for (auto& peer : bench.peers_) {
    ASSERT_EQ(peer->done, 1) << "peer " << peer->index << ": " << peer->text;
    EXPECT_EQ(peer->result, bench.peers_[0]->result);
    peer->run->commit();
    ASSERT_EQ(std::memcmp(peer->out.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
        << "peer " << peer->index;
  }
}

Bench::Setting setting_for(std::uint64_t seed) {
  constexpr CodecId kCodecs[] = {CodecId::kNone, CodecId::kBf16, CodecId::kInt8, CodecId::kInt4,
                                 CodecId::kStat2};
  base::Rng rng(seed);
  Bench::Setting setting{seed % 2 == 0 ? PlanKind::kDirect : PlanKind::kExchange, 1 + rng.below(9)};
  setting.aggregator = kRobust[seed / 2 % 4];
  setting.codec = kCodecs[rng.below(5)];
  setting.count = 1 + rng.below(20000);
  setting.second = rng.below(2) * rng.below(9000);
  setting.receivers = rng.below(3);
  setting.out_private = rng.below(2) == 0;
  setting.seed = seed;
  for (std::size_t p = 0; p < setting.peers && rng.below(2) == 0; ++p) {
    setting.shares.push_back(static_cast<std::uint32_t>(1 + rng.below(9)));
  }
  if (setting.shares.size() != setting.peers) setting.shares.clear();
  return setting;
}

TEST(AttemptAggregateTest, every_plan_codec_share_and_order_of_arrival_gives_the_same_bits) {
  for (std::uint64_t seed = 1; seed <= 64; ++seed) {
    expect_the_aggregate(setting_for(seed));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(AttemptAggregateTest, inputs_that_come_in_parts_change_no_bit) {
  for (std::uint64_t seed = 100; seed < 124; ++seed) {
    Bench::Setting setting = setting_for(seed);
    setting.feeds = true;
    setting.receivers = 0;
    expect_the_aggregate(setting);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

Bench::Setting five(AggregatorId id, double parameter = 0) {
  Bench::Setting setting{PlanKind::kDirect, 5};
  setting.aggregator = {id, parameter};
  return setting;
}

TEST(AttemptAggregateTest, a_weight_buys_no_rank) {
  Bench::Setting setting = five(AggregatorId::kMedian);
  setting.weights = {1, 2, 4, 8, 1000};
  Bench bench(setting);
  randomise(bench, 3);
  const std::vector<float> wanted = wanted_of(bench, setting);
  bench.begin();
  bench.deliver_all();
  for (auto& peer : bench.peers_) {
    ASSERT_EQ(peer->done, 1) << peer->text;
    peer->run->commit();
    EXPECT_EQ(peer->out, wanted);
  }
}

// One of five sends a hundred times as much, or the opposite, of what the others do.
TEST(AttemptAggregateTest, a_liar_does_not_move_what_the_others_agree_on) {
  for (const Aggregator& aggregator : kRobust) {
    Bench::Setting setting = five(aggregator.id, aggregator.parameter);
    setting.codec = CodecId::kInt8;
    Bench bench(setting);
    for (auto& peer : bench.peers_) {
      for (float& v : peer->in) v = peer->index == 2 ? -1e6F : 1.0F;
    }
    bench.begin();
    bench.deliver_all();
    for (auto& peer : bench.peers_) {
      ASSERT_EQ(peer->done, 1) << peer->text;
      peer->run->commit();
      const float least = aggregator.id == AggregatorId::kNormLimit ? 0.3F : 0.98F;
      EXPECT_GT(*std::min_element(peer->out.begin(), peer->out.end()), least)
          << collective::name_of(aggregator);
    }
  }
}

// Who died is in with what arrived whole, or its attempt does not end and the next is without it.
TEST(AttemptAggregateTest, nothing_is_aggregated_before_the_last_contribution_is_here) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange}) {
    Bench::Setting setting = five(AggregatorId::kMedian);
    setting.kind = kind;
    Bench bench(setting);
    randomise(bench, 9);
    bench.begin();
    std::vector<Bench::Frame> held;
    while (!bench.frames_.empty()) {
      const Bench::Frame frame = bench.take_any();
      const bool of_the_dead = frame.from == 4 && frame.item.kind == wire::FrameKind::kContribution;
      if (of_the_dead) {
        held.push_back(frame);
      } else {
        bench.deliver(frame);
      }
    }
    for (std::size_t p = 0; p < 4; ++p) EXPECT_EQ(bench.peers_[p]->done, 0) << p;
    const auto awaited = bench.peers_[0]->run->awaited();  // the owner of a chunk
    EXPECT_TRUE(std::any_of(awaited.begin(), awaited.end(),
                            [](const auto& one) { return one.peer == Bench::id(4); }));
    for (const Bench::Frame& frame : held) bench.deliver(frame);
    bench.deliver_all();
    const std::vector<float> wanted = wanted_of(bench, setting);
    for (auto& peer : bench.peers_) {
      ASSERT_EQ(peer->done, 1);
      peer->run->commit();
      EXPECT_EQ(peer->out, wanted);
    }
  }
}

// Of all peers together, the bound of ALGORITHMS.md: in direct n-1 contributions to what each owns,
// in an exchange n-1 whole ones each. Everything is here but what one sends last.
TEST(AttemptAggregateTest, what_waits_for_the_last_contribution_is_bounded) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange}) {
    Bench::Setting setting = five(AggregatorId::kMedian);
    setting.kind = kind;
    setting.count = 60'000;
    Bench bench(setting);
    bench.begin();
    std::size_t most = 0;
    std::vector<Bench::Frame> last;
    while (!bench.frames_.empty()) {
      const Bench::Frame frame = bench.take_any();
      if (frame.from == 4 && frame.item.kind == wire::FrameKind::kContribution) {
        last.push_back(frame);
        continue;
      }
      bench.deliver(frame);
      most = std::max(most, *bench.memory_.held);
    }
    const std::size_t whole = setting.count * sizeof(float);
    const std::size_t bound = (kind == PlanKind::kDirect ? 4 : 5 * 4) * whole;
    EXPECT_LE(most, bound);
    EXPECT_GE(most, bound / 2) << "it does wait";
    for (const Bench::Frame& frame : last) bench.deliver(frame);
    bench.deliver_all();
    for (auto& peer : bench.peers_) EXPECT_EQ(peer->done, 1);
  }
}

TEST(AttemptAggregateTest, a_ring_is_refused_before_anything_moves) {
  Bench::Setting setting = five(AggregatorId::kMedian);
  setting.kind = PlanKind::kRing;
  Bench bench(setting);
  const base::Status status = bench.peers_[0]->run->prepare();
  EXPECT_EQ(status.code, Code::kInvalid);
  EXPECT_NE(status.text.find("nobody sees all contributions"), std::string::npos) << status.text;
}

TEST(AttemptAggregateTest, values_that_are_not_finite_end_the_attempt_and_name_their_sender) {
  Bench::Setting setting = five(AggregatorId::kMedian);
  setting.count = 100;
  Bench bench(setting);
  bench.begin();
  for (std::size_t i = 0; i < bench.frames_.size(); ++i) {
    const Bench::Frame frame = bench.frames_[i];
    if (frame.from != 3) continue;
    auto made = bench.made(frame);
    ASSERT_TRUE(made);
    std::vector<float> lie(100, std::numeric_limits<float>::infinity());
    made->payload = {base::ByteView(reinterpret_cast<const std::uint8_t*>(lie.data()), 400)};
    wire::FrameHeader header = Bench::header(*made);
    header.payload_check = snapshot::check_in(snapshot::digest_of(made->payload.front()));
    wire::encode(header, made->header.data());
    const Placement at = bench.place(frame, *made);
    Bench::fill(at, *made, SIZE_MAX);
    ASSERT_TRUE(bench.arrived(frame, *made, at).ok());
    EXPECT_EQ(bench.peers_[frame.to]->failed, Code::kCorrupt);
    EXPECT_EQ(bench.peers_[frame.to]->named, Bench::id(3));
    return;
  }
  FAIL() << "peer 3 sends nothing";
}

}  // namespace
}  // namespace jccl::exchange
