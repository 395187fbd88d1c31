// Codecs in whole clusters: top-k loses nothing that was sent, stochastic rounding is the same on
// all peers and right in the mean, and what cannot be carried is refused by name.
#include <cmath>

#include "base/bytes.h"
#include "base/rng.h"
#include "capi/cluster_support.h"
#include "codec/reference.h"

namespace jccl::capi::test {
namespace {

using base::Bytes;
using codec::Codec;

constexpr std::size_t kCount = 9001;  // two blocks of 4096 and a short one

ClusterOptions several_chunks() {
  ClusterOptions options;
  options.peer.chunk_bytes = 4096;
  options.peer.deadline = 60 * kSecond;
  return options;
}

// Multiples of 2^-16, whose sums are exact in any order.
std::vector<float> values_of(std::size_t peer, std::uint64_t round) {
  base::Rng rng(peer * 1000 + round);
  std::vector<float> values(kCount);
  for (float& v : values) {
    v = static_cast<float>(std::round((rng.unit() * rng.unit() * 2 - 0.5) * 0x1p16)) * 0x1p-16F;
  }
  return values;
}

struct Round {
  std::vector<float> out;
  RoundResult result;
};

Round reduce(Communicator& comm, const Codec& codec, const std::string& plan, std::size_t peer,
             std::uint64_t round = 0) {
  const std::vector<float> in = values_of(peer, round);
  Round r{std::vector<float>(kCount), {}};
  RoundOptions o = sum_of("codecs");
  o.codec = codec;
  o.plan = plan;
  r.result = comm.run({leaf_of(in, r.out)}, o);
  EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
  return r;
}

TEST(ClusterCodecsTest, a_sparse_result_is_the_sum_of_what_each_sent) {
  for (const std::size_t world : {1, 2, 3}) {
    Cluster cluster(world, several_chunks());
    for (const char* plan : {"", "direct", "exchange"}) {
      for (const Codec& codec :
           {codec::top_k(3), codec::top_k(700), codec::top_k(4096),
            codec::top_k(3, codec::CodecId::kTopK2), codec::top_k(700, codec::CodecId::kTopK2)}) {
        std::vector<std::vector<float>> out(world);
        cluster.on_all(
            [&](std::size_t p, Communicator& comm) { out[p] = reduce(comm, codec, plan, p).out; });
        std::vector<float> sum(kCount), sent(kCount);
        for (std::size_t p = 0; p < world; ++p) {
          Bytes bytes(codec::encoded_bytes(codec, Dtype::kF32, kCount));
          codec::reference::encode(codec, values_of(p, 0).data(), kCount, bytes.data());
          codec::reference::decode(codec, bytes.data(), kCount, sent.data());
          for (std::size_t i = 0; i < kCount; ++i) sum[i] += sent[i];
        }
        for (std::size_t p = 0; p < world; ++p) {
          ASSERT_EQ(out[p], sum) << "world " << world << " plan '" << plan << "' "
                                 << name_of(codec);
        }
      }
    }
  }
}

TEST(ClusterCodecsTest, stochastic_rounding_is_alike_on_all_peers_and_plans_and_right_in_the_mean) {
  Cluster cluster(2, several_chunks());
  constexpr std::uint64_t kRounds = 64;
  for (const codec::CodecId id : {CodecId::kBf16, CodecId::kInt8, CodecId::kFp8, CodecId::kInt4}) {
    const Codec codec = codec::stochastic(id, 42);
    std::vector<double> sum(kCount);
    for (std::uint64_t n = 0; n < kRounds; ++n) {
      std::vector<std::vector<float>> out(2);
      const char* plan = n % 2 == 0 ? "direct" : "exchange";
      cluster.on_all(
          [&](std::size_t p, Communicator& comm) { out[p] = reduce(comm, codec, plan, p).out; });
      ASSERT_EQ(out[0], out[1]) << codec::name_of(codec);
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += out[0][i];
    }
    const auto a = values_of(0, 0), b = values_of(1, 0);
    double error = 0, square = 0, step = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double away = sum[i] / kRounds - (static_cast<double>(a[i]) + b[i]);
      error += away / kCount;
      square += away * away / kCount;
      step = std::max(step, 2 * codec::reference::error_bound(codec, 3.2, 3.2));
    }
    EXPECT_LE(std::fabs(error), step / 2 / std::sqrt(kRounds * kCount) * 6) << name_of(codec);
    EXPECT_LE(std::sqrt(square), step / std::sqrt(kRounds)) << name_of(codec);
    EXPECT_GT(square, 0);
  }
}

TEST(ClusterCodecsTest, a_gather_under_a_stochastic_codec_rounds_once) {
  Cluster cluster(2, several_chunks());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    const std::vector<float> in = values_of(p, 0);
    std::vector<float> out(2 * kCount);
    RoundOptions o = sum_of("gather");
    o.collective = Collective::kAllGather;
    o.slots = 2;
    o.codec = codec::stochastic(CodecId::kInt8, 1);
    Leaf leaf = leaf_of(in, out);
    const RoundResult r = comm.run({leaf}, o);
    ASSERT_TRUE(r.status.ok()) << r.status.text;
    for (std::size_t slot = 0; slot < 2; ++slot) {
      const auto values = values_of(slot, 0);
      const auto other = values_of(1 - slot, 0);
      // Which peer has which slot is up to the master: one of the two fits throughout.
      double error = 0, error_other = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        const float got = out[slot * kCount + i];
        error = std::max(error, std::fabs(static_cast<double>(got) - values[i]));
        error_other = std::max(error_other, std::fabs(static_cast<double>(got) - other[i]));
      }
      EXPECT_LE(std::min(error, error_other), codec::reference::error_bound(o.codec, 1.5, 1.5));
    }
  });
}

TEST(ClusterCodecsTest, what_cannot_be_carried_is_refused_by_name) {
  Cluster cluster(1, several_chunks());
  const auto text_of = [&](const Codec& codec, const std::string& plan) {
    std::vector<float> x(8, 1.0F);
    RoundOptions o = sum_of("refused");
    o.codec = codec;
    o.plan = plan;
    const RoundResult r = cluster[0].run({leaf_of(x, x)}, o);
    EXPECT_EQ(r.status.code, Code::kInvalid);
    return r.status.text;
  };
  EXPECT_NE(text_of(CodecId::kTopK, "ring").find("codec topk in a ring"), std::string::npos);
  EXPECT_NE(text_of(codec::stochastic(CodecId::kTopK, 0), "").find("stochastic"),
            std::string::npos);
  Codec wrong = CodecId::kInt8;
  wrong.kept = 5;
  EXPECT_NE(text_of(wrong, "").find("kept"), std::string::npos);
}

TEST(ClusterCodecsTest, parameters_that_differ_are_a_mismatch) {
  for (const auto& [mine, theirs] :
       {std::pair{codec::top_k(3), codec::top_k(4)},
        std::pair{codec::stochastic(CodecId::kInt8, 1), codec::stochastic(CodecId::kInt8, 2)},
        std::pair{Codec(CodecId::kInt8), codec::stochastic(CodecId::kInt8, 0)}}) {
    Cluster cluster(2, several_chunks());
    cluster.on_all([&, mine = mine, theirs = theirs](std::size_t p, Communicator& comm) {
      std::vector<float> x(8, 1.0F);
      RoundOptions o = sum_of("differ");
      o.codec = p == 0 ? mine : theirs;
      const RoundResult r = comm.run({leaf_of(x, x)}, o);
      EXPECT_EQ(r.status.code, Code::kMismatch) << r.status.text;
      EXPECT_NE(r.status.text.find(codec::name_of(mine)), std::string::npos) << r.status.text;
    });
  }
}

}  // namespace
}  // namespace jccl::capi::test
