// A link's path as its stripe tuner meets it: a fluid model of connections that share a line. Each
// has a rate of its own, which doubles per round trip until the line is full, then grows slowly;
// together they get no more than line, caps, losses and the receiver's CPU allow. What is measured
// is that, times noise: small everywhere, large now and then, and slow waves. For tests; seeded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/time.h"

namespace jccl::exchange::model {

inline constexpr std::uint32_t kStripesTried = 48;

struct Path {
  double line = 120e6;      // bytes a second
  double per_stripe = 1e9;  // what a cap, or losses, leave each connection
  double cpu = 1e9;         // what the receiver can take from one connection
  double cpu_each = 0;      // and by how much less, relatively, for each one more
  double growth = 1.028;    // per round trip once the line was full: BBR probes a quarter in eight

  double room(std::uint32_t stripes) const {
    return std::min(line, cpu / (1 + cpu_each * (stripes - 1)));
  }
  double steady(std::uint32_t stripes) const {
    return std::min(room(stripes), stripes * per_stripe);
  }
  double best() const {
    double most = 0;
    for (std::uint32_t n = 1; n <= kStripesTried; ++n) most = std::max(most, steady(n));
    return most;
  }
};

struct Noise {
  double each = 0.05;  // of a window
  double wave = 0.08;  // slow
  double rare = 0.03;  // windows that are off by much
  double deep = 0.3;   // what is left of the rate in them, at least
};

struct Change {
  double at_s = 0;  // of busy time
  Path path;
};

struct Scene {
  std::string name;
  base::Duration rtt = 80 * base::kMillisecond;
  double busy_s = 200;
  Path path;
  std::vector<Change> changes = {};
  Noise noise = {};
};

class Line {
 public:
  Line(const Scene& scene, std::uint64_t seed)
      : scene_(scene), path_(scene.path), rng_(seed), rates_(64, 0), starting_(64, true) {}

  struct Window {
    std::uint64_t bytes = 0;
    base::Duration busy_ns = 0;
  };

  // A window of three round trips in which so many stripes were given frames. With another number
  // of them each looks for its rate anew.
  Window run(std::uint32_t stripes) {
    if (std::exchange(given_, stripes) != stripes) starting_.assign(starting_.size(), true);
    const base::Duration busy = std::max<base::Duration>(20 * base::kMillisecond, 3 * scene_.rtt);
    const double rtt_s = static_cast<double>(scene_.rtt) / base::kSecond;
    const double window_s = static_cast<double>(busy) / base::kSecond;
    const int turns = std::max(3, static_cast<int>(window_s / rtt_s));
    double sum = 0;
    for (int i = 0; i < turns; ++i) sum += turn(stripes);
    busy_s_ += window_s;
    for (const Change& change : scene_.changes) {
      if (busy_s_ >= change.at_s) path_ = change.path;
    }
    return {static_cast<std::uint64_t>(sum / turns * window_s * noise(window_s)), busy};
  }

  double busy_s() const { return busy_s_; }
  const Path& path() const { return path_; }

 private:
  double turn(std::uint32_t stripes) {
    double sum = 0;
    for (std::uint32_t i = 0; i < stripes; ++i) {
      double& rate = rates_[i];
      rate = rate == 0 ? 1e5 : rate * (starting_[i] ? 2 : 1 + (path_.growth - 1) * 2 * rng_.unit());
      rate = std::min(rate, path_.per_stripe);
      sum += rate;
    }
    const double room = path_.room(stripes);
    if (sum <= room) return sum;
    for (std::uint32_t i = 0; i < stripes; ++i) {
      rates_[i] *= room / sum;
      starting_[i] = false;
    }
    return room;
  }

  double noise(double window_s) {
    const Noise& n = scene_.noise;
    const double kept = std::exp(-window_s / 5);
    wave_ = kept * wave_ + std::sqrt(1 - kept * kept) * n.wave * gauss();
    double out = std::exp(wave_ + n.each * gauss());
    if (rng_.chance(n.rare)) out *= rng_.chance(0.8) ? n.deep + (1 - n.deep) * rng_.unit() : 1.5;
    return out;
  }

  double gauss() {
    const double r = std::sqrt(-2 * std::log(1 - rng_.unit()));
    return r * std::cos(6.283185307179586 * rng_.unit());
  }

  Scene scene_;
  Path path_;
  base::Rng rng_;
  std::vector<double> rates_;  // of each stripe, bytes a second
  std::vector<bool> starting_;
  std::uint32_t given_ = 0;
  double busy_s_ = 0;
  double wave_ = 0;
};

inline Path capped(double per_stripe, double line = 120e6) {
  Path out;
  out.line = line;
  out.per_stripe = per_stripe;
  return out;
}

inline Path busy_receiver(double cpu, double each, double line = 120e6) {
  Path out;
  out.line = line;
  out.cpu = cpu;
  out.cpu_each = each;
  return out;
}

inline std::vector<Scene> scenes() {
  constexpr base::Duration kMs = base::kMillisecond;
  const Path full;
  const Path slow = capped(1e9, 35e6);
  Path half;
  half.line = 60e6;
  Path lossy = capped(4e6);  // cubic where a packet in a thousand is lost
  lossy.growth = 1.01;
  Path mixed = capped(10e6);  // best in the middle
  mixed.cpu = 140e6;
  mixed.cpu_each = 0.02;
  std::vector<Change> waves;
  for (int i = 1; i < 12; ++i) waves.push_back({i * 17.0, i % 2 == 1 ? half : full});
  const Noise rough{0.12, 0.15, 0.06, 0.15};
  return {
      {"a full line", 80 * kMs, 200, full},
      {"a full line, rough", 80 * kMs, 200, full, {}, rough},
      {"a slow line far away", 250 * kMs, 300, slow, {}, rough},
      {"twelve fill it", 40 * kMs, 200, capped(10e6)},
      {"twelve fill it, rough", 40 * kMs, 300, capped(10e6), {}, rough},
      {"no number is enough", 80 * kMs, 300, capped(1e6)},
      {"losses", 80 * kMs, 300, lossy},
      {"losses, rough", 80 * kMs, 400, lossy, {}, rough},
      {"the receiver is busy", 80 * kMs, 300, busy_receiver(140e6, 0.08)},
      {"the receiver is busy, rough", 80 * kMs, 400, busy_receiver(140e6, 0.08), {}, rough},
      {"the receiver is a little busy", 40 * kMs, 300, busy_receiver(130e6, 0.02)},
      {"best in the middle", 40 * kMs, 300, mixed},
      {"the rate halves and comes back", 80 * kMs, 204, full, waves},
      {"the rate halves and comes back, rough", 80 * kMs, 204, full, waves, rough},
      {"caps come", 80 * kMs, 400, full, {{150, capped(5e6)}}},
      {"caps go and the receiver is busy",
       80 * kMs,
       500,
       capped(5e6),
       {{200, busy_receiver(140e6, 0.05)}}},
  };
}

}  // namespace jccl::exchange::model
