// The small world on trial: a few scopes are searched whole and keep every promise, and planted
// bugs are found by a short path that can be read.
#include <gtest/gtest.h>

#include "base/planted.h"
#include "sim/model/search.h"

namespace jccl::sim::model {
namespace {

Scope small(std::uint32_t faults, std::uint32_t ticks) {
  Scope scope;
  scope.faults = faults, scope.ticks = ticks;
  scope.begun = scope.coarse = true;
  return scope;
}

Found run(const Scope& scope, base::Planted mutant = base::Planted::kNone) {
  base::planted_in_thread = mutant;
  const Found found = search(scope, {});
  base::planted_in_thread = base::Planted::kNone;
  return found;
}

std::string told(const Found& found) {
  std::string text = base::cat(found.promise, ": ", found.what, "\n");
  for (const std::string& line : found.trace) text += base::cat("  ", line, "\n");
  return text;
}

TEST(ModelTest, without_faults_every_order_of_two_rounds_ends_in_both_commits) {
  Scope scope = small(0, 0);
  scope.begun = scope.coarse = false;
  for (const bool state : {false, true}) {
    scope.state = state;
    const Found found = run(scope);
    EXPECT_TRUE(found.promise.empty()) << told(found);
    EXPECT_TRUE(found.whole);
    EXPECT_GT(found.states, 100U);
    EXPECT_GE(found.quiet, 1U);
  }
}

TEST(ModelTest, no_single_fault_at_any_moment_breaks_a_promise) {
  for (const bool state : {false, true}) {
    Scope scope = small(1, 0);
    scope.rounds = state ? 1 : 2;
    scope.state = state;
    const Found found = run(scope);
    EXPECT_TRUE(found.promise.empty()) << told(found);
    EXPECT_TRUE(found.whole);
    EXPECT_GT(found.states, 3000U);
  }
}

TEST(ModelTest, no_timer_that_fires_early_breaks_a_promise) {
  Scope scope = small(0, 2);
  scope.rounds = 1;
  const Found found = run(scope);
  EXPECT_TRUE(found.promise.empty()) << told(found);
  EXPECT_TRUE(found.whole);
}

TEST(ModelTest, planted_bugs_are_found_by_a_short_path) {
  struct Case {
    base::Planted mutant;
    Scope scope;
    const char* promise;
  };
  const std::vector<Case> cases = {
      {base::planted("first-done-commits"), small(0, 0), "P1"},
      {base::planted("dead-contributor-left-out"), small(1, 0), "P1"},
      {base::planted("attempts-reused"), small(1, 0), "L"},
      {base::planted("committed-told-aborted"), small(1, 0), "P5"},
      {base::planted("running-told-aborted"), small(1, 0), "P5"},
      {base::planted("ids-given-again"), small(1, 0), "P5"},
      {base::planted("unknown-attempt-dropped"), small(1, 0), "L"},
      {base::planted("doubt-told-as-failure"), small(1, 1), "P1"},
      {base::planted("doubt-presumes-commit"), small(1, 1), "P5"},
  };
  for (Case one : cases) {
    for (const bool reduce : {true, false}) {  // leaving out orders leaves out none of them
      one.scope.reduce = reduce;
      const Found found = run(one.scope, one.mutant);
      EXPECT_EQ(found.promise, one.promise) << static_cast<std::uint64_t>(one.mutant) << "\n"
                                            << told(found);
      EXPECT_LE(found.trace.size(), 40U);
      EXPECT_GE(found.trace.size(), 3U);
    }
  }
}

// One order of steps that commute is enough: the same ends are reached, and the same bugs are
// found.
TEST(ModelTest, leaving_out_orders_leaves_out_no_end) {
  for (const bool state : {false, true}) {
    for (const std::uint32_t faults : {0U, 1U}) {
      Scope scope = small(faults, 0);
      scope.rounds = state ? 1 : 2;
      scope.state = state;
      const Found reduced = run(scope);
      scope.reduce = false;
      const Found all = run(scope);
      EXPECT_EQ(reduced.ends, all.ends) << faults << " faults";
      EXPECT_EQ(reduced.ends_sum, all.ends_sum) << faults << " faults";
      EXPECT_GE(reduced.ends, 1U);
      EXPECT_LT(reduced.transitions, all.transitions);
    }
  }
}

TEST(ModelTest, threads_and_depth_first_visit_the_same_states) {
  const Scope scope = small(1, 0);
  const Found one = search(scope, {});
  Limits limits;
  limits.threads = 2, limits.edge_max = 50;
  const Found two = search(scope, limits);
  EXPECT_TRUE(two.whole);
  EXPECT_EQ(two.ends, one.ends);
  EXPECT_EQ(two.ends_sum, one.ends_sum);
}

TEST(ModelTest, the_same_scope_has_the_same_states) {
  const Found one = run(small(0, 1)), other = run(small(0, 1));
  EXPECT_EQ(one.states, other.states);
  EXPECT_EQ(one.transitions, other.transitions);
}

}  // namespace
}  // namespace jccl::sim::model
