// Every plan, op, dtype and codec in worlds of 1 to 16, against an oracle in long double or
// 128-bit integers, within the error bounds of ALGORITHMS.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/sanitized.h"
#include "codec/reference.h"
#include "codec/roundtrip.h"
#include "codec/test_values.h"
#include "collective/exchange_harness.h"
#include "collective/planner.h"
#include "collective/test_oracle.h"

namespace jccl::collective {
namespace {

// One of each kind, then those that round by chance.
const std::vector<Codec>& every_codec() {
  static const std::vector<Codec> kCodecs = [] {
    std::vector<Codec> all = codec::all_codecs();
    const auto& chance = codec::stochastic_codecs();
    all.insert(all.end(), chance.begin(), chance.end());
    return all;
  }();
  return kCodecs;
}

bool is_refused(PlanKind kind, const Codec& codec) { return !check_codec(kind, codec).ok(); }
constexpr std::uint64_t kCounts[] = {300, 0, 1, 17, 1025};

// One to sixteen peers; under a sanitizer the smallest, a power of two and the largest.
const std::vector<std::uint32_t>& worlds() {
  static const std::vector<std::uint32_t> kFew = {1, 2, 3, 8, 16};
  static const std::vector<std::uint32_t> kAll = [] {
    std::vector<std::uint32_t> all(16);
    std::iota(all.begin(), all.end(), 1);
    return all;
  }();
  return base::kSanitized ? kFew : kAll;
}

Bytes float_leaf(Dtype dtype, std::uint64_t count, Op op, base::Rng& rng) {
  std::vector<double> values(count);
  for (double& v : values) {
    v = op == Op::kProd ? 0.5 + rng.unit() : codec::normal(rng);
  }
  Bytes out(count * codec::size_of(dtype));
  if (dtype == Dtype::kF64) {
    if (count > 0) std::memcpy(out.data(), values.data(), out.size());
    return out;
  }
  const std::vector<float> f32(values.begin(), values.end());
  const CodecId as = dtype == Dtype::kF32   ? CodecId::kNone
                     : dtype == Dtype::kF16 ? CodecId::kFp16
                                            : CodecId::kBf16;
  codec::encode(as, Dtype::kF32, f32.data(), count, out.data());
  return out;
}

Bytes leaf_of(Dtype dtype, std::uint64_t count, Op op, base::Rng& rng) {
  if (codec::is_float(dtype)) return float_leaf(dtype, count, op, rng);
  Bytes out(count * codec::size_of(dtype));
  for (auto& b : out) b = static_cast<std::uint8_t>(rng.next());
  return out;
}

std::vector<double> floats_of(Dtype dtype, const Bytes& bytes) {
  const std::size_t count = bytes.size() / codec::size_of(dtype);
  std::vector<double> wide(count);
  if (dtype == Dtype::kF64) {
    std::memcpy(wide.data(), bytes.data(), bytes.size());
    return wide;
  }
  std::vector<float> values(count);
  if (dtype == Dtype::kF32) std::memcpy(values.data(), bytes.data(), bytes.size());
  const auto decode = [&](CodecId id) {
    codec::decode(id, Dtype::kF32, bytes.data(), count, values.data());
  };
  if (dtype == Dtype::kBf16) decode(CodecId::kBf16);
  if (dtype == Dtype::kF16) decode(CodecId::kFp16);
  std::copy(values.begin(), values.end(), wide.begin());
  return wide;
}

Exchange make_exchange(const Plan& plan, Op op, Dtype dtype, const Codec& codec,
                       std::uint64_t seed) {
  base::Rng rng(seed);
  Exchange x;
  x.plan = plan;
  x.op = op;
  x.codec = codec;
  x.chunk_bytes = 1000 + rng.below(3000);
  x.shuffle = seed;
  for (const std::uint64_t count : kCounts) x.leaves.push_back({dtype, count});
  for (std::size_t p = 0; p < plan.order.size(); ++p) {
    x.inputs.emplace_back();
    for (const LeafSpec& leaf : x.leaves) {
      x.inputs.back().push_back(leaf_of(leaf.dtype, leaf.count, op, rng));
    }
    x.weights.push_back(1);
  }
  if (plan.kind != PlanKind::kScatter && rng.chance(0.5)) x.receivers = {100, 101};
  return x;
}

Plan make_plan(PlanKind kind, std::uint32_t world, std::uint64_t seed) {
  base::Rng rng(seed);
  Plan plan;
  plan.kind = kind;
  for (std::uint32_t i = 0; i < world; ++i) plan.order.push_back(3 + 2 * i);
  if (kind == PlanKind::kRing) {
    for (std::size_t i = world; i > 1; --i) std::swap(plan.order[i - 1], plan.order[rng.below(i)]);
  }
  if (has_shares(kind) && rng.chance(0.5)) {
    for (std::uint32_t i = 0; i < world; ++i) {
      plan.shares.push_back(static_cast<std::uint32_t>(rng.below(4)));
    }
    plan.shares[rng.below(world)] += 1;
  }
  return plan;
}

std::string text_of(const Exchange& x) {
  return std::string(name_of(x.plan.kind)) + " world " + std::to_string(x.plan.order.size()) + " " +
         std::string(name_of(x.op)) + " " + std::string(codec::name_of(x.leaves[0].dtype)) + " " +
         std::string(codec::name_of(x.codec));
}

// Half a step of a codec or dtype at a value of this size, in a block of this largest value.
double step_error(const Codec& codec, Dtype dtype, double value, double absmax) {
  const double v = std::fabs(value);
  if (codec::is_lossy(codec)) return codec::reference::error_bound(codec, v, absmax);
  if (dtype == Dtype::kBf16) return v * 0x1p-8 + 0x1p-134;
  if (dtype == Dtype::kF16) return v * 0x1p-11 + 0x1p-25;
  return v * (dtype == Dtype::kF64 ? 0x1p-53 : 0x1p-24);
}

// Largest magnitude in any block that element i can be in.
double absmax_near(const Codec& codec, const std::vector<double>& values, std::uint64_t i) {
  const std::uint64_t block = codec::block_elements(codec);
  const std::uint64_t first = i < block ? 0 : i - block + 1;
  const std::uint64_t end = std::min<std::uint64_t>(values.size(), i + block);
  double absmax = 0;
  for (std::uint64_t j = first; j < end; ++j) absmax = std::max(absmax, std::fabs(values[j]));
  return absmax;
}

void expect_floats(const Exchange& x, std::uint32_t leaf, const Bytes& result, std::uint64_t first,
                   std::uint64_t end) {
  const LeafSpec& spec = x.leaves[leaf];
  const std::size_t world = x.plan.order.size();
  std::vector<std::vector<double>> in;
  double weight_sum = 0;
  for (std::size_t p = 0; p < world; ++p) {
    weight_sum += x.weights[p];
    in.push_back(floats_of(spec.dtype, x.inputs[p][leaf]));
  }
  const std::vector<double> out = floats_of(spec.dtype, result);
  const double rounding = spec.dtype == Dtype::kF64 ? 0x1p-53 : 0x1p-24;
  for (std::uint64_t i = first; i < end; ++i) {
    long double exact = static_cast<long double>(x.weights[0]) * in[0][i];
    long double magnitude = 0;
    double bound = 0;
    for (std::size_t p = 0; p < world; ++p) {
      const long double v = static_cast<long double>(x.weights[p]) * in[p][i];
      magnitude += std::fabs(v);
      if (p > 0 && (x.op == Op::kSum || x.op == Op::kMean)) exact += v;
      if (p > 0 && x.op == Op::kMin) exact = std::min(exact, v);
      if (p > 0 && x.op == Op::kMax) exact = std::max(exact, v);
      if (p > 0 && x.op == Op::kProd) exact *= v;
      if (x.plan.kind != PlanKind::kRing && codec::is_lossy(x.codec)) {
        bound += x.weights[p] *
                 step_error(x.codec, spec.dtype, in[p][i], absmax_near(x.codec, in[p], i));
      }
    }
    const bool picks = x.op == Op::kMin || x.op == Op::kMax;
    const double scale = x.op == Op::kProd ? static_cast<double>(std::fabs(exact))
                                           : static_cast<double>(magnitude) + bound;
    if (!picks) bound += 2 * static_cast<double>(world + 1) * rounding * scale;
    if (x.op == Op::kMean) {
      exact /= weight_sum;
      bound /= weight_sum;
    }
    const double at = static_cast<double>(std::fabs(exact)) + bound;
    const bool whole = codec::is_sparse(x.codec.id);  // every entry of the sum stays
    // By chance the largest of a block may have gone down, by half at most (e3m0).
    const double absmax = absmax_near(x.codec, out, i) * (x.codec.stochastic ? 2 : 1);
    if (!whole) bound += step_error(result_codec(x.plan, x.codec), spec.dtype, at, absmax);
    if (codec::is_lossy(x.codec)) bound += step_error(CodecId::kNone, spec.dtype, at, 0);
    if (picks) bound = 0;
    ASSERT_LE(std::fabs(static_cast<long double>(out[i]) - exact), bound)
        << text_of(x) << " leaf " << leaf << " element " << i;
  }
}

void expect_integers(const Exchange& x, std::uint32_t leaf, const Bytes& result,
                     std::uint64_t first, std::uint64_t end) {
  const Dtype dtype = x.leaves[leaf].dtype;
  const std::size_t world = x.plan.order.size();
  for (std::uint64_t i = first; i < end; ++i) {
    Wide exact = integer_at(dtype, x.inputs[0][leaf], i);
    for (std::size_t p = 1; p < world; ++p) {
      const Wide v = integer_at(dtype, x.inputs[p][leaf], i);
      if (x.op == Op::kSum || x.op == Op::kMean) exact += v;
      if (x.op == Op::kMin) exact = std::min(exact, v);
      if (x.op == Op::kMax) exact = std::max(exact, v);
      if (x.op == Op::kProd) {  // modulo 2^64 is enough for every width
        exact =
            static_cast<Wide>(static_cast<std::uint64_t>(exact) * static_cast<std::uint64_t>(v));
      }
    }
    if (x.op == Op::kMean) exact /= static_cast<Wide>(world);
    const auto low = static_cast<std::uint64_t>(exact);
    const std::size_t size = codec::size_of(dtype);
    ASSERT_EQ(std::memcmp(result.data() + i * size, &low, size), 0)
        << text_of(x) << " leaf " << leaf << " element " << i;
  }
}

// The leaves as one peer sees them once it decodes its results, and what ranges it has.
struct Decoded {
  std::vector<Bytes> leaves;
  std::vector<Segment> ranges;
};

Decoded decoded(const Exchange& x, const Outcome& outcome, base::PeerId peer) {
  Decoded d;
  const Codec codec = result_codec(x.plan, x.codec);
  for (const LeafSpec& leaf : x.leaves)
    d.leaves.emplace_back(leaf.count * codec::size_of(leaf.dtype));
  for (const Chunk& chunk : outcome.chunks) {
    const auto& result = outcome.results.at(peer)[chunk.index];
    if (!result) continue;
    std::size_t at = 0;
    for (const Segment& s : chunk.segments) {
      const Dtype dtype = x.leaves[s.leaf].dtype;
      codec::decode(codec, dtype, result->data() + at, s.count,
                    d.leaves[s.leaf].data() + s.first * codec::size_of(dtype));
      at += codec::encoded_bytes(codec, dtype, s.count);
      d.ranges.push_back(s);
    }
  }
  return d;
}

void expect_reduced(const Exchange& x, const Outcome& outcome) {
  ASSERT_TRUE(outcome.complete) << text_of(x);
  std::optional<std::vector<Bytes>> agreed;
  std::uint64_t elements = 0;
  for (const auto& [peer, results] : outcome.results) {
    const Decoded d = decoded(x, outcome, peer);
    if (x.plan.kind != PlanKind::kScatter) {
      if (agreed) {
        ASSERT_EQ(d.leaves, *agreed) << "peers differ: " << text_of(x);
        continue;
      }
      agreed = d.leaves;
    }
    for (const Segment& s : d.ranges) {
      elements += s.count;
      if (codec::is_float(x.leaves[s.leaf].dtype)) {
        expect_floats(x, s.leaf, d.leaves[s.leaf], s.first, s.first + s.count);
      } else {
        expect_integers(x, s.leaf, d.leaves[s.leaf], s.first, s.first + s.count);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  std::uint64_t all = 0;
  for (const LeafSpec& leaf : x.leaves) all += leaf.count;
  ASSERT_EQ(elements, all) << text_of(x);
}

TEST(ExchangeTest, every_world_plan_op_dtype_and_codec_meets_the_oracle) {
  std::uint64_t seed = 1;
  for (const std::uint32_t world : worlds()) {
    for (const PlanKind kind :
         {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing, PlanKind::kScatter}) {
      for (const Op op : kOps) {
        for (std::uint8_t d = 1; d <= codec::kDtypeNumberMax; ++d) {
          for (const Codec& codec : every_codec()) {
            const auto dtype = static_cast<Dtype>(d);
            if (!is_supported(op, dtype, codec) || is_refused(kind, codec)) continue;
            // All pairs in small worlds, a seeded third of them in larger ones, a ninth in the
            // largest: others in each.
            if (++seed % (world > 8 ? 9 : world > 4 ? 3 : 1) != 0) continue;
            const Exchange x = make_exchange(make_plan(kind, world, seed), op, dtype, codec, seed);
            expect_reduced(x, Executor(x).run());
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(ExchangeTest, weighted_means_and_sums_meet_the_oracle) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    base::Rng rng(seed);
    const auto kind = seed % 2 == 0 ? PlanKind::kDirect : PlanKind::kRing;
    const Plan plan = make_plan(kind, static_cast<std::uint32_t>(1 + rng.below(16)), seed);
    const auto dtype = static_cast<Dtype>(1 + rng.below(4));
    Exchange x =
        make_exchange(plan, seed % 3 == 0 ? Op::kSum : Op::kMean, dtype,
                      static_cast<CodecId>(rng.below(kind == PlanKind::kRing ? 7 : 8)), seed);
    for (double& w : x.weights) w = 1 + static_cast<double>(rng.below(1 << 20));
    if (x.op == Op::kSum || dtype == Dtype::kF16) {  // keep within the range of 16 bits
      for (double& w : x.weights) w /= 1 << 20;
    }
    expect_reduced(x, Executor(x).run());
    if (HasFatalFailure()) return;
  }
}

TEST(ExchangeTest, a_direct_result_has_the_same_bits_whatever_the_shares_cuts_and_timing) {
  for (const Codec& codec : every_codec()) {
    std::optional<std::vector<Bytes>> agreed;
    for (std::uint64_t trial = 0; trial < 12; ++trial) {
      Exchange x =
          make_exchange(make_plan(PlanKind::kDirect, 5, 1), Op::kMean, Dtype::kF32, codec, 9);
      base::Rng rng(trial);
      x.chunk_bytes = 1 + rng.below(9000);
      x.shuffle = trial;
      x.plan.shares.assign(5, 1);
      for (auto& share : x.plan.shares) share += static_cast<std::uint32_t>(rng.below(9));
      const auto result = decoded(x, Executor(x).run(), x.plan.order[0]).leaves;
      if (agreed) {
        EXPECT_EQ(result, *agreed) << codec::name_of(codec);
      }
      agreed = result;
    }
  }
}

TEST(ExchangeTest, an_exchange_has_the_bits_of_the_direct_plan) {
  for (const std::uint32_t world : worlds()) {
    for (const Codec& codec : every_codec()) {
      for (const Op op : {Op::kSum, Op::kMean}) {
        Exchange x = make_exchange(make_plan(PlanKind::kDirect, world, world), op, Dtype::kF32,
                                   codec, world);
        for (double& w : x.weights) w = 0.25 * static_cast<double>(1 + x.shuffle % 7);
        const auto direct = decoded(x, Executor(x).run(), x.plan.order[0]).leaves;
        x.plan.kind = PlanKind::kExchange;
        x.plan.shares.clear();
        const Outcome outcome = Executor(x).run();
        ASSERT_TRUE(outcome.complete);
        for (const auto& [peer, results] : outcome.results) {
          ASSERT_EQ(decoded(x, outcome, peer).leaves, direct) << text_of(x) << " peer " << peer;
        }
      }
    }
  }
}

TEST(ExchangeTest, a_gather_hands_every_peer_the_values_of_every_contributor) {
  for (const std::uint32_t world : worlds()) {
    for (const Codec& codec : every_codec()) {
      const Exchange x = make_exchange(make_plan(PlanKind::kGather, world, world), Op::kSum,
                                       Dtype::kF32, codec, world);
      const Outcome outcome = Executor(x).run();
      ASSERT_TRUE(outcome.complete);
      for (const auto& [peer, results] : outcome.results) {
        for (const Chunk& chunk : outcome.chunks) {
          std::size_t at = 0;
          for (const Segment& s : chunk.segments) {
            Bytes expected(codec::encoded_bytes(codec, Dtype::kF32, s.count));
            codec::encode(
                codec, Dtype::kF32, x.inputs[chunk.owner][s.leaf].data() + 4 * s.first, s.count,
                expected.data(),
                {codec::noise_seed(codec, {1, x.plan.order[chunk.owner], s.leaf}), s.first});
            ASSERT_EQ(
                std::memcmp(results[chunk.index]->data() + at, expected.data(), expected.size()),
                0);
            at += expected.size();
          }
        }
      }
    }
  }
}

// What top-k is for, and what it must not do: everything that was sent is in the result.
TEST(ExchangeTest, a_top_k_result_is_the_exact_sum_of_what_was_sent) {
  for (const std::uint32_t world : {1U, 2U, 3U, 16U}) {
    for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kScatter}) {
      for (const std::uint32_t kept : {1U, 40U, 400U, 4096U}) {
        Exchange x = make_exchange(make_plan(kind, world, kept), Op::kSum, Dtype::kF32,
                                   codec::top_k(kept), kept);
        x.leaves = {{Dtype::kF32, 9001}, {Dtype::kF32, 17}};
        for (std::uint32_t p = 0; p < world; ++p) {
          base::Rng rng(p);
          for (const std::uint32_t leaf : {0U, 1U}) {
            x.inputs[p].resize(2);
            x.inputs[p][leaf] = leaf_of(Dtype::kF32, x.leaves[leaf].count, Op::kSum, rng);
          }
        }
        const Outcome outcome = Executor(x).run();
        for (const auto& [peer, results] : outcome.results) {
          const Decoded d = decoded(x, outcome, peer);
          for (const Segment& s : d.ranges) {
            std::vector<float> sum(s.count), sent(s.count);
            for (std::uint32_t p = 0; p < world; ++p) {
              codec::roundtrip(x.codec, Dtype::kF32, x.inputs[p][s.leaf].data() + 4 * s.first,
                               s.count, sent.data());
              for (std::size_t i = 0; i < s.count; ++i)
                sum[i] = p == 0 ? sent[i] : sum[i] + sent[i];
            }
            const auto* got = reinterpret_cast<const float*>(d.leaves[s.leaf].data()) + s.first;
            for (std::size_t i = 0; i < s.count; ++i) ASSERT_EQ(got[i], sum[i]) << text_of(x);
          }
        }
      }
    }
  }
}

TEST(ExchangeTest, the_bytes_each_peer_sends_are_the_documented_ones) {
  for (const std::uint32_t world : {1U, 2U, 5U, 8U}) {
    for (const std::size_t receivers : {0, 2}) {
      for (const PlanKind kind :
           {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing, PlanKind::kScatter}) {
        Plan plan = make_plan(kind, world, 1);
        plan.shares.clear();
        const Codec codec =
            kind == PlanKind::kRing || receivers == 0 ? CodecId::kInt8 : CodecId::kTopK;
        Exchange x = make_exchange(plan, Op::kSum, Dtype::kF32, codec, 2);
        x.receivers = kind == PlanKind::kScatter || receivers == 0
                          ? std::vector<base::PeerId>{}
                          : std::vector<base::PeerId>{100, 101};
        const Outcome outcome = Executor(x).run();
        std::uint64_t encoded = 0;
        std::uint64_t contributed = 0;
        std::uint64_t partial = 0;
        std::uint64_t sent = 0;
        for (const Chunk& chunk : outcome.chunks) encoded += chunk.encoded_bytes;
        for (const Chunk& chunk : outcome.chunks) {
          for (const Segment& s : chunk.segments) {
            contributed += codec::encoded_bytes(codec, Dtype::kF32, s.count);
          }
        }
        for (const Chunk& chunk : outcome.chunks) partial += chunk.accumulator_bytes;
        for (const auto& [peer, bytes] : outcome.sent_bytes) sent += bytes;
        const std::uint64_t others = world - 1;
        if (kind == PlanKind::kExchange) {
          EXPECT_EQ(sent, others * world * contributed + x.receivers.size() * encoded)
              << text_of(x);
          continue;
        }
        const std::uint64_t up = kind == PlanKind::kRing ? partial : contributed;
        const std::uint64_t down = kind == PlanKind::kScatter ? 0 : encoded;
        EXPECT_EQ(sent, others * up + (others + x.receivers.size()) * down) << text_of(x);
      }
    }
  }
}

// The reason for the direct plan: its error does not grow with the world.
TEST(ExchangeTest, the_relative_error_of_an_int8_mean_is_flat_in_the_world) {
  for (const std::uint32_t world : {2U, 8U, 16U}) {
    Exchange x = make_exchange(make_plan(PlanKind::kDirect, world, 1), Op::kMean, Dtype::kF32,
                               CodecId::kInt8, 4);
    const Outcome outcome = Executor(x).run();
    const std::vector<double> result =
        floats_of(Dtype::kF32, decoded(x, outcome, x.plan.order[0]).leaves[4]);
    std::vector<std::vector<double>> in;
    for (const auto& leaves : x.inputs) in.push_back(floats_of(Dtype::kF32, leaves[4]));
    double error = 0;
    double norm = 0;
    for (std::uint64_t i = 0; i < kCounts[4]; ++i) {
      double mean = 0;
      for (const auto& values : in) mean += values[i] / world;
      error += std::pow(result[i] - mean, 2);
      norm += mean * mean;
    }
    EXPECT_LT(std::sqrt(error / norm), 0.0125) << world;
    EXPECT_GT(std::sqrt(error / norm), 0.004) << world;
  }
}

}  // namespace
}  // namespace jccl::collective
