// What goes wrong, when, to whom; and the moment when nothing goes wrong any more. A fault is drawn
// with all its choices made, so that a list of them says all there is to say.
#include <algorithm>

#include "sim/world.h"
#include "wire/samples.h"
#include "wire/serialize.h"

namespace jccl::sim {

using base::cat;

namespace {

// Choices a fault carries; each reads its own bits.
bool coin(std::uint64_t bits, int place) { return (bits >> place & 1) != 0; }
double unit(std::uint64_t bits, int place) {
  return static_cast<double>(bits >> place & 255) / 256.0;
}

bool of_disk_or_clock(Fault fault) {
  return fault == Fault::kDiskError || fault == Fault::kDiskFull || fault == Fault::kDiskRot ||
         fault == Fault::kClockJump || fault == Fault::kLateWakes || fault == Fault::kDiskSlow;
}
bool of_master(Fault fault) {  // the process alone
  return fault == Fault::kMasterCrash || fault == Fault::kMasterPause;
}

Duration length_of(base::Rng& rng, const Mix& mix, Fault fault) {
  switch (fault) {
    case Fault::kPeerCrash:
    case Fault::kMassCrash:
    case Fault::kJoinerCrash:
      return between(rng, kMillisecond, 2 * mix.downtime);
    case Fault::kPeerPause:
      return between(rng, kMillisecond, 2 * mix.pause);
    case Fault::kMasterPause:
      return between(rng, kMillisecond, mix.pause);
    case Fault::kMasterCrash:
    case Fault::kDiskError:
    case Fault::kDiskRot:
      return between(rng, kMillisecond, 2 * mix.master_down);
    case Fault::kDiskFull:
      return between(rng, kMillisecond, mix.master_down);
    case Fault::kTrickle:
      return between(rng, kMillisecond, 4 * kSecond);
    case Fault::kMasterFrozen:  // long enough for another to take over
      return mix.lease + between(rng, kMillisecond, mix.lease + mix.pause);
    case Fault::kClockJump:
      return between(rng, kMillisecond, mix.jump);
    default:
      return between(rng, kMillisecond, 2 * mix.cut);
  }
}

void draw_one(base::Rng& rng, const Mix& mix, Fault fault, Time at, std::vector<Injected>& list) {
  const auto slot = [&] { return static_cast<std::uint32_t>(rng.below(mix.slots)); };
  Injected one{at, fault, slot(), slot(), length_of(rng, mix, fault), rng.next()};
  if (fault == Fault::kMassCrash) {  // a rack, a provider
    for (one.a = 0; one.a < mix.slots; ++one.a) {
      one.length = length_of(rng, mix, fault), one.bits = rng.next();
      if (rng.chance(0.6)) list.push_back(one);
    }
    return;
  }
  if (fault == Fault::kSwizzle) {  // one by one away, in another order back
    for (one.a = 0; one.a < mix.slots; ++one.a) {
      one.at = at + between(rng, 0, mix.cut), one.length = length_of(rng, mix, fault);
      if (rng.chance(0.5)) list.push_back(one);
    }
    return;
  }
  list.push_back(one);
}

}  // namespace

std::vector<Injected> draw_faults(const Mix& mix, std::uint64_t seed) {
  base::Rng rng(seed ^ 0x6661756C7473);
  std::vector<Injected> list;
  double total = 0;
  for (const double rate : mix.rate) total += rate;
  if (total <= 0) return list;
  for (Time at = 0;;) {
    // Exponential gaps, cheaply: a geometric number of small steps would do as well.
    const double u = rng.unit();
    const double gap = (u < 0.5 ? u : u * u * 3) / total;
    at += 1 + static_cast<Duration>(gap * static_cast<double>(kSecond));
    if (at >= mix.faults_until) break;
    double left = rng.unit() * total;
    for (std::size_t kind = 0; kind < kFaults; ++kind) {
      left -= mix.rate[kind];
      if (mix.rate[kind] <= 0 || left > 0) continue;
      draw_one(rng, mix, static_cast<Fault>(kind), at, list);
      break;
    }
  }
  return list;
}

void World::inject(const Injected& fault) {
  if (healed || fault.a >= peers.size()) return;
  ++counts.faults[static_cast<std::size_t>(fault.fault)];
  if (!of_master(fault.fault)) disturbed_until_ = std::max(disturbed_until_, now + fault.length);
  if (of_disk_or_clock(fault.fault)) {
    disk_disturbed_until_ = std::max(disk_disturbed_until_, now + fault.length);
  }
  if (of_master(fault.fault) || of_disk_or_clock(fault.fault) || fault.fault >= Fault::kStoreCut) {
    master_disturbed_until_ = std::max(master_disturbed_until_, now + fault.length + kSecond);
  }
  if (tracing()) {
    note(cat("FAULT ", name_of(fault.fault), " ", fault.a, " ", fault.b, " for ",
             fault.length / kMillisecond, " ms"));
  }
  switch (fault.fault) {
    case Fault::kPeerCrash:
    case Fault::kMassCrash:
    case Fault::kJoinerCrash:
    case Fault::kPeerPause:
    case Fault::kPeerLeave:
    case Fault::kGhost:
      return fault_peer(fault);
    case Fault::kLateWakes:
    case Fault::kClockJump:
      return fault_clock(fault);
    case Fault::kControlReset:
    case Fault::kControlCut:
    case Fault::kDataReset:
    case Fault::kDataCut:
    case Fault::kClog:
    case Fault::kSwizzle:
    case Fault::kDataFlip:
    case Fault::kTrickle:
      return fault_network(fault);
    default:
      return fault_master(fault);
  }
}

void World::fault_peer(const Injected& fault) {
  SimPeer& peer = peers[fault.a];
  if (fault.fault == Fault::kGhost) return haunt(fault);
  if (!peer.alive) return;
  if (fault.fault == Fault::kPeerPause) {
    hampered_until_[peer.slot] = std::max(hampered_until_[peer.slot], now + fault.length);
    return peer.pause(fault.length, fault.clock_stands());
  }
  if (fault.fault == Fault::kJoinerCrash && peer.machine->member()) return;
  if (fault.fault == Fault::kPeerLeave && !peer.paused) {
    peer.leave();
    return post(now + 500 * kMillisecond, Kind::kPeerGone, peer.slot);
  }
  peer.die(unit(fault.bits, 0) < mix.vanish);
  // Some stay dead until everything heals.
  if (unit(fault.bits, 8) >= 0.1) post(now + fault.length, Kind::kPeerUp, peer.slot);
}

// A connection of a life that is over: its process was stopped and replaced, and wakes; or what
// it sent comes late. It greets, claims things, and hears nothing.
void World::haunt(const Injected& fault) {
  SimPeer& peer = peers[fault.a];
  SimMaster* master = active();
  std::vector<wire::Incarnation> past;
  for (const wire::Incarnation life : peer.lives) {
    if (life != peer.incarnation) past.push_back(life);
  }
  if (master != nullptr && coin(fault.bits, 20)) return babble(fault, *master);
  if (past.empty() || master == nullptr) return;
  // Whoever has heard of a later master's attempts hangs up on this one (DECISIONS: Welcome).
  if (master->machine->state().ledger_.epoch() < history.epoch) return;
  wire::Hello hello;
  hello.incarnation = past[fault.bits % past.size()];
  hello.site = peer.site, hello.shard = peer.shard, hello.shards = mix.shards;
  hello.addresses = {cat("slot-", peer.slot)};
  // Somebody else, who has read the number of a life or has none at this seat.
  const bool impostor = coin(fault.bits, 22) && coin(fault.bits, 23);
  if (impostor) {
    hello.incarnation = coin(fault.bits, 24) ? peer.incarnation : new_incarnation(fault.a);
  }
  const std::uint64_t id = connect(peer, *master);
  conn(id).ghost = true;
  conn(id).key = impostor ? wire::PublicKey{0xEE} : key_of(peer.slot, hello.incarnation);
  bool fenced = false, member = false;
  for (const auto& [peer_id, known] : history.everybody) {
    if (known.incarnation != hello.incarnation) continue;
    (history.members.count(peer_id) == 0 ? fenced : member) = true;
  }
  conn(id).stranger = fenced ? Stranger::kFenced : Stranger::kObserver;
  send_up(id, hello);
  wire::Resume resume;
  wire::RoundName round{"t0", 1};
  if (!history.attempts.empty()) {
    const wire::Attempt attempt = history.attempts.rbegin()->first;
    if (const auto last = history.last.find("t0"); last != history.last.end()) {
      round.n = last->second + 1 - (coin(fault.bits, 8) ? 1 : 0);
    }
    if (round.n == 0) round.n = 1;
    resume.unresolved.push_back({attempt, round});
    send_up(id, resume);
    // A member that invents a DONE lies about its own part: nobody else can know.
    if (coin(fault.bits, 9) && !member) send_up(id, wire::Done{attempt, {fault.bits, 1}});
    if (coin(fault.bits, 10)) send_up(id, wire::Fail{attempt, base::Code::kLinkLost, 1, "ghost"});
  } else {
    send_up(id, resume);
  }
  if (coin(fault.bits, 11)) {
    wire::Ready ready;
    ready.round = round, ready.descriptor = {1, 1}, ready.deadline = kSecond, ready.call = 1;
    send_up(id, ready);
  }
  if (coin(fault.bits, 12)) send_up(id, wire::Withdraw{round});
  const auto state = history.states.find({"t0", peer.shard, round.n - 1});
  if (coin(fault.bits, 13) && state != history.states.end()) {  // it does not lie
    send_up(id, wire::Published{{"t0", round.n - 1, state->second}});
  }
  if (coin(fault.bits, 14) && coin(fault.bits, 15)) send_up(id, wire::Leave{});
  post(now + fault.length, Kind::kGhost, kNobody, id);
}

// Somebody who got past the handshake and speaks out of turn. Whatever it says, it is refused.
void World::babble(const Injected& fault, SimMaster& master) {
  static const std::vector<wire::Message> kMessages = wire::sample_messages();
  const wire::Message& message = kMessages[(fault.bits >> 24) % kMessages.size()];
  const std::uint64_t id = connect(peers[fault.a], master);
  conn(id).ghost = true;
  post(now + fault.length, Kind::kGhost, kNobody, id);
  if (std::holds_alternative<wire::StatusAsk>(message)) return;  // the driver answers that
  if (coin(fault.bits, 21)) {
    wire::Hello hello;
    hello.incarnation = new_incarnation(fault.a);
    hello.site = cat(kStrangerSite, id), hello.addresses = {"nowhere"};
    send_up(id, hello);
    const bool masters_own = message.index() >= wire::Message(wire::Welcome{}).index() &&
                             !std::holds_alternative<wire::Measured>(message);
    if (coin(fault.bits, 22) && (masters_own || std::holds_alternative<wire::Resume>(message))) {
      send_up(id, wire::Resume{});
    } else if (std::holds_alternative<wire::Resume>(message)) {
      return;
    }
  } else if (std::holds_alternative<wire::Hello>(message)) {
    return;  // of another run: refused
  }
  send_up(id, message);
}

void World::fault_clock(const Injected& fault) {
  const bool of_master = coin(fault.bits, 0) && coin(fault.bits, 1);
  const std::uint32_t which = of_master ? fault.b % mix.masters : fault.a;
  if (fault.fault == Fault::kLateWakes) {
    Time& late_until = late_until_[of_master ? kSlotsMax + which : which];
    late_until = std::max(late_until, now + fault.length);
    if (!of_master) peers[which].free_at = late_until + mix.lag;
    return;
  }
  clocks_part();
  if (of_master)
    masters[which].jump(fault.length);
  else
    peers[which].jump(fault.length);
}

void World::fault_network(const Injected& fault) {
  const std::uint32_t a = fault.a, b = fault.b % mix.slots;
  const Time until = now + fault.length;
  const auto cut = [&](std::uint32_t m, bool up, bool down) {
    if (up) up_blocked_[a][m] = until;
    if (down) down_blocked_[a][m] = until;
  };
  hampered_until_[a] = std::max(hampered_until_[a], until);
  if (fault.fault == Fault::kDataReset || fault.fault == Fault::kDataCut ||
      fault.fault == Fault::kDataFlip) {
    hampered_until_[b] = std::max(hampered_until_[b], until);
  }
  switch (fault.fault) {
    case Fault::kControlReset:
      if (peers[a].alive && peers[a].conn != 0)
        reset_conn(peers[a].conn, unit(fault.bits, 0) < 0.2);
      return;
    case Fault::kControlCut:
      for (std::uint32_t m = 0; m < mix.masters; ++m) {
        const std::uint64_t way = fault.bits % 3;
        if (m > 0 && m == fault.bits >> 8 % mix.masters) continue;  // not from this one
        cut(m, way != 1, way != 0);
      }
      return;
    case Fault::kSwizzle:
      for (std::uint32_t m = 0; m < mix.masters; ++m) cut(m, true, true);
      for (std::uint32_t other = 0; other < mix.slots; ++other) {
        link(a, other).blocked_until = link(other, a).blocked_until = until;
      }
      return;
    case Fault::kDataReset:
      if (a == b) return;
      if (coin(fault.bits, 9)) return reset_pipes(a, b, unit(fault.bits, 0) < 0.2, true);
      reset_pipes(a, b, unit(fault.bits, 0) < 0.2, false);
      return reset_data(a, b, unit(fault.bits, 0) < 0.2);
    case Fault::kDataCut:
      link(a, b).blocked_until = until;
      if (coin(fault.bits, 0)) link(b, a).blocked_until = until;
      return;
    case Fault::kDataFlip:
      link(a, b).flips_until = until;
      return;
    case Fault::kTrickle:
      trickle_[a] = {until, 0,
                     50 * kMillisecond + static_cast<Duration>(fault.bits % 500) * kMillisecond};
      return;
    default:
      slow_until_[a] = until;
  }
}

void World::fault_master(const Injected& fault) {
  const std::uint32_t which = fault.b % mix.masters;
  SimMaster& master = mix.masters > 1 && coin(fault.bits, 2) ? masters[which]
                      : active() != nullptr                  ? *active()
                                                             : masters[which];
  switch (fault.fault) {
    case Fault::kStoreCut:
      store.cut_until[master.index] = now + fault.length;
      return;
    case Fault::kDiskFull:
      store.full_until = now + fault.length;
      return;
    case Fault::kDiskSlow:
      store.slow_until = now + fault.length;
      return;
    case Fault::kMasterCut:
      return cut_master(master, now + fault.length);
    case Fault::kMasterFrozen:
      return freeze(master, fault.length);
    case Fault::kDiskError:
      store.fails_next = coin(fault.bits, 0) ? StoreFault::kWrite : StoreFault::kSync;
      return;
    case Fault::kDiskRot:
      store.rot = fault.bits | 1;
      return crash_master(master, fault.length, false);
    case Fault::kMasterPause:
      if (master.alive) master.pause(fault.length, fault.clock_stands());
      return;
    case Fault::kOperatorEvicts:
      if (master.machine == nullptr || !master.running()) return;
      wished_out_.insert(peers[fault.a].site);
      return master.feed(protocol::EvictSite{peers[fault.a].site});
    default:
      if (!master.alive) return;
      if (coin(fault.bits, 1)) {
        return crash_master(master, fault.length, unit(fault.bits, 8) < mix.vanish);
      }
      master.doomed = true;
  }
}

void World::cut_master(const SimMaster& master, Time until) {
  for (std::uint32_t slot = 0; slot < mix.slots; ++slot) {
    up_blocked_[slot][master.index] = down_blocked_[slot][master.index] = until;
  }
}

// A virtual machine is moved, or a laptop closed: by its own clock nothing has happened, so it
// takes itself for the master until it reaches its store. Peers lose the others for a moment.
void World::freeze(SimMaster& master, Duration length) {
  if (!master.alive || master.paused) return;
  // By its clock deadlines are far that are over: it can't know, and counts such an end once.
  for (SimPeer& peer : peers) peer.made_fault(protocol::Fault::kRefusal, true);
  master.pause(length, true);
  if (masters.size() == 1) return;
  const Time wakes = now + length;
  store.cut_until[master.index] = wakes + mix.lease;
  disturbed_until_ = std::max(disturbed_until_, wakes + mix.lease);
  post(wakes, Kind::kThaw, kNobody, master.index);
}

void World::thaw(std::uint32_t woken) {
  if (healed) return;
  for (const SimMaster& master : masters) {
    if (master.index != woken) cut_master(master, now + mix.lease / 2);
  }
  for (const SimPeer& peer : peers) {
    if (peer.alive && peer.conn != 0) reset_conn(peer.conn, false);
  }
}

void World::crash_master(SimMaster& master, Duration down, bool vanish) {
  if (!master.alive) return;
  master.die(vanish);
  post(now + down, Kind::kMasterUp, kMaster + master.index);
}

void World::heal() {
  if (tracing()) note("HEAL");
  healed = true;
  healed_at_ = now;
  for (auto& row : up_blocked_) row.fill(0);
  for (auto& row : down_blocked_) row.fill(0);
  slow_until_.fill(0), late_until_.fill(0);
  for (DataLink& l : links_) l.blocked_until = l.flips_until = 0;
  trickle_.fill({});
  for (Pipe& one : pipes_) {  // what stood goes on
    one.stands_until = 0;
    for (Way& way : one.way) way.posted = false;
    for (std::size_t end = 0; end < 2; ++end) post_pipe(one, end);
  }
  store.cut_until.fill(0);
  store.full_until = store.slow_until = 0, store.fails_next = StoreFault::kNone, store.rot = 0;
  for (SimMaster& master : masters) {
    master.doomed = false;
    if (master.paused) master.resume();
    if (!master.alive && (master.index == 0 || rng.faults.chance(0.7))) master.boot();
  }
  // A few dead may stay dead, if enough sites are left to begin and to commit.
  const std::uint32_t needed = std::max(mix.min_peers, mix.start_peers) * mix.shards;
  std::uint32_t alive = 0;
  for (const SimPeer& peer : peers) alive += peer.alive ? 1 : 0;
  for (SimPeer& peer : peers) {
    if (peer.paused) post(now, Kind::kPeerResume, peer.slot);
    if (peer.leaving) post(now + kSecond, Kind::kPeerUp, peer.slot, 1);
    if (peer.alive) continue;
    const bool may_stay = mix.shards == 1 && mix.dial_only == 0 && alive >= needed && alive > 0;
    if (may_stay && rng.faults.chance(0.3)) continue;
    ++alive;
    post(now + between(rng.faults, 0, 200 * kMillisecond), Kind::kPeerUp, peer.slot);
  }
}

}  // namespace jccl::sim
