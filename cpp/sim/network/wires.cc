// The network's services to the processes: control connections and peer links, and what goes wrong
// on them.
#include <utility>

#include "base/ids.h"
#include "protocol/master/master_state.h"
#include "sim/world.h"
#include "wire/serialize.h"

namespace jccl::sim {

using base::cat;

inline constexpr Duration kTrickleMax = 3 * kSecond;  // what waits for longer is not sent at all

// ---- control connections -----------------------------------------------------------------------

Duration World::delay(std::uint32_t slot) {
  Duration d = mix.latency + static_cast<Duration>(rng.net.below(mix.jitter + 1));
  if (rng.net.chance(mix.spike)) d = std::min(d * 20, d + kSpikeMax);
  if (slow_until_[slot] > now) d = d * 10 + 20 * kMillisecond;
  return d;
}

void World::dial(std::uint32_t slot, std::uint64_t number) {
  const std::size_t master = number % masters.size();
  const Time blocked = std::max(up_blocked_[slot][master], down_blocked_[slot][master]);
  const Time give_up = now + kSecond;
  const bool cut = blocked > give_up;
  post(cut ? give_up : std::max(blocked, now) + 2 * delay(slot), Kind::kDialed, slot, cut ? 0 : 1,
       number);
}

void World::on_dialed(const Event& event) {
  SimPeer& peer = peers[event.target];
  if (!peer.alive) return;
  SimMaster& master = masters[event.b % masters.size()];
  const bool accepted = event.a == 1 && master.listens();
  if (accepted && peer.dials == event.b) peer.conn = connect(peer, master);
  peer.on_dialed(accepted, event.b);
}

std::uint64_t World::connect(SimPeer& peer, SimMaster& master) {
  Conn fresh;
  fresh.id = conns_.size() + 1, fresh.slot = peer.slot, fresh.master = master.index;
  fresh.peer_life = peer.life, fresh.master_life = master.life;
  fresh.peer_open = fresh.master_open = true;
  fresh.key = key_of(peer.slot, peer.incarnation);
  conns_.push_back(std::move(fresh));
  return conns_.size();
}

void World::push(Conn& c, bool up, const wire::Message& message) {
  push_frame(up ? c.up : c.down, wire::encode(message), now + delay(c.slot),
             {mix.split, mix.coalesce}, rng.net);
  post_stream(c, up);
}

void World::push_end(Conn& c, bool up) {
  Direction& d = up ? c.up : c.down;
  d.last = std::max(d.last, now + delay(c.slot));
  d.queue.push_back({d.last, {}, true});
  post_stream(c, up);
}

void World::post_stream(Conn& c, bool up) {
  Direction& d = up ? c.up : c.down;
  if (d.posted || d.queue.empty()) return;
  d.posted = true;
  post(d.queue.front().at, Kind::kControl, up ? kMaster + c.master : c.slot, c.id, up ? 0 : 1);
}

void World::send_up(std::uint64_t id, const wire::Message& message) {
  if (conn(id).peer_open) push(conn(id), true, message);
}

void World::send_down(std::uint64_t id, const wire::Message& message) {
  if (conn(id).master_open) push(conn(id), false, message);
}

void World::close_peer_end(std::uint64_t id, bool vanish) {
  Conn& c = conn(id);
  if (!c.peer_open) return;
  c.peer_open = false;
  c.peer_vanished = vanish;
  if (!vanish) push_end(c, true);
}

void World::close_master_end(std::uint64_t id, bool vanish) {
  Conn& c = conn(id);
  if (!c.master_open) return;
  c.master_open = false;
  c.master_vanished = vanish;
  if (!vanish) push_end(c, false);
}

void World::close_master_ends(std::uint32_t master, bool vanish) {
  for (Conn& c : conns_) {
    if (c.master == master) close_master_end(c.id, vanish);
  }
}

void World::reset_conn(std::uint64_t id, bool half) {
  Conn& c = conn(id);
  c.up.queue.clear(), c.down.queue.clear();
  c.up.in.clear(), c.down.in.clear();
  c.up.in_at = c.down.in_at = 0;
  if (c.master_open && !half) push_end(c, true);
  if (c.peer_open) push_end(c, false);
}

void World::on_control(const Event& event) {
  Conn& c = conn(event.a);
  const bool up = event.b == 0;
  Direction& d = up ? c.up : c.down;
  d.posted = false;
  base::Bytes payload;
  while (true) {
    const bool open = up ? c.master_open : c.peer_open;
    if (open && pop_frame(d, &payload)) {
      const bool stopped = up ? !masters[c.master].running() : !c.ghost && !peers[c.slot].running();
      if (stopped) {  // it stopped while reading: the rest is read later
        d.in_at -= 4 + payload.size();
        d.posted = true;
        return post(now, Kind::kControl, event.target, c.id, event.b);
      }
      deliver(c, up, payload);
      continue;
    }
    if (d.queue.empty()) return;
    const Time blocked = (up ? up_blocked_ : down_blocked_)[c.slot][c.master];
    const Time due = std::max(d.queue.front().at, blocked);
    if (due > now) {
      d.posted = true;
      return post(due, Kind::kControl, event.target, c.id, event.b);
    }
    Segment segment = std::move(d.queue.front());
    d.queue.pop_front();
    if (segment.end || !open) {
      end_of_stream(c, up);
      continue;
    }
    d.in.insert(d.in.end(), segment.bytes.begin(), segment.bytes.end());
  }
}

// The sender is gone, or bytes came for a receiver that is.
void World::end_of_stream(Conn& c, bool up) {
  Direction& d = up ? c.up : c.down;
  d.queue.clear();
  d.in.clear(), d.in_at = 0;
  if (up) {
    if (c.master_open) {
      c.master_open = false;
      masters[c.master].feed(protocol::ConnClosed{c.id});
    } else if (c.peer_open && masters[c.master].alive) {
      push_end(c, false);  // a reset from the machine that knows nothing of this connection
    }
    return;
  }
  if (c.peer_open) {
    c.peer_open = false;
    peers[c.slot].on_closed(c.id);
  } else if (c.master_open && peers[c.slot].alive) {
    push_end(c, true);
  }
}

namespace {

// What a heartbeat says of attempts under way: who is slow is judged by that.
std::string moving_text(const wire::Message& message) {
  const auto* beat = std::get_if<wire::Heartbeat>(&message);
  std::string text;
  for (const wire::Moving& one : beat == nullptr ? std::vector<wire::Moving>{} : beat->moving) {
    text += cat(" ", one.attempt.epoch, ".", one.attempt.counter, ": ", one.left, " of ", one.all,
                one.waits_on == 0 ? "" : cat(", waits on ", one.waits_on),
                one.lacking == 0 ? "" : cat(", lacks ", one.lacking));
  }
  return text;
}

}  // namespace

void World::deliver(Conn& c, bool up, const base::Bytes& payload) {
  base::Result<wire::Message> message = wire::decode(payload);
  JCCL_CHECK(message.ok());
  ++counts.messages;
  hash_ = mix_in(hash_, payload.size() ^ (std::uint64_t{payload[payload.size() / 2]} << 32));
  if (tracing()) {
    note(cat(up ? "up   " : "down ", c.slot, " conn ", c.id, " ", wire::name_of(message.value()),
             moving_text(message.value())));
  }
  if (up) {
    judge_impostor(c, message.value());
    masters[c.master].feed(protocol::ConnMessage{c.id, std::move(message.value()), {c.key}});
  } else if (c.ghost) {
    p8_told(history, c.stranger, message.value());
    history.on_told(c.slot, message.value());
  } else {
    const auto* welcome = std::get_if<wire::Welcome>(&message.value());
    if (welcome != nullptr && welcome->epoch == history.epoch) {  // of the newest master
      p5_seat(history, peers[c.slot].site, peers[c.slot].shard, peers[c.slot].incarnation);
    }
    p8_observer(history, peers[c.slot].incarnation, message.value());
    history.on_told(c.slot, message.value());
    peers[c.slot].on_message(std::move(message.value()));
  }
}

void World::probe(const SimMaster& master, wire::Incarnation incarnation) {
  const auto slot = slots.find(incarnation);
  JCCL_CHECK(slot != slots.end());
  const SimPeer& peer = peers[slot->second];
  const std::uint32_t m = master.index;
  const bool cut = std::max(up_blocked_[peer.slot][m], down_blocked_[peer.slot][m]) > now;
  if (cut) return;  // no answer at all
  const bool refused = !peer.alive;
  post(now + 2 * delay(peer.slot), Kind::kProbe, kMaster + m, incarnation, refused ? 1 : 0);
}

// ---- peers -------------------------------------------------------------------------------------

// Every second process has its key from a file, and has it again when it starts anew.
wire::PublicKey World::key_of(std::uint32_t slot, wire::Incarnation life) {
  const std::uint64_t owner = slot % 2 == 0 ? base::process_of(life) : slot + 1;
  wire::PublicKey key{static_cast<std::uint8_t>(1 + slot % 2)};
  for (std::size_t i = 0; i < 8; ++i) key[8 + i] = static_cast<std::uint8_t>(owner >> (8 * i));
  return key;
}

// Who says the number of a life, or the name of a seat, that the master knows as another key's, and
// not as that of somebody who only sits on it.
void World::judge_impostor(Conn& c, const wire::Message& message) {
  const auto* hello = std::get_if<wire::Hello>(&message);
  const SimMaster& master = masters[c.master];
  if (hello == nullptr || !c.ghost || !master.running()) return;
  const protocol::MasterMachine::State& at = master.machine->state();
  const protocol::ProcessRecord* known = at.record_of(hello->incarnation);
  if (known != nullptr && known->key != c.key) c.stranger = Stranger::kImpostor;
  if (known != nullptr || at.ledger_.fenced(hello->incarnation)) return;
  for (const wire::Incarnation incarnation : at.processes_at(hello->site)) {
    const protocol::ProcessRecord& life = at.processes_.at(incarnation);
    if (life.shard != hello->shard || life.key == c.key || at.gives_way(life)) continue;
    c.stranger = Stranger::kImpostor;
  }
}

wire::Incarnation World::new_incarnation(std::uint32_t slot) {
  wire::Incarnation incarnation = base::first_life(rng.ids.next());
  while (!slots.emplace(incarnation, slot).second) incarnation = base::first_life(rng.ids.next());
  return incarnation;
}

wire::Incarnation World::next_life(std::uint32_t slot, wire::Incarnation life) {
  const wire::Incarnation next = base::next_life(life, rng.ids.next());
  JCCL_CHECK(slots.emplace(next, slot).second);
  return next;
}

void World::send_data(std::uint32_t from, DataMessage message) {
  const auto to = slots.find(message.to);
  JCCL_CHECK(to != slots.end());
  if (to->second == from) return;
  DataLink& l = link(from, to->second);
  Duration d = mix.data_latency + static_cast<Duration>(rng.data.below(mix.jitter + 1));
  if (rng.data.chance(mix.spike)) d = std::min(d * 20, d + kSpikeMax);
  Duration wait = 0;  // for its turn, as long as the line is slow
  if (std::max(slow_until_[from], slow_until_[to->second]) > now) wait = d * 9 + 20 * kMillisecond;
  wait += std::max(trickle(from), trickle(to->second));
  if (l.flips_until > now && rng.data.chance(0.5)) {  // it is sent again
    ++counts.flipped;
    d += 2 * mix.data_latency + kMillisecond;
  }
  l.last = message.at = std::max(l.last, now + d);
  message.turn = now + d + wait;
  l.queue.push_back(std::move(message));
  if (l.posted) return;
  l.posted = true;
  post(arrival(from, to->second), Kind::kData, to->second, from);
}

// When the first message of a link is there. What a slow line held up goes on when it is slow no
// longer: else a link stood still for seconds after its last fault had ended, which nobody's rules,
// and no oracle's bound, know of (seeds 25734, 92002).
Time World::arrival(std::uint32_t from, std::uint32_t to) {
  const DataLink& l = link(from, to);
  const Time slow =
      std::max({slow_until_[from], slow_until_[to], trickle_[from].until, trickle_[to].until});
  const DataMessage& first = l.queue.front();
  return std::max({first.at, l.blocked_until, std::min(first.turn, slow)});
}

// How long a message waits for its turn on a slot's links.
Duration World::trickle(std::uint32_t slot) {
  Trickle& slow = trickle_[slot];
  if (slow.until <= now) return 0;
  slow.free_at = std::min(std::max(slow.free_at, now) + slow.step, now + kTrickleMax);
  return slow.free_at - now;
}

void World::on_data(const Event& event) {
  const auto from = static_cast<std::uint32_t>(event.a);
  DataLink& l = link(from, event.target);
  SimPeer& peer = peers[event.target];
  l.posted = false;
  while (!l.queue.empty()) {
    const Time due = arrival(from, event.target);
    if (due > now) {
      l.posted = true;
      return post(due, Kind::kData, event.target, from);
    }
    DataMessage message = std::move(l.queue.front());
    l.queue.pop_front();
    const bool known = peer.alive && (message.to == peer.incarnation);
    hash_ = mix_in(hash_, message.held.revision ^ message.from);
    if (known) {
      peer.on_data(message);
    } else if (!rng.data.chance(mix.vanish)) {
      post(now + mix.data_latency, Kind::kDataReset, from, event.target, message.to);
    }
  }
}

void World::reset_data(std::uint32_t a, std::uint32_t b, bool one_sided) {
  link(a, b).queue.clear();
  link(b, a).queue.clear();
  post(now + rng.data.below(5) * kMillisecond, Kind::kDataReset, a, b);
  if (!one_sided || mix.life_signs)
    post(now + rng.data.below(5) * kMillisecond, Kind::kDataReset, b, a);
}

}  // namespace jccl::sim
