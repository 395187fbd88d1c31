// Who comes in and who goes. P7: a site is admitted only where the run stands. P4 and P5: nobody is
// evicted who was there: not for a silence that was the master's own, and not before a restarted
// master has waited for its grace.
#include <string_view>

#include "sim/world.h"

namespace jccl::sim {

using base::cat;

namespace {

constexpr Duration kSlack = kSecond;  // links are slow, and timers late

bool says(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

void World::check_membership(const wire::Record& record) {
  const auto* epoch = std::get_if<wire::EpochRecord>(&record);
  if (epoch == nullptr) return;
  if (epoch->reason == "master started") served_at_ = now;
  std::set<wire::PeerId> left;
  for (const wire::Member& member : epoch->members) {
    left.insert(member.id);
    if (history.members.count(member.id) == 0) check_admission(member);
  }
  for (const auto& [id, member] : history.members) {
    if (left.count(id) == 0) check_eviction(member, epoch->reason);
  }
}

void World::check_admission(const wire::Member& member) {
  const SimPeer& peer = peers[slots.at(member.incarnation)];
  if (!peer.alive || peer.incarnation != member.incarnation) return;
  if (mix.tags > 1) return;  // the master may not have heard of all its Syncs
  for (const UserTag& tag : peer.tags) {
    if (!tag.syncing) continue;
    const auto last = history.last.find(tag.tag);
    const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
    const auto state = history.states.find({tag.tag, member.shard, newest});
    if (state != history.states.end() && state->second == tag.digest) continue;
    history.fail("P7", cat("slot ", peer.slot, " is admitted with revision ", tag.revision, " of ",
                           tag.tag, ", the run is at ", newest, " or has another digest"));
  }
}

void World::check_eviction(const wire::Member& member, const std::string& reason) {
  const SimPeer& peer = peers[slots.at(member.incarnation)];
  const bool there = peer.running() && peer.incarnation == member.incarnation;
  if (!there || mix.shards > 1 || mix.fenced_store) return;
  const Time quiet = disturbed_until_ + mix.silence + kSlack;
  if (says(reason, "silent for too long") && now > quiet) {
    history.fail("P4", cat("slot ", peer.slot, " was there and is evicted: ", reason));
  }
  const bool early = now + kSlack / 10 < served_at_ + mix.restart_grace;
  const bool disk = now < disk_disturbed_until_ + mix.restart_grace + kSlack;
  if (says(reason, "after the master's restart") && early && !disk) {
    history.fail("P5", cat("slot ", peer.slot, " had ", mix.restart_grace / kMillisecond,
                           " ms and is evicted ", (now - served_at_) / kMillisecond,
                           " ms after the master's start"));
  }
}

}  // namespace jccl::sim
