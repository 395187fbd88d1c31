// See data_plane.h.
#include "peer/data_plane.h"

#include <algorithm>

#include "base/failpoint.h"
#include "base/limits.h"
#include "base/own_pause.h"
#include "base/planted.h"
#include "base/text.h"
#include "peer/frame_hook.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Incarnation;
using base::PeerId;
using base::Status;
using exchange::Placement;
using exchange::slot_of;
using wire::FrameKind;

constexpr base::Duration kTickMin = 10 * base::kMillisecond;
constexpr base::Duration kTickMax = 100 * base::kMillisecond;
constexpr std::uint32_t kSnapshotSlot = 0;  // keys of snapshot frames

bool is_snapshot(FrameKind kind) {
  return kind == FrameKind::kSnapshotAsk || kind == FrameKind::kSnapshotPart ||
         kind == FrameKind::kSnapshotGone || kind == FrameKind::kProofAsk ||
         kind == FrameKind::kProof;
}

base::Duration repair_max(base::Duration silence) { return std::min(silence, base::kSecond); }
base::Duration alive_every(base::Duration silence) { return silence / 6; }
// A little sooner than the master's own limit, so that it can ask others before that.
base::Duration stalled_after(base::Duration silence) { return silence * 5 / 6; }

std::function<bool(base::ByteView)> of_attempts(
    const std::function<bool(const wire::FrameHeader&)>& frames) {
  return [&frames](base::ByteView header) {
    const auto h = wire::decode_frame_header(header);
    return h.ok() && !is_snapshot(h.value().kind) && frames(h.value());
  };
}

LinkTableOptions link_options(const DataPlaneOptions& options, net::IoThreads* io) {
  LinkTableOptions links;
  links.io = io;
  links.credentials = options.credentials;
  links.stripes = options.stripes;
  links.max_rate = options.max_rate, links.day_bytes = options.day_bytes;
  links.repair_max = repair_max(options.silence);
  links.alive_every = alive_every(options.silence);
  return links;
}

std::set<std::string> hosts_of(const wire::Member& member) {
  std::set<std::string> hosts;
  for (const std::string& text : member.addresses) {
    const auto address = net::parse_address(text);
    if (address.ok()) hosts.insert(address.value().host);
  }
  return hosts;
}

// Peers of this machine, this one among them: those that others reach at one of its hosts.
std::size_t peers_here(const std::vector<wire::Member>& members, Incarnation self) {
  std::set<std::string> here;
  for (const wire::Member& member : members) {
    if (member.incarnation == self) here = hosts_of(member);
  }
  std::size_t beside = 0;
  for (const wire::Member& member : members) {
    const std::set<std::string> hosts = hosts_of(member);
    const bool shared = std::any_of(hosts.begin(), hosts.end(),
                                    [&here](const auto& host) { return here.contains(host); });
    beside += member.incarnation != self && shared;
  }
  return 1 + beside;
}

}  // namespace

bool has_cores_for_io(const std::vector<wire::Member>& members, Incarnation self,
                      std::size_t cores) {
  return cores >= 3 * peers_here(members, self) || JCCL_PLANTED("io-threads-on-any-machine");
}

std::uint32_t core_of_each(const std::vector<wire::Member>& members, Incarnation self,
                           std::size_t cores) {
  const std::size_t peers = JCCL_PLANTED("core-not-shared") ? 1 : peers_here(members, self);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(1000 * cores / peers, 1, 1000));
}

DataPlane::DataPlane(net::Loop& loop, DataPlaneOptions options, SnapshotStore* store,
                     DataPlaneEvents events)
    : loop_(loop),
      options_(options),
      events_(std::move(events)),
      io_(loop),
      links_(loop, link_options(options, &io_), this),
      snapshots_(store, &pool_, this),
      attempts_(&pool_, options.chunk_bytes, this) {
  ticked_ = loop_.now();
  timer_ = loop_.run_after(tick_interval(), [this] { tick(); });
}

DataPlane::~DataPlane() {
  loop_.cancel(timer_);
  attempts_.clear();
}

void DataPlane::set_self(const base::RunId& run, Incarnation incarnation, bool can_be_dialled) {
  self_ = incarnation;
  links_.set_self(run, incarnation, can_be_dialled);
}

void DataPlane::set_silence(base::Duration silence) {
  options_.silence = silence;
  links_.set_times(repair_max(silence), alive_every(silence));
}

void DataPlane::set_max_rate(std::uint64_t bytes_per_second) {
  links_.set_max_rate(static_cast<double>(bytes_per_second));
}

std::vector<wire::Moving> DataPlane::moving() const {
  const std::lock_guard lock(moving_guard_);
  return moving_;
}

// Often enough that a silence is noticed within a tenth of itself.
base::Duration DataPlane::tick_interval() const {
  return std::clamp(options_.silence / 12, kTickMin, kTickMax);
}

void DataPlane::set_roster(const wire::Roster& roster) {
  roster_ = roster;
  self_id_ = 0;
  for (const wire::Member& member : roster.members) {
    if (member.incarnation == self_) self_id_ = member.id;
  }
  attempts_.set_members(roster.members, self_);
  // Who is no member hears of none: that says nothing about those it fetches from. Before the links
  // close, with which the words of those who are out would be forgotten.
  if (self_id_ != 0) snapshots_.set_members(roster.members);
  io_.used = options_.io_threads ? *options_.io_threads
                                 : has_cores_for_io(roster.members, self_, net::usable_cores());
  core_ = core_of_each(roster.members, self_, net::usable_cores());
  links_.set_members(roster.members, roster.links);
}

void DataPlane::run(const protocol::RunAttempt& order, CallRef call) {
  if (const auto& feed = call->options.feed) {
    feed->listen([this, poster = loop_.poster(), weak = std::weak_ptr(call)] {
      poster.post([this, weak] {
        if (const CallRef held = weak.lock()) fed(held);
      });
    });
  }
  attempts_.run(order.start, std::move(call), loop_.now());
  links_.resume();
}

void DataPlane::discard(const wire::Attempt& attempt) {
  attempts_.discard(attempt);
  links_.resume();  // frames of the attempt that were paused are drained now
}

void DataPlane::commit(const wire::Attempt& attempt) {
  if (!attempts_.commit(attempt)) return;  // finish_call() says so
  base::failpoint(base::Failpoint::kPeerCommitWritten);
}

void DataPlane::fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout) {
  links_.set_secret(order.links);
  snapshots_.fetch(order, layout, loop_.now());
}

void DataPlane::stop_fetch(const wire::Tag& tag) { snapshots_.stop(tag); }

Placement DataPlane::place(Incarnation from, base::ByteView header) {
  const auto decoded = wire::decode_frame_header(header);
  if (!decoded.ok()) return Placement::refuse(decoded.status());
  const wire::FrameHeader& h = decoded.value();
  if (frame_hook != nullptr && !frame_hook->takes(from, h)) [[unlikely]] {
    return Placement::drain(h.payload_bytes);
  }
  return is_snapshot(h.kind) ? snapshots_.place(from, h) : attempts_.place(from, h);
}

Status DataPlane::arrived(Incarnation from, base::ByteView header, std::uint64_t token) {
  const wire::FrameHeader h = wire::decode_frame_header(header).value();
  progress_ += h.payload_bytes;
  received_ += h.payload_bytes;
  if (is_snapshot(h.kind)) return snapshots_.arrived(from, h, token);
  base::failpoint(base::Failpoint::kPeerFrameArrived);
  return attempts_.arrived(from, h, token);
}

void DataPlane::lost(Incarnation, base::ByteView header, std::uint64_t token) {
  const auto h = wire::decode_frame_header(header);
  if (!h.ok()) return;
  if (is_snapshot(h.value().kind)) return snapshots_.lost(token);
  attempts_.lost(h.value(), token);
}

std::optional<exchange::OutFrame> DataPlane::produce(Incarnation to, std::uint64_t key) {
  std::optional<exchange::OutFrame> frame;
  if (slot_of(key) == kSnapshotSlot) {
    frame = snapshots_.produce(to, static_cast<std::uint32_t>(key));
  } else {
    frame = attempts_.produce(key);
    if (frame) base::failpoint(base::Failpoint::kPeerFrameMade);
  }
  if (frame && frame_hook != nullptr) [[unlikely]] {
    const Sends sends = frame_hook->sends(to, &*frame);
    if (sends == Sends::kDropped) frame.reset();
    if (sends == Sends::kAgain) enqueue(to, key, false);
  }
  if (frame) {
    std::uint64_t bytes = 0;
    for (const base::ByteView& part : frame->payload) bytes += part.size();
    progress_ += bytes;
    sent_ += bytes;
  }
  return frame;
}

void DataPlane::enqueue(Incarnation to, std::uint64_t key, bool ahead) {
  links_.enqueue(to, key, ahead);
}

void DataPlane::abandon(const std::function<bool(std::uint64_t)>& keys,
                        const std::function<bool(const wire::FrameHeader&)>& frames) {
  links_.abandon(keys, of_attempts(frames));
}

void DataPlane::abandon_receiving(Incarnation from,
                                  const std::function<bool(const wire::FrameHeader&)>& frames) {
  links_.abandon_receiving(from, of_attempts(frames));
}

void DataPlane::stripe_lost(Incarnation peer) {
  attempts_.stripe_lost(peer);
  snapshots_.stripe_lost(peer);
}

base::Time DataPlane::last_received(Incarnation peer) const { return links_.last_received(peer); }

void DataPlane::renew(Incarnation peer, const Status& why) { links_.renew(peer, why); }

void DataPlane::attempt_done(const wire::Attempt& attempt, const base::Digest& result) {
  base::failpoint(base::Failpoint::kPeerResultComplete);
  if (const exchange::Attempt* run = attempts_.find(attempt)) run->call()->moved = loop_.now();
  events_.attempt_done(attempt, result, attempts_.shares(attempt), attempts_.audit_roots(attempt));
}

void DataPlane::attempt_failed(const wire::Attempt& attempt, Code cause, PeerId peer,
                               std::string text) {
  events_.attempt_failed(attempt, cause, peer, std::move(text));
}

void DataPlane::link_failed(Incarnation peer, const Status& why) {
  snapshots_.link_failed(peer);
  attempts_.link_failed(peer, why.text);
}

void DataPlane::peer_left(Incarnation peer) {
  snapshots_.link_failed(peer);
  attempts_.peer_left(peer);
}

void DataPlane::acknowledged_too_much(Incarnation peer) {
  for (const wire::Member& member : roster_.members) {
    if (member.incarnation == peer) violation({}, member.id, wire::ViolationKind::kAck);
  }
}

bool DataPlane::wanted(Incarnation peer) const {
  return attempts_.wanted(peer) || snapshots_.uses(peer);
}

void DataPlane::enqueue_snapshot(Incarnation to, std::uint32_t item, bool first) {
  links_.enqueue(to, (std::uint64_t{kSnapshotSlot} << 32) | item, first, false);
}

void DataPlane::own_snapshot_frames() {
  links_.own([](std::uint64_t key) { return slot_of(key) == kSnapshotSlot; });
}

void DataPlane::fetch_ended(const wire::Tag& tag, const Status& status, const wire::Held& held) {
  if (status.ok()) {
    events_.fetched(held);
  } else {
    events_.fetch_failed(tag, status);
  }
}

void DataPlane::tick() {
  timer_ = loop_.run_after(tick_interval(), [this] { tick(); });
  const base::Time now = loop_.now();
  if (base::OwnPause(ticked_ + tick_interval(), now, options_.silence).counts()) awake_since_ = now;
  ticked_ = now;
  links_.tick(now);
  snapshots_.tick(now);
  attempts_.check_stalls(now, stalled_after(options_.silence), awake_since_);
  {
    std::vector<wire::Moving> moving = attempts_.moving();
    const std::lock_guard lock(moving_guard_);
    moving_ = std::move(moving);
  }
  survey(now);
  // Committed attempts stay until the links have taken every result frame.
  const auto gone = attempts_.sweep([this](std::uint32_t slot) {
    return links_.has_queued([slot](std::uint64_t key) { return slot_of(key) == slot; });
  });
  for (const std::uint32_t slot : gone) {
    links_.forget([slot](std::uint64_t key) { return slot_of(key) == slot; });
  }
}

// Tells the master what the links carry, when there is something new to say.
void DataPlane::survey(base::Time now) {
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
  if (const auto fresh = survey_.due(now, std::move(links), core_)) events_.measured(*fresh);
}

}  // namespace jccl::peer
