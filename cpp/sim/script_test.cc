// Scripts say a run again, the shrinker keeps what is broken, and the scripts of past bugs stay
// clean, and still catch the bug when it is planted again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "sim/mutants.h"
#include "sim/shrink.h"

namespace jccl::sim {
namespace {

Report run_script(const Script& script, base::Planted mutant = base::Planted::kNone) {
  RunOptions options;
  options.seed = script.seed, options.mutant = mutant, options.script = &script;
  return simulate(options);
}

TEST(ScriptTest, a_script_says_the_run_of_its_seed_again) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Report drawn = simulate({seed});
    const auto read = read_script(to_text(script_of(drawn)));
    ASSERT_TRUE(read.ok()) << read.status().text;
    EXPECT_EQ(read.value().faults, drawn.faults);
    EXPECT_EQ(run_script(read.value()).trace_hash, drawn.trace_hash) << "seed " << seed;
  }
}

TEST(ScriptTest, what_is_no_script_is_refused_with_its_line) {
  const auto status = [](const char* text) { return read_script(text).status().text; };
  EXPECT_EQ(status("seed 1\nmix slots two\n"), "line 2: mix slots two");
  EXPECT_EQ(status("fault 1 earthquake 0 0 0 0\n"), "line 1: fault 1 earthquake 0 0 0 0");
  EXPECT_EQ(status("seed 1\n"), "tags and states, or slots, do not fit");
  EXPECT_TRUE(read_script("mix states 1 # one tag\n").ok());
}

TEST(ScriptTest, the_shrinker_keeps_the_broken_promise_and_little_else) {
  std::uint64_t seed = 1;
  Report report = simulate({seed, base::planted("stale-frame-accepted")});
  while (report.promise.empty() && seed < 3000) {
    report = simulate({++seed, base::planted("stale-frame-accepted")});
  }
  ASSERT_FALSE(report.promise.empty());
  const Shrunk small = shrink(script_of(report), base::planted("stale-frame-accepted"), 400);
  EXPECT_EQ(small.report.promise, report.promise);
  EXPECT_EQ(run_script(small.script, base::planted("stale-frame-accepted")).promise,
            report.promise);
  EXPECT_TRUE(run_script(small.script).promise.empty());
  EXPECT_LE(small.script.faults.size(), report.faults.size());
  EXPECT_LE(small.script.mix.slots, report.mix.slots);
}

// Of a world without a call everything stands: that would be the smallest script of whatever stood.
TEST(ScriptTest, what_stood_still_is_not_shrunk_to_a_world_without_tags) {
  Script script;
  script.promise = "L";
  script.mix.slots = 2, script.mix.start_peers = 3;  // one too many: nothing begins
  script.mix.tags = 2, script.mix.is_state = {false, true};
  ASSERT_EQ(run_script(script).promise, "L");
  const Shrunk small = shrink(script, base::Planted::kNone, 60);
  EXPECT_EQ(small.report.promise, "L");
  EXPECT_EQ(small.script.mix.tags, 1U);
  EXPECT_TRUE(read_script(to_text(small.script)).ok());
}

TEST(ScriptTest, past_bugs_stay_away_and_would_be_found_again) {
  const std::filesystem::path folder = JCCL_TEST_DATA "/../../cpp/sim/scripts";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto read = read_script(text);
    ASSERT_TRUE(read.ok()) << entry.path() << ": " << read.status().text;
    Script& script = read.value();
    ++count;
    const Report clean = run_script(script);
    EXPECT_TRUE(clean.promise.empty()) << entry.path() << ": " << clean.promise << clean.what;
    const MutantRow* row = find_mutant(script.mutant);
    if (script.mutant.empty()) continue;
    ASSERT_NE(row, nullptr) << script.mutant;
    bool found = false;  // a new draw anywhere shifts the rest: other seeds will do as well
    for (std::uint64_t other = 0; other < 200 && !found; ++other) {
      if (other > 0) script.seed = other;
      found = !run_script(script, row->mutant).promise.empty();
    }
    EXPECT_TRUE(found) << entry.path() << " does not find " << script.mutant << " any more";
  }
  EXPECT_GT(count, 0U);
}

}  // namespace
}  // namespace jccl::sim
