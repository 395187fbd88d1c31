// The tuner against hundreds of simulated paths of every kind (tuner_model.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "exchange/stripe_tuner.h"
#include "exchange/tuner_model.h"

namespace jccl::exchange::model {
namespace {

constexpr std::uint64_t kSeeds = 200;
constexpr std::uint32_t kFar = 8;

// One link's life: what it chose in the end, how often connections came or went, and how much of
// what the best count would have moved was moved.
struct Life {
  std::uint32_t chosen = 0;
  int changes = 0;
  double moved = 0;
  double could = 0;
  Path path;

  double share(std::uint32_t of) const { return path.steady(chosen) / path.steady(of); }
};

Life live(const Scene& scene, std::uint64_t seed) {
  Line line(scene, seed);
  StripeTuner tuner;
  tuner.connected(false, scene.rtt);
  Life out;
  std::uint32_t standing = tuner.wanted();
  while (line.busy_s() < scene.busy_s) {
    const std::uint32_t used = std::min(standing, tuner.used());
    const Line::Window window = line.run(used);
    out.moved += line.path().steady(used);
    out.could += line.path().best();
    tuner.measured(window.bytes, window.busy_ns, standing, scene.rtt);
    if (tuner.wanted() != standing) ++out.changes;
    standing = tuner.wanted();
  }
  out.chosen = tuner.chosen();
  out.path = line.path();
  return out;
}

class TunerModelTest : public testing::TestWithParam<Scene> {};

TEST_P(TunerModelTest, ends_with_what_the_best_count_gives_and_changes_seldom) {
  const Scene& scene = GetParam();
  int worse_than_start = 0, far_from_best = 0;
  double moved = 0, could = 0;
  std::vector<std::uint32_t> chosen;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Life life = live(scene, seed);
    const double best = life.path.steady(life.chosen) / life.path.best();
    EXPECT_GE(best, 0.9) << life.chosen << " stripes, seed " << seed;
    far_from_best += best < 0.95;
    worse_than_start += life.share(kFar) < 0.95;
    EXPECT_LE(life.changes, scene.busy_s / 60 * 7 + 2) << "seed " << seed;
    moved += life.moved;
    could += life.could;
    chosen.push_back(life.chosen);
  }
  EXPECT_EQ(worse_than_start, 0);
  EXPECT_LE(far_from_best, static_cast<int>(kSeeds / 20));
  EXPECT_GE(moved, 0.88 * could) << "trials cost";
  // Half of them need no more stripes than twice the least that do.
  std::sort(chosen.begin(), chosen.end());
  std::uint32_t least = 1;
  Line line(scene, 1);
  const Path last = scene.changes.empty() ? scene.path : scene.changes.back().path;
  while (last.steady(least) < 0.95 * last.best()) ++least;
  EXPECT_LE(chosen[chosen.size() / 2], 2 * std::max(least, kFar));
}

INSTANTIATE_TEST_SUITE_P(Scenes, TunerModelTest, testing::ValuesIn(scenes()),
                         [](const testing::TestParamInfo<Scene>& info) {
                           std::string out = info.param.name;
                           std::erase(out, ',');
                           std::replace(out.begin(), out.end(), ' ', '_');
                           return out;
                         });

// How long until a change of the path is answered, in busy seconds.
double until_half_way(const Scene& scene, double at_s, double enough, std::uint64_t seed) {
  Line line(scene, seed);
  StripeTuner tuner;
  tuner.connected(false, scene.rtt);
  std::uint32_t standing = tuner.wanted();
  while (line.busy_s() < scene.busy_s) {
    const Line::Window window = line.run(std::min(standing, tuner.used()));
    tuner.measured(window.bytes, window.busy_ns, standing, scene.rtt);
    standing = tuner.wanted();
    const Path& path = line.path();
    if (line.busy_s() > at_s && path.steady(tuner.chosen()) >= enough * path.best()) {
      return line.busy_s() - at_s;
    }
  }
  return scene.busy_s;
}

double median_time(const Scene& scene, double at_s, double enough) {
  std::vector<double> times;
  for (std::uint64_t seed = 1; seed <= 99; ++seed) {
    times.push_back(until_half_way(scene, at_s, enough, seed));
  }
  std::nth_element(times.begin(), times.begin() + 49, times.end());
  return times[49];
}

TEST(TunerModelTimesTest, a_path_that_changes_is_answered_within_a_minute) {
  Scene scene{"", 80 * base::kMillisecond, 300, capped(1e9), {{100, capped(5e6)}}};
  EXPECT_LE(median_time(scene, 100, 0.9), 60);
  scene = {"", 80 * base::kMillisecond, 400, capped(5e6), {{200, busy_receiver(140e6, 0.05)}}};
  EXPECT_LE(median_time(scene, 200, 0.9), 60);
}

TEST(TunerModelTimesTest, a_cap_per_connection_is_overcome_within_seconds) {
  const Scene scene{"", 40 * base::kMillisecond, 100, capped(10e6)};
  EXPECT_LE(median_time(scene, 0, 0.95), 8);
}

TEST(TunerModelTimesTest, a_receiver_that_many_connections_wear_out_is_spared_within_seconds) {
  const Scene scene{"", 80 * base::kMillisecond, 100, busy_receiver(140e6, 0.08)};
  EXPECT_LE(median_time(scene, 0, 0.9), 20);
}

}  // namespace
}  // namespace jccl::exchange::model
