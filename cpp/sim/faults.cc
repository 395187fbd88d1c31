// What goes wrong, when, to whom; and the moment when nothing goes wrong any more.
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

void World::arm_fault() {
  double total = 0;
  for (const double rate : mix.rate) total += rate;
  if (total <= 0) return;
  // Exponential gaps, cheaply: a geometric number of small steps would do as well.
  const double u = rng.faults.unit();
  const double gap = (u < 0.5 ? u : u * u * 3) / total;
  post(now + 1 + static_cast<Duration>(gap * static_cast<double>(kSecond)), Kind::kFault, kNobody);
}

void World::inject() {
  if (healed) return;
  arm_fault();
  double total = 0;
  for (const double rate : mix.rate) total += rate;
  double at = rng.faults.unit() * total;
  for (std::size_t kind = 0; kind < kFaults; ++kind) {
    at -= mix.rate[kind];
    if (mix.rate[kind] > 0 && at <= 0) return inject(static_cast<Fault>(kind));
  }
}

void World::inject(Fault fault) {
  ++counts.faults[static_cast<std::size_t>(fault)];
  switch (fault) {
    case Fault::kPeerCrash:
    case Fault::kPeerPause:
    case Fault::kPeerLeave:
    case Fault::kLateJoin:
      return fault_peer(fault);
    case Fault::kMasterCrash:
    case Fault::kMasterPause:
    case Fault::kDiskError:
    case Fault::kOperatorEvicts:
      return fault_master(fault);
    default:
      return fault_network(fault);
  }
}

void World::fault_peer(Fault fault) {
  SimPeer& peer = peers[rng.faults.below(peers.size())];
  if (tracing()) note(cat("FAULT ", name_of(fault), " slot ", peer.slot));
  const Duration down = between(rng.faults, 1 * kMillisecond, 2 * mix.downtime);
  if (!peer.alive) return;
  if (fault == Fault::kPeerPause) {
    if (peer.paused) return;
    peer.paused = true;
    post(now + between(rng.faults, kMillisecond, 2 * mix.pause), Kind::kPeerResume, peer.slot);
    return;
  }
  if (fault == Fault::kPeerLeave && !peer.paused) {
    peer.leave();
    post(now + 500 * kMillisecond, Kind::kPeerGone, peer.slot);
    return;
  }
  peer.die(rng.faults.chance(mix.vanish));
  // Some stay dead until everything heals.
  if (!rng.faults.chance(0.1)) post(now + down, Kind::kPeerUp, peer.slot);
}

void World::fault_network(Fault fault) {
  const auto a = static_cast<std::uint32_t>(rng.faults.below(peers.size()));
  const auto b = static_cast<std::uint32_t>(rng.faults.below(peers.size()));
  const Time until = now + between(rng.faults, kMillisecond, 2 * mix.cut);
  if (tracing()) note(cat("FAULT ", name_of(fault), " slots ", a, " ", b));
  switch (fault) {
    case Fault::kControlReset:
      if (peers[a].alive && peers[a].conn != 0) reset_conn(peers[a].conn);
      return;
    case Fault::kControlCut: {
      const std::uint64_t way = rng.faults.below(3);
      if (way != 1) up_blocked_[a] = until;
      if (way != 0) down_blocked_[a] = until;
      return;
    }
    case Fault::kDataReset:
      if (a != b) reset_data(a, b, rng.faults.chance(0.2));
      return;
    case Fault::kDataCut:
      link(a, b).blocked_until = until;
      if (rng.faults.chance(0.5)) link(b, a).blocked_until = until;
      return;
    default:
      slow_until_[a] = until;
  }
}

void World::fault_master(Fault fault) {
  if (tracing()) note(cat("FAULT ", name_of(fault)));
  if (!master.alive) return;
  switch (fault) {
    case Fault::kMasterPause:
      if (master.paused) return;
      master.paused = true;
      return post(now + between(rng.faults, kMillisecond, mix.pause), Kind::kMasterResume, kMaster);
    case Fault::kOperatorEvicts:
      if (!master.running()) return;
      return master.feed(protocol::EvictSite{peers[rng.faults.below(peers.size())].site});
    case Fault::kDiskError:  // the write fails: the process stops, and nothing of it is there
      if (master.busy) master.disk.unsynced.clear();
      return crash_master();
    default:
      if (rng.faults.chance(0.5)) return crash_master();
      master.doomed = true;
  }
}

void World::crash_master() {
  master.die(rng.faults.chance(mix.vanish));
  post(now + between(rng.faults, kMillisecond, 2 * mix.master_down), Kind::kMasterUp, kMaster);
}

void World::heal() {
  if (tracing()) note("HEAL");
  healed = true;
  healed_at_ = now;
  up_blocked_.fill(0), down_blocked_.fill(0), slow_until_.fill(0);
  for (DataLink& l : links_) l.blocked_until = 0;
  master.doomed = false;
  if (!master.alive) master.boot();
  if (master.paused) master.paused = false, master.release();
  // A few dead may stay dead, if enough sites are left to begin and to commit.
  const std::uint32_t needed = std::max(mix.min_peers, mix.start_peers) * mix.shards;
  std::uint32_t alive = 0;
  for (const SimPeer& peer : peers) alive += peer.alive ? 1 : 0;
  for (SimPeer& peer : peers) {
    if (peer.paused) post(now, Kind::kPeerResume, peer.slot);
    if (peer.leaving) post(now + kSecond, Kind::kPeerUp, peer.slot, 1);
    if (peer.alive) continue;
    const bool may_stay = mix.shards == 1 && alive >= needed && alive > 0;
    if (may_stay && rng.faults.chance(0.3)) continue;
    ++alive;
    post(now + between(rng.faults, 0, 200 * kMillisecond), Kind::kPeerUp, peer.slot);
  }
}

}  // namespace jccl::sim
