// Attempts whose call's state is compared while their data move: part of the own contribution is
// kept back, so that nobody has a result before the state is known to be the run's.
#include "exchange/attempt/attempt_bench.h"

namespace jccl::exchange {
namespace {

using codec::CodecId;

struct Way {
  PlanKind kind;
  CodecId codec = CodecId::kNone;
  bool encoded = false, feeds = false;
};

const Way kWays[] = {{PlanKind::kDirect},
                     {PlanKind::kDirect, CodecId::kInt8},
                     {PlanKind::kDirect, CodecId::kInt8, true},
                     {PlanKind::kDirect, CodecId::kNone, false, true},
                     {PlanKind::kExchange},
                     {PlanKind::kRing},
                     {PlanKind::kRing, CodecId::kInt8, true},
                     {PlanKind::kGather},
                     {PlanKind::kScatter},
                     {PlanKind::kAllToAll},
                     {PlanKind::kAllToAll, CodecId::kInt8}};

// Peer 1 of three compares.
struct Comparing : Bench {
  explicit Comparing(const Way& form, std::size_t count = 20000)
      : Bench(setting(form, count)), call(*peers_[1]->call) {
    call.compared = Comparison::kRuns;
    begin();
    deliver_and_feed();
  }
  static Setting setting(const Way& form, std::size_t count) {
    Setting setting{form.kind, 3, 0, count};
    setting.codec = form.codec, setting.encoded = form.encoded, setting.feeds = form.feeds;
    return setting;
  }
  // As the communicator does.
  void compared(Comparison outcome) {
    call.differs = "leaf 3";
    call.compared = outcome;
    peers_[1]->run->fed();
    deliver_and_feed();
  }
  // Of a scatter: who has the whole of its own part.
  int done() const {
    int sum = 0;
    for (const auto& peer : peers_) sum += peer->done;
    return sum;
  }
  TestCall& call;
};

TEST(AttemptCompareTest, data_move_but_no_result_is_whole_before_the_state_was_compared) {
  for (const Way& form : kWays) {
    const std::string name = base::cat("plan ", static_cast<int>(form.kind));
    Bench plain(Comparing::setting(form, 20000));
    plain.begin();
    plain.deliver_and_feed();
    Comparing bench(form);
    EXPECT_EQ(bench.done(), 0) << name;
    EXPECT_GT(bench.call.received_bytes, 0U) << name;
    bench.compared(Comparison::kEqual);
    for (std::size_t p = 0; p < 3; ++p) {
      EXPECT_EQ(bench.peers_[p]->done, 1) << name << ": " << bench.peers_[p]->text;
      EXPECT_EQ(bench.peers_[p]->result, plain.peers_[p]->result) << name;
    }
  }
}

TEST(AttemptCompareTest, a_state_that_differs_ends_the_attempt_here_and_is_in_nobodys_result) {
  for (const Way& form : kWays) {
    Comparing bench(form);
    bench.compared(Comparison::kDiffers);
    EXPECT_EQ(bench.peers_[1]->failed, Code::kResync);
    EXPECT_EQ(bench.peers_[1]->text, "leaf 3");
    EXPECT_EQ(bench.done(), 0);
  }
}

// The next attempt, or the first one where the comparison was faster than START.
TEST(AttemptCompareTest, no_attempt_begins_for_a_state_that_is_known_to_differ) {
  Comparing bench(kWays[0]);
  bench.compared(Comparison::kDiffers);
  bench.peers_[1]->start();
  const base::Status refused = bench.peers_[1]->run->prepare();
  EXPECT_EQ(refused.code, Code::kResync);
  EXPECT_EQ(refused.text, "leaf 3");
}

// The outcome is written by another thread: frames come before this one is told.
TEST(AttemptCompareTest, a_difference_that_this_thread_was_not_told_of_yet_lets_nothing_go) {
  for (const Way& form : kWays) {
    const std::string name = base::cat("plan ", static_cast<int>(form.kind));
    for (const bool after_start : {false, true}) {
      Bench bench(Comparing::setting(form, 20000));
      Bench::Peer& own = *bench.peers_[1];
      own.call->compared = Comparison::kRuns;
      own.call->differs = "leaf 3";
      for (auto& peer : bench.peers_) ASSERT_TRUE(peer->run->prepare().ok());
      if (!after_start) own.call->compared = Comparison::kDiffers;
      own.run->begin();
      own.call->compared = Comparison::kDiffers;
      bench.peers_[0]->run->begin();
      bench.peers_[2]->run->begin();
      bench.deliver_and_feed();
      EXPECT_EQ(own.done, 0) << name;
      own.run->fed();
      bench.deliver_and_feed();
      EXPECT_EQ(own.failed, Code::kResync) << name;
      const int done = bench.peers_[0]->done + bench.peers_[2]->done;
      EXPECT_EQ(done, 0) << name;
    }
  }
}

// Of whoever dies meanwhile, nobody misses the part: what the others hold would be the result.
TEST(AttemptCompareTest, of_a_scatter_no_part_is_whole) {
  for (std::size_t p = 0; p < 3; ++p) {
    Bench bench(Comparing::setting({PlanKind::kScatter}, 20000));
    bench.peers_[p]->call->compared = Comparison::kRuns;
    bench.begin();
    bench.deliver_all();
    for (std::size_t o = 0; o < 3; ++o) EXPECT_EQ(bench.peers_[o]->done, 0) << p << " " << o;
  }
}

TEST(AttemptCompareTest, of_a_single_chunk_all_is_kept_back) {
  Comparing bench(kWays[0], 7);
  EXPECT_EQ(bench.done(), 0);
  bench.compared(Comparison::kEqual);
  EXPECT_EQ(bench.done(), 3);
}

}  // namespace
}  // namespace jccl::exchange
