#include "sim/mix.h"

#include "base/rng.h"
#include "base/text.h"
#include "collective/spec.h"
#include "sim/events.h"

namespace jccl::sim {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "peer-crash",   "mass-crash",      "joiner-crash", "peer-pause", "peer-leave",
    "ghost",        "control-reset",   "control-cut",  "data-reset", "data-cut",
    "clog",         "swizzle",         "data-flip",    "late-wakes", "clock-jump",
    "master-crash", "master-pause",    "disk-error",   "disk-full",  "disk-rot",
    "store-cut",    "operator-evicts", "trickle",      "disk-slow",  "master-cut",
    "master-frozen"};

// Rates at which most runs still commit more than a dozen rounds.
constexpr std::array<double, kFaults> kUsual = {0.2,  0.02, 0.1,  0.25, 0.08, 0.1, 0.3,  0.2,  0.3,
                                                0.2,  0.2,  0.1,  0.2,  0.1,  0.1, 0.3,  0.15, 0.05,
                                                0.03, 0.03, 0.15, 0.03, 0.2,  0.1, 0.03, 0.03};

std::uint32_t draw_slots(base::Rng& rng) {
  const double x = rng.unit();
  if (x < 0.05) return 1;
  if (x < 0.85) return 2 + static_cast<std::uint32_t>(rng.below(4));
  if (x < 0.97) return 6 + static_cast<std::uint32_t>(rng.below(3));
  return 9 + static_cast<std::uint32_t>(rng.below(8));
}

void draw_people(base::Rng& rng, Mix& mix) {
  mix.slots = draw_slots(rng);
  if (rng.chance(0.3)) {
    const auto shards = static_cast<std::uint32_t>(2 + rng.below(3));
    if (mix.slots % shards == 0) mix.shards = shards;
  }
  if (mix.slots > 1 && rng.chance(0.5)) {
    mix.late = mix.shards * static_cast<std::uint32_t>(rng.below(mix.slots / mix.shards));
  }
  mix.tags = rng.chance(0.6) ? 1 : 2 + static_cast<std::uint32_t>(rng.below(2));
  for (std::uint32_t t = 0; t < mix.tags; ++t) mix.is_state.push_back(rng.chance(0.6));
  mix.same_birth = rng.chance(0.3);
  const std::uint32_t first = mix.slots - mix.late;
  if (rng.chance(0.3)) mix.named_source = 1 + static_cast<std::uint32_t>(rng.below(first));
  const std::uint32_t sites = first / mix.shards;
  mix.start_peers = rng.chance(0.7) ? sites : 1;
  if (sites > 1 && rng.chance(sites > 2 ? 0.25 : 0.1)) mix.min_peers = 2;
  if (rng.chance(0.15)) mix.history = 2 + rng.below(6);
  if (mix.slots > mix.shards && rng.chance(0.1)) {  // the first site listens, for each shard
    mix.dial_only = 1 + static_cast<std::uint32_t>(rng.below(mix.slots - mix.shards));
  }
  mix.fenced_store = rng.chance(0.3);
  if (mix.fenced_store && rng.chance(0.8)) {
    mix.masters = 2 + static_cast<std::uint32_t>(rng.chance(0.3));
  }
}

// What goes wrong with calls.
void draw_chances(base::Rng& rng, Mix& mix) {
  if (rng.chance(0.3)) mix.weight_zero = (rng.chance(0.2) ? 0.7 : 0.2) * rng.unit();
  if (rng.chance(0.2)) mix.guard = 0.1 * rng.unit();
  if (rng.chance(0.1)) mix.mismatch = 0.05 * rng.unit();
  if (rng.chance(0.15)) mix.corrupt = 0.1 * rng.unit();
  if (rng.chance(0.2)) mix.cancel = (rng.chance(0.2) ? 0.5 : 0.1) * rng.unit();
}

void draw_faults(base::Rng& rng, Mix& mix) {
  const double x = rng.unit();
  if (x < 0.05) return;  // no fault at all
  if (x < 0.08) {        // only joiners come and go
    mix.rate[static_cast<std::size_t>(Fault::kJoinerCrash)] = 2 * rng.unit();
    return;
  }
  if (x < 0.25) {  // one kind, absurdly often
    const std::size_t kind = rng.below(kFaults);
    mix.rate[kind] = kUsual[kind] * (5 + 15 * rng.unit());
    if (rng.chance(0.5)) draw_chances(rng, mix);
    return;
  }
  for (std::size_t kind = 0; kind < kFaults; ++kind) {
    if (rng.chance(0.5)) mix.rate[kind] = kUsual[kind] * (0.2 + 2 * rng.unit());
  }
  if (mix.masters > 1) {  // what makes several of them interesting
    for (const Fault fault : {Fault::kMasterPause, Fault::kStoreCut, Fault::kMasterFrozen}) {
      mix.rate[static_cast<std::size_t>(fault)] *= 3;
    }
  }
  draw_chances(rng, mix);
}

void draw_times(base::Rng& rng, Mix& mix) {
  const auto ms = [&rng](int low, int high) {
    return between(rng, low * kMillisecond, high * kMillisecond);
  };
  mix.latency = rng.chance(0.5) ? ms(0, 2) : ms(1, 25);
  mix.jitter = mix.latency / 2 + 100'000;
  mix.data_latency = mix.latency + ms(0, 10);
  mix.sync_pause = rng.chance(0.7) ? ms(0, 3) : ms(1, 30);
  mix.think = rng.chance(0.5) ? ms(1, 20) : ms(20, 80);
  mix.deadline = rng.chance(0.3) ? ms(200, 2000) : ms(2000, 8000);
  mix.downtime = ms(50, 3000);
  mix.pause = ms(50, 3000);
  mix.cut = ms(50, 3000);
  mix.master_down = ms(10, 2000);
  mix.heartbeat = ms(100, 300);
  mix.silence = mix.heartbeat * 4 + 4 * (mix.latency + mix.jitter) + 300 * kMillisecond;
  mix.reset_grace = ms(20, 200);
  mix.restart_grace = ms(1000, 4000);
  mix.master_grace = ms(4000, 15000);
  mix.faults_until = ms(3000, 9000);
  mix.calls = static_cast<std::uint32_t>(40 + rng.below(80));
  mix.lease = ms(300, 1500);
  mix.lag = ms(10, 600);
  mix.jump = ms(10, 3000);
}

// Mistakes of users with shared state. Their own draws, so that older seeds keep theirs.
void draw_slips(std::uint64_t seed, Mix& mix) {
  base::Rng rng(seed ^ 0x6D697374616B65);
  mix.edits_alike = rng.chance(0.3);
  if (rng.chance(0.1)) mix.forgets = 0.5 * rng.unit();
  if (mix.slots < 2 || mix.named_source == 0 || !rng.chance(0.4)) return;
  mix.second_source = 1 + static_cast<std::uint32_t>(rng.below(mix.slots - 1));
  if (mix.second_source >= mix.named_source) ++mix.second_source;
}

}  // namespace

std::string_view name_of(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }

Mix draw_mix(std::uint64_t seed) {
  base::Rng rng(seed ^ 0x6D6978);
  Mix mix;
  draw_people(rng, mix);
  draw_faults(rng, mix);
  draw_times(rng, mix);
  mix.vanish = 0.5 * rng.unit();
  mix.in_place = rng.unit();
  if (rng.chance(0.2)) mix.foreign = rng.unit();
  base::Rng slow(seed ^ 0x736C6F77);  // its own, so that older seeds draw what they drew
  if (slow.chance(0.3)) mix.straggler = 1 + static_cast<std::uint32_t>(slow.below(2));
  mix.straggler_after = between(slow, 300 * kMillisecond, 3000 * kMillisecond);
  mix.life_signs = slow.chance(0.5);
  base::Rng quorums(seed ^ 0x71756F72756D);
  if (quorums.chance(0.2)) {
    mix.quorum = quorums.chance(0.5) ? 501 : 750;
    mix.quorum_grace = between(quorums, 300 * kMillisecond, 2000 * kMillisecond);
  }
  base::Rng edits(seed ^ 0x65646974);
  if (edits.chance(0.3)) mix.edits = 0.05 * edits.unit();
  if (edits.chance(0.2)) mix.load = between(edits, 0, 3 * kSecond);
  draw_slips(seed, mix);
  base::Rng plans(seed ^ 0x706C616E);
  // What a plan by name can't go around fails every call of its tag.
  const bool any = plans.chance(0.5) || mix.dial_only > 1;
  mix.plans = any ? 0 : static_cast<std::uint32_t>(plans.next());
  base::Rng orders(seed ^ 0x6F72646572);
  if (orders.chance(0.4)) mix.fastest = static_cast<std::uint32_t>(orders.next());
  // Only a ring may be left where many can but dial out.
  base::Rng robust(seed ^ 0x726F6275);
  if (mix.dial_only <= 1 && robust.chance(0.25)) {
    mix.robust = 1 + static_cast<std::uint32_t>(robust.below(2));
  }
  base::Rng audits(seed ^ 0x6175646974);
  if (audits.chance(0.3)) mix.audit = audits.chance(0.5) ? 1 : 0.1;
  base::Rng links(seed ^ 0x6C696E6B);
  mix.stripes = 1 + static_cast<std::uint32_t>(links.below(3));
  if (links.chance(0.2)) mix.remember = 4;
  if (mix.stripes > 1 && links.chance(0.4)) mix.stalls = 0.02 * links.unit();
  // By such signs a link knows that one of its stripes stands alone: for a stall, or for an end
  // that is gone and whose last word vanished. Where it has only one, its silence says so, unless
  // the other end has made another one by then (oracle_l.cc).
  mix.life_signs = mix.life_signs || mix.stripes > 1;
  return mix;
}

std::string Mix::plan_of(std::size_t tag) const {
  constexpr std::string_view kPlans[] = {"", "direct", "ring", "exchange"};
  const std::string_view plan = kPlans[plans >> 2 * tag & 3];
  return std::string(plan.empty() && (fastest >> tag & 1) != 0 ? collective::kFastestPlan : plan);
}

collective::Op Mix::op_of(std::size_t tag) const {
  return tag % 2 == 0 ? collective::Op::kSum : collective::Op::kMean;
}

collective::Aggregator Mix::aggregator_of(std::size_t tag) const {
  if (op_of(tag) != collective::Op::kMean || plan_of(tag) == "ring" || robust == 0) return {};
  if (robust == 1) return {collective::AggregatorId::kTrimmedMean, 0.25};
  return {collective::AggregatorId::kMedian, 0};
}

Mix draw_hostile_mix(std::uint64_t seed) {
  Mix mix = draw_mix(seed);
  base::Rng rng(seed ^ 0x6C696172);
  mix.shards = 1;
  mix.slots = std::max(4U, mix.slots);
  mix.late = std::min(mix.late, mix.slots - 4);
  mix.min_peers = std::min(mix.min_peers, mix.slots - 1);
  mix.start_peers = std::min(mix.start_peers, mix.slots - mix.late);
  mix.dial_only = std::min(mix.dial_only, 1U);  // or others may have links through the liar alone
  mix.liar = 1 + static_cast<std::uint32_t>(rng.below(mix.slots));
  if (mix.named_source == mix.liar) mix.named_source = 0;
  if (mix.second_source == mix.liar) mix.second_source = 0;
  if (rng.chance(0.5)) mix.habit = 1 + static_cast<std::uint32_t>(rng.below(kHabits));
  base::Rng audits(seed ^ 0x6C6965736175);
  if (audits.chance(0.3)) mix.audit = audits.chance(0.7) ? 1 : 0.1;
  if (audits.chance(0.7)) mix.audit_lies = audits.chance(0.5) ? 0.1 : 0.5;
  if (rng.chance(0.5)) mix.frame_lies = rng.chance(0.5) ? 0.02 : 0.2;
  base::Rng terms(seed ^ 0x6C69657465726D);
  mix.unweighted = terms.chance(0.3);
  if (terms.chance(0.7)) mix.term_lies = terms.chance(0.5) ? 0.03 : 0.2;
  return mix;
}

std::string Mix::describe() const {
  std::string text =
      base::cat("slots ", slots, " shards ", shards, " late ", late, " start_peers ", start_peers,
                " min_peers ", min_peers,
                liar > 0 ? base::cat(" liar ", liar - 1, " habit ", habit, " frames ", frame_lies,
                                     " audits ", audit_lies, " terms ", term_lies)
                         : "",
                audit > 0 ? base::cat(" audit ", audit) : "", unweighted ? " unweighted" : "",
                " history ", history, " masters ", masters, fenced_store ? " fenced" : "",
                " dial_only ", dial_only, " tags");
  for (const bool state : is_state) text += state ? " state" : " plain";
  text += base::cat(
      " source ", named_source, second_source > 0 ? base::cat(" and ", second_source) : "",
      forgets > 0 ? base::cat(" forgets=", forgets) : "", " latency ", latency / 1000,
      "us deadline ", deadline / kMillisecond, "ms sync ", sync_pause / 1000, "us heartbeat ",
      heartbeat / kMillisecond, "ms silence ", silence / kMillisecond, "ms straggler ", straggler,
      " after ", straggler_after / kMillisecond, "ms", life_signs ? " life signs" : "",
      quorum > 0 ? base::cat(" quorum ", quorum, " after ", quorum_grace / kMillisecond, "ms") : "",
      " faults");
  for (std::size_t kind = 0; kind < kFaults; ++kind) {
    if (rate[kind] > 0) text += base::cat(" ", kNames[kind], "=", rate[kind]);
  }
  return text + base::cat(" zero=", weight_zero, " guard=", guard, " mismatch=", mismatch,
                          " corrupt=", corrupt, " cancel=", cancel);
}

}  // namespace jccl::sim
