// What one hostile member may cost the others, of whom there are two sites or more: no call of
// theirs ends for a word that only it says, three rounds that it refuses alone are a ban, and
// while that lasts it is not let in. (That they commit, see oracle_l.cc; that none of them is
// banned or put out, oracle_p4.cc.)
#include <algorithm>

#include "protocol/master/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;
using base::Code;

// Of whom it began with, and who is still there.
std::size_t World::sites_left(const AttemptInfo& attempt) const {
  std::set<std::string> sites;
  for (const wire::PeerId id : attempt.contributors) {
    const auto member = history.members.find(id);
    if (member != history.members.end()) sites.insert(member->second.site);
  }
  return sites.size();
}

// The writer's clock says for how long, at the moment that it decided. When the record is durable,
// that master may be gone, and the clock of the next one be behind.
void World::check_banned(const wire::Member& member, std::uint64_t epoch) {
  const auto ban = bans_.find(member.key);
  if (ban == bans_.end()) return;
  const auto decided = decided_unix_.find(epoch);
  JCCL_CHECK(decided != decided_unix_.end());
  const std::uint64_t clock = decided->second;
  if (clock >= ban->second) return;
  history.fail("P4",
               cat("slot ", slots.at(member.incarnation), " is let in, and its key is banned for ",
                   ban->second - clock, " ms more"));
}

void World::note_ban(const wire::BanRecord& ban) {
  bans_[ban.key] = ban.until_unix_ms;
  refused_alone_.erase(ban.key);
}

// Accounts are a master's own, and begin anew with it: what one that is to be fenced has ended
// since is in none.
void World::check_refusals(const wire::Outcome& outcome) {
  const bool refusal = outcome.code == Code::kInvalid || outcome.code == Code::kLimit ||
                       outcome.code == Code::kEmpty;
  if (mix.liar == 0 || !refusal || !says(outcome.text, kALie)) return;
  if (outcome.attempt.epoch < served_epoch_) return;
  const auto attempt = history.attempts.find(outcome.attempt);
  if (attempt == history.attempts.end() || sites_left(attempt->second) < 3) return;
  const SimPeer& liar = peers[mix.liar - 1];
  auto& refused = refused_alone_[key_of(liar.slot, liar.incarnation)];
  refused.insert(outcome.attempt);
  // Two, and then one in each tag at the same moment.
  if (refused.size() <= 2 + mix.tags) return;
  history.fail("P4", cat("slot ", liar.slot, " has ended ", refused.size(),
                         " attempts by itself, and is not banned"));
}

void World::check_end_by_lie(const SimPeer& peer, const protocol::CompleteCall& done,
                             std::uint64_t call) {
  const Code code = done.status.code;
  if (mix.liar == 0 || peer.lies() || code == Code::kOk) return;
  if (!says(done.status.text, kALie)) return;
  // It ends for a reason of its own, and says what came last besides.
  const bool own = code == Code::kDeadline || code == Code::kInDoubt || code == Code::kClosed ||
                   code == Code::kMasterLost || says(done.status.text, "interrupted; ") ||
                   says(done.status.text, "edited; ") ||
                   says(done.status.text, "hangs: no heartbeat for ") ||
                   says(done.status.text, "nobody contributes");
  if (own) return;
  for (const auto& [name, attempt] : history.attempts) {
    const bool its = std::any_of(attempt.parts.begin(), attempt.parts.end(),
                                 [&](const auto& part) { return part.second.call == call; });
    if (its && sites_left(attempt) < 3) return;
  }
  history.fail("P4", cat("slot ", peer.slot, ": call ", call, " on ", done.tag, " ends ",
                         name_of(code), " for a lie: ", done.status.text));
}

}  // namespace jccl::sim
