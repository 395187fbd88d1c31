// The user's program above a simulated peer: calls, statuses, state, synchronisation. It believes
// what the library says; the oracles don't.
#include "base/planted.h"
#include "sim/peer.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;
using base::Code;

UserTag* SimPeer::find(const wire::Tag& name) {
  for (UserTag& tag : tags) {
    if (tag.tag == name) return &tag;
  }
  return nullptr;
}

void SimPeer::act_later(UserTag& tag, base::Duration pause) {
  const Duration when = between(world.rng.app, pause / 2 + 1, pause * 3 / 2 + 1);
  world.post(world.now + when, Kind::kApp, slot, static_cast<std::uint64_t>(&tag - tags.data()),
             ++tag.turn);
}

void SimPeer::act(std::size_t index, std::uint64_t turn) {
  UserTag& tag = tags[index];
  if (turn != tag.turn || tag.call != 0 || tag.syncing || leaving) return;
  tag.forgotten = tag.forgotten && !world.healed;
  if (tag.needs_sync && !tag.forgotten) return sync(tag, index);
  for (const UserTag& other : tags) {  // as a script does: first all state, then rounds
    if (other.is_state && !other.was_synced && !other.forgotten)
      return act_later(tag, world.mix.think + 50 * kMillisecond);
  }
  call(tag, index);
}

void SimPeer::call(UserTag& tag, std::size_t index) {
  const Mix& mix = world.mix;
  base::Rng& rng = world.rng.app;
  const bool calm = world.healed;
  History& history = world.history;
  if (!calm && mix.calls != 0 && tag.calls >= mix.calls) return act_later(tag, 200 * kMillisecond);
  const bool edits = !tag.forgotten && edited(tag);
  // Found before the call, or beside its data: then the others' attempt ends by it.
  if (edits && (history.joins_only || rng.chance(0.5))) return refuse_edited(tag);
  tag.differs = edits;
  ++tag.calls;
  if (rng.chance(0.05)) measure();
  CallRecord record;
  record.id = history.calls.size() + 1;
  record.slot = slot, record.incarnation = incarnation, record.tag = tag.tag;
  // A site has one weight, whatever its number of shards.
  const bool zero = mix.shards == 1 && rng.chance(mix.weight_zero);
  record.weight = zero && !calm && !edits ? 0 : 1.0 + static_cast<double>(rng.below(4));
  if (mix.unweighted) record.weight = std::min(record.weight, 1.0);
  if (lies()) lie_in_weight(&record);
  record.begun = world.now;
  record.deadline = world.now + between(rng, mix.deadline / 2, mix.deadline * 3 / 2);
  if (calm) record.deadline = world.now + std::max<Duration>(mix.deadline, 8 * kSecond);
  tag.call = record.id;
  tag.visible.reset();
  tag.buffers = buffers_for(tag, index, record);
  protocol::Call event;
  event.tag = tag.tag;
  const bool mistaken = !calm && rng.chance(mix.mismatch);
  event.descriptor = {1, mistaken ? 2U + slot : 1U};
  const bool plainly = tag.is_state && calls_plainly(tag);
  made_fault(protocol::Fault::kMismatch, mistaken || plainly);
  event.hint = hint_of(tag.buffers->agreed);
  event.summary = "f32[3]";
  event.weight = record.weight;
  event.unit_weights = mix.unweighted;
  if (!mistaken) event.quorum = {mix.quorum, mix.quorum_grace};
  event.is_state = tag.is_state && !plainly;
  record.unsynced = tag.forgotten;
  if (tag.forgotten) ++world.counts.forgotten;
  if (lies()) lie_in_call(&event, &record, index);
  event.deadline = record.deadline - world.now + clock();
  history.calls.push_back(std::move(record));
  if (!calm && rng.chance(mix.cancel)) {  // often while START is on its way
    const Duration within = rng.chance(0.5) ? 8 * mix.latency + kMillisecond : mix.deadline;
    world.post(world.now + between(rng, 0, within), Kind::kCancel, slot, index, tag.call);
  }
  if (world.tracing()) world.note(cat("     ", slot, " call ", tag.call, " on ", tag.tag));
  if (tag.differs) {
    // Memory is read faster than anybody is taken for slow.
    const Duration within = std::min<Duration>(8 * mix.latency + kMillisecond, mix.silence / 8);
    world.post(world.now + between(rng, 0, within), Kind::kCompared, slot, index, tag.call);
  }
  feed(event);
  if (!tag.forgotten || !event.is_state || tag.call == 0) return;
  history.fail("P6", cat("slot ", slot, ": a call on ", tag.tag,
                         " is made with a state that was never synchronised"));
}

// Now and then a user leaves out the sync of a new communicator, until it is told so once or twice.
void SimPeer::may_forget(UserTag& tag) {
  const double rate = world.healed || lies() ? 0 : world.mix.forgets;
  tag.forgotten = rate > 0 && tag.is_state && world.rng.slips.chance(rate);
}

// Whoever forgets the state knows of none in half of the cases. (On a tag that isn't born yet that
// call would be a right one, and the tag a plain one for good.)
bool SimPeer::calls_plainly(const UserTag& tag) const {
  return tag.forgotten && world.history.births.count(tag.tag) > 0 && world.rng.slips.chance(0.5);
}

BuffersRef SimPeer::buffers_for(const UserTag& tag, std::size_t index, const CallRecord& record) {
  const Mix& mix = world.mix;
  base::Rng& rng = world.rng.app;
  auto buffers = std::make_shared<Buffers>();
  buffers->id = record.id;
  buffers->agreed.op = mix.op_of(index);
  buffers->agreed.aggregator = mix.aggregator_of(index);
  buffers->agreed.weight = record.weight;
  buffers->agreed.plan = mix.plan_of(index);
  buffers->in_place = rng.chance(mix.in_place);
  buffers->agreed.out_private = rng.chance(0.5);
  if (tag.differs) buffers->compared = exchange::Comparison::kRuns;
  buffers->input = input_of(record.id);
  if (!world.healed && rng.chance(mix.guard)) buffers->input[record.id % kElements] = NAN;
  buffers->memory = buffers->input;
  float* out = buffers->in_place ? buffers->memory.data() : buffers->out.data();
  buffers->leaves.push_back(
      {codec::Dtype::kF32, kElements, buffers->memory.data(), out, "w", {}, nullptr, 0});
  buffers->specs.push_back({codec::Dtype::kF32, kElements});
  return buffers;
}

// The end of a comparison that went on beside the call's data.
void SimPeer::compared(std::size_t index, std::uint64_t call_id) {
  UserTag& tag = tags[index];
  if (tag.call != call_id || !tag.differs) return;
  tag.buffers->compared = exchange::Comparison::kDiffers;
  queue(protocol::StateChanged{tag.tag, "edited"});
  data.compared(tag.buffers);
  drain();
}

bool SimPeer::computes_wrong() {
  const double rate = world.healed ? 0 : world.mix.corrupt;
  const bool wrong = rate > 0 && world.rng.data.chance(rate);
  made_fault(protocol::Fault::kResult, wrong);
  computed_wrong = computed_wrong || wrong;
  return wrong;
}

void SimPeer::made_fault(protocol::Fault fault, bool made) {
  if (made) faults += protocol::kFaultWeights[static_cast<std::size_t>(fault)];
}

// A user restores an older checkpoint, or changes a parameter. The communicator compares the state
// it is handed with what this peer published or adopted, before anybody can have all of it.
bool SimPeer::edited(UserTag& tag) {
  const bool edits = tag.is_state && tag.was_synced && !world.healed && tag.published.has_value() &&
                     world.rng.app.chance(world.mix.edits);
  if (!edits) return false;
  ++world.counts.edits;
  if (world.tracing()) world.note(cat("     ", slot, " edits ", tag.tag, " at ", tag.revision));
  tag.digest.low ^= world.mix.edits_alike ? 0xED17 : 1 + world.rng.slips.below(1U << 31);
  return !JCCL_PLANTED("own-state-not-compared");
}

// What was published is still right, and stays held: the program takes the run's newest again.
void SimPeer::refuse_edited(UserTag& tag) {
  tag.digest = tag.published->digest;
  tag.revision = tag.published->revision;
  tag.needs_sync = true;
  queue(protocol::StateChanged{tag.tag});
  drain();
  act_later(tag, world.mix.think);
}

// What its links carry, as far as anybody cares.
void SimPeer::measure() {
  wire::Measured measured;
  measured.up_bytes_per_s = 1 + world.rng.app.below(1000);
  for (const auto& [id, member] : world.history.members) {
    if (member.incarnation == incarnation) continue;
    measured.links.push_back({id, 100, 1 + world.rng.app.below(1000)});
  }
  feed(protocol::NewMeasures{std::move(measured)});
}

void SimPeer::cancel(std::size_t index, std::uint64_t call_id) {
  const UserTag& tag = tags[index];
  made_fault(protocol::Fault::kWithdrawal, tag.call != 0);
  if (tag.call == call_id || tag.call == 0) feed(protocol::CancelCall{tag.tag});
}

void SimPeer::sync(UserTag& tag, std::size_t index) {
  tag.syncing = true;
  tag.published = wire::Held{tag.tag, tag.revision, tag.digest};  // served while it waits
  tag.sync_begun = world.now;
  tag.sync_deadline = world.now + 5 * kSecond;
  protocol::SyncCall event;
  event.tag = tag.tag;
  const bool named = world.mix.named_source == slot + 1 || world.mix.second_source == slot + 1;
  event.source = named && !tag.no_source;
  tag.claimed.reset();
  if (event.source) tag.claimed = tag.digest;
  event.revision = tag.revision, event.digest = tag.digest;
  event.descriptor = {3, 3};
  event.summary = "f32[3]";
  event.deadline = tag.sync_deadline - world.now + clock();
  if (!world.healed && world.rng.app.chance(world.mix.cancel)) {
    world.post(world.now + static_cast<Duration>(world.rng.app.below(kSecond)), Kind::kCancel, slot,
               index, ~std::uint64_t{0});
  }
  if (world.tracing()) world.note(cat("     ", slot, " sync ", tag.tag, " at ", tag.revision));
  feed(event);
}

// ---- answers -----------------------------------------------------------------------------------

void SimPeer::complete(const protocol::CompleteCall& done) {
  UserTag* tag = find(done.tag);
  if (done.status.code == Code::kBusyTag) return;  // of call_again()
  if (tag == nullptr || tag->call == 0) {
    return world.history.fail("P4", cat("slot ", slot, ": a call on ", done.tag, " ended twice"));
  }
  if (world.tracing()) {
    world.note(cat("     ", slot, " call ", tag->call, " on ", done.tag, " ", done.n, " ends ",
                   name_of(done.status.code), " world ", done.world, " ", done.status.text));
  }
  ++world.counts.codes[static_cast<std::size_t>(done.status.code)];
  world.check_end_by_lie(*this, done, tag->call);
  const bool success = tag->visible.has_value();
  if (success != (done.status.ok() || (success && base::holds_result(done.status.code)))) {
    return world.history.fail(
        "P3", cat("slot ", slot, ": ", name_of(done.status.code),
                  success ? " after a commit" : " without a commit", ", call ", tag->call));
  }
  end_call(*tag, done, success);
}

void SimPeer::end_call(UserTag& tag, const protocol::CompleteCall& done, bool success) {
  CallRecord& record = world.history.call(tag.call);
  record.open = false, record.success = success;
  p4_in_time(world.history, slot, tag.tag, latest_end(record.deadline));
  record.code = done.status.code, record.n = done.n;
  world.check_not_early(record, done.status.text);
  if (success) {
    const Own* own = data.find(*tag.visible);
    JCCL_CHECK(own != nullptr);
    if (!own->told) {
      world.history.on_published(
          {slot, shard, *tag.visible, tag.call, &own->result, &tag.buffers->agreed, &done});
    }
    ++world.counts.deliveries;
  }
  // A liar's own buffers are its own: it may add up wrong by them (audit_liar.cc).
  world.history.on_call_ended(record, tag.buffers->as_given() || lies());
  data.release(tag.buffers);
  tag.buffers.reset();
  tag.call = 0;
  if (std::exchange(tag.differs, false)) {
    tag.digest = tag.published->digest;
    tag.needs_sync = true;
    queue(protocol::StateChanged{tag.tag, "edited"});
  }
  if (world.history.failed()) return;
  if (success && world.healed) ++tag.good_after_heal;
  if (tag.forgotten) tag.forgotten = world.rng.slips.chance(0.5);
  const bool spoilt = success && edited(tag);  // between the call and the revision that follows
  if (spoilt) {
    tag.digest = tag.published->digest;
    tag.needs_sync = true;
    queue(protocol::StateChanged{tag.tag});
  } else if (success && tag.is_state) {
    const Own* own = data.find(*tag.visible);
    const std::uint64_t seed = mix_in(tag.digest.low, digest_of(own->result).high);
    tag.revision = own->round.n;
    tag.digest = {mix_in(seed, own->attempt.epoch), tag.revision};
    const bool forged = forge(&tag.digest);
    const wire::Held made{tag.tag, tag.revision, tag.digest};
    if (!forged) world.history.on_state(slot, shard, made);
    tag.published = made;
    tag.published_at = world.now;
    queue(protocol::PublishState{made});
  }
  switch (done.status.code) {
    case Code::kInDoubt:
    case Code::kEvicted:
    case Code::kResync:
      tag.needs_sync = tag.is_state;
      break;
    default:
      break;
  }
  const bool at_once = !world.healed && done.status.code == Code::kAborted;
  const Duration pause = success ? world.mix.think : world.mix.think + 20 * kMillisecond;
  act_later(tag, at_once && world.rng.app.chance(0.5) ? 0 : pause);
}

void SimPeer::synced(const protocol::CompleteSync& done) {
  UserTag* tag = find(done.tag);
  if (done.status.code == Code::kBusyTag) return;
  if (tag == nullptr || !tag->syncing) {
    return world.history.fail("P4", cat("slot ", slot, ": a sync of ", done.tag, " ended twice"));
  }
  if (world.tracing()) {
    world.note(cat("     ", slot, " sync ", done.tag, " ends ", name_of(done.status.code), " ",
                   done.held.revision, " ", done.status.text));
  }
  tag->syncing = false;
  p4_in_time(world.history, slot, tag->tag, latest_end(tag->sync_deadline));
  if (!done.status.ok()) data.stop_fetch(done.tag);
  tag->lost = done.status.code == Code::kStateLost;
  if (done.status.code == Code::kMismatch) {  // it was too late to be the source
    if (tag->claimed) ++world.counts.claims_refused;
    tag->no_source = true;
  }
  if (done.status.ok()) {
    ++world.counts.syncs;
    // Its number was another run's, or an earlier one.
    const bool renumbered = world.history.restored.count({tag->tag, done.held.revision}) > 0;
    if (world.mix.foreign > 0 || renumbered) tag->revision = done.held.revision;
    const wire::Held own{tag->tag, tag->revision, tag->digest};
    if (done.held != own) {
      return world.history.fail("P6", cat("slot ", slot, ": sync of ", done.tag, " says revision ",
                                          done.held.revision, ", the state is ", own.revision));
    }
    check_source(*tag);
    world.history.on_state(slot, shard, own);
    tag->needs_sync = false;
    tag->was_synced = true;
    tag->published = own;
    queue(protocol::PublishState{own});
  }
  act_later(*tag, tag->lost ? kSecond : world.mix.think + 20 * kMillisecond);
}

// A program with a mistake calls a tag that has an open call.
void SimPeer::call_again() {
  if (tags.empty()) return;
  const UserTag& tag = tags[world.rng.app.below(tags.size())];
  if (tag.call == 0 && !tag.syncing) return;
  if (world.rng.app.chance(0.5)) {
    protocol::Call event;
    event.tag = tag.tag, event.deadline = clock() + kSecond;
    return feed(event);
  }
  protocol::SyncCall event;
  event.tag = tag.tag, event.deadline = clock() + kSecond;
  feed(event);
}

void SimPeer::audit() {
  if (!running()) return;
  if (!world.healed && world.rng.app.chance(0.02)) call_again();
  for (UserTag& tag : tags) {
    if (tag.call != 0) {
      p4_in_time(world.history, slot, tag.tag, latest_end(world.history.call(tag.call).deadline));
      const bool open = (!tag.visible || !tag.buffers->may_change_out()) && !lies();
      if (open) p3_open(world.history, world.history.call(tag.call), tag.buffers->as_given());
    }
    if (tag.call != 0 || tag.syncing) {
      p10_says_why(world.history, cat("slot ", slot), tag.tag,
                   machine->waiting_for(tag.tag, clock()));
    }
    if (tag.syncing) p4_in_time(world.history, slot, tag.tag, latest_end(tag.sync_deadline));
  }
}

}  // namespace jccl::sim
