// See plane.h.
#include "peer/plane.h"

#include <algorithm>

#include "base/failpoint.h"
#include "base/limits.h"
#include "base/text.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Incarnation;
using base::PeerId;
using base::Status;
using exchange::Placement;
using exchange::WorkItem;
using wire::FrameKind;

constexpr base::Duration kTickMin = 10 * base::kMillisecond;
constexpr base::Duration kTickMax = 100 * base::kMillisecond;
constexpr std::uint32_t kSnapshotSlot = 0;  // keys of snapshot frames
constexpr int kChunkBits = 29;
// Committed rounds of a tag whose results still leave; who is further behind is no help any more.
constexpr std::size_t kServedMax = 4;

std::uint64_t key_of(std::uint32_t slot, WorkItem item) {
  return (std::uint64_t{slot} << 32) | (static_cast<std::uint64_t>(item.kind) << kChunkBits) |
         item.chunk;
}
std::uint32_t slot_of(std::uint64_t key) { return static_cast<std::uint32_t>(key >> 32); }
WorkItem item_of(std::uint64_t key) {
  const auto low = static_cast<std::uint32_t>(key);
  return {static_cast<FrameKind>(low >> kChunkBits), low & ((1U << kChunkBits) - 1)};
}

bool is_snapshot(FrameKind kind) {
  return kind == FrameKind::kSnapshotAsk || kind == FrameKind::kSnapshotPart ||
         kind == FrameKind::kSnapshotGone;
}

base::Duration repair_max(base::Duration silence) { return std::min(silence, base::kSecond); }
base::Duration alive_every(base::Duration silence) { return silence / 6; }

LinkTableOptions link_options(const PlaneOptions& options) {
  LinkTableOptions links;
  links.credentials = options.credentials;
  links.stripes = options.stripes;
  links.repair_max = repair_max(options.silence);
  links.alive_every = alive_every(options.silence);
  return links;
}

}  // namespace

Plane::Plane(net::Loop& loop, PlaneOptions options, SnapshotStore* store, PlaneEvents events)
    : loop_(loop),
      options_(options),
      events_(std::move(events)),
      links_(loop, link_options(options), this),
      snapshots_(store, &pool_, this) {
  ticked_ = loop_.now();
  timer_ = loop_.run_after(tick_interval(), [this] { tick(); });
}

Plane::~Plane() {
  loop_.cancel(timer_);
  for (auto& [attempt, running] : running_) drop_frames(running);
}

void Plane::set_self(const base::RunId& run, Incarnation incarnation, bool can_be_dialled) {
  self_ = incarnation;
  links_.set_self(run, incarnation, can_be_dialled);
}

void Plane::set_silence(base::Duration silence) {
  options_.silence = silence;
  links_.set_times(repair_max(silence), alive_every(silence));
}

std::vector<wire::Moving> Plane::moving() const {
  const std::lock_guard lock(moving_guard_);
  return moving_;
}

// Often enough that a silence is noticed within a tenth of itself.
base::Duration Plane::tick_interval() const {
  return std::clamp(options_.silence / 12, kTickMin, kTickMax);
}

void Plane::set_roster(const wire::Roster& roster) {
  before_ = std::exchange(roster_, roster).members;
  self_id_ = 0;
  for (const wire::Member& member : roster.members) {
    if (member.incarnation == self_) self_id_ = member.id;
  }
  links_.set_members(roster.members, roster.links);
  // Who is no member hears of none: that says nothing about those it fetches from.
  if (self_id_ != 0) snapshots_.set_members(roster.members);
}

void Plane::run(const protocol::RunAttempt& order, CallRef call) {
  const wire::Attempt attempt = order.start.attempt;
  if (running_.count(attempt) > 0) {  // of another call: its frames could not be told from these
    return attempt_failed(attempt, Code::kInternal, 0, "an attempt was started for two rounds");
  }
  const bool overtaken = attempt < newest_;  // its START was lost, and came again after a later one
  newest_ = std::max(newest_, attempt);
  Running& running = running_[attempt];
  running.slot = next_slot_++;
  running.begun = loop_.now();
  if (call->started == 0) call->started = running.begun;
  by_slot_[running.slot] = attempt;
  for (const wire::Member& member : roster_.members) {
    running.incarnations[member.id] = member.incarnation;
  }
  running.call = call;
  running.run = std::make_unique<exchange::Attempt>(order.start, self_id_, std::move(call), &pool_,
                                                    options_.chunk_bytes,
                                                    static_cast<exchange::AttemptHost*>(this));
  if (overtaken) {  // frames of it may have been let go as leftovers, and nobody sends them again
    attempt_failed(attempt, Code::kLinkLost, 0, "START came after that of a later attempt");
    return;
  }
  const Status ready = running.run->prepare();
  if (!ready.ok()) {
    attempt_failed(attempt, ready.code, 0, ready.text);
    return;
  }
  // Told from now on, and what came before that is seen by begin().
  if (const auto& feed = running.call->options.feed) {
    feed->listen([this, poster = loop_.poster(), call = std::weak_ptr(running.call)] {
      poster.post([this, call] {
        if (const CallRef held = call.lock()) fed(held);
      });
    });
  }
  running.run->begin();
  links_.resume();
}

void Plane::fed(const CallRef& call) {
  std::vector<wire::Attempt> attempts;
  for (const auto& [attempt, running] : running_) {
    if (running.call == call) attempts.push_back(attempt);
  }
  for (const wire::Attempt& attempt : attempts) {
    if (const auto found = running_.find(attempt); found != running_.end())
      found->second.run->fed();
  }
}

void Plane::drop_frames(const Running& running) {
  const std::uint32_t slot = running.slot;
  const wire::Attempt attempt = running.run->start().attempt;
  links_.abandon([slot](std::uint64_t key) { return slot_of(key) == slot; },
                 [attempt](base::ByteView header) {
                   const auto h = wire::decode_frame_header(header);
                   return h.ok() && h.value().attempt == attempt && !is_snapshot(h.value().kind);
                 });
}

void Plane::discard(const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  if (found == running_.end()) return;
  drop_frames(found->second);
  by_slot_.erase(found->second.slot);
  running_.erase(found);
  links_.resume();  // frames of the attempt that were paused are drained now
}

void Plane::commit(const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  if (found == running_.end() || !found->second.run->done() || found->second.run->committed()) {
    return;  // finish_call() says so
  }
  found->second.run->commit();
  found->second.call->delivered = true;
  base::failpoint(base::Failpoint::kPeerCommitWritten);
  bound_served(found->second.run->start().round.tag);
}

// A receiver that never reads would keep the results of every round.
void Plane::bound_served(const wire::Tag& tag) {
  std::vector<wire::Attempt> served;
  for (const auto& [attempt, running] : running_) {
    if (running.run->committed() && running.run->start().round.tag == tag) {
      served.push_back(attempt);
    }
  }
  for (std::size_t i = 0; i + kServedMax < served.size(); ++i) discard(served[i]);
}

void Plane::release(const CallRef& call) {
  for (auto it = running_.begin(); it != running_.end();) {
    Running& running = it->second;
    if (running.call != call) {
      ++it;
      continue;
    }
    const std::uint32_t slot = running.slot;
    if (!running.run->committed() || !running.run->serves()) {
      drop_frames(running);
      by_slot_.erase(slot);
      it = running_.erase(it);
      continue;
    }
    // What receivers may still ask for lies in our own buffers; contributions that are still queued
    // point at the caller's memory and have no more use.
    links_.abandon(
        [slot](std::uint64_t key) {
          return slot_of(key) == slot && item_of(key).kind != FrameKind::kResult;
        },
        [](base::ByteView) { return false; });
    ++it;
  }
}

void Plane::fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout) {
  links_.set_secret(order.links);
  snapshots_.fetch(order, layout, loop_.now());
}

void Plane::stop_fetch(const wire::Tag& tag) { snapshots_.stop(tag); }

PeerId Plane::id_of(const Running& running, Incarnation incarnation) const {
  for (const auto& [id, inc] : running.incarnations) {
    if (inc == incarnation) return id;
  }
  return 0;
}

Placement Plane::place(Incarnation from, base::ByteView header) {
  const auto decoded = wire::decode_frame_header(header);
  if (!decoded.ok()) return Placement::refuse(decoded.status());
  const wire::FrameHeader& h = decoded.value();
  if (is_snapshot(h.kind)) return snapshots_.place(from, h);
  const auto found = running_.find(h.attempt);
  if (found == running_.end()) {
    // Over already, or its START has not come yet: that pauses only this stripe.
    if (h.attempt <= newest_) return Placement::drain(h.payload_bytes);
    return Placement::pause();
  }
  const PeerId peer = id_of(found->second, from);
  if (peer == 0) return Placement::refuse({Code::kCorrupt, "a stranger sent a data frame"});
  return found->second.run->place(peer, h);
}

Status Plane::arrived(Incarnation from, base::ByteView header, std::uint64_t token) {
  const wire::FrameHeader h = wire::decode_frame_header(header).value();
  progress_ += h.payload_bytes;
  received_ += h.payload_bytes;
  if (is_snapshot(h.kind)) return snapshots_.arrived(from, h, token);
  base::failpoint(base::Failpoint::kPeerFrameArrived);
  const auto found = running_.find(h.attempt);
  if (found == running_.end()) return {};
  return found->second.run->arrived(id_of(found->second, from), h, token);
}

void Plane::lost(Incarnation, base::ByteView header, std::uint64_t token) {
  const auto h = wire::decode_frame_header(header);
  if (!h.ok()) return;
  if (is_snapshot(h.value().kind)) return snapshots_.lost(token);
  const auto found = running_.find(h.value().attempt);
  if (found != running_.end()) found->second.run->lost(token);
}

std::optional<exchange::OutFrame> Plane::produce(Incarnation to, std::uint64_t key) {
  std::optional<exchange::OutFrame> frame;
  if (slot_of(key) == kSnapshotSlot) {
    frame = snapshots_.produce(to, static_cast<std::uint32_t>(key));
  } else {
    const auto slot = by_slot_.find(slot_of(key));
    if (slot == by_slot_.end()) return std::nullopt;
    frame = running_.at(slot->second).run->produce(item_of(key));
    base::failpoint(base::Failpoint::kPeerFrameMade);
  }
  if (frame) {
    std::uint64_t bytes = 0;
    for (const base::ByteView& part : frame->payload) bytes += part.size();
    progress_ += bytes;
    sent_ += bytes;
  }
  return frame;
}

void Plane::enqueue(const wire::Attempt& attempt, PeerId to, WorkItem item) {
  const Running& running = running_.at(attempt);
  const auto found = running.incarnations.find(to);
  if (found == running.incarnations.end()) return;
  // Results and partial sums have just been made: they are in the cache, and others wait for them.
  links_.enqueue(found->second, key_of(running.slot, item), item.kind != FrameKind::kContribution);
}

void Plane::drop_copies(const wire::Attempt& attempt, PeerId from, WorkItem item) {
  const auto peer = running_.at(attempt).incarnations.find(from);
  if (peer == running_.at(attempt).incarnations.end()) return;
  links_.abandon_receiving(peer->second, [&](base::ByteView header) {
    const auto h = wire::decode_frame_header(header);
    return h.ok() && h.value().attempt == attempt && h.value().kind == item.kind &&
           h.value().chunk == item.chunk;
  });
}

void Plane::attempt_done(const wire::Attempt& attempt, const base::Digest& result) {
  base::failpoint(base::Failpoint::kPeerResultComplete);
  if (const auto at = running_.find(attempt); at != running_.end()) {
    at->second.call->moved = loop_.now();
  }
  events_.attempt_done(attempt, result);
}

void Plane::attempt_failed(const wire::Attempt& attempt, Code cause, PeerId peer,
                           std::string text) {
  if (cause == Code::kCorrupt && peer != 0) {
    text = cat(name(peer), " sent what no peer with a guard sends: ", text);
  }
  events_.attempt_failed(attempt, cause, peer, std::move(text));
}

void Plane::link_failed(Incarnation peer, const Status& why) {
  snapshots_.link_failed(peer);
  std::vector<std::pair<wire::Attempt, PeerId>> failed;
  for (const auto& [attempt, running] : running_) {
    if (running.run->done()) continue;
    const PeerId id = id_of(running, peer);
    const auto others = running.run->others();
    if (std::find(others.begin(), others.end(), id) != others.end())
      failed.emplace_back(attempt, id);
  }
  for (const auto& [attempt, id] : failed) {
    const auto at = running_.find(attempt);
    if (at == running_.end()) continue;
    // Others hear of it through the master: what is open at an address is not their business.
    at->second.call->here = cat("the link to ", name(id), ": ", why.text);
    attempt_failed(attempt, Code::kLinkLost, id, cat("can't reach ", name(id)));
  }
}

// What it sent has been read, or won't be.
void Plane::peer_left(Incarnation peer) {
  snapshots_.link_failed(peer);
  std::vector<std::pair<wire::Attempt, PeerId>> failed;
  for (const auto& [attempt, running] : running_) {
    if (running.run->done()) continue;
    const PeerId id = id_of(running, peer);
    const auto awaited = running.run->awaited();
    const auto is_it = [id](const exchange::Attempt::Awaited& one) { return one.peer == id; };
    if (id != 0 && std::any_of(awaited.begin(), awaited.end(), is_it)) {
      failed.emplace_back(attempt, id);
    }
  }
  for (const auto& [attempt, id] : failed) {
    attempt_failed(attempt, Code::kLinkLost, id, cat(name(id), " left the run"));
  }
}

bool Plane::wanted(Incarnation peer) const {
  for (const auto& [attempt, running] : running_) {
    if (running.run->committed()) continue;
    const PeerId id = id_of(running, peer);
    const auto others = running.run->others();
    if (id != 0 && std::find(others.begin(), others.end(), id) != others.end()) return true;
  }
  return snapshots_.uses(peer);
}

void Plane::enqueue_snapshot(Incarnation to, std::uint32_t item) {
  links_.enqueue(to, (std::uint64_t{kSnapshotSlot} << 32) | item);
}

void Plane::own_snapshot_frames() {
  links_.own([](std::uint64_t key) { return slot_of(key) == kSnapshotSlot; });
}

void Plane::fetch_ended(const wire::Tag& tag, const Status& status, const wire::Held& held) {
  if (status.ok()) {
    events_.fetched(held);
  } else {
    events_.fetch_failed(tag, status.text);
  }
}

void Plane::tick() {
  timer_ = loop_.run_after(tick_interval(), [this] { tick(); });
  const base::Time now = loop_.now();
  if (now - ticked_ > tick_interval() + options_.silence / 3) awake_since_ = now;
  ticked_ = now;
  links_.tick(now);
  snapshots_.tick(now);
  check_stalls(now);
  survey(now);
  // Committed attempts stay until the links have taken every result frame.
  for (auto it = running_.begin(); it != running_.end();) {
    const std::uint32_t slot = it->second.slot;
    const bool serving =
        links_.has_queued([slot](std::uint64_t key) { return slot_of(key) == slot; });
    if (it->second.run->committed() && !serving) {
      links_.forget([slot](std::uint64_t key) { return slot_of(key) == slot; });
      by_slot_.erase(slot);
      it = running_.erase(it);
    } else {
      ++it;
    }
  }
}

// Tells the master what the links carry, when there is something new to say.
void Plane::survey(base::Time now) {
  const bool waiting = links_.has_queued([](std::uint64_t) { return true; });
  survey_.sample(now, sent_.load(std::memory_order_relaxed), waiting);
  if (self_id_ == 0 || !events_.measured || !survey_.time_to_look(now)) return;
  std::map<Incarnation, PeerId> ids;
  for (const wire::Member& member : roster_.members) ids[member.incarnation] = member.id;
  std::vector<wire::LinkMeasured> links;
  for (const LinkMeasure& link : links_.measures()) {
    const auto id = ids.find(link.peer);
    if (id == ids.end() || link.stripes == 0) continue;
    const base::Duration rtt_us = std::min<base::Duration>(link.rtt_ns / 1000, UINT32_MAX);
    links.push_back({id->second, static_cast<std::uint32_t>(rtt_us),
                     static_cast<std::uint64_t>(link.bytes_per_second)});
  }
  std::sort(links.begin(), links.end(),
            [](const auto& a, const auto& b) { return a.peer < b.peer; });
  if (const auto fresh = survey_.due(now, std::move(links))) events_.measured(*fresh);
}

// A peer we wait for sends nothing though its connections stand: it is stopped, or the link is cut
// without a reset. One that is only slow, or waits itself, says every now and then that it lives.
// A little sooner than the master's own limit, so that it can ask others before that.
void Plane::check_stalls(base::Time now) {
  std::vector<std::tuple<wire::Attempt, PeerId, std::string>> stalled;
  std::vector<wire::Moving> moving;
  for (const auto& [attempt, running] : running_) {
    const wire::Moving here = running.run->moving();
    const bool room = moving.size() < base::kTagsMax;  // of the message that says so
    if (room && (!running.run->done() || here.left > 0)) moving.push_back(here);
    if (running.run->done()) continue;
    const wire::RoundName& round = running.run->start().round;
    for (const exchange::Attempt::Awaited& awaited : running.run->awaited()) {
      const auto peer = running.incarnations.find(awaited.peer);
      base::Time heard = std::max(running.begun, awake_since_);
      if (peer != running.incarnations.end()) {
        heard = std::max(heard, links_.last_received(peer->second));
      }
      if (now - heard <= options_.silence * 5 / 6) continue;
      stalled.emplace_back(
          attempt, awaited.peer,
          cat("nothing from ", name(awaited.peer), " for ", (now - heard) / base::kMillisecond,
              " ms in round ", round.n, " of ", round.tag, ", ", base::bytes_text(here.left),
              " of ", base::bytes_text(here.all), " left"));
    }
  }
  {
    const std::lock_guard lock(moving_guard_);
    moving_ = std::move(moving);
  }
  for (auto& [attempt, peer, text] : stalled) {
    const auto found = running_.find(attempt);
    if (found == running_.end()) continue;
    found->second.begun = now;  // once per attempt and limit
    const auto incarnation = found->second.incarnations.find(peer);
    if (incarnation != found->second.incarnations.end()) {
      links_.renew(incarnation->second, {Code::kLinkLost, text});
    }
    attempt_failed(attempt, Code::kPeerLost, peer, std::move(text));
  }
}

std::string Plane::name(PeerId peer) const {
  for (const auto* members : {&roster_.members, &before_}) {
    for (const wire::Member& member : *members) {
      if (member.id != peer) continue;
      return member.shards > 1 ? cat(member.site, "/", member.shard) : member.site;
    }
  }
  return cat("peer ", peer);
}

}  // namespace jccl::peer
