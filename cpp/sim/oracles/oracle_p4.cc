// P4 bounded: no call outlives its deadline while its process runs; a member that hangs, is gone or
// is cut off is out within the detection time and a bound; nobody is evicted who was there.
#include "protocol/master/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

inline constexpr Duration kSlowSlack = 4 * kSecond;  // what waits on a slow link goes on waiting
inline constexpr Duration kNoticeSlack = kSecond;    // links are slow, and timers late

void p4_in_time(History& history, std::uint32_t slot, const wire::Tag& tag, base::Time due) {
  if (history.now <= due) return;
  history.fail("P4", cat("slot ", slot, ": a call on ", tag, " outlives its deadline by ",
                         (history.now - due) / 1000, " us"));
}

// Nobody's silence counts from before this peer was there to hear him.
void p4_not_by_own_pause(History& history, std::uint32_t slot, base::Time awake,
                         base::Duration limit) {
  if (awake == 0 || history.now - awake >= limit) return;
  history.fail("P4", cat("slot ", slot, " calls another silent ",
                         (history.now - awake) / kMillisecond, " ms after it woke itself"));
}

// A master ends a call so much before its deadline, at most: its reason has to arrive in time, and
// a round's data.
Duration early_by(const CallRecord& call) {
  return std::min((call.deadline - call.begun) / 8, kSecond / 2) + 50 * kMillisecond;
}

// The deadline that a call ends of is its own, unless it hears that too little of it is left for a
// round, and no more than half of its time is, or three quarters, where all have to begin anew.
// (Not where clocks went apart while it ran.)
void World::check_not_early(const CallRecord& call, const std::string& why) {
  if (call.code != base::Code::kDeadline || call.begun <= clocks_parted_at_) return;
  const bool too_little = says(why, "all are READY, but less than ");
  const Duration whole = call.deadline - call.begun;
  const Duration part = says(why, "all begin anew") ? whole - whole / 4 : whole / 2;
  const Duration allowed = too_little ? std::max(part, early_by(call)) : early_by(call);
  if (now + allowed >= call.deadline) return;
  history.fail("P4", cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " ended as ",
                         "DEADLINE with ", (call.deadline - now) / kMillisecond, " ms left of ",
                         whole / kMillisecond, ": ", why));
}

// When a call of this deadline has to have ended. Virtual timers fire when they are due, so nothing
// is added, but for a process that was stopped, until it goes on, and for one whose timers are
// late, until the last that is: what is due first may be late, and what comes after it is set then.
Time SimPeer::latest_end(Time deadline) const { return std::max(deadline, free_at); }

// It had slow links, or stood still, not long ago.
bool World::hampered(const std::string& site) const {
  return std::any_of(peers.begin(), peers.end(), [&](const SimPeer& peer) {
    const Time until = std::max(hampered_until_[peer.slot], peer.free_at);
    const bool slow = until + mix.straggler_after + kSlowSlack > now;
    return peer.site == site && (slow || !peer.running());
  });
}

// What it waits for most, or some of it, was handed to the slow line of another, who counts it as
// moved: the one case in which the judge takes the receiver for the slow one (DECISIONS, Known
// limits).
bool World::waits_for_a_slow_line(const std::string& site) const {
  for (const SimPeer& peer : peers) {
    if (peer.site != site || !peer.running()) continue;
    for (const wire::Moving& own : peer.data.progress().moving) {
      const auto other = history.members.find(own.waits_on);
      // Who withholds most of its frames, and says that they left, looks like a slow line, too.
      const bool lies = other != history.members.end() && mix.frame_lies > 0 &&
                        history.liars.count(other->second.incarnation) > 0;
      if (lies) return true;
      if (other == history.members.end() || !hampered(other->second.site)) continue;
      const DataPlane& its = peers[slots.at(other->second.incarnation)].data;
      if (its.unsent(own.attempt) < peer.data.awaits(own.attempt, own.waits_on)) return true;
    }
  }
  return false;
}

// One of several stripes between it and another stands still, or did when its attempt was judged.
bool World::stripe_stood(const std::string& site) const {
  return std::any_of(peers.begin(), peers.end(), [&](const SimPeer& peer) {
    const Time until = stripe_stood_until_[peer.slot] + mix.straggler_after + kNoticeSlack;
    return peer.site == site && until > now;
  });
}

// Every process of a member's site is there: a site goes as a whole.
bool World::site_is_there(const std::string& site) const {
  for (const auto& [id, member] : history.members) {
    const SimPeer& peer = peers[slots.at(member.incarnation)];
    const bool there = peer.running() && peer.incarnation == member.incarnation;
    if (member.site == site && !there) return false;
  }
  return true;
}

// Not for a silence that was the master's own, or for a trouble that is over. Who is slow has a
// judge of his own below, and who did not come back to a restarted master in oracle_p5.cc.
void World::check_false_eviction(const wire::Member& member, const std::string& reason) {
  if (mix.liar > 0 && peers[mix.liar - 1].site == member.site) return;
  // Of the two ends of one link, one of which lies, nobody can say which.
  if (mix.liar > 0 && says(reason, " has no link to 1 of ")) return;
  // Nor, where links give no signs of life, of several: who waits for one that holds is as silent.
  if (mix.liar > 0 && !mix.life_signs && says(reason, " has no link to ")) return;
  // Nor, of several, where two that computed wrong stand at the other ends, as two that lie may.
  if (others_computed_wrong(member.site) >= 2 && says(reason, " has no link to ")) return;
  if (!site_is_there(member.site) || says(reason, " is slow: ")) return;
  if (says(reason, "after the master's restart")) return;
  if (says(reason, " is banned: ")) return;  // see check_ban
  // One of two that only dial, where no plan does without a link between them.
  const auto slot = slots.find(member.incarnation);
  const bool dials = slot != slots.end() && slot->second >= mix.slots - mix.dial_only;
  if (says(reason, " can only dial out; ") && dials && mix.dial_only >= 2) return;
  if (says(reason, " was evicted by the operator") && wished_out_.count(member.site) > 0) return;
  bool leaves = false;
  for (const SimPeer& peer : peers) leaves = leaves || (peer.site == member.site && peer.leaving);
  if (says(reason, " left") && leaves) return;
  if (says(reason, " was not READY for ") && !has_called(member.site, reason, mix.straggler_after))
    return;
  // Its peers hang up on a master that stands still, and have a grace to come back.
  if (says(reason, " did not come back") && now <= master_disturbed_until_ + mix.silence) return;
  // Of two, one that lies can put the other out: that it is done itself, and has nothing left for
  // the other, is its word alone.
  if (mix.liar > 0 && says(reason, " is not done with ") && member_sites() < 3) return;
  // A frame on a stripe that stands has left its sender: all others are done and have nothing left
  // for the receiver, until the frame is late and goes again over another stripe. The master can't
  // tell the two, and who waits for it is out if that takes longer than it has patience, or their
  // link is cut.
  const bool starved = says(reason, " is not done with ") || says(reason, " has no link to ");
  if (starved && stripe_stood(member.site)) return;
  // Links that failed are held against a member for as long as their round lasts.
  const Duration round = says(reason, " has no link to ") ? mix.deadline * 3 / 2 : 0;
  if (now <= disturbed_until_ + mix.silence + kNoticeSlack + round) return;
  history.fail("P4", cat("site ", member.site, " was there and is evicted: ", reason));
}

std::size_t World::others_computed_wrong(const std::string& site) const {
  std::set<std::string> sites;
  for (const SimPeer& peer : peers) {
    if (peer.computed_wrong && peer.site != site) sites.insert(peer.site);
  }
  return sites.size();
}

std::size_t World::member_sites() const {
  std::set<std::string> sites;
  for (const auto& [id, member] : history.members) sites.insert(member.site);
  return sites.size();
}

// Nobody is banned for the weather: whoever is has made the faults that it is banned for.
void World::check_ban(const wire::BanRecord& ban) {
  for (SimPeer& peer : peers) {
    const bool its = std::any_of(peer.lives.begin(), peer.lives.end(),
                                 [&](auto life) { return key_of(peer.slot, life) == ban.key; });
    if (!its) continue;
    // A fault whose answer is lost is made again on the next connection.
    if (2 * peer.faults < protocol::kBanAt && !peer.lies()) {
      history.fail("P4",
                   cat("slot ", peer.slot, " is banned and made no such faults: ", ban.reason));
    }
    peer.faults = 0;
  }
}

// All its processes have called, and not just now: it can't be late. Who still takes part in an
// earlier attempt can, and who was in one until just now: it is READY again once it has heard of
// the end, and that word may be on its way. So can one whose call the master has ended: up to half
// a second early.
bool World::has_called(const std::string& site, const std::string& reason,
                       Duration patience) const {
  const Duration parts = 20 * kMillisecond;  // of a message that is cut: one after the other
  const Duration way = mix.latency + mix.jitter + kSpikeMax + parts;
  bool all = true;
  for (const SimPeer& peer : peers) {
    if (peer.site != site || !peer.alive) continue;
    bool called = false;
    for (const UserTag& tag : peer.tags) {
      if (tag.call == 0 || peer.data.runs(tag.buffers)) continue;
      if (!says(reason, cat(" of ", tag.tag, " "))) continue;
      const CallRecord& call = history.calls[tag.call - 1];
      called = called || (now > call.begun + patience + kNoticeSlack && now > tag.ready_at + way &&
                          now + kSecond / 2 < call.deadline);
    }
    all = all && called;
  }
  return all;
}

// A site is left behind as slow only if it had slow links, or stood still, since the attempt began;
// as late for a quorum only if honest calls ask for one and its own is not there.
void World::check_straggler(const std::string& site, const std::string& reason) {
  const bool slow = says(reason, " is slow: ");
  const bool quorum = says(reason, ", for which the calls ask");
  if (!slow && !quorum) return;
  for (const auto& [id, member] : history.everybody) {
    if (member.site == site && history.liars.count(member.incarnation) > 0) return;
  }
  if (quorum) {
    // Who hung up on a master that stood still has to come back first; a grace may be short.
    const bool disturbed = now <= master_disturbed_until_ + mix.silence;
    const bool lives = std::any_of(peers.begin(), peers.end(), [&](const SimPeer& peer) {
      return peer.site == site && peer.alive;
    });
    // Whose READY a commit overtook has to hear of that and be READY anew.
    const bool graceful = mix.quorum_grace > 4 * (mix.latency + mix.jitter + kSpikeMax);
    const bool judged = !disturbed && lives && graceful;
    const bool called = judged && has_called(site, reason, mix.quorum_grace);
    if (mix.quorum > 0 && !called) return;
    return history.fail("P4", cat("site ", site, mix.quorum > 0 ? " had called" : ": nobody asked",
                                  " and is left out: ", reason));
  }
  if (hampered(site) || waits_for_a_slow_line(site)) return;
  history.fail("P4", cat("site ", site, " was not slow and is left behind: ", reason));
}

// Measured in time during which the master served without any trouble.
void World::check_hung() {
  const SimMaster* master = active();
  const bool serves = master != nullptr && master->alive && !master->paused &&
                      now > master_disturbed_until_ && served_at_ < now;
  if (!serves) return gone_for_.clear();
  std::map<wire::PeerId, Duration> gone;
  for (const auto& [id, member] : history.members) {
    const SimPeer& peer = peers[slots.at(member.incarnation)];
    const bool there = peer.running() && peer.incarnation == member.incarnation &&
                       up_blocked_[peer.slot][master->index] <= now;
    if (there) continue;
    const auto before = gone_for_.find(id);
    Duration length = before == gone_for_.end() ? 0 : before->second + kAuditPause;
    const protocol::ProcessRecord* life = master->machine->state().record_of(member.incarnation);
    if (life != nullptr && life->connected()) {  // between two cuts something came through
      length = std::min(length, master->clock() - life->heard);
    }
    gone[id] = length;
    // Who is not back since the restart: a pause of the master's own counts against nobody.
    const bool unseen = life != nullptr && !life->seen;
    const Time since = unseen ? std::max(served_at_, master_disturbed_until_) : served_at_;
    const bool waited_for = now - length < since + mix.restart_grace;
    const Duration limit = mix.silence + (waited_for ? mix.restart_grace : 0) + kNoticeSlack;
    if (length <= limit) continue;
    history.fail("P4",
                 cat("member ", id, " of slot ", peer.slot, " is gone for ", length / kMillisecond,
                     " ms, the detection time is ", mix.silence / kMillisecond,
                     " ms, and it is still in epoch ", history.epoch));
  }
  gone_for_ = std::move(gone);
}

}  // namespace jccl::sim
