// How the world carries frames between processes.
#include "sim/network/pipes.h"

#include <algorithm>

#include "sim/world.h"

namespace jccl::sim {

constexpr Duration kStallMin = 300 * kMillisecond, kStallMax = 8 * kSecond;
constexpr Duration kUnreadPause = 20 * kMillisecond;

// Somebody who is there, is reached, and has room.
void World::dial_pipe(std::uint32_t slot, wire::Incarnation to) {
  const std::uint32_t other = slots.at(to);
  const Duration there =
      2 * (mix.data_latency + static_cast<Duration>(rng.data.below(mix.jitter + 1)));
  post(now + there, Kind::kPipeUp, slot, other, to);
}

void World::on_pipe_up(const Event& event) {
  SimPeer& peer = peers[event.target];
  SimPeer& other = peers[event.a];
  const std::uint32_t first_dialler = mix.slots - mix.dial_only;
  const bool reached = other.running() && other.incarnation == event.b && event.a < first_dialler &&
                       std::max(link(event.target, other.slot).blocked_until,
                                link(other.slot, event.target).blocked_until) <= now;
  if (reached && !other.data.knows(peer.incarnation)) {  // it waits, unread, for the master's word
    return post(now + kUnreadPause, Kind::kPipeUp, event.target, event.a, event.b);
  }
  if (!peer.data.dialled(event.b)) return;
  const bool taken = reached && other.data.takes(peer.incarnation);
  if (!reached) peer.data.dial_failed(event.b);
  if (reached && !taken) peer.data.dial_refused(event.b);
  if (!taken) return peer.drain();
  Pipe& fresh = pipes_.emplace_back();
  fresh.id = static_cast<std::uint32_t>(pipes_.size());
  fresh.slot = {peer.slot, other.slot};
  fresh.life = {peer.incarnation, other.incarnation};
  fresh.open = {true, true};
  fresh.since = now;
  other.data.add_stripe(fresh, 1);
  peer.data.add_stripe(fresh, 0);
  other.drain();
  peer.drain();
}

void World::carry(std::uint32_t id, std::size_t end, Transit transit) {
  Pipe& p = pipe(id);
  const std::uint32_t from = p.slot[end], to = p.slot[1 - end];
  Way& way = p.way[end];
  Duration d = mix.data_latency + static_cast<Duration>(rng.data.below(mix.jitter + 1));
  if (rng.data.chance(mix.spike)) d = std::min(d * 20, d + kSpikeMax);
  Duration wait = 0;  // for its turn, as long as the line is slow
  if (std::max(slow_until_[from], slow_until_[to]) > now) wait = d * 9 + 20 * kMillisecond;
  if (transit.kind == Transit::Kind::kFrame) wait += std::max(trickle(from), trickle(to));
  if (transit.kind == Transit::Kind::kFrame && link(from, to).flips_until > now &&
      rng.data.chance(0.3)) {
    transit.flip = rng.data.below(8 * exchange::bytes_of(transit.frame));
  }
  const bool stalls = mix.stalls > 0 && transit.kind == Transit::Kind::kFrame && !healed &&
                      rng.data.chance(mix.stalls);
  if (stalls && stripes_between(from, to) > 1) {
    const Time until = now + between(rng.data, kStallMin, kStallMax);
    p.stands_until = std::max(p.stands_until, until);
    if (tracing()) {
      note(base::cat("     stripe ", p.id, " of ", from, " and ", to, " stands for ",
                     (p.stands_until - now) / kMillisecond, " ms"));
    }
    for (const std::uint32_t slot : p.slot) {
      hampered_until_[slot] = std::max(hampered_until_[slot], p.stands_until);
      stripe_stood_until_[slot] = std::max(stripe_stood_until_[slot], p.stands_until);
    }
  }
  way.last = transit.at = std::max(way.last, now + d);
  transit.turn = now + d + wait;
  way.queue.push_back(std::move(transit));
  post_pipe(p, end);
}

// When the first frame of a way is there. See arrival().
Time World::arrival(const Pipe& p, std::size_t end) {
  const std::uint32_t from = p.slot[end], to = p.slot[1 - end];
  const Time slow =
      std::max({slow_until_[from], slow_until_[to], trickle_[from].until, trickle_[to].until});
  const Transit& first = p.way[end].queue.front();
  return std::max(
      {first.at, p.stands_until, link(from, to).blocked_until, std::min(first.turn, slow)});
}

void World::post_pipe(Pipe& p, std::size_t end) {
  Way& way = p.way[end];
  if (way.posted || way.paused || way.queue.empty()) return;
  way.posted = true;
  post(arrival(p, end), Kind::kPipe, p.slot[1 - end], p.id, end);
}

void World::on_pipe(const Event& event) {
  Pipe& p = pipe(static_cast<std::uint32_t>(event.a));
  const std::size_t from = event.b, to = 1 - from;
  Way& way = p.way[from];
  SimPeer& peer = peers[p.slot[to]];
  way.posted = false;
  while (!way.queue.empty() && !way.paused) {
    if (arrival(p, from) > now) {
      post_pipe(p, from);
      break;
    }
    const bool there = peer.alive && peer.incarnation == p.life[to] && p.open[to] && !p.reset;
    hash_ = mix_in(hash_, (std::uint64_t{p.id} << 8) ^ way.queue.size());
    if (!there) {  // a reset from the machine that knows nothing of this connection
      way.queue.clear();
      if (p.open[from] && !rng.data.chance(mix.vanish)) {
        post(now + mix.data_latency, Kind::kPipeEnd, p.slot[from], p.id, from);
      }
      break;
    }
    if (way.queue.front().kind == Transit::Kind::kEnd) {
      peer.data.lose_stripe(p, to, "the other end closed it");
      break;
    }
    if (!peer.data.receive(p, to)) {
      if (!p.open[to]) break;
      continue;  // the rest comes later
    }
  }
  peer.drain();
}

void World::room_at(Pipe& p, std::size_t end) {
  SimPeer& peer = peers[p.slot[end]];
  if (!peer.alive || peer.incarnation != p.life[end] || !p.open[end]) return;
  peer.data.has_room(p, end);
  peer.drain();
}

void World::on_pipe_end(const Event& event) {
  Pipe& p = pipe(static_cast<std::uint32_t>(event.a));
  SimPeer& peer = peers[event.target];
  if (peer.incarnation != p.life[event.b]) return;
  peer.data.lose_stripe(p, event.b, "reset");
  peer.drain();
}

// What this end had sent goes on; then the other hears that it was all.
void World::end_of_pipe(Pipe& p, std::size_t end) {
  if (!p.open[1 - end]) {
    p.way[0].queue.clear(), p.way[1].queue.clear();
    return;
  }
  Transit last;
  last.kind = Transit::Kind::kEnd;
  carry(p.id, end, std::move(last));
}

// All stripes between two processes, or one of them, break: what is on them is lost.
void World::reset_pipes(std::uint32_t a, std::uint32_t b, bool one_sided, bool one) {
  for (std::size_t i = pipes_.size(); i > 0; --i) {
    Pipe& p = pipes_[i - 1];
    const bool between_them =
        (p.slot[0] == a && p.slot[1] == b) || (p.slot[0] == b && p.slot[1] == a);
    if (!between_them || !(p.open[0] || p.open[1])) continue;
    p.reset = true;
    for (std::size_t end = 0; end < 2; ++end) {
      p.way[end].queue.clear();
      if (one_sided && p.slot[end] == b) continue;
      post(now + rng.data.below(5) * kMillisecond, Kind::kPipeEnd, p.slot[end], p.id, end);
    }
    if (one) return;
  }
}

// Of those that carry something.
std::size_t World::stripes_between(std::uint32_t a, std::uint32_t b) const {
  return static_cast<std::size_t>(std::count_if(pipes_.begin(), pipes_.end(), [&](const Pipe& p) {
    const bool between_them =
        (p.slot[0] == a && p.slot[1] == b) || (p.slot[0] == b && p.slot[1] == a);
    return between_them && p.open[0] && p.open[1] && !p.reset && p.stands_until <= now;
  }));
}

}  // namespace jccl::sim
