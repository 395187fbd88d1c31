// Contributions to owners, results to all, repair: symbolically.
#include "sim/data_plane.h"

#include <algorithm>

#include "base/planted.h"
#include "sim/world.h"

namespace jccl::sim {

inline constexpr Duration kStall = 800 * kMillisecond;
inline constexpr std::ptrdiff_t kRunsKept = 12;  // committed ones, for receivers that ask
inline constexpr std::size_t kEarlyMax = 64;
inline constexpr std::uint64_t kMessageBytes = 1000;  // as far as anybody counts them
inline constexpr std::uint32_t kWhole = (1U << kElements) - 1;

namespace {

bool has(const std::vector<wire::PeerId>& ids, wire::PeerId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void write_ids(base::Writer& writer, const std::vector<wire::PeerId>& ids) {
  writer.u32(static_cast<std::uint32_t>(ids.size()));
  for (const wire::PeerId id : ids) writer.u32(id);
}

std::vector<wire::PeerId> read_ids(base::Reader& reader) {
  std::vector<wire::PeerId> ids(reader.count(1024, 4));
  for (wire::PeerId& id : ids) id = reader.u32();
  return ids;
}

}  // namespace

bool Plan::owns(wire::PeerId id) const { return has(owners, id); }
bool Plan::contributes(wire::PeerId id) const { return has(contributors, id); }

// Direct while all links are good, else a star around a contributor that reaches all others. Who
// is known to be slow owns nothing as long as others can.
base::Result<base::Bytes> make_plan(const protocol::PlanRequest& request,
                                    const std::map<wire::PeerId, std::uint64_t>& speeds) {
  std::vector<wire::PeerId> owners = request.contributors;
  const bool star = !request.hint.empty() && request.hint[0] == kStarHint;
  if (request.dial_only.size() > 1) {
    std::erase_if(owners, [&](wire::PeerId id) { return has(request.dial_only, id); });
  }
  std::erase_if(owners, [&request](wire::PeerId id) {
    return std::any_of(request.bad_links.begin(), request.bad_links.end(),
                       [id](const auto& bad) { return bad.first == id || bad.second == id; });
  });
  if (owners.empty() && !request.contributors.empty())
    return base::Status{base::Code::kLinkLost, "no contributor reaches all others"};
  const auto slow = [&](wire::PeerId id) {
    const auto speed = speeds.find(id);
    return speed != speeds.end() && speed->second < 300;
  };
  if (!std::all_of(owners.begin(), owners.end(), slow)) std::erase_if(owners, slow);
  if (star || !request.bad_links.empty()) owners.resize(std::min<std::size_t>(1, owners.size()));
  base::Writer writer;
  write_ids(writer, owners);
  write_ids(writer, request.contributors);
  write_ids(writer, request.receivers);
  return writer.take();
}

Plan read_plan(const base::Bytes& bytes) {
  base::Reader reader(bytes);
  Plan plan;
  plan.owners = read_ids(reader);
  plan.contributors = read_ids(reader);
  plan.receivers = read_ids(reader);
  JCCL_CHECK(reader.finished());
  return plan;
}

const DataRun* DataPlane::find(const wire::Attempt& attempt) const {
  for (const DataRun& run : runs_) {
    if (run.attempt == attempt) return &run;
  }
  return nullptr;
}

DataRun* DataPlane::find_run(const wire::Attempt& attempt) {
  return const_cast<DataRun*>(find(attempt));
}

bool DataPlane::runs(std::uint64_t call) const {
  return std::any_of(runs_.begin(), runs_.end(),
                     [call](const DataRun& run) { return run.call == call; });
}

void DataPlane::clear() {
  runs_.clear();
  early_.clear();
  fetches_.clear();
}

void DataPlane::send(wire::PeerId to, DataMessage message) {
  const wire::Member& member = world_.history.everybody.at(to);
  message.from = peer_.incarnation;
  message.to = member.incarnation;
  world_.send_data(peer_.slot, std::move(message));
}

// ---- an attempt --------------------------------------------------------------------------------

void DataPlane::run(const protocol::RunAttempt& order) {
  if (std::count_if(runs_.begin(), runs_.end(), [](const DataRun& r) { return r.committed; }) >=
      kRunsKept) {
    runs_.erase(
        std::find_if(runs_.begin(), runs_.end(), [](const DataRun& r) { return r.committed; }));
  }
  DataRun fresh;
  fresh.attempt = order.start.attempt, fresh.round = order.start.round;
  fresh.plan = read_plan(order.start.plan);
  fresh.self = peer_.machine->id();
  fresh.receiver = !fresh.plan.contributes(fresh.self);
  fresh.moved = world_.now;
  if (JCCL_PLANTED("retry-adds-to-old-sum")) fresh.partial = leftover_[fresh.round];
  const auto tag = std::find_if(peer_.tags.begin(), peer_.tags.end(),
                                [&](const UserTag& t) { return t.tag == fresh.round.tag; });
  AttemptInfo::Part part;
  part.shard = peer_.shard, part.begun = world_.now;
  if (tag != peer_.tags.end()) part.revision = tag->revision, part.state = tag->digest;
  if (tag != peer_.tags.end() && tag->call != 0) {
    fresh.call = tag->call;
    fresh.given = tag->buffers.memory;
    part.call = tag->call, part.weight = world_.history.call(tag->call).weight;
    p3_given(world_.history, world_.history.call(tag->call),
             tag->buffers.memory == tag->buffers.input);
  }
  world_.history.attempts[fresh.attempt].parts[fresh.self] = part;
  runs_.push_back(std::move(fresh));
  DataRun& run = runs_.back();
  if (!run.receiver && tag != peer_.tags.end() && tag->bad) {
    p2_refused_once(world_.history, world_.history.call(tag->call));
    peer_.made_fault(protocol::Fault::kGuard, true);
    return fail(run, base::Code::kGuard, 0, "not a number");
  }
  const bool differs = tag != peer_.tags.end() && tag->call != 0 && tag->differs;
  if (run.plan.owners.empty()) run.have = kWhole;
  if (!run.receiver) {
    for (const wire::PeerId owner : run.plan.owners) {
      DataMessage message;
      message.kind = DataKind::kContribution;
      message.attempt = run.attempt, message.round = run.round, message.from_id = run.self;
      for (std::size_t e = 0; e < kElements; ++e) {
        if (run.plan.owner_of(e) != owner) continue;
        // Kept back until the state was compared.
        if (differs && e + 1 == kElements && !JCCL_PLANTED("sent-before-compared")) continue;
        message.elements |= 1U << e;
        message.values[e] = run.given[e];
      }
      if (message.elements == 0) continue;
      if (owner == run.self) {
        take(run, run.self, message.elements, message.values);
      } else {
        send(owner, std::move(message));
      }
    }
  }
  run.all = left(run);
  if (differs && tag->compared) return fail(run, base::Code::kResync, 0, "edited");
  finish_if_whole(run);
  const wire::Attempt attempt = order.start.attempt;
  for (std::size_t i = 0; i < early_.size();) {
    if (early_[i].attempt != attempt) {
      ++i;
      continue;
    }
    DataMessage message = std::move(early_[i]);
    early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(i));
    on_data(message);
  }
}

void DataPlane::compared(std::uint64_t call) {
  for (DataRun& run : runs_) {
    if (run.call == call && !run.failed && !run.done) fail(run, base::Code::kResync, 0, "edited");
  }
}

void DataPlane::take(DataRun& run, wire::PeerId from, std::uint32_t elements, const Array& values) {
  const bool stale_too = JCCL_PLANTED("stale-data-accepted");
  for (std::size_t e = 0; e < kElements; ++e) {
    if ((elements >> e & 1) == 0 || (run.have >> e & 1) != 0) continue;
    if (!stale_too && (has(run.arrived[e], from) || !run.plan.contributes(from))) continue;
    run.arrived[e].push_back(from);
    add(run.partial[e], values[e]);
    if (run.arrived[e].size() == run.plan.contributors.size()) close_element(run, e);
  }
}

void DataPlane::close_element(DataRun& run, std::size_t element) {
  store(run, element, run.partial[element]);
  DataMessage message;
  message.kind = DataKind::kResult;
  message.attempt = run.attempt, message.round = run.round, message.from_id = run.self;
  message.elements = 1U << element;
  message.values[element] = run.partial[element];
  for (const wire::PeerId id : run.plan.contributors) {
    if (id != run.self) send(id, message);
  }
  for (const wire::PeerId id : run.plan.receivers) {
    if (id != run.self) send(id, message);
  }
}

void DataPlane::store(DataRun& run, std::size_t element, const Sum& sum) {
  if ((run.have >> element & 1) != 0) return;
  run.have |= 1U << element;
  run.result[element] = sum;
  for (UserTag& tag : peer_.tags) {
    if (run.call != 0 && tag.call == run.call && tag.buffers.in_place && !run.failed) {
      tag.buffers.memory[element] = sum;
    }
  }
}

void DataPlane::finish_if_whole(DataRun& run) {
  if (run.done || run.failed || run.have != kWhole) return;
  run.done = world_.history.attempts[run.attempt].parts[run.self].done = true;
  const bool corrupt = peer_.computes_wrong();
  if (corrupt && run.receiver) run.result[0].clear();  // nobody waits for its digest: it compares
  base::Digest digest = digest_of(run.result);
  if (corrupt && !run.receiver) digest.low ^= 1 + peer_.slot;
  if (run.told) return;  // a lie, and nobody listens twice
  const bool told = !peer_.lie_in_result(&digest);
  world_.history.attempts[run.attempt].parts[run.self].result = digest;
  if (told) peer_.queue(protocol::AttemptDone{run.attempt, digest});
}

bool DataPlane::tell_early(const wire::Attempt& attempt, const wire::Digest& digest) {
  DataRun* run = find_run(attempt);
  if (run == nullptr || run->done || run->failed) return false;
  run->told = world_.history.attempts[attempt].parts[run->self].done = true;
  world_.history.attempts[attempt].parts[run->self].result = digest;
  return true;
}

void DataPlane::fail(DataRun& run, base::Code cause, wire::PeerId other, const char* why) {
  run.failed = true;
  world_.history.attempts[run.attempt].parts[run.self].failed = true;
  peer_.queue(protocol::AttemptFailed{run.attempt, cause, other, why});
}

void DataPlane::discard(const wire::Attempt& attempt) {
  std::erase_if(early_, [&](const DataMessage& m) { return m.attempt == attempt; });
  const DataRun* run = find(attempt);
  if (run == nullptr) return;
  if (JCCL_PLANTED("retry-adds-to-old-sum")) leftover_[run->round] = run->partial;
  for (UserTag& tag : peer_.tags) {
    if (run->call == 0 || tag.call != run->call || !tag.buffers.in_place) continue;
    if (JCCL_PLANTED("abort-keeps-result") ||
        (JCCL_PLANTED("late-abort-keeps-result") && run->done))
      continue;
    tag.buffers.memory = tag.buffers.input;
  }
  std::erase_if(runs_, [&](const DataRun& r) { return r.attempt == attempt; });
}

void DataPlane::commit(const wire::Attempt& attempt) {
  DataRun* run = find_run(attempt);
  JCCL_CHECK(run != nullptr && (run->have == kWhole || run->told));
  run->committed = true;
  for (UserTag& tag : peer_.tags) {
    if (tag.tag == run->round.tag) tag.visible = attempt;
  }
}

// ---- arrivals ----------------------------------------------------------------------------------

void DataPlane::on_data(DataMessage& message) {
  moved_ += kMessageBytes;
  if (message.damaged) p9_taken(world_.history, peer_.slot, message);
  switch (message.kind) {
    case DataKind::kContribution:
      return on_contribution(message);
    case DataKind::kResult:
      return on_result(message);
    case DataKind::kAsk:
      return on_ask(message);
    default:
      return on_snapshot(message);
  }
}

void DataPlane::on_contribution(DataMessage& message) {
  DataRun* run = find_run(message.attempt);
  if (run == nullptr && JCCL_PLANTED("stale-data-accepted")) {
    for (DataRun& other : runs_) {
      if (other.round == message.round && !other.done) run = &other;
    }
  }
  if (run == nullptr) {  // its START may still come
    if (early_.size() >= kEarlyMax) early_.erase(early_.begin());
    early_.push_back(std::move(message));
    return;
  }
  if (run->done || run->failed) return;
  run->moved = world_.now;
  take(*run, message.from_id, message.elements, message.values);
  finish_if_whole(*run);
}

void DataPlane::on_result(DataMessage& message) {
  DataRun* run = find_run(message.attempt);
  if (run == nullptr) {
    if (early_.size() >= kEarlyMax) early_.erase(early_.begin());
    early_.push_back(std::move(message));
    return;
  }
  if (run->done || run->failed) return;
  run->moved = world_.now;
  for (std::size_t e = 0; e < kElements; ++e) {
    if ((message.elements >> e & 1) != 0) store(*run, e, message.values[e]);
  }
  finish_if_whole(*run);
}

void DataPlane::on_ask(const DataMessage& message) {
  const DataRun* run = find(message.attempt);
  if (run == nullptr || !run->done) return;
  DataMessage answer;
  answer.kind = DataKind::kResult;
  answer.attempt = run->attempt, answer.round = run->round, answer.from_id = run->self;
  answer.elements = kWhole;
  answer.values = run->result;
  send(message.from_id, std::move(answer));
}

// Somebody this run still needs something from.
std::optional<wire::PeerId> DataPlane::missing(const DataRun& run) const {
  for (std::size_t e = 0; e < kElements; ++e) {
    if ((run.have >> e & 1) != 0) continue;
    const wire::PeerId owner = run.plan.owner_of(e);
    if (owner != run.self) return owner;
    for (const wire::PeerId id : run.plan.contributors) {
      if (!has(run.arrived[e], id)) return id;
    }
  }
  return std::nullopt;
}

// Messages that this run still has to send or to receive.
std::uint64_t DataPlane::left(const DataRun& run) const {
  std::uint64_t count = world_.on_its_way(peer_.slot, run.attempt);
  const std::size_t others = run.plan.contributors.size() + run.plan.receivers.size() - 1;
  for (std::size_t e = 0; e < kElements; ++e) {
    if ((run.have >> e & 1) != 0) continue;
    const bool own = run.plan.owner_of(e) == run.self;
    count += own ? run.plan.contributors.size() - run.arrived[e].size() + others : 1;
  }
  return count;
}

// What heartbeats tell.
protocol::Progress DataPlane::progress() const {
  protocol::Progress progress{moved_};
  for (const DataRun& run : runs_) {
    const std::uint64_t now_left = left(run);
    if (run.failed || run.committed || (run.done && now_left == 0)) continue;
    progress.moving.push_back({run.attempt, now_left * kMessageBytes,
                               std::max(now_left, run.all) * kMessageBytes,
                               missing(run).value_or(0)});
  }
  return progress;
}

// Whether that peer's process says so on our link.
bool DataPlane::lives(wire::PeerId id) const {
  if (!world_.mix.life_signs) return false;
  const wire::Incarnation life = world_.history.everybody.at(id).incarnation;
  const std::uint32_t slot = world_.slots.at(life);
  return world_.peers[slot].incarnation == life && world_.link_lives(slot, peer_.slot);
}

void DataPlane::ask_for_result(DataRun& run) {
  if (run.plan.contributors.empty()) return;
  DataMessage ask;
  ask.kind = DataKind::kAsk;
  ask.attempt = run.attempt, ask.from_id = run.self;
  run.moved = world_.now;
  send(run.plan.contributors[run.turn++ % run.plan.contributors.size()], std::move(ask));
}

// A link is one to a life (0: whichever): what an earlier one refuses late breaks no other.
void DataPlane::on_reset(std::uint32_t other, wire::Incarnation life) {
  const auto broke = [&](wire::Incarnation end) {
    return world_.slots.at(end) == other && (life == 0 || end == life);
  };
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    DataRun& run = runs_[i];
    if (run.done || run.failed) continue;
    for (std::size_t e = 0; e < kElements && !run.failed && !run.done; ++e) {
      const wire::PeerId owner = run.plan.owner_of(e);
      for (const wire::PeerId id : run.plan.contributors) {
        const bool ours = owner == run.self ? true : id == owner;
        if (!ours || id == run.self) continue;
        if (!broke(world_.history.everybody.at(id).incarnation)) continue;
        if (run.receiver) break;  // the next tick asks somebody
        fail(run, base::Code::kLinkLost, id, "connection reset");
        break;
      }
    }
  }
  for (auto& [tag, fetch] : fetches_) {
    if (fetch.at < fetch.holders.size() && broke(fetch.holders[fetch.at].incarnation)) {
      fetch.asked = 0;  // the next tick asks the next holder
    }
  }
}

void DataPlane::tick() {
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    DataRun& run = runs_[i];
    if (run.done || run.failed || world_.now < run.moved + kStall) continue;
    const std::optional<wire::PeerId> other = missing(run);
    if (run.receiver) {
      ask_for_result(run);
    } else if (other && lives(*other)) {
      run.moved = world_.now;  // slow, not lost
    } else if (other) {
      fail(run, base::Code::kPeerLost, *other, "no progress");
    }
  }
  for (auto it = fetches_.begin(); it != fetches_.end();) {
    Fetch& fetch = it->second;
    if (fetch.whole != base::kNever) {
      const wire::Held got = fetch.want;
      const bool loaded = world_.now >= fetch.whole;
      ++it;
      if (loaded) fetched(got);
      continue;
    }
    if (world_.now < fetch.asked + kStall) {
      ++it;
      continue;
    }
    ++fetch.at;
    if (fetch.at < fetch.holders.size()) {
      ask_next(fetch);
      ++it;
      continue;
    }
    const wire::Tag tag = it->first;
    it = fetches_.erase(it);
    peer_.queue(protocol::FetchFailed{tag, "no holder answers"});
    it = fetches_.upper_bound(tag);
  }
}

}  // namespace jccl::sim
