// The master's process: journal, then make durable, then tell; what a crash leaves of that; and
// the lease without which it tells nothing.
#include "sim/master.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "protocol/master/master_state.h"
#include "sim/world.h"
#include "wire/serialize.h"

namespace jccl::sim {

using base::cat;

namespace {

constexpr Duration kSlowWrite = 400 * kMillisecond;

// Planted: what peers are told of before it is durable.
bool told_early(const std::vector<wire::Record>& journal) {
  return std::any_of(journal.begin(), journal.end(), [](const wire::Record& record) {
    return JCCL_PLANTED("commit-told-early")  ? std::holds_alternative<wire::CommitRecord>(record)
           : JCCL_PLANTED("epoch-told-early") ? std::holds_alternative<wire::EpochRecord>(record)
                                              : false;
  });
}

}  // namespace

Time SimMaster::clock() const { return world.now + skew_; }

void SimMaster::boot() {
  ++life, ++world.counts.master_starts;
  alive = true, paused = busy = false;
  wake_ = base::kNever, lease_at_ = 0;
  skew_ = static_cast<Time>(world.rng.clocks.below(3600)) * kSecond;
  pending_.clear();
  stashed_ = {};
  if (world.tracing()) world.note(cat("MASTER ", index, " up, life ", life));
  if (!world.mix.fenced_store) return serve();
  on_lease();
}

// Renews the lease, or takes one that nobody has.
void SimMaster::on_lease() {
  Store& store = world.store;
  const Mix& mix = world.mix;
  if (world.now < lease_at_) return;  // one chain of these is enough
  lease_at_ = world.now + mix.lease / 4;
  world.post(lease_at_, Kind::kLease, kMaster + index);
  if (store.cut_until[index] > world.now) {
    if (machine != nullptr && clock() >= held_until_) {
      world.crash_master(*this, mix.master_down, false);
    }
    return;
  }
  const Time expires = world.now + mix.lease;
  if (machine != nullptr) {
    if (!store.held_by(index, term_, world.now)) {  // fenced: ends by itself
      if (world.tracing()) world.note(cat("MASTER ", index, " is fenced"));
      ++world.counts.fenced;
      return world.crash_master(*this, mix.master_down, false);
    }
    store.expires = expires;
    held_until_ = clock() + mix.lease;
    return;
  }
  if (store.holder != kNoHolder && world.now < store.expires) return;
  term_ = ++store.term;
  store.holder = index, store.expires = expires;
  held_until_ = clock() + mix.lease;
  ++world.counts.takeovers;
  serve();
}

// Whether no other master can have taken over, by this one's clock.
bool SimMaster::still_held() {
  if (!world.mix.fenced_store || clock() < held_until_) return true;
  if (world.tracing()) world.note(cat("MASTER ", index, " has no lease any more"));
  world.crash_master(*this, world.mix.master_down, false);
  return false;
}

void SimMaster::serve() {
  protocol::MasterOptions options;
  options.run = {1, 2, 3, 4};
  options.start_peers = world.mix.start_peers, options.min_peers = world.mix.min_peers;
  options.heartbeat = world.mix.heartbeat, options.silence = world.mix.silence;
  options.reset_grace = world.mix.reset_grace, options.restart_grace = world.mix.restart_grace;
  options.restore_after = 2 * world.mix.silence;
  options.history = world.mix.history;
  options.straggler = static_cast<protocol::Straggler>(world.mix.straggler);
  options.straggler_after = world.mix.straggler_after;
  // Short, so that a world goes on.
  options.ban = 300 * base::kMillisecond, options.ban_max = kBannedMax;
  options.out_max = kBannedMax;
  options.unix_ahead = world.now - clock();
  options.audit = world.mix.audit;
  options.auditor = auditor_of(world.rng.audits);
  Disk& disk = world.store.disk;
  if (world.store.rot != 0 && disk.rows.size() > 1) {
    const auto damaged = read_journal(rotten(disk.rows, world.store.rot), options.run);
    p9_rows(world.history, damaged.ok());
    ++world.counts.refused_journals;
  }
  world.store.rot = 0;  // mended
  std::vector<wire::Record> records;
  chain = {};
  if (!disk.rows.empty()) {
    base::Result<wire::Chain> walked = read_journal(disk.rows, options.run);
    if (!walked.ok()) {
      return world.history.fail(
          "P5", cat("the journal is refused after a crash: ", walked.status().text));
    }
    if (!JCCL_PLANTED("torn-tail-left")) disk.rows.resize(walked.value().records.size());
    world.counts.torn_rows += walked.value().cut_rows;
    records = walked.value().records;
    chain = walked.value().writer;
  }
  world.report_durable(true);
  if (world.tracing()) world.note(cat("MASTER ", index, " serves, ", records.size(), " records"));
  planner_ = {};
  machine = std::make_unique<protocol::MasterMachine>(
      options,
      [this](const protocol::PlanRequest& request) {
        const std::uint64_t before = planner_.rings();
        auto plan = planner_.plan(request);
        world.counts.fast_rings += planner_.rings() - before;
        return plan;
      },
      records, clock());
  in_machine_ = true;
  apply(machine->start(clock()));
  in_machine_ = false;
  drain();
}

void SimMaster::die(bool vanish) {
  if (world.tracing()) world.note(cat("MASTER ", index, vanish ? " vanishes" : " dies"));
  ++life;
  alive = paused = busy = doomed = false;
  if (!world.mix.fenced_store) world.store.disk.crash(world.rng.disk, world.mix.torn);
  retire();
  world.close_master_ends(index, vanish);
  release();
}

void SimMaster::retire() {
  if (machine != nullptr) world.counts.coverage.see_attempts(machine->state().edges_seen_);
  machine.reset();
}

void SimMaster::pause(Duration length, bool clock_stands) {
  if (paused) return;
  paused = true;
  stands_since_ = clock_stands ? world.now : base::kNever;
  world.post(world.now + length, Kind::kMasterResume, kMaster + index);
}

void SimMaster::resume() {
  paused = false;
  // The heal may have ended the pause early.
  if (stands_since_ != base::kNever)
    skew_ -= world.now - std::exchange(stands_since_, base::kNever);
  if (world.mix.fenced_store) {  // until it asks it may believe that it is the master
    world.post(world.now + between(world.rng.clocks, 0, world.mix.lease / 4), Kind::kLease,
               kMaster + index);
  }
  release();
}

void SimMaster::jump(Duration by) {
  if (!alive) return;
  skew_ += by;
  if (wake_ == base::kNever) return;
  wake_ = world.now;
  world.post(wake_, Kind::kMasterWake, kMaster + index);
}

void SimMaster::release() { world.repost(held); }

// One event at a time; while the disk is busy, nothing.
void SimMaster::feed(protocol::MasterEvent event) {
  if (!listens()) return;
  pending_.push_back(std::move(event));
  drain();
}

void SimMaster::drain() {
  if (in_machine_) return;
  in_machine_ = true;
  while (!pending_.empty() && !busy && listens() && still_held()) {
    const protocol::MasterEvent next = std::move(pending_.front());
    pending_.pop_front();
    world.counts.coverage.see(*machine, next);
    Turn turn = world.before_turn(*machine, next, clock());
    protocol::MasterEffects effects = machine->on(next, clock());
    world.check_turn(*machine, effects, std::move(turn));
    world.counts.coverage.see(effects);
    apply(std::move(effects));
  }
  in_machine_ = false;
}

void SimMaster::apply(protocol::MasterEffects effects) {
  const Time wake = effects.wake == base::kNever ? base::kNever : effects.wake - skew_;
  if (wake != wake_) {
    wake_ = wake;
    if (wake_ != base::kNever) world.post(wake_, Kind::kMasterWake, kMaster + index);
  }
  if (world.tracing()) {
    for (const protocol::HistoryLine& line : effects.history) {
      std::string text = cat("     MASTER ", line.kind);
      for (const auto& [key, value] : line.fields) text += cat(" ", key, "=", value);
      world.note(text);
    }
  }
  for (const protocol::HistoryLine& line : effects.history) {
    if (line.kind == "convicted") world.check_convicted(line);
  }
  for (const wire::Record& record : effects.journal) {
    if (const auto* ban = std::get_if<wire::BanRecord>(&record)) world.check_ban(*ban);
  }
  if (effects.journal.empty()) return carry_out(effects);
  const std::vector<wire::Record> records = std::move(effects.journal);
  if (told_early(records)) {
    carry_out(effects);
    effects.send.clear(), effects.close.clear(), effects.probe.clear();
  }
  stashed_ = std::move(effects);
  busy = true;
  write(records);
}

void SimMaster::write(const std::vector<wire::Record>& records) {
  Store& store = world.store;
  base::Rng& rng = world.rng.disk;
  const Duration slow = store.slow_until > world.now ? kSlowWrite : 0;
  const Time due = world.now + 1 + between(rng, slow / 8, world.mix.sync_pause + slow);
  std::vector<wire::Row> rows;
  for (const wire::Record& record : records) rows.push_back(chain.append(record));
  if (world.mix.fenced_store) {
    store.writes.push_back({index, life, term_, std::move(rows)});
    world.post(due, Kind::kStoreApply, kNobody, store.writes.size() - 1);
  } else {
    const StoreFault fault = std::exchange(store.fails_next, StoreFault::kNone);
    const bool full = store.full_until > world.now || fault == StoreFault::kWrite;
    if (!full) store.disk.unsynced = std::move(rows);
    const bool good = !full && fault == StoreFault::kNone;
    world.post(due, Kind::kMasterSynced, kMaster + index, good ? 1 : 0);
  }
  if (doomed) world.crash_master(*this, world.mix.master_down, rng.chance(world.mix.vanish));
}

// A write that failed is never tried again: what is on the disk is not known any more.
void SimMaster::on_synced(bool good) {
  if (!good) {
    if (world.tracing()) world.note(cat("MASTER ", index, ": the write failed"));
    ++world.counts.failed_writes;
    return world.crash_master(*this, world.mix.master_down, false);
  }
  if (!world.mix.fenced_store) world.store.disk.sync();
  world.report_durable();
  busy = false;
  protocol::MasterEffects effects = std::exchange(stashed_, {});
  if (!still_held()) return;
  in_machine_ = true;
  carry_out(effects);
  in_machine_ = false;
  release();
  drain();
}

void SimMaster::carry_out(protocol::MasterEffects& effects) {
  for (const protocol::MasterSend& send : effects.send) world.send_down(send.conn, send.message);
  for (const protocol::ConnId id : effects.close) {
    world.close_master_end(id);
    pending_.push_back(protocol::ConnClosed{id});
  }
  for (const auto& [incarnation, addresses] : effects.probe) world.probe(*this, incarnation);
  for (const auto& [peer, measured] : effects.measured) {
    planner_.note(peer, measured.up_bytes_per_s);
    ++world.counts.measured;
  }
}

void SimMaster::on_wake() {
  if (world.now < wake_) return;  // an earlier wish, taken back since
  wake_ = base::kNever;
  feed(protocol::Tick{});
}

}  // namespace jccl::sim
