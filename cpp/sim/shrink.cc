#include "sim/shrink.h"

#include <algorithm>
#include <utility>

namespace jccl::sim {
namespace {

constexpr std::uint64_t kOtherSeeds = 6;  // tried for each step: less of one thing shifts the rest

class Shrinker {
 public:
  Shrinker(Script from, base::Planted mutant, std::uint64_t runs_max)
      : best_(std::move(from)), mutant_(mutant), runs_left_(runs_max), runs_max_(runs_max) {}

  Shrunk run() {
    for (bool smaller = true; smaller && runs_left_ > 0;) {
      smaller = drop_faults();
      smaller = lower_people() || smaller;
      smaller = lower_chances() || smaller;
      smaller = shorten() || smaller;
    }
    return {best_, fails(best_).second, runs_max_ - runs_left_};
  }

 private:
  std::pair<bool, Report> fails(const Script& script) {
    RunOptions options;
    options.seed = script.seed, options.mutant = mutant_, options.script = &script;
    Report report = simulate(options);
    return {report.promise == best_.promise, std::move(report)};
  }

  bool accept(Script candidate) {
    for (std::uint64_t other = 0; other <= kOtherSeeds && runs_left_ > 0; ++other) {
      --runs_left_;
      if (other > 0) candidate.seed = other;
      if (!fails(candidate).first) continue;
      best_ = std::move(candidate);
      return true;
    }
    return false;
  }

  // Zeller and Hildebrandt's ddmin, complements only.
  bool drop_faults() {
    bool any = false;
    std::size_t parts = 2;
    while (!best_.faults.empty() && runs_left_ > 0) {
      const std::size_t count = best_.faults.size();
      const std::size_t size = std::max<std::size_t>(1, (count + parts - 1) / parts);
      bool dropped = false;
      for (std::size_t at = 0; at < count && !dropped; at += size) {
        Script less = best_;
        const auto from = less.faults.begin() + static_cast<std::ptrdiff_t>(at);
        less.faults.erase(from, from + static_cast<std::ptrdiff_t>(std::min(size, count - at)));
        dropped = accept(std::move(less));
      }
      any = any || dropped;
      if (!dropped && size == 1) break;
      parts = dropped ? std::max<std::size_t>(2, parts - 1) : std::min(count, 2 * parts);
    }
    return any;
  }

  bool lower_people() {
    bool any = false;
    const auto attempt = [&](auto change) {
      Script less = best_;
      change(less.mix);
      if (to_text(less) != to_text(best_)) any = accept(std::move(less)) || any;
    };
    attempt([](Mix& m) { m.masters = 1; });
    attempt([](Mix& m) { m.masters = 1, m.fenced_store = false; });
    attempt([](Mix& m) { m.late = 0; });
    attempt([](Mix& m) { m.dial_only = 0; });
    for (std::size_t i = 0; i < 3 && best_.mix.tags > 1; ++i) {
      attempt([](Mix& m) { --m.tags, m.is_state.pop_back(); });
      if (best_.mix.tags == 1) break;  // of no tag nobody gets on, whatever is broken
      attempt([](Mix& m) { --m.tags, m.is_state.erase(m.is_state.begin()); });
    }
    attempt([](Mix& m) { m.is_state.assign(m.tags, false); });
    if (best_.mix.shards > 1) {
      attempt([](Mix& m) { m.slots /= m.shards, m.late = 0, m.shards = 1; });
    }
    for (std::uint32_t left = best_.mix.slots; left > 1; --left) attempt(one_site_less);
    for (std::uint32_t calls = 1; calls < best_.mix.calls; calls *= 2) {
      attempt([calls](Mix& m) { m.calls = calls; });
    }
    attempt([](Mix& m) { m.min_peers = 1; });
    attempt([](Mix& m) { m.start_peers = 1; });
    attempt([](Mix& m) { m.second_source = 0; });
    attempt([](Mix& m) { m.named_source = m.second_source = 0, m.same_birth = true; });
    attempt([](Mix& m) { m.edits_alike = true; });
    attempt([](Mix& m) { m.history = 1024; });
    return any;
  }

  static void one_site_less(Mix& m) {
    if (m.slots <= std::max(m.shards, m.liar)) return;  // the last is not the hostile one
    m.slots -= m.shards;
    m.late = std::min(m.late, m.slots - m.shards);
    m.dial_only = std::min(m.dial_only, m.slots - m.shards);
    m.start_peers = std::min(m.start_peers, (m.slots - m.late) / m.shards);
    m.min_peers = std::min(m.min_peers, m.slots / m.shards);
    if (m.named_source > m.slots - m.late) m.named_source = m.second_source = 0;
    if (m.second_source > m.slots) m.second_source = 0;
  }

  bool lower_chances() {
    bool any = false;
    using Chance = double Mix::*;
    for (const Chance chance :
         {&Mix::weight_zero, &Mix::guard, &Mix::mismatch, &Mix::corrupt, &Mix::cancel, &Mix::spike,
          &Mix::split, &Mix::coalesce, &Mix::moves_site, &Mix::forgets, &Mix::vanish, &Mix::torn,
          &Mix::in_place}) {
      if (best_.mix.*chance == 0) continue;
      Script less = best_;
      less.mix.*chance = 0;
      any = accept(std::move(less)) || any;
    }
    return any;
  }

  // Nothing more goes wrong after the last fault.
  bool shorten() {
    Time last = 0;
    for (const Injected& fault : best_.faults) last = std::max(last, fault.at + fault.length);
    bool any = false;
    for (const Time end : {last + kMillisecond, last + kSecond}) {
      if (end >= best_.mix.faults_until) continue;
      Script less = best_;
      less.mix.faults_until = end;
      any = accept(std::move(less)) || any;
    }
    return any;
  }

  Script best_;
  base::Planted mutant_;
  std::uint64_t runs_left_, runs_max_;
};

}  // namespace

Script script_of(const Report& report) {
  return {report.seed, report.promise, {}, report.mix, report.faults};
}

Shrunk shrink(const Script& from, base::Planted mutant, std::uint64_t runs_max) {
  return Shrinker(from, mutant, runs_max).run();
}

}  // namespace jccl::sim
