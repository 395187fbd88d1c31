// Communicators that are closed, or leave, while their rounds run.
#include <set>

#include "capi/cluster_support.h"
#include "peer/streamed_input.h"

namespace jccl::capi::test {
namespace {

TEST(TeardownTest, a_busy_cluster_ends_soon_and_every_call_with_it) {
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    Cluster cluster(3);
    std::atomic<int> rounds{0};
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < 3; ++p) {
      threads.emplace_back([&, p] {
        for (;;) {
          std::vector<float> x(200000, 1);
          const RoundResult r = cluster[p].run({leaf_of(x, x)}, sum_of("x"));
          ++rounds;
          if (r.status.code == Code::kClosed) return;
          ASSERT_EQ(x[0], r.status.ok() ? static_cast<float>(r.world) : 1.0F);
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return rounds > 9; }));
    for (std::size_t p = 0; p < 3; ++p) cluster[p].close();
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60));
}

// A call that was counted is never told that it surely was not: whoever calls again after CLOSED,
// as its remedy says, must not be counted twice. Eight calls are under way whenever it closes.
TEST(TeardownTest, who_closes_is_not_told_that_a_counted_call_was_none) {
  constexpr int kTags = 8;
  for (int turn = 0; turn < 15; ++turn) {
    Cluster cluster(2);
    std::mutex mutex;
    std::set<double> counted, told;  // weights: each call has its own
    const auto call = [&](Communicator& comm, int tag, double weight) {
      std::vector<float> x(1000, 1);
      RoundOptions o = sum_of(cat("x", tag));
      o.weight = weight;
      const RoundResult r = comm.run({leaf_of(x, x)}, o);
      std::lock_guard lock(mutex);
      for (const double w : r.weights) counted.insert(w);
      const bool may_be = r.status.code == Code::kInDoubt || r.status.code == Code::kEvicted;
      if (!r.status.ok() && !may_be) told.insert(weight);
      return r;
    };
    std::atomic<int> rounds{0};
    std::vector<std::thread> threads;
    for (int tag = 0; tag < kTags; ++tag) {
      threads.emplace_back([&, tag] {
        for (double w = 1 + 1e6 * tag; call(cluster[0], tag, w).status.ok(); ++w) ++rounds;
      });
      threads.emplace_back([&, tag] {  // until it has a result of its own
        double w = 1e8 + 1e6 * tag;
        while (call(cluster[1], tag, w).world == 2) ++w;
      });
    }
    EXPECT_TRUE(eventually([&] { return rounds > 3 * kTags + turn; }));
    cluster[0].close();
    for (std::thread& thread : threads) thread.join();
    for (const double weight : told) EXPECT_EQ(counted.count(weight), 0) << "call " << weight;
  }
}

RoundOptions barrier_of(const std::string& tag) {
  RoundOptions options = sum_of(tag);
  options.collective = Collective::kBarrier;
  return options;
}

// The round is held up by its own data until this peer is about to leave.
TEST(LeavingTest, a_round_that_moves_goes_on_to_its_end_and_nobody_tries_again) {
  constexpr std::size_t kElements = 100'000;
  Cluster cluster(3);
  const auto feed = std::make_shared<peer::StreamedInput>(kElements * sizeof(float));
  std::vector<float> x(kElements, 1), out(kElements);
  RoundOptions fed = sum_of("x");
  fed.feed = feed;
  const auto moving = cluster[0].start({leaf_of(x, out)}, fed);
  ASSERT_TRUE(moving.ok());
  std::vector<std::thread> others;
  for (std::size_t p = 1; p < 3; ++p) {
    others.emplace_back([&, p] {
      for (const std::uint32_t world : {3U, 2U}) {
        std::vector<float> y(kElements, 1);
        const RoundResult r = cluster[p].run({leaf_of(y, y)}, sum_of("x"));
        EXPECT_TRUE(r.status.ok()) << r.status.text;
        EXPECT_EQ(r.world, world);
        EXPECT_EQ(r.attempts, 1U) << "a peer that leaves costs nobody an attempt";
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return contains(cluster[0].waiting_for(), "x: data"); }));
  const auto waits = cluster[0].start({}, barrier_of("only here"));
  ASSERT_TRUE(waits.ok());
  std::thread leaver([&] { cluster[0].leave(); });
  EXPECT_EQ(cluster[0].wait(waits.value()).status.code, Code::kClosed);
  const RoundResult late = cluster[0].run({}, barrier_of("too late"));
  EXPECT_EQ(late.status.code, Code::kClosed) << late.status.text;
  feed->advance(feed->bytes());
  const RoundResult mine = cluster[0].wait(moving.value());
  EXPECT_TRUE(mine.status.ok()) << mine.status.text;
  EXPECT_EQ(mine.world, 3U);
  leaver.join();
  for (std::thread& other : others) other.join();
  const auto heard = [&] { return cluster[1].attributes().departures == 1; };
  EXPECT_TRUE(eventually(heard));
  EXPECT_TRUE(contains(cluster[1].attributes().departed.at(0), " left"));
}

}  // namespace
}  // namespace jccl::capi::test
