// The master's process: journal, then make durable, then tell; and what a crash leaves of that.
#include "sim/master.h"

#include <algorithm>
#include <utility>

#include "protocol/mutants.h"
#include "sim/world.h"
#include "wire/codec.h"

namespace jccl::sim {

namespace {

// Planted: what peers are told of before it is durable.
bool told_early(const std::vector<wire::Record>& journal) {
  return std::any_of(journal.begin(), journal.end(), [](const wire::Record& record) {
    return JCCL_MUTANT(kCommitToldEarly)  ? std::holds_alternative<wire::CommitRecord>(record)
           : JCCL_MUTANT(kEpochToldEarly) ? std::holds_alternative<wire::EpochRecord>(record)
                                          : false;
  });
}

}  // namespace

void Disk::sync() {
  rows.insert(rows.end(), unsynced.begin(), unsynced.end());
  unsynced.clear();
}

void Disk::crash(base::Rng& rng, double torn) {
  const std::size_t kept = rng.below(unsynced.size() + 1);
  rows.insert(rows.end(), unsynced.begin(), unsynced.begin() + static_cast<std::ptrdiff_t>(kept));
  if (kept < unsynced.size() && rng.chance(torn)) {
    wire::Row row = unsynced[kept];
    if (rng.chance(0.5)) {
      row.payload.resize(rng.below(row.payload.size()));
    } else {
      row.payload[rng.below(row.payload.size())] ^= static_cast<std::uint8_t>(1U << rng.below(8));
    }
    rows.push_back(std::move(row));
  }
  unsynced.clear();
}

void SimMaster::boot() {
  ++life, ++world.counts.master_starts;
  alive = true, paused = busy = false;
  wake_ = base::kNever;
  pending_.clear();
  stashed_ = {};
  protocol::MasterOptions options;
  options.run = {1, 2, 3, 4};
  options.start_peers = world.mix.start_peers, options.min_peers = world.mix.min_peers;
  options.heartbeat = world.mix.heartbeat, options.silence = world.mix.silence;
  options.reset_grace = world.mix.reset_grace, options.restart_grace = world.mix.restart_grace;
  options.history = world.mix.history;
  options.seed = world.rng.ids.next();
  std::vector<wire::Record> records;
  chain = {};
  if (!disk.rows.empty()) {
    base::Result<wire::Chain> walked = wire::walk(disk.rows, &options.run);
    if (!walked.ok()) {
      return world.history.fail(
          "P5", base::cat("the journal is refused after a crash: ", walked.status().text));
    }
    if (!JCCL_MUTANT(kTornTailLeft)) disk.rows.resize(walked.value().records.size());
    world.counts.torn_rows += walked.value().cut_rows;
    records = walked.value().records;
    chain = walked.value().writer;
  }
  report_durable();
  if (world.tracing())
    world.note(base::cat("MASTER up, life ", life, ", ", records.size(), " records"));
  machine = std::make_unique<protocol::MasterMachine>(options, make_plan, records, world.now);
  in_machine_ = true;
  apply(machine->start(world.now));
  in_machine_ = false;
  drain();
}

void SimMaster::die(bool vanish) {
  if (world.tracing()) world.note("MASTER dies");
  ++life;
  alive = paused = busy = doomed = false;
  disk.crash(world.rng.disk, world.mix.torn);
  machine.reset();
  world.close_master_end(0, vanish);
  release();
}

void SimMaster::release() { world.repost(held); }

// One event at a time; while the disk is busy, nothing.
void SimMaster::feed(protocol::MasterEvent event) {
  if (!alive) return;
  pending_.push_back(std::move(event));
  drain();
}

void SimMaster::drain() {
  if (in_machine_) return;
  in_machine_ = true;
  while (!pending_.empty() && !busy && alive) {
    const protocol::MasterEvent next = std::move(pending_.front());
    pending_.pop_front();
    apply(machine->on(next, world.now));
  }
  in_machine_ = false;
}

void SimMaster::apply(protocol::MasterEffects effects) {
  if (effects.wake != wake_) {
    wake_ = effects.wake;
    if (wake_ != base::kNever) world.post(wake_, Kind::kMasterWake, kMaster);
  }
  if (world.tracing()) {
    for (const protocol::HistoryLine& line : effects.history) {
      std::string text = base::cat("     MASTER ", line.kind);
      for (const auto& [key, value] : line.fields) text += base::cat(" ", key, "=", value);
      world.note(text);
    }
  }
  if (effects.journal.empty()) return carry_out(effects);
  for (const wire::Record& record : effects.journal) disk.unsynced.push_back(chain.append(record));
  if (told_early(effects.journal)) {
    carry_out(effects);
    effects.send.clear(), effects.close.clear(), effects.probe.clear();
  }
  stashed_ = std::move(effects);
  busy = true;
  world.post(world.now + 1 +
                 static_cast<Duration>(
                     world.rng.disk.below(static_cast<std::uint64_t>(world.mix.sync_pause) + 1)),
             Kind::kMasterSynced, kMaster);
  if (doomed) world.crash_master();
}

void SimMaster::on_synced() {
  disk.sync();
  report_durable();
  busy = false;
  protocol::MasterEffects effects = std::exchange(stashed_, {});
  in_machine_ = true;
  carry_out(effects);
  in_machine_ = false;
  release();
  drain();
}

void SimMaster::report_durable() {
  for (; disk.told < disk.rows.size(); ++disk.told) {
    base::Result<wire::Record> record = wire::decode_record(disk.rows[disk.told].payload);
    if (JCCL_MUTANT(kTornTailLeft) && !record.ok()) continue;
    JCCL_CHECK(record.ok());
    world.history.on_durable(record.value());
  }
}

void SimMaster::carry_out(protocol::MasterEffects& effects) {
  for (const protocol::MasterSend& send : effects.send) world.send_down(send.conn, send.message);
  for (const protocol::ConnId id : effects.close) {
    world.close_master_end(id);
    pending_.push_back(protocol::ConnClosed{id});
  }
  for (const auto& [incarnation, addresses] : effects.probe) world.probe(incarnation);
}

void SimMaster::on_wake() {
  if (world.now < wake_) return;  // an earlier wish, taken back since
  wake_ = base::kNever;
  feed(protocol::Tick{});
}

}  // namespace jccl::sim
