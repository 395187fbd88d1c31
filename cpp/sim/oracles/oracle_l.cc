// L live: after everything has healed, all who live get on within a bound, or are told that the
// newest state is lost, and it is.
#include <algorithm>
#include <set>
#include <string>

#include "protocol/master/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

constexpr std::uint32_t kGoodRounds = 3;      // per tag and peer after healing
constexpr Duration kStandsMax = 2 * kSecond;  // a stripe that is late is found, and made up for
constexpr Duration kQuietMax = kSecond;

// What may still be waited for when nothing goes wrong any more, one after the other: a lease, a
// restarted master's grace, members that are silent, calls and syncs of before, two new ones.
Duration converge_max(const Mix& mix) {
  return 15 * kSecond + 2 * kBannedMax + mix.lease + mix.restart_grace + 2 * mix.silence +
         mix.deadline * 3 / 2 * (mix.liar == 0 ? 1 : 3);  // it holds two before it pays
}

bool World::converged() const {
  for (const SimPeer& peer : peers) {
    if (!peer.alive || peer.lies()) continue;
    if (!peer.settled()) return false;
    for (const UserTag& tag : peer.tags) {
      if (tag.good_after_heal < kGoodRounds) return false;
    }
  }
  return true;
}

// As many hold what a hostile member forged as hold another state: nobody can say who is right.
bool World::tied() const {
  if (mix.liar == 0) return false;
  return std::any_of(masters.begin(), masters.end(), [](const SimMaster& master) {
    if (!master.listens()) return false;
    const auto& rounds = master.machine->state().rounds_;
    return std::any_of(rounds.begin(), rounds.end(), [](const auto& entry) {
      const auto& poll = entry.second.poll;
      return poll.has_value() && !poll->dispute.empty() && poll->election.most() == nullptr;
    });
  });
}

// Of two sites, one of which lies, nobody can say which is wrong.
bool World::one_of_two_lies() const {
  std::set<std::string> sites;
  bool lies = false;
  for (const SimPeer& peer : peers) {
    if (!peer.alive) continue;
    sites.insert(peer.site);
    lies = lies || peer.lies();
  }
  return lies && sites.size() < 3;
}

// Whose call was interrupted in doubt sends nothing again.
static bool interrupted_elsewhere(const History& history, std::uint32_t slot, const Own& own) {
  return std::any_of(history.calls.begin(), history.calls.end(), [&](const CallRecord& call) {
    const bool its = call.tag == own.round.tag && call.n == own.round.n && call.slot != slot;
    return its && call.code == base::Code::kInDoubt;
  });
}

// An attempt whose frames nothing holds up gets on, or ends. Without signs of life (the product has
// them always) nobody finds what went into a stripe whose other end is gone, beside a new one that
// brings word of other tags.
void World::check_moves(std::uint32_t slot, const Own& own) {
  if (mix.liar > 0) return;
  const Time quiet = std::max({own.moved, disturbed_until_, master_disturbed_until_});
  if (now <= quiet + kStandsMax) return;
  const auto in_vain = [](const SimPeer& peer) { return peer.alive && peer.data.sends_in_vain(); };
  if (!mix.life_signs && std::any_of(peers.begin(), peers.end(), in_vain)) return;
  // Frames that took long, when nothing arrived at all, make the next ones late later.
  Duration usual = 0;
  for (const SimPeer& peer : peers) usual = std::max(usual, peer.data.slowest_link());
  if (now <= quiet + kStandsMax + 8 * usual) return;
  if (interrupted_elsewhere(history, slot, own)) return;
  history.fail("L", cat("slot ", slot, ": attempt ", to_text(own.attempt), " of ", own.round.tag,
                        " ", own.round.n, " has ", own.left, " bytes left and stands for ",
                        (now - own.moved) / kMillisecond, " ms"));
}

// Who is there, and reached, is not silent.
void World::check_silence(std::uint32_t slot, const Own& own) {
  if (mix.liar > 0) return;
  const Time quiet = std::max({own.begun, disturbed_until_, master_disturbed_until_});
  if (now <= quiet + mix.silence + kQuietMax) return;
  if (interrupted_elsewhere(history, slot, own)) return;
  history.fail("L",
               cat("slot ", slot, " calls somebody silent in attempt ", to_text(own.attempt),
                   ", and nothing has been in the way for ", (now - quiet) / kMillisecond, " ms"));
}

// Excuses for standing still: a tie, or nobody alive holds the newest revision of a state, and
// those who ask for it are told so.
void World::check_liveness() {
  const Duration limit = converge_max(mix);
  if (now <= healed_at_ + limit) {
    if (tied()) tied_at_ = now;
    return;
  }
  const bool still_tied = tied();
  if (!still_tied && now <= tied_at_ + limit) return;  // they get on from there
  over_ = true;
  if (still_tied || one_of_two_lies()) return;
  for (std::size_t t = 0; t < mix.tags; ++t) {
    if (!mix.is_state[t]) continue;
    bool told = false, held = false;
    const wire::Tag name = cat("t", t);
    const auto last = history.last.find(name);
    const std::uint64_t newest = last == history.last.end() ? 0 : last->second;
    std::set<std::uint32_t> shards;  // whose part of the newest revision somebody has
    for (const SimPeer& peer : peers) {
      if (!peer.alive) continue;
      const UserTag& tag = peer.tags[t];
      told = told || tag.lost;
      const auto digest = history.states.find({name, peer.shard, newest});
      held = digest != history.states.end() && digest->second == tag.digest;
      if (tag.revision == newest && held) shards.insert(peer.shard);
    }
    if (shards.size() < mix.shards && told) {
      ++counts.lost_states;
      return;
    }
  }
  std::string text = cat("not all get on ", limit / kSecond, " s after everything healed:");
  for (const SimPeer& peer : peers) {
    if (!peer.alive) continue;
    text += cat("\n  slot ", peer.slot, peer.machine->member() ? " member" : " observer");
    for (const UserTag& tag : peer.tags) {
      text +=
          cat(", ", tag.tag, tag.is_state ? " state" : "", " revision ", tag.revision, " good ",
              tag.good_after_heal, tag.call != 0 ? " in a call" : "", tag.syncing ? " syncing" : "",
              tag.lost ? " lost" : "", " (", peer.machine->waiting_for(tag.tag, peer.clock()), ")");
    }
  }
  for (SimMaster& master : masters) {
    if (!master.listens()) continue;
    for (const protocol::TagView& tag : master.machine->view(master.clock()).tags) {
      text += cat("\n  master ", master.index, ": ", tag.info.tag, " ", tag.phase, " committed ",
                  tag.info.committed, ": ", tag.waiting_for);
    }
  }
  history.fail("L", text);
}

}  // namespace jccl::sim
