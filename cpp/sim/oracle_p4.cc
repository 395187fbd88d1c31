// P4 bounded: no call outlives its deadline while its process runs; a member that hangs, is gone or
// is cut off is out within the detection time and a bound; nobody is evicted who was there.
#include "protocol/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

inline constexpr Duration kTimerSlack = 20 * kMillisecond;
inline constexpr Duration kSlowSlack = 4 * kSecond;  // what waits on a slow link goes on waiting
inline constexpr Duration kNoticeSlack = kSecond;    // links are slow, and timers late

void p4_in_time(History& history, const CallRecord& call, base::Time slack_from) {
  const base::Time due = std::max(call.deadline, slack_from) + kTimerSlack;
  if (!call.open || history.now <= due) return;
  history.fail("P4",
               cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " is open ",
                   (history.now - call.deadline) / base::kMillisecond, " ms after its deadline"));
}

// Not for a silence that was the master's own, and not as slow if nothing slowed it down.
void World::check_false_eviction(const wire::Member& member, const std::string& reason) {
  const SimPeer& peer = peers[slots.at(member.incarnation)];
  const bool there = peer.running() && peer.incarnation == member.incarnation;
  if (!there || mix.shards > 1 || mix.fenced_store) return;
  if (says(reason, "silent for too long") && now > disturbed_until_ + mix.silence + kNoticeSlack) {
    history.fail("P4", cat("slot ", peer.slot, " was there and is evicted: ", reason));
  }
}

// A site is left behind as slow only if it had slow links, or stood still, since the attempt began.
void World::check_straggler(const std::string& site, const std::string& reason) {
  if (!says(reason, " is slow: ")) return;
  for (const SimPeer& peer : peers) {
    const bool hampered =
        std::max(hampered_until_[peer.slot], peer.free_at) + mix.straggler_after + kSlowSlack > now;
    if (peer.site == site && (hampered || !peer.running())) return;
  }
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
    const protocol::Life* life = master->machine->state().life_of(member.incarnation);
    if (life != nullptr && life->connected()) {  // between two cuts something came through
      length = std::min(length, master->clock() - life->heard);
    }
    gone[id] = length;
    const bool waited_for = now - length < served_at_ + mix.restart_grace;
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
