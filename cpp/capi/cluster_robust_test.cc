// Robust aggregators in whole clusters: every peer gets the bits of the formula over those who are
// in the result, also when one of them dies on the way; and what cannot be carried is refused.
#include <algorithm>

#include "base/rng.h"
#include "capi/cluster_support.h"
#include "collective/kernels/aggregate.h"

namespace jccl::capi::test {
namespace {

using collective::Aggregator;
using collective::AggregatorId;

constexpr std::size_t kRobustElements = 30'011;
constexpr Aggregator kRobustKinds[] = {{AggregatorId::kTrimmedMean, 0.25},
                                       {AggregatorId::kMedian, 0},
                                       {AggregatorId::kCenteredClip, 1},
                                       {AggregatorId::kNormLimit, 2}};

ClusterOptions robust_options() {
  ClusterOptions options;
  options.peer.chunk_bytes = 4096;
  options.peer.deadline = 60 * kSecond;
  return options;
}

// One peer's values in one round; the last peer's are a hundred times as long.
std::vector<float> robust_values(std::size_t peer, std::uint64_t round, bool lies = false) {
  base::Rng rng(peer * 1000 + round);
  std::vector<float> values(kRobustElements);
  for (float& v : values) v = static_cast<float>(rng.unit() - 0.5) * (lies ? 100.0F : 1.0F);
  return values;
}

RoundOptions robust_round(const Aggregator& aggregator, const std::string& plan = "") {
  RoundOptions o;
  o.tag = "robust";
  o.aggregator = aggregator;
  o.plan = plan;
  o.deadline = 60 * kSecond;
  return o;
}

std::vector<float> robust_result(const Aggregator& aggregator,
                                 const std::vector<std::vector<float>>& inputs) {
  collective::Contributions all{Dtype::kF32, {}, {}, kRobustElements};
  for (const auto& input : inputs) {
    all.encoded.push_back(reinterpret_cast<const std::uint8_t*>(input.data()));
  }
  std::vector<float> out(kRobustElements);
  collective::AggregateScratch scratch;
  collective::aggregate(aggregator, all, &scratch, out.data());
  return out;
}

TEST(ClusterRobustTest, all_peers_and_plans_give_the_bits_of_the_formula) {
  for (const std::size_t world : {1, 2, 3, 5}) {
    Cluster cluster(world, robust_options());
    std::vector<std::vector<float>> inputs;
    for (std::size_t p = 0; p < world; ++p) inputs.push_back(robust_values(p, 0, p + 1 == world));
    for (const Aggregator& aggregator : kRobustKinds) {
      const std::vector<float> expected = robust_result(aggregator, inputs);
      for (const char* plan : {"", "direct", "exchange"}) {
        cluster.on_all([&](std::size_t p, Communicator& comm) {
          std::vector<float> out(kRobustElements);
          RoundOptions o = robust_round(aggregator, plan);
          o.weight = static_cast<double>(1 + 3 * p);  // buys nothing
          const RoundResult r = comm.run({leaf_of(inputs[p], out)}, o);
          ASSERT_TRUE(r.status.ok()) << r.status.text;
          EXPECT_EQ(out, expected)
              << collective::name_of(aggregator) << " " << plan << " " << world;
        });
      }
    }
  }
}

// The median of whole numbers, found by nothing of ours.
TEST(ClusterRobustTest, the_median_of_five_is_the_third) {
  Cluster cluster(5, robust_options());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(kRobustElements), out(kRobustElements);
    for (std::size_t k = 0; k < kRobustElements; ++k) {
      x[k] = static_cast<float>((p * 7 + k * 3) % 5 * 10 + k % 10);
    }
    x[5] = p == 2 ? -0.0F : 0.0F;
    const RoundResult r = comm.run({leaf_of(x, out)}, robust_round({AggregatorId::kMedian, 0}));
    ASSERT_TRUE(r.status.ok()) << r.status.text;
    for (std::size_t k = 0; k < kRobustElements; ++k) {
      const float middle = k == 5 ? 0 : static_cast<float>(20 + k % 10);
      ASSERT_EQ(out[k], middle) << k;
    }
  });
}

TEST(ClusterRobustTest, who_only_receives_has_no_rank) {
  Cluster cluster(4, robust_options());
  std::vector<std::vector<float>> inputs;
  for (std::size_t p = 0; p < 3; ++p) inputs.push_back(robust_values(p, 1));
  const Aggregator median{AggregatorId::kMedian, 0};
  const std::vector<float> expected = robust_result(median, inputs);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x = p < 3 ? inputs[p] : std::vector<float>(kRobustElements, 1e9F),
                       out(kRobustElements);
    RoundOptions o = robust_round(median);
    o.weight = p < 3 ? 1 : 0;
    const RoundResult r = comm.run({leaf_of(x, out)}, o);
    ASSERT_TRUE(r.status.ok()) << r.status.text;
    EXPECT_EQ(r.world, 3u);
    EXPECT_EQ(out, expected);
  });
}

// One leaves in the middle of its round, at another moment each time: those who stay get the
// formula's bits over whoever the result names, itself among them or not.
TEST(ClusterRobustTest, a_death_on_the_way_leaves_the_bits_of_those_who_are_in) {
  for (std::uint64_t round = 0; round < 8; ++round) {
    const Aggregator& aggregator = kRobustKinds[round % 4];
    Cluster cluster(4, robust_options());
    std::vector<base::PeerId> ids(4);
    std::mutex mutex;
    std::vector<std::vector<float>> outs(3);
    std::vector<RoundResult> results(3);
    cluster.on_all([&](std::size_t p, Communicator& comm) {
      std::vector<float> x = robust_values(p, round), out(kRobustElements);
      ASSERT_TRUE(small_round(comm, sum_of("first"), 1).result.status.ok());
      ids[p] = comm.attributes().id;
      RoundOptions o = robust_round(aggregator, round % 2 == 0 ? "direct" : "exchange");
      if (p == 3) {
        const auto handle = comm.start({leaf_of(x, out)}, o);
        ASSERT_TRUE(handle.ok());
        const std::uint64_t enough = round * 20'000;
        eventually([&] { return comm.attributes().sent_bytes >= enough; },
                   std::chrono::milliseconds(300));
        comm.close();
        return;
      }
      const RoundResult r = comm.run({leaf_of(x, out)}, o);
      ASSERT_TRUE(r.status.ok()) << r.status.text;
      std::lock_guard lock(mutex);
      outs[p] = std::move(out);
      results[p] = r;
    });
    ASSERT_FALSE(HasFatalFailure());
    std::vector<std::vector<float>> inputs;
    for (const base::PeerId id : results[0].contributors) {
      const auto at = std::find(ids.begin(), ids.end(), id) - ids.begin();
      inputs.push_back(robust_values(static_cast<std::size_t>(at), round));
    }
    ASSERT_GE(inputs.size(), 3u);
    const std::vector<float> expected = robust_result(aggregator, inputs);
    for (std::size_t p = 0; p < 3; ++p) {
      EXPECT_EQ(results[p].contributors, results[0].contributors);
      EXPECT_EQ(outs[p], expected) << "round " << round << " peer " << p;
    }
  }
}

TEST(ClusterRobustTest, aggregators_that_differ_are_a_mismatch_that_names_both) {
  Cluster cluster(2, robust_options());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(8, 1.0F);
    const Aggregator mine{AggregatorId::kTrimmedMean, p == 0 ? 0.25 : 0.125};
    const RoundResult r = comm.run({leaf_of(x, x)}, robust_round(mine));
    EXPECT_EQ(r.status.code, Code::kMismatch) << r.status.text;
    EXPECT_TRUE(contains(r.status.text, "aggregator trimmed_mean:trim=0.25")) << r.status.text;
    EXPECT_TRUE(contains(r.status.text, "aggregator trimmed_mean:trim=0.125")) << r.status.text;
  });
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(8, 1.0F);
    RoundOptions o = robust_round(p == 0 ? Aggregator{} : Aggregator{AggregatorId::kMedian, 0});
    EXPECT_EQ(comm.run({leaf_of(x, x)}, o).status.code, Code::kMismatch);
  });
}

TEST(ClusterRobustTest, a_ring_and_other_collectives_are_refused_in_words) {
  Cluster cluster(1, robust_options());
  std::vector<float> x(8, 1.0F);
  const Aggregator median{AggregatorId::kMedian, 0};
  const RoundResult ring = cluster[0].run({leaf_of(x, x)}, robust_round(median, "ring"));
  EXPECT_EQ(ring.status.code, Code::kInvalid);
  EXPECT_TRUE(contains(ring.status.text, "use plan auto, direct or exchange"));
  RoundOptions o = robust_round(median);
  o.collective = Collective::kBroadcast;
  o.root = true;
  const RoundResult broadcast = cluster[0].run({leaf_of(x, x)}, o);
  EXPECT_EQ(broadcast.status.code, Code::kInvalid);
  EXPECT_TRUE(contains(broadcast.status.text, "is for all_reduce, not for broadcast"));
}

}  // namespace
}  // namespace jccl::capi::test
