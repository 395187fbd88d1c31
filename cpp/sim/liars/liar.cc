// A hostile member: a real peer above whose machine a program lies, now and then and to the end of
// the run, in all that others have to take its word for. Honest members keep every promise beside
// it, and none of them is banned.
#include "sim/peer.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;
using base::Code;

namespace {

enum class Lie : std::uint32_t {
  kDescriptor = 1,
  kHint,
  kFingerprint,
  kDeadline,  // hardly any time for the call
  kFails,
  kTellsEarly,
  kForges,
  kLastHabit = kForges,  // who does what follows all the time holds up more than oracle_l.cc grants
  kCancel,
  kComesAndGoes,
  kHolds,
  kResult,
  kAccuses  // others of frames that they never sent
};
static_assert(static_cast<std::uint32_t>(Lie::kLastHabit) == kHabits);

// Each time. Who has a habit tells such lies above all.
double rate_of(const Mix& mix, Lie lie) {
  constexpr double kUsual = 0.15, kHabit = 0.7;
  if (mix.habit == 0) return kUsual;
  return mix.habit == static_cast<std::uint32_t>(lie) ? kHabit : kUsual / 8;
}

}  // namespace

bool SimPeer::lies() const { return world.mix.liar == slot + 1; }

// A weight that is none for the call, or that would make the sum its own.
void SimPeer::lie_in_weight(CallRecord* record) {
  base::Rng& rng = world.rng.terms;
  if (!rng.chance(world.mix.term_lies)) return;
  record->weight = world.mix.unweighted ? 2 : 1e9;
}

// Another call than everybody's, no time for it, or one that it takes back.
void SimPeer::lie_in_call(protocol::Call* call, CallRecord* record, std::size_t index) {
  base::Rng& rng = world.rng.liar;
  if (rng.chance(rate_of(world.mix, Lie::kDescriptor))) call->descriptor.low += 1 + rng.below(3);
  if (rng.chance(rate_of(world.mix, Lie::kHint)))
    call->hint = {static_cast<std::uint8_t>(0x80 + rng.below(4))};
  base::Rng& terms = world.rng.terms;
  if (terms.chance(world.mix.term_lies)) call->contributors_max = 1 + terms.below(3);
  if (terms.chance(world.mix.term_lies)) call->unit_weights = !call->unit_weights;
  if (terms.chance(world.mix.term_lies))  // all the others are late at once, or nobody ever is
    call->quorum = call->quorum.asked() ? base::Quorum{} : base::Quorum{501, 0};
  if (rng.chance(rate_of(world.mix, Lie::kFingerprint))) call->fingerprint = {6, rng.below(3)};
  if (rng.chance(rate_of(world.mix, Lie::kDeadline)))
    record->deadline = world.now + between(rng, kMillisecond, 300 * kMillisecond);
  if (rng.chance(rate_of(world.mix, Lie::kCancel))) {
    const Duration within = between(rng, 0, 8 * world.mix.latency + 100 * kMillisecond);
    world.post(world.now + within, Kind::kCancel, slot, index, record->id);
  }
  if (!rng.chance(rate_of(world.mix, Lie::kComesAndGoes) / 8)) return;
  world.post(world.now + kMillisecond, Kind::kPeerGone, slot);  // and comes back as another
  world.post(world.now + 100 * kMillisecond, Kind::kPeerUp, slot, 1);
}

// A failure that nobody else sees; or silence, until it is put out, or until it goes by itself and
// is back at once.
bool SimPeer::lie_instead_of_running(const protocol::RunAttempt& run) {
  base::Rng& rng = world.rng.liar;
  if (!lies()) return false;
  if (rng.chance(rate_of(world.mix, Lie::kHolds) / 2)) {
    if (world.tracing()) world.note(cat("     ", slot, " holds ", to_text(run.start.attempt)));
    if (rng.chance(0.5)) return true;
    const Duration within = between(rng, 0, world.mix.silence);
    world.post(world.now + within, Kind::kPeerGone, slot);
    world.post(world.now + within + kMillisecond, Kind::kPeerUp, slot, 1);
    return true;
  }
  if (!rng.chance(2 * rate_of(world.mix, Lie::kFails))) return false;
  constexpr Code kCauses[] = {Code::kInvalid,  Code::kLimit,    Code::kEmpty,   Code::kGuard,
                              Code::kLinkLost, Code::kPeerLost, Code::kCorrupt, Code::kAborted,
                              Code::kResync,   Code::kDeadline};
  const auto& parts = run.start.contributors;
  const wire::PeerId named = parts.empty() ? 0 : parts[rng.below(parts.size())].id;
  const Code cause = kCauses[rng.below(std::size(kCauses))];
  if (world.tracing()) world.note(cat("     ", slot, " lies: ", base::name_of(cause)));
  queue(protocol::AttemptFailed{run.start.attempt, cause, named, std::string(kALie)});
  return true;
}

// DONE before anything has moved: of a result that nobody has, the others' too if it is believed.
void SimPeer::lie_before_running(const wire::Attempt& attempt) {
  base::Rng& rng = world.rng.liar;
  if (lies() && world.rng.frames.chance(rate_of(world.mix, Lie::kAccuses))) {
    const auto& members = world.history.members;
    auto at = members.begin();
    std::advance(at, world.rng.frames.below(members.size()));
    queue(protocol::FrameViolation{{attempt, at->first, wire::ViolationKind::kSender}});
  }
  if (!lies() || !rng.chance(rate_of(world.mix, Lie::kTellsEarly))) return;
  const wire::Digest digest{rng.below(3), 1};
  if (data.tell_early(attempt, digest)) queue(protocol::AttemptDone{attempt, digest});
}

// A revision that nobody else made: it holds, says and serves it.
bool SimPeer::forge(wire::Digest* state) {
  if (!lies() || !world.rng.liar.chance(rate_of(world.mix, Lie::kForges))) return false;
  state->low ^= 1 + world.rng.liar.below(2);
  return true;
}

// That those it fetches from forge the state: one of them, or all.
void SimPeer::lie_about_holders(const protocol::FetchSnapshot& fetch) {
  if (!lies()) return;
  for (const wire::Member& holder : fetch.holders) {
    if (!world.rng.liar.chance(0.5)) continue;
    queue(protocol::HolderOutvoted{{fetch.want, holder.incarnation, 0}});
  }
}

bool SimPeer::lie_in_result(wire::Digest* digest) {
  if (!lies()) return false;
  base::Rng& rng = world.rng.liar;
  const double rate = rate_of(world.mix, Lie::kResult);
  if (rng.chance(rate)) digest->high ^= 1 + rng.below(3);
  return rng.chance(rate / 2);
}

}  // namespace jccl::sim
