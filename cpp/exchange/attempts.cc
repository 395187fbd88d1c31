// See attempts.h.
#include "exchange/attempts.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::exchange {
namespace {

using base::cat;
using base::Code;
using base::Incarnation;
using base::PeerId;
using base::Status;
using wire::FrameKind;

constexpr int kChunkBits = 29;
// Committed rounds of a tag whose results still leave; who is further behind is no help any more.
constexpr std::size_t kServedMax = 4;

std::uint64_t key_of(std::uint32_t slot, WorkItem item) {
  return (std::uint64_t{slot} << 32) | (static_cast<std::uint64_t>(item.kind) << kChunkBits) |
         item.chunk;
}

bool exchanges_with(const Attempt& run, PeerId peer) {
  const std::vector<PeerId>& others = run.others();
  return std::find(others.begin(), others.end(), peer) != others.end();
}

// A receiver that cannot be reached goes without the result; nobody else's attempt ends by that.
bool depends_on(const Attempt& run, PeerId peer) {
  const std::vector<PeerId>& to = run.start().receivers;
  const bool receives = std::find(to.begin(), to.end(), peer) != to.end();
  return exchanges_with(run, peer) && (!receives || JCCL_PLANTED("receivers-are-needed"));
}

}  // namespace

std::uint32_t slot_of(std::uint64_t key) { return static_cast<std::uint32_t>(key >> 32); }

WorkItem item_of(std::uint64_t key) {
  const auto low = static_cast<std::uint32_t>(key);
  return {static_cast<FrameKind>(low >> kChunkBits), low & ((1U << kChunkBits) - 1)};
}

void Attempts::set_members(const std::vector<wire::Member>& members, Incarnation self) {
  before_ = std::exchange(members_, members);
  self_id_ = 0;
  for (const wire::Member& member : members_) {
    if (member.incarnation == self) self_id_ = member.id;
  }
}

std::string Attempts::name(PeerId peer) const {
  for (const auto* members : {&members_, &before_}) {
    for (const wire::Member& member : *members) {
      if (member.id != peer) continue;
      return member.shards > 1 ? cat(member.site, "/", member.shard) : member.site;
    }
  }
  return cat("peer ", peer);
}

const Attempt* Attempts::find(const wire::Attempt& attempt) const {
  const auto found = running_.find(attempt);
  return found == running_.end() ? nullptr : found->second.run.get();
}

const wire::Attempt* Attempts::attempt_of(std::uint64_t key) const {
  const auto slot = by_slot_.find(slot_of(key));
  return slot == by_slot_.end() ? nullptr : &slot->second;
}

bool Attempts::runs(const CallRef& call) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    return entry.second.run->call() == call && !entry.second.run->committed();
  });
}

PeerId Attempts::id_of(const Running& running, Incarnation life) {
  for (const auto& [id, known] : running.lives) {
    if (known == life) return id;
  }
  return 0;
}

// ---- from START to the end of the call ----------------------------------------------------------

void Attempts::run(const wire::Start& start, CallRef call, base::Time now) {
  now_ = now;
  const wire::Attempt attempt = start.attempt;
  if (running_.count(attempt) > 0) {  // of another call: its frames could not be told from these
    return attempt_failed(attempt, Code::kInternal, 0, "an attempt was started for two rounds");
  }
  const bool overtaken = attempt < newest_;  // its START was lost, and came again after a later one
  newest_ = std::max(newest_, attempt);
  Running& running = running_[attempt];
  running.slot = next_slot_++;
  running.begun = now;
  if (call->started == 0) call->started = now;
  by_slot_[running.slot] = attempt;
  for (const wire::Member& member : members_) running.lives[member.id] = member.incarnation;
  running.run = std::make_unique<Attempt>(start, self_id_, std::move(call), memory_, chunk_bytes_,
                                          static_cast<AttemptHost*>(this));
  // Frames of it may have been let go as leftovers, and nobody sends them again.
  if (overtaken && !JCCL_PLANTED("overtaken-start-runs")) {
    return attempt_failed(attempt, Code::kLinkLost, 0, "START came after that of a later attempt");
  }
  const Status ready = running.run->prepare();
  if (!ready.ok()) return attempt_failed(attempt, ready.code, 0, ready.text);
  running.run->begin();
}

void Attempts::fed(const CallRef& call) {
  std::vector<wire::Attempt> attempts;
  for (const auto& [attempt, running] : running_) {
    if (running.run->call() == call) attempts.push_back(attempt);
  }
  for (const wire::Attempt& attempt : attempts) {
    if (const auto found = running_.find(attempt); found != running_.end())
      found->second.run->fed();
  }
}

void Attempts::drop_frames(const Running& running) {
  const std::uint32_t slot = running.slot;
  const wire::Attempt attempt = running.run->start().attempt;
  host_->abandon(
      [slot](std::uint64_t key) {
        return slot_of(key) == slot && !JCCL_PLANTED("frames-outlive-attempt");
      },
      [attempt](const wire::FrameHeader& h) { return h.attempt == attempt; });
}

void Attempts::discard(const wire::Attempt& attempt) {
  // Of one that never began here frames may have come: they are let go, and what waits behind them
  // goes on.
  if (!JCCL_PLANTED("unbegun-frames-kept")) newest_ = std::max(newest_, attempt);
  const auto found = running_.find(attempt);
  if (found == running_.end()) return;
  drop_frames(found->second);
  by_slot_.erase(found->second.slot);
  running_.erase(found);
}

void Attempts::clear() {
  for (auto& [attempt, running] : running_) {
    if (!JCCL_PLANTED("close-keeps-frames")) drop_frames(running);
  }
  running_.clear();
  by_slot_.clear();
}

bool Attempts::commit(const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  if (found == running_.end() || !found->second.run->done() || found->second.run->committed()) {
    return false;
  }
  // What is still on its way to somebody who is out of the run lies where outputs are written now,
  // and is of no use: its sum would be wrong.
  const std::uint32_t slot = found->second.slot;
  host_->abandon(
      [slot](std::uint64_t key) {
        return slot_of(key) == slot && item_of(key).kind == FrameKind::kContribution &&
               !JCCL_PLANTED("commit-under-frames");
      },
      [](const wire::FrameHeader&) { return false; });
  found->second.run->commit();
  found->second.run->call()->delivered = true;
  bound_served(found->second.run->start().round.tag);
  return true;
}

// A receiver that never reads would keep the results of every round.
void Attempts::bound_served(const wire::Tag& tag) {
  std::vector<wire::Attempt> served;
  for (const auto& [attempt, running] : running_) {
    if (running.run->committed() && running.run->start().round.tag == tag) {
      served.push_back(attempt);
    }
  }
  if (JCCL_PLANTED("served-without-end")) return;
  for (std::size_t i = 0; i + kServedMax < served.size(); ++i) discard(served[i]);
}

void Attempts::release(const CallRef& call) {
  for (auto it = running_.begin(); it != running_.end();) {
    Running& running = it->second;
    if (running.run->call() != call) {
      ++it;
      continue;
    }
    if (!running.run->committed() || !running.run->serves()) {
      drop_frames(running);
      by_slot_.erase(running.slot);
      it = running_.erase(it);
      continue;
    }
    // What receivers may still ask for lies in our own buffers: the commit let go of the rest.
    ++it;
  }
}

std::vector<std::uint32_t> Attempts::sweep(const std::function<bool(std::uint32_t slot)>& serving) {
  std::vector<std::uint32_t> gone;
  for (auto it = running_.begin(); it != running_.end();) {
    const std::uint32_t slot = it->second.slot;
    const bool serves = serving(slot) && !JCCL_PLANTED("swept-while-serving");
    if (!it->second.run->committed() || serves) {
      ++it;
      continue;
    }
    gone.push_back(slot);
    by_slot_.erase(slot);
    it = running_.erase(it);
  }
  return gone;
}

// ---- frames -------------------------------------------------------------------------------------

std::map<wire::Attempt, Attempts::Running>::iterator Attempts::running_of(
    const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  if (found != running_.end() || !JCCL_PLANTED("stale-frame-accepted")) return found;
  return std::find_if(running_.begin(), running_.end(),
                      [](const auto& entry) { return !entry.second.run->done(); });
}

Placement Attempts::place(Incarnation from, const wire::FrameHeader& header) {
  const auto found = running_of(header.attempt);
  if (found == running_.end()) {
    // Over already, or its START has not come yet: that pauses only this stripe.
    const bool over = header.attempt <= newest_ || JCCL_PLANTED("early-frame-drained");
    if (over) return Placement::drain(header.payload_bytes);
    return Placement::pause();
  }
  const PeerId peer = id_of(found->second, from);
  if (peer == 0) {  // a member since, or nobody
    for (const wire::Member& member : members_) {
      if (member.incarnation != from) continue;
      found->second.run->violated(member.id, wire::ViolationKind::kSender);
    }
    return Placement::refuse({Code::kCorrupt, "a stranger sent a data frame"});
  }
  return found->second.run->place(peer, header);
}

Status Attempts::arrived(Incarnation from, const wire::FrameHeader& header, std::uint64_t token) {
  const auto found = running_of(header.attempt);
  if (found == running_.end()) return {};
  Attempt& run = *found->second.run;
  const PeerId peer = id_of(found->second, from);
  if (!run.has_violated(peer)) return run.arrived(peer, header, token);
  const std::uint64_t left = run.moving().left;
  const Status status = run.arrived(peer, header, token);
  if (run.moving().left < left) found->second.brought[peer] = now_;
  return status;
}

void Attempts::lost(const wire::FrameHeader& header, std::uint64_t token) {
  const auto found = running_.find(header.attempt);
  if (found != running_.end()) found->second.run->lost(token);
}

void Attempts::stripe_lost(Incarnation peer) {
  for (const auto& [attempt, running] : running_) {
    if (const PeerId id = id_of(running, peer); id != 0) running.run->stripe_lost(id);
  }
}

std::optional<OutFrame> Attempts::produce(std::uint64_t key) {
  const auto slot = by_slot_.find(slot_of(key));
  if (slot == by_slot_.end()) return std::nullopt;
  auto frame = running_.at(slot->second).run->produce(item_of(key));
  if (frame) frame->key = key;
  return frame;
}

void Attempts::enqueue(const wire::Attempt& attempt, PeerId to, WorkItem item) {
  const Running& running = running_.at(attempt);
  const auto found = running.lives.find(to);
  if (found == running.lives.end()) return;
  // Results and partial sums have just been made: they are in the cache, and others wait for them.
  host_->enqueue(found->second, key_of(running.slot, item), item.kind != FrameKind::kContribution);
}

void Attempts::drop_copies(const wire::Attempt& attempt, PeerId from, WorkItem item) {
  const Running& running = running_.at(attempt);
  const auto peer = running.lives.find(from);
  if (peer == running.lives.end()) return;
  host_->abandon_receiving(peer->second, [&](const wire::FrameHeader& h) {
    return h.attempt == attempt && h.kind == item.kind && h.chunk == item.chunk;
  });
}

std::vector<wire::Share> Attempts::shares(const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  const bool done = found != running_.end() && found->second.run->done();
  return done ? found->second.run->shares() : std::vector<wire::Share>{};
}

wire::AuditRoots Attempts::audit_roots(const wire::Attempt& attempt) {
  const auto found = running_.find(attempt);
  return found == running_.end() ? wire::AuditRoots{} : found->second.run->audit_roots();
}

std::vector<wire::AuditPart> Attempts::audit_parts(const wire::AuditAsk& ask) const {
  const Attempt* run = find(ask.attempt);
  return run == nullptr ? std::vector<wire::AuditPart>{} : run->audit_parts(ask.cells);
}

void Attempts::violation(const wire::Attempt& attempt, PeerId from, wire::ViolationKind kind) {
  host_->violation(attempt, from, kind);
}

void Attempts::attempt_done(const wire::Attempt& attempt, const base::Digest& result) {
  host_->attempt_done(attempt, result);
}

void Attempts::attempt_failed(const wire::Attempt& attempt, Code cause, PeerId peer,
                              std::string text) {
  if (cause == Code::kCorrupt && peer != 0) {
    text = cat(name(peer), " sent data that a guard should refuse: ", text);
  }
  host_->attempt_failed(attempt, cause, peer, std::move(text));
}

// ---- peers that are lost, leave, or are silent --------------------------------------------------

std::vector<std::pair<wire::Attempt, PeerId>> Attempts::that_need(
    Incarnation peer, const std::function<bool(const Attempt&, PeerId)>& needs) const {
  std::vector<std::pair<wire::Attempt, PeerId>> out;
  for (const auto& [attempt, running] : running_) {
    if (running.run->done()) continue;
    const PeerId id = id_of(running, peer);
    if (id != 0 && needs(*running.run, id)) out.emplace_back(attempt, id);
  }
  return out;
}

void Attempts::link_failed(Incarnation peer, const std::string& why) {
  if (JCCL_PLANTED("link-failure-not-told")) return;
  for (const auto& [attempt, id] : that_need(peer, depends_on)) {
    const auto at = running_.find(attempt);
    if (at == running_.end()) continue;
    // Others hear of it through the master: what is open at an address is not their business.
    at->second.run->call()->here = cat("the link to ", name(id), ": ", why);
    attempt_failed(attempt, Code::kLinkLost, id, cat("can't reach ", name(id)));
  }
}

void Attempts::peer_left(Incarnation peer) {
  const auto awaits = [](const Attempt& run, PeerId id) {
    const auto awaited = run.awaited();
    return std::any_of(awaited.begin(), awaited.end(),
                       [id](const Attempt::Awaited& one) { return one.peer == id; });
  };
  for (const auto& [attempt, id] : that_need(peer, awaits)) {
    attempt_failed(attempt, Code::kLinkLost, id, cat(name(id), " left the run"));
  }
}

bool Attempts::wanted(Incarnation peer) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    const PeerId id = id_of(entry.second, peer);
    return !entry.second.run->committed() && id != 0 && exchanges_with(*entry.second.run, id);
  });
}

// Whoever sent here what no plan allows does not send what others wait for. Its signs of life don't
// count: they would hold a round until its deadline.
base::Time Attempts::heard_from(const Running& running, PeerId peer) const {
  if (running.run->has_violated(peer) && !JCCL_PLANTED("violators-live-on-words")) {
    const auto brought = running.brought.find(peer);
    return brought == running.brought.end() ? 0 : brought->second;
  }
  const auto life = running.lives.find(peer);
  return life == running.lives.end() ? 0 : host_->last_received(life->second);
}

// A peer we wait for sends nothing though its connections stand: it is stopped, or the link is cut
// without a reset. One that is only slow, or waits itself, says every now and then that it lives.
void Attempts::check_stalls(base::Time now, base::Duration limit, base::Time awake_since) {
  now_ = now;
  std::vector<std::tuple<wire::Attempt, PeerId, std::string>> stalled;
  for (const auto& [attempt, running] : running_) {
    if (running.run->done()) continue;
    for (const Attempt::Awaited& awaited : running.run->awaited()) {
      const base::Time since =
          JCCL_PLANTED("own-pause-counts") ? running.begun : std::max(running.begun, awake_since);
      const base::Time heard = std::max(since, heard_from(running, awaited.peer));
      if (now - heard <= limit) continue;
      const wire::RoundName& round = running.run->start().round;
      const wire::Moving here = running.run->moving();
      stalled.emplace_back(
          attempt, awaited.peer,
          cat("nothing from ", name(awaited.peer), " for ", (now - heard) / base::kMillisecond,
              " ms in round ", round.n, " of ", round.tag, ", ", base::bytes_text(here.left),
              " of ", base::bytes_text(here.all), " left"));
    }
  }
  for (auto& [attempt, peer, text] : stalled) {
    const auto found = running_.find(attempt);
    if (found == running_.end()) continue;
    found->second.begun = now;  // once per attempt and limit
    const auto life = found->second.lives.find(peer);
    if (life != found->second.lives.end()) host_->renew(life->second, {Code::kLinkLost, text});
    attempt_failed(attempt, Code::kPeerLost, peer, std::move(text));
  }
}

std::vector<wire::Moving> Attempts::moving() const {
  std::vector<wire::Moving> out;
  for (const auto& [attempt, running] : running_) {
    if (out.size() == base::kTagsMax) break;  // of the message that says so
    const wire::Moving here = running.run->moving();
    if (!running.run->done() || here.left > 0) out.push_back(here);
  }
  return out;
}

}  // namespace jccl::exchange
