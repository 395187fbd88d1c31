// The event loop, and the network's services to the processes.
#include "sim/world.h"

#include <utility>

#include "wire/codec.h"

namespace jccl::sim {

using base::cat;

inline constexpr Duration kConvergeMax = 60 * kSecond;
inline constexpr std::uint64_t kEventsMax =
    1'000'000;  // 16 peers on 0.2 ms links take over 300,000
inline constexpr Duration kSpikeMax = 150 * kMillisecond;
inline constexpr Duration kAuditPause = 100 * kMillisecond;
inline constexpr std::uint32_t kGoodRounds = 3;  // per tag and peer after healing

World::World(const RunOptions& options)
    : mix(draw_mix(options.seed)),
      rng(options.seed),
      master(*this),
      options_(options),
      links_(kSlotsMax * kSlotsMax) {
  history.min_peers = mix.min_peers;
  peers.reserve(mix.slots);
  for (std::uint32_t slot = 0; slot < mix.slots; ++slot) peers.emplace_back(*this, slot);
}

void World::begin() {
  master.boot();
  for (std::uint32_t slot = 0; slot < mix.slots; ++slot) {
    const bool late = slot >= mix.slots - mix.late;
    if (late) ++counts.joins;
    post(between(rng.app, 0, late ? mix.faults_until : 50 * kMillisecond), Kind::kPeerUp, slot);
  }
  arm_fault();
  post(mix.faults_until, Kind::kHeal, kNobody);
  post(kAuditPause, Kind::kAudit, kNobody);
}

Report World::run() {
  begin();
  while (!over_ && !queue_.empty() && !history.failed()) {
    const Event event = queue_.take();
    JCCL_CHECK(event.at >= now);
    now = history.now = event.at;
    if (++counts.events > kEventsMax)
      history.fail("L", cat("still busy after ", kEventsMax, " events, now at kind ",
                            static_cast<int>(event.kind), " of ", event.target));
    hash_ = mix_in(hash_, static_cast<std::uint64_t>(event.at) ^ event.order);
    hash_ =
        mix_in(hash_, (static_cast<std::uint64_t>(event.kind) << 56) ^ (event.a << 20) ^ event.b);
    dispatch(event);
  }
  if (!history.failed())
    history.on_end(master.disk.rows.empty()
                       ? std::vector<wire::Record>{}
                       : wire::walk(master.disk.rows, nullptr).value().records);
  counts.seeds = 1;
  counts.commits = history.committed.size();
  counts.aborts =
      history.attempts.size() - std::min(history.attempts.size(), history.committed.size());
  counts.admissions = history.everybody.size();
  counts.busy_seeds = counts.commits >= 10 ? 1 : 0;
  Report report{options_.seed, history.promise, history.what, hash_, counts, mix.describe(), {}};
  report.tail.assign(tail_.begin(), tail_.end());
  return report;
}

Report simulate(const RunOptions& options) {
  protocol::planted = options.mutant;
  Report report = World(options).run();
  protocol::planted = protocol::Mutant::kNone;
  return report;
}

void World::note(std::string line) {
  line = cat(now / kMillisecond, ".", (now / 1000) % 1000, "ms ", line);
  if (options_.trace_lines == 0) return options_.sink(line);
  tail_.push_back(std::move(line));
  if (tail_.size() > options_.trace_lines) tail_.pop_front();
}

void Counts::add(const Counts& other) {
  for (std::size_t i = 0; i < kFaults; ++i) faults[i] += other.faults[i];
  for (std::size_t i = 0; i < kCodes; ++i) codes[i] += other.codes[i];
  for (std::size_t m = 0; m < kMessages; ++m) {
    for (std::size_t p = 0; p < kPhases; ++p) peer_seen[m][p] += other.peer_seen[m][p];
    for (std::size_t p = 0; p < 3; ++p) master_seen[m][p] += other.master_seen[m][p];
  }
  seeds += other.seeds, events += other.events, messages += other.messages;
  commits += other.commits, aborts += other.aborts, deliveries += other.deliveries;
  admissions += other.admissions, master_starts += other.master_starts;
  torn_rows += other.torn_rows, joins += other.joins, syncs += other.syncs;
  lost_states += other.lost_states, busy_seeds += other.busy_seeds;
}

// ---- events ------------------------------------------------------------------------------------

std::uint32_t World::life_of(std::uint32_t target) const {
  if (target == kMaster) return master.life;
  return target < peers.size() ? peers[target].life : 0;
}

void World::post(Time at, Kind kind, std::uint32_t target, std::uint64_t a, std::uint64_t b) {
  Event event;
  event.at = std::max(at, now), event.kind = kind, event.target = target, event.a = a, event.b = b;
  event.life = life_of(target);
  if (kind == Kind::kPeerUp && a == 1) event.life = 0;  // whoever lives then
  if (kind == Kind::kControl || kind == Kind::kData || kind == Kind::kDataReset) event.life = 0;
  queue_.post(event);
}

void World::repost(std::vector<Event>& held) {
  for (Event event : std::exchange(held, {})) {
    event.at = now;
    queue_.post(event);
  }
}

// A stopped process (or a master waiting for its disk) finds its events later, in order.
bool World::hold(const Event& event) {
  if (event.target == kMaster) {
    const bool wakes = event.kind == Kind::kMasterResume || event.kind == Kind::kMasterUp ||
                       (event.kind == Kind::kMasterSynced && !master.paused);
    if (wakes || !master.alive || master.running()) return false;
    master.held.push_back(event);
    return true;
  }
  if (event.target >= peers.size()) return false;
  SimPeer& peer = peers[event.target];
  if (!peer.alive || !peer.paused || event.kind == Kind::kPeerResume) return false;
  peer.held.push_back(event);
  return true;
}

void World::dispatch(const Event& event) {
  if (event.life != 0 && event.life != life_of(event.target)) return;
  if (hold(event)) return;
  switch (event.kind) {
    case Kind::kControl:
      return on_control(event);
    case Kind::kData:
      return on_data(event);
    case Kind::kDialed:
      return on_dialed(event);
    case Kind::kMasterWake:
      return master.on_wake();
    case Kind::kMasterSynced:
      return master.on_synced();
    case Kind::kMasterUp:
      return master.alive ? void() : master.boot();
    case Kind::kMasterResume:
      master.paused = false;
      return master.release();
    case Kind::kProbe:
      return master.feed(protocol::ProbeAnswer{event.a, event.b != 0});
    case Kind::kFault:
      return inject();
    case Kind::kHeal:
      return heal();
    case Kind::kAudit:
      return audit();
    default:
      return dispatch_peer(event);
  }
}

void World::dispatch_peer(const Event& event) {
  SimPeer& peer = peers[event.target];
  if (event.kind == Kind::kPeerUp) return peer.alive ? void() : peer.boot();
  if (!peer.alive) return;
  switch (event.kind) {
    case Kind::kDataReset:
      return peer.on_reset(static_cast<std::uint32_t>(event.a));
    case Kind::kPeerWake:
      return peer.on_wake();
    case Kind::kPeerResume:
      return peer.resume();
    case Kind::kPeerGone:
      return peer.die(false);
    case Kind::kEngine:
      return peer.on_engine();
    case Kind::kApp:
      return peer.act(event.a, event.b);
    case Kind::kCancel:
      return peer.cancel(event.a, event.b);
    default:
      JCCL_CHECK(false);
  }
}

void World::audit() {
  for (SimPeer& peer : peers) peer.audit();
  if (healed && converged()) over_ = true;
  if (healed && now > healed_at_ + kConvergeMax && !over_) check_state_lost();
  if (!over_) post(now + kAuditPause, Kind::kAudit, kNobody);
}

bool World::converged() const {
  for (const SimPeer& peer : peers) {
    if (!peer.alive) continue;
    if (!peer.settled()) return false;
    for (const UserTag& tag : peer.tags) {
      if (tag.good_after_heal < kGoodRounds) return false;
    }
  }
  return true;
}

// The one excuse for standing still: nobody alive holds the newest revision of a state, and those
// who ask for it are told so.
void World::check_state_lost() {
  over_ = true;
  for (std::size_t t = 0; t < mix.tags; ++t) {
    if (!mix.is_state[t]) continue;
    bool told = false, held = false;
    const wire::Tag name = cat("t", t);
    const auto last = history.last.find(name);
    const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
    std::set<std::uint32_t> shards;  // whose part of the newest revision somebody has
    for (const SimPeer& peer : peers) {
      if (!peer.alive) continue;
      const UserTag& tag = peer.tags[t];
      told = told || tag.lost;
      const auto digest = history.states.find({name, peer.shard, newest});
      held = digest != history.states.end() && digest->second == tag.digest;
      if (tag.revision == newest && held) shards.insert(peer.shard);
    }
    if (shards.size() < mix.shards && told) {
      ++counts.lost_states;
      return;
    }
  }
  std::string text = cat("not all get on ", kConvergeMax / kSecond, " s after everything healed:");
  for (const SimPeer& peer : peers) {
    if (!peer.alive) continue;
    text += cat("\n  slot ", peer.slot, peer.machine->member() ? " member" : " observer");
    for (const UserTag& tag : peer.tags) {
      text +=
          cat(", ", tag.tag, tag.is_state ? " state" : "", " revision ", tag.revision, " good ",
              tag.good_after_heal, tag.call != 0 ? " in a call" : "", tag.syncing ? " syncing" : "",
              tag.lost ? " lost" : "", " (", peer.machine->waiting_for(tag.tag, now), ")");
    }
  }
  for (const protocol::TagView& tag : master.machine->view(now).tags) {
    text += cat("\n  master: ", tag.info.tag, " ", tag.phase, " committed ", tag.info.committed,
                ": ", tag.waiting_for);
  }
  history.fail("L", text);
}

// ---- control connections -----------------------------------------------------------------------

Duration World::delay(std::uint32_t slot) {
  Duration d = mix.latency + static_cast<Duration>(rng.net.below(mix.jitter + 1));
  if (rng.net.chance(mix.spike)) d = std::min(d * 20, d + kSpikeMax);
  if (slow_until_[slot] > now) d = d * 10 + 20 * kMillisecond;
  return d;
}

void World::dial(std::uint32_t slot, std::uint64_t number) {
  const Time blocked = std::max(up_blocked_[slot], down_blocked_[slot]);
  const Time give_up = now + kSecond;
  const bool cut = blocked > give_up;
  post(cut ? give_up : std::max(blocked, now) + 2 * delay(slot), Kind::kDialed, slot, cut ? 0 : 1,
       number);
}

void World::on_dialed(const Event& event) {
  SimPeer& peer = peers[event.target];
  if (!peer.alive) return;
  const bool accepted = event.a == 1 && master.alive;
  if (accepted && peer.dials == event.b) {
    Conn fresh;
    fresh.id = conns_.size() + 1, fresh.slot = peer.slot;
    fresh.peer_life = peer.life, fresh.master_life = master.life;
    fresh.peer_open = fresh.master_open = true;
    conns_.push_back(std::move(fresh));
    peer.conn = conns_.size();
  }
  peer.on_dialed(accepted, event.b);
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
  post(d.queue.front().at, Kind::kControl, up ? kMaster : c.slot, c.id, up ? 0 : 1);
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
  if (id == 0) {  // all: the process died
    for (Conn& c : conns_) close_master_end(c.id, vanish);
    return;
  }
  Conn& c = conn(id);
  if (!c.master_open) return;
  c.master_open = false;
  c.master_vanished = vanish;
  if (!vanish) push_end(c, false);
}

void World::reset_conn(std::uint64_t id) {
  Conn& c = conn(id);
  c.up.queue.clear(), c.down.queue.clear();
  c.up.in.clear(), c.down.in.clear();
  c.up.in_at = c.down.in_at = 0;
  const bool half = rng.net.chance(0.2);
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
      const bool stopped = up ? !master.running() : !peers[c.slot].running();
      if (stopped) {  // it stopped while reading: the rest is read later
        d.in_at -= 4 + payload.size();
        d.posted = true;
        return post(now, Kind::kControl, up ? kMaster : c.slot, c.id, event.b);
      }
      deliver(c, up, payload);
      continue;
    }
    if (d.queue.empty()) return;
    const Time blocked = up ? up_blocked_[c.slot] : down_blocked_[c.slot];
    const Time due = std::max(d.queue.front().at, blocked);
    if (due > now) {
      d.posted = true;
      return post(due, Kind::kControl, up ? kMaster : c.slot, c.id, event.b);
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
      master.feed(protocol::ConnClosed{c.id});
    } else if (c.peer_open && master.alive) {
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

void World::deliver(Conn& c, bool up, const base::Bytes& payload) {
  base::Result<wire::Message> message = wire::decode(payload);
  JCCL_CHECK(message.ok());
  ++counts.messages;
  hash_ = mix_in(hash_, payload.size() ^ (std::uint64_t{payload[payload.size() / 2]} << 32));
  if (tracing()) {
    note(cat(up ? "up   " : "down ", c.slot, " conn ", c.id, " ", wire::name_of(message.value())));
  }
  const std::size_t kind = message.value().index();
  if (up) {
    const SimPeer& peer = peers[c.slot];
    const bool member = peer.machine != nullptr && peer.machine->member();
    const bool hello = std::holds_alternative<wire::Hello>(message.value());
    ++counts.master_seen[kind][hello ? 0 : member ? 2 : 1];
    master.feed(protocol::ConnMessage{c.id, std::move(message.value())});
  } else {
    ++counts.peer_seen[kind][peers[c.slot].phase()];
    history.on_told(c.slot, message.value());
    peers[c.slot].on_message(std::move(message.value()));
  }
}

void World::probe(wire::Incarnation incarnation) {
  const auto slot = slots.find(incarnation);
  JCCL_CHECK(slot != slots.end());
  const SimPeer& peer = peers[slot->second];
  const bool cut = std::max(up_blocked_[peer.slot], down_blocked_[peer.slot]) > now;
  if (cut) return;  // no answer at all
  const bool refused = !peer.alive;
  post(now + 2 * delay(peer.slot), Kind::kProbe, kMaster, incarnation, refused ? 1 : 0);
}

// ---- peer links --------------------------------------------------------------------------------

wire::Incarnation World::new_incarnation(std::uint32_t slot) {
  wire::Incarnation incarnation = rng.ids.next() | 1;
  while (!slots.emplace(incarnation, slot).second) incarnation = rng.ids.next() | 1;
  return incarnation;
}

void World::send_data(std::uint32_t from, DataMessage message) {
  const auto to = slots.find(message.to);
  JCCL_CHECK(to != slots.end());
  if (to->second == from) return;
  DataLink& l = link(from, to->second);
  Duration d = mix.data_latency + static_cast<Duration>(rng.data.below(mix.jitter + 1));
  if (rng.data.chance(mix.spike)) d = std::min(d * 20, d + kSpikeMax);
  if (std::max(slow_until_[from], slow_until_[to->second]) > now) d = d * 10 + 20 * kMillisecond;
  l.last = message.at = std::max(l.last, now + d);
  l.queue.push_back(std::move(message));
  if (l.posted) return;
  l.posted = true;
  post(l.queue.front().at, Kind::kData, to->second, from);
}

void World::on_data(const Event& event) {
  const auto from = static_cast<std::uint32_t>(event.a);
  DataLink& l = link(from, event.target);
  SimPeer& peer = peers[event.target];
  l.posted = false;
  while (!l.queue.empty()) {
    const Time due = std::max(l.queue.front().at, l.blocked_until);
    if (due > now) {
      l.posted = true;
      return post(due, Kind::kData, event.target, from);
    }
    DataMessage message = std::move(l.queue.front());
    l.queue.pop_front();
    const bool known = peer.alive && (message.to == peer.incarnation);
    hash_ = mix_in(hash_, message.attempt.counter ^ message.from);
    if (known) {
      peer.on_data(message);
    } else if (!rng.data.chance(mix.vanish)) {
      post(now + mix.data_latency, Kind::kDataReset, from, event.target);
    }
  }
}

void World::reset_data(std::uint32_t a, std::uint32_t b, bool one_sided) {
  link(a, b).queue.clear();
  link(b, a).queue.clear();
  post(now + rng.data.below(5) * kMillisecond, Kind::kDataReset, a, b);
  if (!one_sided) post(now + rng.data.below(5) * kMillisecond, Kind::kDataReset, b, a);
}

}  // namespace jccl::sim
