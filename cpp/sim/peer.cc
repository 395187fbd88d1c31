// The process: drives its PeerMachine and carries out what it orders.
#include "sim/peer.h"

#include <utility>

#include "sim/world.h"

namespace jccl::sim {

using base::cat;

SimPeer::SimPeer(World& w, std::uint32_t s)
    : world(w),
      slot(s),
      site(cat("s", s / w.mix.shards)),
      shard(s % w.mix.shards),
      data(w, *this) {}

constexpr Duration kBannedPause = 300 * kMillisecond;

// ---- life and death ----------------------------------------------------------------------------

Time SimPeer::clock() const { return world.now + skew_; }

void SimPeer::boot() {
  ++life;
  alive = true, paused = leaving = false;
  skew_ = static_cast<Time>(world.rng.clocks.below(3600)) * kSecond;
  stands_since_ = base::kNever;
  if (life > 1 && world.mix.shards == 1 && world.rng.app.chance(world.mix.moves_site)) {
    site = cat("s", slot, ".", life);
  }
  tags.clear();
  for (std::uint32_t t = 0; t < world.mix.tags; ++t) world.history.stood.erase({slot, cat("t", t)});
  for (std::uint32_t t = 0; t < world.mix.tags; ++t) {
    UserTag tag;
    tag.tag = cat("t", t);
    tag.is_state = tag.needs_sync = world.mix.is_state[t];
    const std::uint64_t own = world.mix.same_birth ? 7 : 1000 * slot + life;
    tag.digest = {mix_in(own, t), 1};
    if (life == 1 && world.mix.foreign > 0 && world.rng.app.chance(world.mix.foreign)) {
      const auto last = world.history.last.find(tag.tag);
      tag.revision = (last == world.history.last.end() ? 0 : last->second) + world.rng.app.below(3);
    }
    may_forget(tag);
    tags.push_back(std::move(tag));
  }
  new_machine();
  for (UserTag& tag : tags) act_later(tag, world.mix.think);
}

void SimPeer::new_machine() {
  incarnation = world.new_incarnation(slot);
  lives.push_back(incarnation);
  if (lies()) world.history.liars.insert(incarnation);
  protocol::PeerOptions options;
  options.site = site, options.shard = shard, options.shards = world.mix.shards;
  if (slot < world.mix.slots - world.mix.dial_only) options.addresses = {cat("slot-", slot)};
  options.start_peers = 0;
  const bool astray = !world.healed && mistakes_ == 0 && world.rng.app.chance(0.005);
  if (astray) ++mistakes_, options.run = {9};  // a token of another run: refused, then mended
  options.master_grace = world.mix.master_grace;
  data.clear(false);
  pending_.clear();
  wake_ = base::kNever;
  engine_armed_ = false;
  conn = 0;
  if (world.tracing())
    world.note(cat("PEER ", slot, " up at ", site, ", incarnation ", incarnation));
  machine = std::make_unique<protocol::PeerMachine>(options, incarnation, clock());
  busy_ = true;
  apply(machine->start(clock()));
  busy_ = false;
  drain();
}

void SimPeer::die(bool vanish) {
  if (!alive) return;
  if (world.tracing()) world.note(cat("PEER ", slot, vanish ? " vanishes" : " dies"));
  if (conn != 0) world.close_peer_end(conn, vanish);
  conn = 0;
  ++life, ++dials;
  alive = paused = leaving = false;
  data.clear(vanish);
  machine.reset();
  pending_.clear();
  incarnation = 0;
  world.repost(held);
}

void SimPeer::leave() {
  if (leaving) return;
  leaving = true;
  feed(protocol::Depart{});
}

void SimPeer::pause(Duration length, bool clock_stands) {
  if (paused) return;
  paused = true;
  stopped_at = world.now;
  stands_since_ = clock_stands ? world.now : base::kNever;
  world.post(world.now + length, Kind::kPeerResume, slot);
}

void SimPeer::resume() {
  if (!paused) return;
  paused = false;
  free_at = std::max(free_at, world.now);
  if (world.now - stopped_at > world.mix.silence / 3 + kEnginePause) stood_until = world.now;
  // Not `length`: what heals may wake it sooner, and clocks only go forward.
  const Time since = std::exchange(stands_since_, base::kNever);
  const Duration slept = since == base::kNever ? 0 : world.now - since;
  skew_ -= slept;
  if (slept > 0) world.clocks_part();
  for (UserTag& tag : tags) {  // by its clock they have so much more
    if (tag.call != 0) world.history.call(tag.call).deadline += slept;
    tag.sync_deadline += slept;
  }
  world.repost(held);
}

void SimPeer::jump(Duration by) {
  if (!alive) return;
  skew_ += by;
  // By its clock its calls may be over, and nobody else's are: one refusal for each jump.
  made_fault(protocol::Fault::kRefusal, true);
  if (wake_ == base::kNever) return;
  wake_ = world.now;
  world.post(wake_, Kind::kPeerWake, slot);
}

// ---- events ------------------------------------------------------------------------------------

void SimPeer::feed(protocol::PeerEvent event) {
  if (!alive) return;
  queue(std::move(event));
  drain();
}

void SimPeer::drain() {
  if (busy_) return;
  busy_ = true;
  while (!pending_.empty() && alive) {
    const protocol::PeerEvent event = std::move(pending_.front());
    pending_.pop_front();
    world.counts.coverage.see(*machine, event);
    apply(machine->on(event, clock()));
  }
  busy_ = false;
}

void SimPeer::on_message(wire::Message message) { feed(protocol::FromMaster{std::move(message)}); }

void SimPeer::on_data(const DataMessage& message) {
  data.on_snapshot(message);
  drain();
}

void SimPeer::on_reset(std::uint32_t other, wire::Incarnation its) {
  data.on_reset(other, its);
  drain();
}

void SimPeer::on_dialed(bool accepted, std::uint64_t number) {
  if (number != dials) return;
  if (accepted) return feed(protocol::Connected{});
  feed(protocol::Disconnected{{base::Code::kIo, "connection refused"}});
}

void SimPeer::on_closed(std::uint64_t closed) {
  if (closed != conn) return;
  conn = 0;
  feed(protocol::Disconnected{{base::Code::kIo, "connection lost"}});
}

void SimPeer::on_wake() {
  if (world.now < wake_) return;  // an earlier wish, taken back since
  wake_ = base::kNever;
  feed(protocol::PeerTick{});
}

void SimPeer::on_engine() {
  engine_armed_ = false;
  data.tick();
  queue(data.progress());
  drain();
  if (!data.idle() && !engine_armed_) {
    engine_armed_ = true;
    world.post(world.now + kEnginePause, Kind::kEngine, slot);
  }
}

void SimPeer::arm(Time wake) {
  if (wake == wake_) return;
  wake_ = wake;
  if (wake_ != base::kNever) world.post(wake_, Kind::kPeerWake, slot);
}

// ---- effects -----------------------------------------------------------------------------------

void SimPeer::apply(protocol::PeerEffects effects) {
  apply_data(effects);
  for (const protocol::CompleteCall& done : effects.complete) complete(done);
  for (const protocol::FetchSnapshot& fetch : effects.fetch) {
    if (world.tracing())
      world.note(cat("     ", slot, " fetch ", fetch.want.tag, " ", fetch.want.revision));
    data.fetch(fetch);
    lie_about_holders(fetch);
  }
  for (const protocol::CompleteSync& done : effects.synced) synced(done);
  if (conn != 0) {
    for (const wire::Message& message : effects.send) {
      const auto* ready = std::get_if<wire::Ready>(&message);
      UserTag* tag = ready == nullptr ? nullptr : find(ready->round.tag);
      if (tag != nullptr) tag->ready_at = world.now;
      world.send_up(conn, message);
    }
  }
  if (world.tracing() && (effects.connect || effects.disconnect)) {
    world.note(
        cat("     ", slot, effects.disconnect ? " hangs up" : "", effects.connect ? " dials" : ""));
  }
  if (effects.disconnect) hang_up();
  if (effects.connect) {
    hang_up();
    world.dial(slot, ++dials);
  }
  if (!data.idle() && !engine_armed_) {
    engine_armed_ = true;
    world.post(world.now + kEnginePause, Kind::kEngine, slot);
  }
  arm(effects.wake == base::kNever ? base::kNever : effects.wake - skew_);
  if (effects.rejoin) {
    data.new_life();
    incarnation = world.next_life(slot, incarnation);
    lives.push_back(incarnation);
    if (lies()) world.history.liars.insert(incarnation);
    if (world.tracing()) world.note(cat("PEER ", slot, " has a new life: ", incarnation));
    pending_.push_front(protocol::NewLife{incarnation});
  }
  if (effects.departed) return die(false);
  if (effects.broken) broken(*effects.broken);
}

void SimPeer::apply_data(protocol::PeerEffects& effects) {
  for (const wire::Attempt& attempt : effects.discard) {
    if (world.tracing()) world.note(cat("     ", slot, " discard ", to_text(attempt)));
    data.discard(attempt);
  }
  if (effects.roster) data.set_roster(*effects.roster);
  for (const protocol::RunAttempt& run : effects.run) {
    if (world.tracing()) {
      world.note(cat("     ", slot, " run ", to_text(run.start.attempt), " of ",
                     run.start.round.tag, " ", run.start.round.n, run.receiver ? " receiver" : ""));
    }
    if (lie_instead_of_running(run)) continue;
    data.run(run);
    lie_before_running(run.start.attempt);
  }
  for (const wire::AuditAsk& ask : effects.audit) data.audit(ask);
  for (const wire::Attempt& attempt : effects.commit) data.commit(attempt);
}

void SimPeer::hang_up() {
  if (conn != 0) world.close_peer_end(conn);
  conn = 0;
}

// The communicator is done for; the user opens a new one and keeps his state.
void SimPeer::broken(const base::Status& status) {
  if (world.tracing())
    world.note(cat("     ", slot, " BROKEN ", name_of(status.code), " ", status.text));
  for (UserTag& tag : tags) {
    if (tag.call != 0) complete({tag.tag, 0, status, 0, 0, 0, {}});
    if (tag.syncing) synced({tag.tag, status, {}});
    tag.needs_sync = tag.is_state;
    may_forget(tag);
    act_later(tag, world.mix.think);
  }
  hang_up();
  if (leaving) return die(false);
  ask_the_ended();
  if (status.code == base::Code::kBanned) {  // its program ends, and somebody starts it again
    world.post(world.now + kBannedPause, Kind::kPeerUp, slot, 1);
    return die(false);
  }
  ++life;  // voids the old machine's timers
  for (UserTag& tag : tags) act_later(tag, world.mix.think);
  busy_ = false;
  new_machine();
  busy_ = true;
}

// A communicator that is done for still answers, at once and with a reason.
void SimPeer::ask_the_ended() {
  const Time at = clock();
  protocol::Call call;
  call.tag = "t0", call.deadline = at + kSecond;
  protocol::SyncCall sync;
  sync.tag = "t0", sync.deadline = at + kSecond;
  const protocol::PeerEvent events[] = {call,
                                        sync,
                                        protocol::CancelCall{"t0"},
                                        protocol::PeerTick{},
                                        protocol::Progress{},
                                        protocol::NewMeasures{},
                                        protocol::AttemptDone{},
                                        protocol::AttemptFailed{},
                                        protocol::FetchFailed{"t0", ""},
                                        protocol::FetchDone{{"t0", 0, {}}},
                                        protocol::Connected{},
                                        protocol::Disconnected{},
                                        protocol::Depart{}};
  for (const protocol::PeerEvent& event : events) {
    world.counts.coverage.see(*machine, event);
    const protocol::PeerEffects effects = machine->on(event, at);
    const bool answered = (event.index() != 3 || effects.complete.size() == 1) &&
                          (event.index() != 7 || effects.synced.size() == 1);
    if (answered && effects.send.empty() && !effects.connect) continue;
    return world.history.fail("P4", cat("slot ", slot, ": an ended communicator does not answer"));
  }
}

bool SimPeer::settled() const {
  if (!machine->member()) return false;
  for (const UserTag& tag : tags) {
    if (machine->needs_resync(tag.tag)) return false;
  }
  return true;
}

}  // namespace jccl::sim
