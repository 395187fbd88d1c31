// The event loop, and what processes share.
#include "sim/world.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/planted.h"
#include "protocol/master/master_state.h"
#include "sim/script.h"
#include "wire/serialize.h"

namespace jccl::sim {

using base::cat;

inline constexpr std::uint64_t kEventsMax =
    1'000'000;  // 16 peers on 0.2 ms links take over 300,000

World::World(const RunOptions& options)
    : mix(options.script != nullptr ? options.script->mix
          : options.hostile         ? draw_hostile_mix(options.seed)
                                    : draw_mix(options.seed)),
      rng(options.seed),
      options_(options),
      links_(kSlotsMax * kSlotsMax),
      faults_(options.script != nullptr ? options.script->faults : draw_faults(mix, options.seed)) {
  history.min_peers = mix.min_peers, history.remembered = mix.history;
  history.counts_bytes = true;
  set_calm();
  masters.reserve(mix.masters);
  for (std::uint32_t index = 0; index < mix.masters; ++index) masters.emplace_back(*this, index);
  for (std::uint32_t slot = 0; slot < mix.slots; ++slot) peers.emplace_back(*this, slot);
}

// Runs in which so little goes wrong that more is promised.
void World::set_calm() {
  const auto only = [this](std::initializer_list<Fault> kinds) {
    return std::all_of(faults_.begin(), faults_.end(), [&](const Injected& fault) {
      return std::find(kinds.begin(), kinds.end(), fault.fault) != kinds.end();
    });
  };
  if (mix.liar > 0) return;
  const bool calls = mix.guard + mix.mismatch + mix.corrupt + mix.cancel + mix.forgets == 0;
  const bool patient =  // straggler 0: slow ones are waited for
      mix.deadline >= 3 * kSecond + 2 * mix.load && mix.straggler == 0 && mix.quorum == 0;
  const bool enough = mix.weight_zero == 0 || mix.min_peers <= 1;  // weight 0 does not contribute
  if (!calls || !patient || !enough) return;
  // Two that can only dial out have no link: a round without a third way ends in words (P4).
  history.joins_only = faults_.empty() && mix.dial_only < 2 && mix.stalls == 0;
  const Duration back = mix.silence + 3 * kSecond;  // noticed, and dialled again
  // A pause in which its clock stands a master doesn't notice: who hung up has the grace of a reset
  // to dial again and be heard.
  const Duration dialled = protocol::PeerOptions{}.reconnect_pause + 4 * (mix.latency + mix.jitter);
  const bool unseen = std::any_of(faults_.begin(), faults_.end(), [](const Injected& fault) {
    return fault.fault == Fault::kMasterPause && fault.clock_stands();
  });
  if (unseen && mix.reset_grace < dialled) return;
  history.master_only = !mix.fenced_store && mix.restart_grace >= back &&
                        only({Fault::kMasterCrash, Fault::kMasterPause, Fault::kDiskError,
                              Fault::kDiskFull, Fault::kDiskRot});
}

void World::begin() {
  history.unweighted = mix.unweighted;
  for (SimMaster& master : masters) master.boot();
  for (std::uint32_t slot = 0; slot < mix.slots; ++slot) {
    const bool late = slot >= mix.slots - mix.late;
    if (late) ++counts.joins;
    post(between(rng.app, 0, late ? mix.faults_until : 50 * kMillisecond), Kind::kPeerUp, slot);
  }
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    post(faults_[i].at, Kind::kFault, kNobody, i);
  }
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
  // What a master that is down has written is history once its successor has read it.
  std::vector<wire::Row> rows = store.disk.rows;
  if (active() == nullptr) rows.resize(std::min(rows.size(), store.disk.told));
  if (!history.failed())
    history.on_end(rows.empty() ? std::vector<wire::Record>{}
                                : wire::walk(rows, nullptr).value().records);
  for (SimMaster& master : masters) master.retire();
  counts.seeds = 1;
  counts.commits = history.committed.size();
  counts.aborts =
      history.attempts.size() - std::min(history.attempts.size(), history.committed.size());
  counts.admissions = history.everybody.size();
  const std::uint64_t steps[] = {1, 3, 10, 20, 30, 60, 120};
  std::size_t step = 0;
  while (step < 7 && counts.commits >= steps[step]) ++step;
  counts.commits_spread[step] = 1;
  Report report{options_.seed, history.promise, history.what, hash_, counts, mix, {}, {}};
  report.faults = std::move(faults_);
  report.tail.assign(tail_.begin(), tail_.end());
  return report;
}

Report simulate(const RunOptions& options) {
  base::planted_in_thread = options.mutant;
  Report report = World(options).run();
  base::planted_in_thread = base::Planted::kNone;
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
  coverage.add(other.coverage);
  seeds += other.seeds, events += other.events, messages += other.messages;
  commits += other.commits, aborts += other.aborts, deliveries += other.deliveries;
  admissions += other.admissions, master_starts += other.master_starts;
  torn_rows += other.torn_rows, joins += other.joins, syncs += other.syncs;
  lost_states += other.lost_states, takeovers += other.takeovers, fenced += other.fenced;
  failed_writes += other.failed_writes, refused_journals += other.refused_journals;
  measured += other.measured, ghosts += other.ghosts, flipped += other.flipped;
  frame_lies += other.frame_lies, audit_lies += other.audit_lies, convicted += other.convicted;
  fast_rings += other.fast_rings;
  edits += other.edits, forgotten += other.forgotten, claims_refused += other.claims_refused;
  for (std::size_t i = 0; i < commits_spread.size(); ++i) {
    commits_spread[i] += other.commits_spread[i];
  }
}

// ---- events ------------------------------------------------------------------------------------

std::uint32_t World::life_of(std::uint32_t target) const {
  if (target < peers.size()) return peers[target].life;
  return target >= kMaster && target < kMaster + masters.size() ? masters[target - kMaster].life
                                                                : 0;
}

SimMaster* World::active() {
  SimMaster* newest = nullptr;
  for (SimMaster& master : masters) {
    if (master.listens() && (newest == nullptr || store.holder == master.index)) newest = &master;
  }
  return newest;
}

// `left`: by a master that died before it said so.
void World::report_durable(bool left) {
  Disk& disk = store.disk;
  for (; disk.told < disk.rows.size(); ++disk.told) {
    base::Result<wire::Record> record = wire::decode_record(disk.rows[disk.told].payload);
    if (JCCL_PLANTED("torn-tail-left") && !record.ok()) continue;
    JCCL_CHECK(record.ok());
    check_membership(record.value(), left);
    history.contradicted = contradicted(record.value());
    history.on_durable(record.value());
  }
}

// A write reaches the store outside; its process may be gone by now, or another hold the lease.
void World::apply_write(std::uint64_t number) {
  const StoreWrite& write = store.writes[number];
  const SimMaster& master = masters[write.master];
  const bool there = master.alive && master.life == write.life;
  if (!there && rng.disk.chance(0.5)) return;  // it was still in the dead process's kernel
  const Time cut = store.cut_until[write.master];
  if (cut > now) {
    if (there) post(cut, Kind::kStoreApply, kNobody, number);
    return;
  }
  const StoreFault fault = std::exchange(store.fails_next, StoreFault::kNone);
  bool good = store.held_by(write.master, write.term, now) && fault != StoreFault::kWrite &&
              now >= store.full_until;
  if (good) {
    store.disk.rows.insert(store.disk.rows.end(), write.rows.begin(), write.rows.end());
    report_durable();
  }
  good = good && fault != StoreFault::kSync;  // it holds, but that was not heard
  const Time back = now + 1 + between(rng.disk, 0, mix.sync_pause);
  if (there) {
    post(std::max(back, cut), Kind::kMasterSynced, kMaster + write.master, good ? 1 : 0);
  }
}

void World::post(Time at, Kind kind, std::uint32_t target, std::uint64_t a, std::uint64_t b) {
  const bool wakes = kind == Kind::kPeerWake || kind == Kind::kEngine || kind == Kind::kMasterWake;
  if (wakes) {  // the processor is busy elsewhere
    const std::size_t which = target < kSlotsMax ? target : kSlotsMax + target - kMaster;
    if (late_until_[which] > at) at += static_cast<Duration>(rng.clocks.below(mix.lag + 1));
  }
  Event event;
  event.at = std::max(at, now), event.kind = kind, event.target = target, event.a = a, event.b = b;
  event.life = life_of(target);
  if (kind == Kind::kPeerUp && a == 1) event.life = 0;  // whoever lives then
  const bool of_a_wire = kind == Kind::kControl || kind == Kind::kData ||
                         kind == Kind::kDataReset || kind == Kind::kPipe || kind == Kind::kPipeEnd;
  if (of_a_wire) event.life = 0;
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
  if (event.target >= kMaster && event.target < kMaster + masters.size()) {
    SimMaster& master = masters[event.target - kMaster];
    const bool wakes =
        event.kind == Kind::kMasterResume || event.kind == Kind::kMasterUp ||
        ((event.kind == Kind::kMasterSynced || event.kind == Kind::kLease) && !master.paused);
    if (wakes || !master.alive || master.running()) return false;
    if (event.kind == Kind::kLease) return true;  // resume() looks after it
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
    case Kind::kPipe:
      return on_pipe(event);
    case Kind::kDialed:
      return on_dialed(event);
    case Kind::kStoreApply:
      return apply_write(event.a);
    case Kind::kFault:
      return inject(faults_[event.a]);
    case Kind::kThaw:
      return thaw(static_cast<std::uint32_t>(event.a));
    case Kind::kGhost:
      return close_peer_end(event.a);
    case Kind::kHeal:
      return heal();
    case Kind::kAudit:
      return audit();
    default:
      return event.target >= kMaster ? dispatch_master(event) : dispatch_peer(event);
  }
}

void World::dispatch_master(const Event& event) {
  SimMaster& master = masters[event.target - kMaster];
  switch (event.kind) {
    case Kind::kMasterWake:
      return master.on_wake();
    case Kind::kMasterSynced:
      return master.on_synced(event.a != 0);
    case Kind::kLease:
      return master.on_lease();
    case Kind::kMasterUp:
      return master.alive ? void() : master.boot();
    case Kind::kMasterResume:
      return master.paused ? master.resume() : void();
    case Kind::kProbe:
      return master.feed(protocol::ProbeAnswer{event.a, event.b != 0});
    default:
      JCCL_CHECK(false);
  }
}

void World::dispatch_peer(const Event& event) {
  SimPeer& peer = peers[event.target];
  if (event.kind == Kind::kPeerUp) return peer.alive ? void() : peer.boot();
  if (!peer.alive) return;
  switch (event.kind) {
    case Kind::kPipeUp:
      return on_pipe_up(event);
    case Kind::kPipeEnd:
      return on_pipe_end(event);
    case Kind::kDataReset:
      return peer.on_reset(static_cast<std::uint32_t>(event.a), event.b);
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
    case Kind::kCompared:
      return peer.compared(event.a, event.b);
    default:
      JCCL_CHECK(false);
  }
}

// Who comes in and who goes.
void World::check_membership(const wire::Record& record, bool left) {
  if (const auto* ban = std::get_if<wire::BanRecord>(&record)) note_ban(*ban);
  const auto* epoch = std::get_if<wire::EpochRecord>(&record);
  if (epoch == nullptr) return;
  if (epoch->reason == "master started") {
    served_at_ = now, served_epoch_ = epoch->epoch;
    refused_alone_.clear();
    // What one began that died before its epoch was written is nobody's; its numbers come again.
    const auto first = history.attempts.lower_bound(wire::Attempt{epoch->epoch, 0});
    for (auto at = first; at != history.attempts.end(); ++at) at->second.contributors.clear();
  }
  std::set<wire::PeerId> members;
  for (const wire::Member& member : epoch->members) {
    members.insert(member.id);
    if (history.members.count(member.id) > 0) continue;
    check_admission(member, epoch->members);
    check_banned(member, epoch->epoch);
  }
  for (const auto& [id, member] : history.members) {
    if (members.count(id) > 0) continue;
    check_false_eviction(member, epoch->reason);
    // Whom it waited for then, and how fast lines were, is not known any more.
    if (!left) check_straggler(member.site, epoch->reason);
    check_grace(member, epoch->reason);
  }
}

// What a master made of one event, before anybody hears of it.
void World::check_turn(const protocol::MasterMachine& machine,
                       const protocol::MasterEffects& effects, Turn turn) {
  if (!effects.journal.empty() && writes(machine)) {
    if (turn.door_shut) check_door(machine, effects, turn.asked);
    asked_ = still_asked(std::move(turn), effects);
    decided_at_ = now;
    for (const wire::Record& record : effects.journal) {
      const auto* epoch = std::get_if<wire::EpochRecord>(&record);
      if (epoch != nullptr) decided_unix_[epoch->epoch] = machine.state().unix_ms();
    }
  }
  for (const protocol::HistoryLine& line : effects.history) {
    if (line.kind == "skip") check_straggler(line.fields.front().second, line.fields.back().second);
  }
  for (const protocol::MasterSend& sent : effects.send) {
    if (const auto* start = std::get_if<wire::Start>(&sent.message)) {
      AttemptInfo& attempt = history.attempts[start->attempt];
      for (const wire::Contributor& one : start->contributors) {
        if (std::find(attempt.contributors.begin(), attempt.contributors.end(), one.id) ==
            attempt.contributors.end()) {
          attempt.contributors.push_back(one.id);
        }
      }
    } else if (const auto* outcome = std::get_if<wire::Outcome>(&sent.message)) {
      if (outcome->verdict != wire::Verdict::kAborted) continue;
      check_abort(machine, *outcome);
      check_refusals(*outcome);
    } else if (const auto* reply = std::get_if<wire::SyncReply>(&sent.message)) {
      if (reply->code == base::Code::kStateLost)
        check_lost(machine, conn(sent.conn).slot, reply->tag);
    }
  }
}

void World::audit() {
  for (SimPeer& peer : peers) peer.audit();
  check_hung();
  check_holds();
  check_words();
  if (healed && converged()) over_ = true;
  if (healed && !over_) check_liveness();
  if (!over_) post(now + kAuditPause, Kind::kAudit, kNobody);
}

}  // namespace jccl::sim
