// The simulator on trial: same seed, same run; the machines keep their promises over some hundred
// seeds; and planted bugs are found.
#include <gtest/gtest.h>

#include "sim/mutants.h"
#include "sim/world.h"

namespace jccl::sim {
namespace {

Report run_seed(std::uint64_t seed, base::Planted mutant = {}, bool trace = false) {
  return simulate({seed, mutant, trace, 30, nullptr});
}

std::string told(const Report& report) {
  return base::cat("seed ", report.seed, ": ", report.promise, ": ", report.what, "\n",
                   report.mix.describe());
}

TEST(SimTest, a_seed_gives_the_same_run_again) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Report first = run_seed(seed), second = run_seed(seed), traced = run_seed(seed, {}, true);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.trace_hash, traced.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.counts.events, second.counts.events) << "seed " << seed;
  }
  EXPECT_NE(run_seed(1).trace_hash, run_seed(2).trace_hash);
}

TEST(SimTest, three_hundred_seeds_keep_every_promise_and_do_something) {
  Counts counts;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Report report = run_seed(seed);
    ASSERT_TRUE(report.promise.empty()) << told(report);
    counts.add(report.counts);
  }
  std::uint64_t busy = 0;  // 30 commits or more: a run that is only broken finds nothing
  for (std::size_t step = 5; step < counts.commits_spread.size(); ++step) {
    busy += counts.commits_spread[step];
  }
  // Half of them were while a frame was one message that came at once. With data in several frames
  // on stripes that stand by turns, a round takes longer, and faults end at the same time.
  EXPECT_GT(busy, counts.seeds * 9 / 20);
  EXPECT_LT(counts.lost_states, counts.seeds / 3);
  EXPECT_GT(counts.commits, 10 * counts.seeds);
  EXPECT_GT(counts.aborts, counts.seeds / 10);
  EXPECT_GT(counts.deliveries, counts.commits);
  EXPECT_GT(counts.master_starts, counts.seeds * 5 / 4);
  EXPECT_GT(counts.torn_rows, 0U);
  EXPECT_GT(counts.edits, 0U);
  EXPECT_GT(counts.forgotten, 0U);
  EXPECT_GT(counts.claims_refused, 0U);
  EXPECT_GT(counts.fast_rings, 0U);
  for (std::size_t kind = 0; kind < kFaults; ++kind) {
    EXPECT_GT(counts.faults[kind], 0U) << name_of(static_cast<Fault>(kind));
  }
  using base::Code;
  for (const Code code : {Code::kOk, Code::kEmpty, Code::kDeadline, Code::kInDoubt, Code::kGuard,
                          Code::kMismatch, Code::kAborted, Code::kResync, Code::kEvicted}) {
    EXPECT_GT(counts.codes[static_cast<std::size_t>(code)], 0U) << base::name_of(code);
  }
}

TEST(SimTest, every_mutant_has_a_name_of_its_own_and_its_table_survives_writing) {
  Catches catches;
  for (const MutantRow& row : mutants()) {
    EXPECT_EQ(find_mutant(row.name), &row);
    catches[std::string(row.name)] = {catches.size() + 7, "P1"};
  }
  EXPECT_EQ(catches.size(), mutants().size());
  for (const MutantRow& row : hostile_mutants()) {  // some are listed in both
    EXPECT_EQ(find_mutant(row.name)->mutant, row.mutant);
  }
  const base::Result<Catches> read = read_catches(write_catches(catches));
  ASSERT_TRUE(read.ok()) << read.status().text;
  for (const auto& [name, entry] : catches) {
    EXPECT_EQ(read.value().at(name).seed, entry.seed);
    EXPECT_EQ(read.value().at(name).promise, "P1");
  }
  EXPECT_FALSE(read_catches("a-name-alone").ok());
  EXPECT_FALSE(read_catches("a-name x P1").ok());
}

// A few that are quick to find; all of them: jccl-sim --mutants.
TEST(SimTest, planted_bugs_are_found_and_leave_no_trace) {
  for (const base::Planted mutant :
       {base::planted("commit-told-early"), base::planted("written-before-commit"),
        base::planted("first-done-commits"), base::planted("visible-at-done")}) {
    std::uint64_t seed = 1;
    while (seed <= 100 && run_seed(seed, mutant).promise.empty()) ++seed;
    EXPECT_LE(seed, 100U) << static_cast<std::uint64_t>(mutant);
  }
  EXPECT_TRUE(run_seed(1).promise.empty());
}

base::Bytes plan_of(collective::PlanKind kind) {
  collective::Plan plan;
  plan.kind = kind, plan.order = {1, 2, 3};
  return collective::encode(plan);
}

TEST(SimTest, a_sum_shows_who_is_missing_or_counted_twice_and_with_which_weight) {
  using collective::PlanKind;
  const std::map<wire::PeerId, Part> parts = {
      {1, {input_of(5), 2}}, {2, {input_of(6), 1}}, {3, {input_of(7), 3}}};
  const base::Bytes direct = plan_of(PlanKind::kDirect);
  exchange::Terms sum;
  sum.op = collective::Op::kSum;
  const Array due = result_of(direct, parts, sum);
  for (wire::PeerId id = 1; id <= 3; ++id) {
    for (const double weight : {0.0, 2.5, 4.0}) {
      auto wrong = parts;
      wrong.at(id).weight = weight;
      EXPECT_FALSE(same(result_of(direct, wrong, sum), due)) << id;
    }
  }
  EXPECT_FALSE(same(result_of(plan_of(PlanKind::kRing), parts, sum), due)) << "another order";
  EXPECT_TRUE(same(result_of(plan_of(PlanKind::kExchange), parts, sum), due));
  EXPECT_NE(reported_digest(direct, due), reported_digest(direct, input_of(5)));
}

TEST(SimTest, a_median_shows_who_is_missing_and_is_the_same_in_both_plans) {
  using collective::PlanKind;
  exchange::Terms terms;
  terms.aggregator = {collective::AggregatorId::kMedian, 0};
  const std::map<wire::PeerId, Part> parts = {
      {1, {input_of(5), 2}}, {2, {input_of(6), 1}}, {3, {input_of(7), 3}}};
  const Array due = result_of(plan_of(PlanKind::kDirect), parts, terms);
  EXPECT_TRUE(same(result_of(plan_of(PlanKind::kExchange), parts, terms), due));
  for (wire::PeerId id = 1; id <= 3; ++id) {
    auto wrong = parts;
    wrong.at(id).input = input_of(8);
    EXPECT_FALSE(same(result_of(plan_of(PlanKind::kDirect), wrong, terms), due)) << id;
    wrong = parts;
    wrong.at(id).weight = 100;
    EXPECT_TRUE(same(result_of(plan_of(PlanKind::kDirect), wrong, terms), due)) << id;
  }
}

TEST(SimTest, frames_survive_any_cutting_and_joining) {
  base::Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    Direction direction;
    std::vector<base::Bytes> sent;
    for (std::size_t i = 0; i < 20; ++i) {
      base::Bytes payload(rng.below(40));
      for (std::uint8_t& byte : payload) byte = static_cast<std::uint8_t>(rng.next());
      push_frame(direction, payload, static_cast<Time>(i), {0.5, 0.5}, rng);
      sent.push_back(payload);
    }
    std::vector<base::Bytes> got;
    Time last = 0;
    for (const Segment& segment : direction.queue) {
      EXPECT_GE(segment.at, last);
      last = segment.at;
      direction.in.insert(direction.in.end(), segment.bytes.begin(), segment.bytes.end());
      base::Bytes payload;
      while (pop_frame(direction, &payload)) got.push_back(payload);
    }
    EXPECT_EQ(got, sent);
  }
}

TEST(SimTest, a_disk_keeps_what_was_synced_and_at_most_one_torn_row_more) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed);
    Disk disk;
    wire::ChainWriter chain;
    disk.unsynced.push_back(chain.append(wire::RunRecord{{1}, wire::kVersion}));
    disk.unsynced.push_back(chain.append(wire::EpochRecord{1, 1, {}, "start"}));
    disk.sync();
    for (std::uint64_t e = 2; e < 6; ++e) {
      disk.unsynced.push_back(chain.append(wire::EpochRecord{e, 1, {}, "more"}));
    }
    disk.crash(rng, 0.5);
    const auto walked = wire::walk(disk.rows, nullptr);
    ASSERT_TRUE(walked.ok()) << walked.status().text;
    EXPECT_GE(walked.value().records.size(), 2U);
    EXPECT_LE(walked.value().cut_rows, 1U);
  }
}

}  // namespace
}  // namespace jccl::sim
