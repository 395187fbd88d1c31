// Attempts whose inputs come while they run, and what they do where those don't.

#include "base/sanitized.h"
#include "exchange/attempt/attempt_bench.h"

namespace jccl::exchange {
namespace {

using codec::CodecId;

// What each peer has after its commit, by peer.
std::vector<std::vector<float>> results_of(Bench& bench) {
  std::vector<std::vector<float>> results;
  for (auto& peer : bench.peers_) {
    EXPECT_EQ(peer->done, 1) << "peer " << peer->index << ": " << peer->text;
    if (peer->done == 1) peer->run->commit();
    results.push_back(peer->out);
  }
  return results;
}

struct Form {
  PlanKind kind;
  std::size_t peers, receivers;
  CodecId codec = CodecId::kNone;
  bool encoded = false;
};

// Nothing is read before it is here (it is NaN until then), in whatever order inputs and frames
// come: the results are those of inputs that were there from the beginning.
TEST(AttemptFeedTest, inputs_may_come_while_the_attempt_runs) {
  const Form forms[] = {{PlanKind::kDirect, 4, 2},
                        {PlanKind::kDirect, 1, 3},  // a broadcast
                        {PlanKind::kDirect, 3, 1, CodecId::kInt8},
                        {PlanKind::kDirect, 3, 0, CodecId::kInt8, true},
                        {PlanKind::kExchange, 4, 1},
                        {PlanKind::kExchange, 3, 0, CodecId::kInt8, true},
                        {PlanKind::kRing, 4, 1},
                        {PlanKind::kRing, 3, 0, CodecId::kInt8, true},
                        {PlanKind::kGather, 3, 0},
                        {PlanKind::kScatter, 3, 0},
                        {PlanKind::kScatter, 3, 0, CodecId::kInt8},
                        {PlanKind::kAllToAll, 3, 1},
                        {PlanKind::kAllToAll, 3, 0, CodecId::kInt8}};
  for (const Form& form : forms) {
    for (const std::size_t second : {0U, 3000U}) {
      std::vector<std::vector<float>> expected;
      for (std::uint64_t seed = 1; seed <= (base::kSanitized ? 3 : 12); ++seed) {
        Bench::Setting setting{form.kind, form.peers, form.receivers, 8000, seed % 2 == 0};
        setting.codec = form.codec;
        setting.encoded = form.encoded;
        setting.seed = seed;
        setting.second = second;
        setting.feeds = seed > 1;
        Bench bench(setting);
        bench.begin();
        if (seed % 3 == 0) {  // with a part of it here already
          bench.deliver_and_feed(10);
          bench.retry();
        }
        bench.deliver_and_feed();
        const auto results = results_of(bench);
        if (seed == 1) expected = results;
        EXPECT_EQ(results, expected) << "plan " << static_cast<int>(form.kind) << ", seed " << seed;
      }
    }
  }
}

Bench::Setting feeding(PlanKind kind, CodecId codec, bool encoded) {
  Bench::Setting setting{kind, 3, 0, 20000};
  setting.codec = codec;
  setting.encoded = encoded;
  setting.feeds = true;
  return setting;
}

TEST(AttemptFeedTest, a_feed_that_fails_leaves_this_contribution_out) {
  for (const PlanKind kind :
       {PlanKind::kDirect, PlanKind::kRing, PlanKind::kScatter, PlanKind::kAllToAll}) {
    Bench bench(feeding(kind, CodecId::kNone, false));
    bench.begin();
    for (auto& peer : bench.peers_) peer->bring(peer->index == 1 ? 60000 : SIZE_MAX / 2);
    bench.deliver_all();
    EXPECT_EQ(bench.peers_[1]->done, 0);
    EXPECT_EQ(bench.peers_[1]->failed, Code::kOk);
    bench.peers_[1]->call->feed->why = "the device is gone";
    bench.peers_[1]->run->fed();
    EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
    EXPECT_EQ(bench.peers_[1]->named, Bench::id(1));
    EXPECT_EQ(bench.peers_[1]->text, "the device is gone");
    bench.peers_[1]->failed = Code::kOk;
    bench.retry();  // of a feed that has failed before
    EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
  }
}

// What the start of a call can't look at is looked at when it is here.
TEST(AttemptFeedTest, bytes_that_no_encoder_writes_are_left_out) {
  Bench bench(feeding(PlanKind::kDirect, CodecId::kInt8, true));
  bench.peers_[1]->whole[10] = 0x80;
  bench.begin();
  bench.deliver_and_feed();
  EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
  EXPECT_NE(bench.peers_[1]->text.find("params/w"), std::string::npos) << bench.peers_[1]->text;
  EXPECT_NE(bench.peers_[1]->text.find("block 0 has a code"), std::string::npos)
      << bench.peers_[1]->text;
}

}  // namespace
}  // namespace jccl::exchange
