// STARTs and plans that are not about the call: refused before anything of them sizes or indexes
// memory.
#include <cmath>
#include <limits>

#include "base/limits.h"
#include "exchange/attempt/attempt_bench.h"

namespace jccl::exchange {
namespace {

constexpr PlanKind kKinds[] = {PlanKind::kDirect,  PlanKind::kRing,     PlanKind::kGather,
                               PlanKind::kScatter, PlanKind::kExchange, PlanKind::kAllToAll};

base::Bytes plan_of(PlanKind kind, std::vector<base::PeerId> order,
                    std::vector<std::uint32_t> shares = {}) {
  return collective::encode({kind, std::move(order), std::move(shares)});
}

base::Status prepared(Bench& bench, const wire::Start& start, std::size_t peer = 0) {
  Bench::Peer& at = *bench.peers_[peer];
  Attempt run(start, Bench::id(peer), at.call, &bench.memory_, 4096, &at);
  return run.prepare();
}

TEST(AttemptPlanTest, a_plan_of_another_kind_than_the_call_is_refused) {
  const struct {
    Collective collective;
    std::string plan;
    std::vector<PlanKind> fit;
  } calls[] = {
      {Collective::kAllReduce, "", {PlanKind::kDirect, PlanKind::kRing, PlanKind::kExchange}},
      {Collective::kAllReduce,
       "fastest",
       {PlanKind::kDirect, PlanKind::kRing, PlanKind::kExchange}},
      {Collective::kAllReduce, "direct", {PlanKind::kDirect}},
      {Collective::kAllReduce, "ring", {PlanKind::kRing}},
      {Collective::kAllReduce, "exchange", {PlanKind::kExchange}},
      {Collective::kBarrier, "", {PlanKind::kDirect, PlanKind::kRing, PlanKind::kExchange}},
      {Collective::kAllGather, "", {PlanKind::kGather}},
      {Collective::kReduceScatter, "", {PlanKind::kScatter}},
      {Collective::kAllToAll, "", {PlanKind::kAllToAll}},
  };
  for (const auto& call : calls) {
    for (const PlanKind kind : kKinds) {
      Bench bench({});
      Terms& options = bench.peers_[0]->call->options;
      options.collective = call.collective;
      options.plan = call.plan;
      wire::Start start = bench.start_;
      start.plan = plan_of(kind, {10, 11, 12});
      const base::Status status = prepared(bench, start);
      const bool fits = std::find(call.fit.begin(), call.fit.end(), kind) != call.fit.end();
      EXPECT_EQ(status.code, fits ? Code::kOk : Code::kInvalid) << status.text;
      if (fits) continue;
      EXPECT_NE(status.text.find(collective::name_of(kind)), std::string::npos) << status.text;
    }
  }
}

// The smallest form: every peer's output has room for one copy, a gather writes three.
TEST(AttemptPlanTest, a_gather_never_writes_beyond_the_output_of_an_all_reduce) {
  Bench bench({PlanKind::kDirect, 3, 0, 5000, true});
  bench.start_.plan = plan_of(PlanKind::kGather, {10, 11, 12});
  for (auto& peer : bench.peers_) peer->start();
  for (auto& peer : bench.peers_) {
    EXPECT_EQ(peer->run->prepare().code, Code::kInvalid);
    EXPECT_EQ(peer->out, std::vector<float>(5000, -1.0F));
  }
}

TEST(AttemptPlanTest, a_start_with_other_parts_than_its_plan_is_refused) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  using Change = void (*)(wire::Start&);
  const Change changes[] = {
      [](wire::Start& s) { s.contributors.pop_back(); },
      [](wire::Start& s) { s.contributors.push_back({99, 1}); },
      [](wire::Start& s) { s.contributors.push_back(s.contributors.front()); },
      [](wire::Start& s) { s.contributors[1].id = 0; },
      [](wire::Start& s) { s.contributors.clear(); },
      [](wire::Start& s) { s.receivers.push_back(11); },
      [](wire::Start& s) { s.receivers = {20, 20}; },
      [](wire::Start& s) { s.receivers = {0}; },
      [](wire::Start& s) {
        for (base::PeerId id = 0; id < base::kPeersMax; ++id) s.receivers.push_back(100 + id);
      },
      [](wire::Start& s) { s.plan = plan_of(PlanKind::kDirect, {10, 11}); },
      [](wire::Start& s) { s.plan = plan_of(PlanKind::kDirect, {10, 11, 13}); },
      [](wire::Start& s) { s.contributors[0].weight = 2; },  // this peer's own
  };
  for (const Change& change : changes) {
    Bench bench({});
    wire::Start start = bench.start_;
    change(start);
    const base::Status status = prepared(bench, start);
    EXPECT_EQ(status.code, Code::kInternal) << status.text;
    EXPECT_NE(status.text.find("START"), std::string::npos) << status.text;
  }
  for (const double weight : {nan, inf, -inf, -1.0}) {
    Bench bench({});
    wire::Start start = bench.start_;
    start.contributors[1].weight = weight;
    EXPECT_EQ(prepared(bench, start).code, Code::kInternal) << weight;
  }
}

TEST(AttemptPlanTest, a_start_without_a_part_for_this_peer_is_refused) {
  Bench bench({PlanKind::kDirect, 3, 1});
  EXPECT_TRUE(prepared(bench, bench.start_, 3).ok());
  wire::Start start = bench.start_;
  start.receivers.clear();
  EXPECT_EQ(prepared(bench, start, 3).code, Code::kInternal);
}

TEST(AttemptPlanTest, weights_whose_sum_is_nothing_end_the_attempt) {
  Bench bench({});
  wire::Start start = bench.start_;
  for (wire::Contributor& one : start.contributors) one.weight = 0;
  bench.peers_[0]->call->options.weight = 0;
  EXPECT_EQ(prepared(bench, start).code, Code::kEmpty);
}

TEST(AttemptPlanTest, more_contributors_than_slots_are_refused) {
  for (const PlanKind kind : {PlanKind::kGather, PlanKind::kAllToAll}) {
    Bench bench({kind, 3});
    bench.peers_[0]->call->options.slots = 2;
    EXPECT_EQ(prepared(bench, bench.start_).code, Code::kLimit);
  }
}

// Shares and counts at their bounds: nobody owns anything that isn't there.
TEST(AttemptPlanTest, the_oddest_shares_and_a_thousand_peers_give_a_whole_layout) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{5000}}) {
    for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
      for (const std::uint32_t first : {0U, 1U, UINT32_MAX}) {
        Bench bench({kind, 3, 0, count});
        bench.start_.plan = plan_of(kind, {10, 11, 12}, {first, UINT32_MAX, 0});
        for (auto& peer : bench.peers_) peer->start();
        bench.begin();
        bench.deliver_all();
        bench.expect_committed();
      }
    }
  }
  for (const PlanKind kind : kKinds) {
    Bench bench({kind, 3, 0, 1});
    wire::Start start = bench.start_;
    std::vector<base::PeerId> order;
    start.contributors.clear();
    for (base::PeerId id = 10; id < 10 + base::kPeersMax; ++id) {
      order.push_back(id);
      start.contributors.push_back({id, 1.0});
    }
    start.plan = plan_of(kind, order);
    bench.peers_[0]->call->options.slots = base::kPeersMax;
    EXPECT_TRUE(prepared(bench, start).ok());
  }
}

}  // namespace
}  // namespace jccl::exchange
