// Short pauses evict nobody: ten thousand stops of three tenths of the detection time, of peers and
// of the master, and every peer is still in its first life.
#include <gtest/gtest.h>

#include "sim/script.h"
#include "sim/world.h"

namespace jccl::sim {
namespace {

constexpr std::uint64_t kPauses = 10000;

Script pauses_of(std::uint64_t seed) {
  Script script;
  script.seed = seed;
  Mix& mix = script.mix;
  base::Rng rng(seed);
  mix.slots = mix.start_peers = 2 + static_cast<std::uint32_t>(rng.below(5));
  mix.is_state = {rng.chance(0.5)};
  mix.moves_site = 0;
  mix.calls = 2000;
  mix.latency = between(rng, 0, 10 * kMillisecond), mix.jitter = mix.latency / 2;
  mix.data_latency = mix.latency, mix.think = 50 * kMillisecond;
  mix.deadline = 8 * kSecond;
  mix.silence = between(rng, 600 * kMillisecond, 1500 * kMillisecond);
  mix.heartbeat = mix.silence / 6;
  mix.reset_grace = 100 * kMillisecond, mix.restart_grace = mix.master_grace = 10 * kSecond;
  mix.faults_until = 20 * kSecond;
  for (Time at = kSecond; at < mix.faults_until; at += mix.silence / 2) {
    Injected fault;
    fault.at = at;
    fault.fault = rng.chance(0.1) ? Fault::kMasterPause : Fault::kPeerPause;
    fault.a = static_cast<std::uint32_t>(rng.below(mix.slots));
    if (fault.fault == Fault::kMasterPause) fault.a = 0;
    fault.length = mix.silence * 3 / 10;
    fault.bits = rng.next();
    script.faults.push_back(fault);
  }
  return script;
}

TEST(PausesTest, ten_thousand_of_a_third_of_the_detection_time_evict_nobody) {
  std::uint64_t pauses = 0, commits = 0;
  for (std::uint64_t seed = 1; pauses < kPauses; ++seed) {
    const Script script = pauses_of(seed);
    RunOptions options;
    options.seed = seed, options.script = &script;
    const Report report = simulate(options);
    ASSERT_TRUE(report.promise.empty()) << "seed " << seed << ": " << report.what;
    ASSERT_EQ(report.counts.admissions, script.mix.slots) << "seed " << seed << ": a second life";
    const auto of = [&](Fault fault) {
      return report.counts.faults[static_cast<std::size_t>(fault)];
    };
    ASSERT_GT(of(Fault::kPeerPause), 5U) << "seed " << seed << " ended before it was tried";
    pauses += of(Fault::kPeerPause) + of(Fault::kMasterPause);
    commits += report.counts.commits;
  }
  EXPECT_GT(commits, pauses) << "rounds flow all the while";
}

}  // namespace
}  // namespace jccl::sim
