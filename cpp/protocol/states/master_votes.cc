// Who says what a new revision of a state tag is. The sites whose values are in its round vote, one
// vote a site; more than half of them decide. Voters that are behind, or skipped, are waited for a
// `silence` long: then more than half of the others decide, weakly. If no voter is left, who
// received the result and compared it votes instead, and after those later lives of the same
// processes. Without a majority the tag is disputed until somebody leaves. The decision is
// journaled for all shards at once, before anything relies on it; votes are not, peers say them
// again. Pure; one event at a time.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;

namespace {

// The number says that it is the same process, and the key that it says so with right.
bool later_life(const ProcessRecord& process, const Taker& taker) {
  return base::process_of(taker.incarnation) == base::process_of(process.incarnation) &&
         (taker.key == process.key || JCCL_PLANTED("any-key-is-a-later-life"));
}

constexpr int kMadeIt = 1, kReceivedIt = 2, kLaterLives = 3;  // who votes: Poll::tier

}  // namespace

// The decision is still to come.
bool StateVotes::undecided(const wire::Tag& tag) const {
  const Standing& at = ledger().standing(tag);
  return at.born && at.digests.empty();
}

std::map<std::string, std::uint32_t> StateVotes::electorate(const wire::Tag& tag, int tier) const {
  std::map<std::string, std::uint32_t> sites;
  const Standing& at = ledger().standing(tag);
  if (at.recent.empty()) return sites;
  const wire::CommitRecord& last = at.recent.back();
  const auto add = [&](wire::PeerId id) {
    const auto member = ledger().members().find(id);
    if (member != ledger().members().end()) sites[member->second.site] = member->second.shards;
  };
  if (tier == kMadeIt) {
    for (const wire::Contributor& one : last.contributors) add(one.id);
    for (const wire::PeerId id : last.receivers) {
      if (JCCL_PLANTED("receivers-vote-beside-makers")) add(id);
    }
  } else if (tier == kReceivedIt) {
    for (const wire::PeerId id : last.receivers) {
      if (!JCCL_PLANTED("receivers-hold-nothing")) add(id);
    }
  } else {
    for (const auto& [incarnation, process] : processes()) {
      if (takes_after(process, tag) && holds_newest(process, tag))
        sites[process.site] = process.shards;
    }
  }
  return sites;
}

// A life of a process that took part in the last round. Not another process at its seat: that may
// hold a state of another run under that number, and nobody could tell.
bool StateVotes::takes_after(const ProcessRecord& process, const wire::Tag& tag) const {
  const auto& takers = ledger().standing(tag).takers;
  return JCCL_PLANTED("stranger-names-the-digest") ||
         std::any_of(takers.begin(), takers.end(),
                     [&](const Taker& taker) { return later_life(process, taker); });
}

bool StateVotes::holds_newest(const ProcessRecord& process, const wire::Tag& tag) const {
  const auto held = process.held.find(tag);
  return held != process.held.end() && held->second.revision == ledger().standing(tag).committed;
}

Poll& StateVotes::poll_of(const wire::Tag& tag, int tier) {
  Round& round = rounds().at(tag);
  const std::uint64_t revision = ledger().standing(tag).committed;
  if (round.poll.has_value() && round.poll->revision == revision && round.poll->tier >= tier &&
      round.poll->tier != kLaterLives) {
    return *round.poll;
  }
  const base::Time since = round.poll.has_value() && round.poll->revision == revision
                               ? round.poll->doubt_since
                               : base::kNever;
  tier =
      std::max(tier, round.poll.has_value() && round.poll->revision == revision ? round.poll->tier
                                                                                : kMadeIt);
  round.poll.emplace(Poll{revision, tier, Election(electorate(tag, tier)), since, {}});
  for (const auto& [incarnation, process] : processes()) {
    if (holds_newest(process, tag) && (tier != kLaterLives || takes_after(process, tag))) {
      round.poll->election.vote(process.site, process.shard, process.held.at(tag).digest);
    }
  }
  return *round.poll;
}

// A peer says at which snapshot it stands, and with that how it votes.
void StateVotes::report(ProcessRecord& process, const wire::Held& held) {
  const Standing& at = ledger().standing(held.tag);
  const bool anew = std::exchange(process.held[held.tag], held) != held;
  if (rounds().count(held.tag) == 0) {
    if (process.held.size() > base::kTagsMax) process.held.erase(process.held.begin());
    return;
  }
  if (undecided(held.tag) && held.revision == at.committed) {
    Poll& poll = poll_of(held.tag, kMadeIt);
    if (poll.tier != kLaterLives) poll.election.vote(process.site, process.shard, held.digest);
    if (const Ballot* ballot = poll.election.majority()) establish(held.tag, *ballot);
  } else if (anew) {
    name_outvoted(process, held.tag);
  }
  touch(held.tag);
}

// It harms nobody: most have decided. But it may be a machine that computes wrong, and its owner
// hears of it here. Where less than most decided nobody can tell which side is wrong.
void StateVotes::name_outvoted(const ProcessRecord& process, const wire::Tag& tag) {
  const Standing& at = ledger().standing(tag);
  const auto decided = at.digests.find(process.shard);
  if (at.weak || decided == at.digests.end() || !holds_newest(process, tag)) return;
  if (process.held.at(tag).digest == decided->second) return;
  if (electorate(tag, kMadeIt).count(process.site) == 0) return;
  if (JCCL_PLANTED("the-outvoted-go-unnamed")) return;
  conduct().charge(
      process, Fault::kOutvoted,
      cat("has another revision ", at.committed, " of ", tag, " than most of its makers"));
}

// It will not vote, or nobody waits for it: it asks for the newest revision itself, or was skipped.
bool StateVotes::may_abstain(const std::string& site, const wire::Tag& tag) const {
  if (rounds().at(tag).skipped.count(site) > 0) return true;
  const std::uint64_t newest = ledger().standing(tag).committed;
  const auto& ids = connections().processes_at(site);
  if (ids.empty()) return true;
  return std::any_of(ids.begin(), ids.end(), [&](wire::Incarnation one) {
    const ProcessRecord& process = processes().at(one);
    if (holds_newest(process, tag) || JCCL_PLANTED("waits-for-one-who-is-behind")) return false;
    const auto behind = process.behind.find(tag);
    return process.syncs.count(tag) > 0 ||
           (behind != process.behind.end() && behind->second == newest);
  });
}

bool StateVotes::voters_awaited(const wire::Tag& tag) const {
  const auto silent = rounds().at(tag).poll->election.silent();
  return std::any_of(silent.begin(), silent.end(),
                     [&](const std::string& site) { return !may_abstain(site, tag); });
}

// Some vote, or a voter who may still give one, is there to wait for: also a member that took part
// in an earlier life, and has not been back since the master's restart.
bool StateVotes::votes_awaited(const wire::Tag& tag) const {
  const auto& poll = rounds().at(tag).poll;
  if (!poll.has_value()) return true;
  const auto may_vote = [&](const auto& entry) {
    const ProcessRecord& process = entry.second;
    return process.id != 0 && !process.said_held && takes_after(process, tag) &&
           !JCCL_PLANTED("later-lives-not-awaited");
  };
  return poll->election.any() || voters_awaited(tag) ||
         std::any_of(processes().begin(), processes().end(), may_vote);
}

// Every process whose later lives may vote has one that did.
bool StateVotes::all_came_back(const wire::Tag& tag) const {
  const auto& takers = ledger().standing(tag).takers;
  return std::all_of(takers.begin(), takers.end(), [&](const Taker& taker) {
    return std::any_of(processes().begin(), processes().end(), [&](const auto& entry) {
      return later_life(entry.second, taker) && holds_newest(entry.second, tag);
    });
  });
}

// Decides, if that is possible by now; called where somebody needs the answer.
void StateVotes::decide(const wire::Tag& tag) {
  if (rounds().count(tag) == 0 || !undecided(tag)) return;
  int tier = kMadeIt;
  for (;; ++tier) {
    Poll& poll = poll_of(tag, tier);
    tier = poll.tier;
    const Ballot* ballot = poll.election.majority();
    const bool all = tier != kLaterLives || all_came_back(tag);
    if (ballot != nullptr && all) return establish(tag, Ballot(*ballot));
    if (voters_awaited(tag)) {
      poll.doubt_since = base::kNever;
      return poll.dispute.clear();
    }
    if (poll.election.any()) return decide_without(tag, poll.election.silent().empty() && all);
    if (tier == kLaterLives) return;  // nobody is left
  }
}

// Of the silent voters none may be waited for any longer than this.
void StateVotes::decide_without(const wire::Tag& tag, bool complete) {
  Poll& poll = *rounds().at(tag).poll;
  if (!complete) {
    if (poll.doubt_since == base::kNever) poll.doubt_since = now();
    const bool over = now() >= poll.doubt_since + options().silence;
    if (!over && !JCCL_PLANTED("silent-voters-not-waited-for")) return;
    const Ballot* ballot = poll.election.most();
    if (ballot != nullptr) return establish(tag, Ballot(*ballot));
    // Each site lost some shard's part of the round, and together they have all of it.
    if (poll.election.votes() == 0) return establish(tag, *poll.election.pieced());
  }
  if (!poll.dispute.empty()) return;
  poll.dispute =
      cat("revision ", poll.revision, " of ", tag, " is disputed: ", poll.election.sides(),
          "; stop the sites that are wrong, or start them anew, or bring a checkpoint back by ",
          R"(jccl.sync_state(state, restore="again") on one peer)");
  note("dispute",
       {{"tag", tag}, {"revision", cat(poll.revision)}, {"sides", poll.election.sides()}});
}

std::string StateVotes::dispute(const wire::Tag& tag) const {
  const auto& poll = rounds().at(tag).poll;
  return undecided(tag) && poll.has_value() ? poll->dispute : std::string();
}

// By value: what is decided ends the poll that it may lie in.
void StateVotes::establish(const wire::Tag& tag, Ballot ballot) {
  const Standing& at = ledger().standing(tag);
  JCCL_CHECK(at.digests.empty());
  const Poll& poll = *rounds().at(tag).poll;
  const bool weak = poll.tier != kMadeIt || poll.election.majority() == nullptr;
  note("sync", {{"tag", tag},
                {"revision", cat(at.committed)},
                {"digest", base::to_hex(ballot.front())},
                {"votes", cat(poll.election.votes(), " of ", poll.election.voters(),
                              weak ? ", weak" : "")}});
  journal(wire::StateRecord{tag, at.committed, weak, std::move(ballot)});
  for (const auto& [incarnation, process] : processes()) name_outvoted(process, tag);
  rounds().at(tag).poll.reset();
  touch(tag);
}

std::string StateVotes::votes_text(const wire::Tag& tag) const {
  const auto& poll = rounds().at(tag).poll;
  std::string names;
  if (poll.has_value()) {
    for (const std::string& site : poll->election.silent()) {
      names += cat(names.empty() ? "" : ", ", site);
    }
  }
  return cat("waits for what ", names.empty() ? "its makers" : names, " say",
             names.find(',') == std::string::npos && !names.empty() ? "s" : "", " revision ",
             ledger().standing(tag).committed, " of ", tag, " is");
}

}  // namespace jccl::protocol
