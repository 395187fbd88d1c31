// See plane.h: calls and attempts.
#include "sim/network/plane.h"

#include <algorithm>

#include "base/planted.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

namespace {

constexpr std::size_t kOwnKept = 64;
constexpr std::size_t kAttemptsMax = 6;  // of a tag: four are served, one ends and one begins
constexpr std::size_t kDeadKept = 16;    // buffers
constexpr std::uint8_t kUsedAgain = 0xA5;
constexpr Duration kStarvesMax = 500 * kMillisecond;

std::array<std::uint8_t, sizeof(Array)> filled_bytes() {
  std::array<std::uint8_t, sizeof(Array)> bytes;
  bytes.fill(kUsedAgain);
  return bytes;
}

}  // namespace

exchange::BufferRef DataPlane::Heap::take(std::size_t size) {
  plane_.check_held();
  ++dead_.taken;
  dead_.bytes += size;
  return {new exchange::Buffer(size), [this](exchange::Buffer* b) { dead_.add(b); }};
}

void DataPlane::Heap::Dead::add(exchange::Buffer* buffer) {
  --taken;
  bytes -= buffer->capacity();
  std::memset(buffer->data(), kUsedAgain, buffer->size());
  buffers.emplace_back(buffer);
  if (buffers.size() <= kDeadKept) return;
  const auto first = std::move(buffers.front());
  buffers.pop_front();
  static const auto kPattern = filled_bytes();
  JCCL_CHECK(first->size() <= sizeof(Array));
  const bool whole = std::memcmp(first->data(), kPattern.data(), first->size()) == 0;
  if (!whole) history->fail("P9", "memory was written to after it was given back");
}

DataPlane::DataPlane(World& world, SimPeer& peer)
    : world_(world),
      peer_(peer),
      memory_(*this, &world.history),
      attempts_(&memory_, kChunkBytes, this) {}

DataPlane::~DataPlane() = default;

const Own* DataPlane::find(const wire::Attempt& attempt) const {
  const auto found = std::find_if(own_.rbegin(), own_.rend(),
                                  [&](const Own& own) { return own.attempt == attempt; });
  return found == own_.rend() ? nullptr : &*found;
}

Own* DataPlane::find_own(const wire::Attempt& attempt) { return const_cast<Own*>(find(attempt)); }

void DataPlane::clear(bool vanish) {
  attempts_.clear();
  silent_ = vanish;
  new_life();
  silent_ = false;
  links_.clear();
  own_.clear();
  fetches_.clear();
  members_.clear();
  self_id_ = 0;
  gave_.clear();
  accused_.clear();
  awake_since_ = ticked_ = world_.now;
}

void DataPlane::new_life() {
  std::vector<wire::Incarnation> all;
  for (const auto& [life, link] : links_) all.push_back(life);
  for (const wire::Incarnation life : all) close(life);
}

void DataPlane::set_roster(const wire::Roster& roster) {
  attempts_.set_members(roster.members, peer_.incarnation);
  const std::map<wire::Incarnation, Other> before = std::exchange(members_, {});
  self_id_ = 0;
  for (const wire::Member& member : roster.members) {
    members_[member.incarnation] = {member.id, !member.addresses.empty()};
    if (member.incarnation == peer_.incarnation) self_id_ = member.id;
  }
  for (const auto& [life, other] : before) {
    if (members_.count(life) > 0 || life == peer_.incarnation) continue;
    close(life);
    attempts_.peer_left(life);
  }
  if (self_id_ == 0) return;  // who only fetches has no use for frames
  for (const auto& [life, other] : members_) {
    if (life != peer_.incarnation) dial_if_needed(life, link_to(life));
  }
}

void DataPlane::run(const protocol::RunAttempt& order) {
  const wire::Start& start = order.start;
  const auto tag = std::find_if(peer_.tags.begin(), peer_.tags.end(),
                                [&](const UserTag& t) { return t.tag == start.round.tag; });
  AttemptInfo::Part part;
  part.shard = peer_.shard, part.begun = world_.now, part.plan = start.plan;
  if (tag != peer_.tags.end()) part.revision = tag->revision, part.state = tag->digest;
  const BuffersRef call = tag == peer_.tags.end() ? nullptr : tag->buffers;
  if (call != nullptr) {
    part.call = call->id, part.weight = call->agreed.weight;
    p3_given(world_.history, world_.history.call(call->id), call->as_given());
  }
  AttemptInfo& info = world_.history.attempts[start.attempt];
  info.parts[peer_.machine->id()] = std::move(part);
  if (call == nullptr) {
    peer_.queue(protocol::AttemptFailed{start.attempt, base::Code::kAborted, 0, "no such call"});
    return;
  }
  // One that is under way may be older than many of other tags.
  while (own_.size() >= kOwnKept && own_.front().call == nullptr) own_.pop_front();
  Own fresh;
  fresh.attempt = start.attempt, fresh.round = start.round, fresh.info = &info;
  fresh.call = call, fresh.begun = fresh.moved = world_.now;
  fresh.held = held_max(start, peer_.machine->id(), *call);
  own_.push_back(std::move(fresh));
  info.audited = start.audit != wire::RunId{};
  tamper(start, own_.back());
  attempts_.run(start, call, world_.now);
  resume();
  settle();
}

void DataPlane::compared(const BuffersRef& call) {
  attempts_.fed(call);
  settle();
}

void DataPlane::attempt_done(const wire::Attempt& attempt, const base::Digest& result) {
  Own* own = find_own(attempt);
  if (own == nullptr || own->done || own->failed) return;
  AttemptInfo::Part& part = own->info->parts[peer_.machine->id()];
  own->done = part.done = true;
  mend(*own);
  base::Digest digest = result;
  if (peer_.computes_wrong()) digest.low ^= 1 + peer_.slot;
  if (own->told) return;  // a lie, and nobody listens twice
  const bool told = !peer_.lie_in_result(&digest);
  part.result = digest, part.wrong = digest != result;
  wire::AuditRoots roots = attempts_.audit_roots(attempt);
  lie_in_roots(*own, &roots);
  if (told) peer_.queue(protocol::AttemptDone{attempt, digest, attempts_.shares(attempt), roots});
}

void DataPlane::audit(const wire::AuditAsk& ask) {
  std::vector<wire::AuditPart> parts = attempts_.audit_parts(ask);
  if (lie_in_audit(ask, &parts)) peer_.queue(protocol::AuditAnswer{ask.attempt, parts});
}

bool DataPlane::tell_early(const wire::Attempt& attempt, const wire::Digest& digest) {
  Own* own = find_own(attempt);
  if (own == nullptr || own->done || own->failed) return false;
  AttemptInfo::Part& part = own->info->parts[peer_.machine->id()];
  own->told = part.done = true;
  part.result = digest;
  return true;
}

void DataPlane::attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId other,
                               std::string text) {
  if (Own* own = find_own(attempt)) {
    mend(*own);
    // Nobody listens twice, nor to who has said that it is done: a liar's next attempt asks anew.
    const bool first = !std::exchange(own->failed, true) && !own->told;
    if (first && cause == base::Code::kPeerLost) {
      p4_not_by_own_pause(world_.history, peer_.slot, peer_.stood_until, silent_after());
      world_.check_silence(peer_.slot, *own);
    }
    if (first && cause == base::Code::kGuard && other == peer_.machine->id()) {
      p2_refused_once(world_.history, world_.history.call(own->call->id));
      peer_.made_fault(protocol::Fault::kGuard, true);
    }
  }
  world_.history.attempts[attempt].parts[peer_.machine->id()].failed = true;
  peer_.queue(protocol::AttemptFailed{attempt, cause, other, std::move(text)});
}

void DataPlane::discard(const wire::Attempt& attempt) {
  if (Own* own = find_own(attempt)) mend(*own);
  attempts_.discard(attempt);
  resume();
  settle();
}

void DataPlane::commit(const wire::Attempt& attempt) {
  Own* own = find_own(attempt);
  JCCL_CHECK(own != nullptr && (own->done || own->told));
  check_held();
  mend(*own);
  p3_given(world_.history, world_.history.call(own->call->id), own->call->as_given());
  own->committed = true;
  (void)attempts_.commit(attempt);
  own->result = own->call->in_place ? own->call->memory : own->call->out;
  for (UserTag& tag : peer_.tags) {
    if (tag.tag == own->round.tag) tag.visible = attempt;
  }
  settle();
}

// From here on the arrays are the user's, who does with them what he likes.
void DataPlane::release(const BuffersRef& call) {
  attempts_.release(call);
  for (Own& own : own_) {
    if (own.call == call) own.call.reset();
  }
  std::memset(call->memory.data(), kUsedAgain, sizeof(Array));
  std::memset(call->out.data(), kUsedAgain, sizeof(Array));
}

// Of what is over nothing is kept, and of what is served no more than a few rounds.
void DataPlane::check_memory() {
  if (attempts_.size() == 0 && memory_.taken() > 0) {
    world_.history.fail(
        "L", cat("slot ", peer_.slot, " holds ", memory_.taken(), " buffers, and no attempt"));
  }
  if (attempts_.size() <= kAttemptsMax * peer_.tags.size()) return;
  world_.history.fail("L", cat("slot ", peer_.slot, " keeps ", attempts_.size(), " attempts of ",
                               peer_.tags.size(), " tags"));
}

// At any moment no more than its attempts and the frames that come in are said to take
// (docs/settings.md, "Memory for others").
void DataPlane::check_held() const {
  if (memory_.bytes() == 0 || peer_.lies()) return;
  std::size_t most = 0, known = 0;
  for (auto own = own_.rbegin(); own != own_.rend() && known < attempts_.size(); ++own) {
    const exchange::Attempt* run = attempts_.find(own->attempt);
    if (run == nullptr) continue;
    most += run->done() ? own->held.done : own->held.running;
    ++known;
  }
  if (known < attempts_.size()) return;  // one that is older than what own_ keeps
  for (const auto& [life, link] : links_) {
    for (const auto& [id, stripe] : link.stripes) {
      const auto& reading = world_.pipe(id).way[1 - stripe.end].reading;
      if (reading && !reading->dropped) most += reading->header.payload_bytes;
    }
  }
  if (memory_.bytes() <= most) return;
  world_.history.fail("L", cat("slot ", peer_.slot, " holds ", memory_.bytes(), " bytes for ",
                               known, " attempts, which take ", most, " at most"));
}

// No stripe starves: whatever waits goes as soon as one has room. Of a stripe that owes nothing
// Flight can't say that it is late.
void DataPlane::check_stripes() {
  for (auto& [life, link] : links_) {
    for (auto& [id, stripe] : link.stripes) {
      const bool late = !stripe.taken.empty() && link.flight.late(id);
      if (link.queue.empty() || stripe.writing >= kWriting || late) {
        stripe.starves_since = base::kNever;
      } else if (stripe.starves_since == base::kNever || stripe.given_at > stripe.starves_since) {
        stripe.starves_since = world_.now;
      } else if (world_.now - stripe.starves_since > kStarvesMax) {
        world_.history.fail(
            "L", cat("slot ", peer_.slot, ": stripe ", id, " has room and got nothing for ",
                     (world_.now - stripe.starves_since) / kMillisecond, " ms, and ",
                     link.queue.size(), " frames wait"));
      }
    }
  }
}

void DataPlane::check_progress() {
  for (Own& own : own_) {
    const bool over = own.done || own.failed || own.call == nullptr;
    const exchange::Attempt* run = over ? nullptr : attempts_.find(own.attempt);
    if (run == nullptr) continue;
    const std::uint64_t left = run->moving().left;
    if (std::exchange(own.left, left) != left) own.moved = world_.now;
    world_.check_moves(peer_.slot, own);
  }
}

protocol::Progress DataPlane::progress() const {
  return protocol::Progress{moved_, attempts_.moving()};
}

std::uint64_t DataPlane::awaits(const wire::Attempt& attempt, wire::PeerId peer) const {
  const exchange::Attempt* run = attempts_.find(attempt);
  if (run == nullptr) return 0;
  std::uint64_t bytes = 0;
  for (const exchange::Attempt::Awaited& one : run->awaited()) {
    if (one.peer == peer) bytes += one.bytes;
  }
  return bytes;
}

std::uint64_t DataPlane::unsent(const wire::Attempt& attempt) const {
  const exchange::Attempt* run = attempts_.find(attempt);
  if (run == nullptr) return 0;
  std::uint64_t left = run->moving().left;
  for (const exchange::Attempt::Awaited& one : run->awaited()) left -= std::min(left, one.bytes);
  return left;
}

bool DataPlane::sends_in_vain() const {
  const auto in_vain = [this](const auto& entry) {
    const auto& [id, stripe] = entry;
    return stripe.writing > 0 && !world_.pipe(id).open[1 - stripe.end];
  };
  return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
    const auto& stripes = entry.second.stripes;
    return std::any_of(stripes.begin(), stripes.end(), in_vain);
  });
}

}  // namespace jccl::sim
