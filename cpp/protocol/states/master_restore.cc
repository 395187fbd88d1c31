// Going back to an earlier state of a tag: when nobody has the newest revision any more, to the
// newest one that somebody offers and the journal remembers; and whenever an operator wishes it, to
// the state that he offers. It gets a number of its own, so that no revision is ever two states,
// and is journaled before anybody hears of it. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Wish;

namespace {

bool was_granted(const Standing& at, const Ballot& digests) {
  return !JCCL_PLANTED("restores-twice") &&
         at.was_granted([&](const wire::RestoreRecord& one) { return one.digests == digests; });
}

bool is_newest(const Standing& at, const Ballot& digests) {
  return at.digests.size() == digests.size() &&
         std::equal(at.digests.begin(), at.digests.end(), digests.begin(),
                    [](const auto& known, const auto& own) { return known.second == own; });
}

// Revision 0 is none to go back to by itself: whoever begins anew has it. It stays that under the
// number that an operator's wish gave it, too.
std::uint64_t number_of(const Standing& at, const Ballot& digests) {
  if (digests == at.first && !JCCL_PLANTED("first-state-by-another-number")) return 0;
  const auto found = std::find_if(at.decided.rbegin(), at.decided.rend(),
                                  [&](const Revision& one) { return one.digests == digests; });
  return found == at.decided.rend() ? 0 : found->number;
}

}  // namespace

// What sites bring with all their shards, unless they are getting another state already.
std::map<std::string, Ballot> StateRestore::offered(const wire::Tag& tag, bool wished) const {
  const Standing& at = ledger().standing(tag);
  std::map<std::string, std::map<std::uint32_t, wire::Digest>> sites;
  for (const wire::Incarnation incarnation : rounds().at(tag).asking) {
    const ProcessRecord* process = connections().record_of(incarnation);
    if (process == nullptr || process->syncs.count(tag) == 0) continue;
    const AskedSync& asked = process->syncs.at(tag);
    if (asked.fetching || (wished && asked.sync.restore == Wish::kNone)) continue;
    if (process->shard >= at.descriptors.size() || process->shards != at.descriptors.size())
      continue;
    if (at.descriptors[process->shard] != asked.sync.descriptor) continue;
    sites[process->site][process->shard] = asked.sync.digest;
  }
  std::map<std::string, Ballot> whole;
  for (const auto& [site, shards] : sites) {
    if (shards.size() != at.descriptors.size()) continue;
    for (const auto& [shard, digest] : shards) whole[site].push_back(digest);
  }
  return whole;
}

bool StateRestore::may_restore(const std::string& site) const {
  const auto& ids = connections().processes_at(site);
  return JCCL_PLANTED("anybody-restores") ||
         std::all_of(ids.begin(), ids.end(),
                     [&](wire::Incarnation one) { return processes().at(one).may_order; });
}

// What all processes of a site wish: its shards go back together.
Wish StateRestore::wish_of(const std::string& site, const wire::Tag& tag) const {
  Wish least = Wish::kAgain;
  for (const wire::Incarnation one : connections().processes_at(site)) {
    const auto asked = processes().at(one).syncs.find(tag);
    least = std::min(
        least, asked == processes().at(one).syncs.end() ? Wish::kNone : asked->second.sync.restore);
  }
  return least;
}

// The newest revision is an operator's, and somebody has it.
bool StateRestore::wish_stands(const wire::Tag& tag) const {
  return ledger().standing(tag).is_as_wished() &&
         (JCCL_PLANTED("lost-wish-stands") ||
          std::any_of(processes().begin(), processes().end(), [&](const auto& entry) {
            return state_votes().holds_newest(entry.second, tag);
          }));
}

// The newest revision is about to be known: gone back from before that, what all members hold were
// no revision, and nothing to go back to if the operator dies.
bool StateRestore::is_to_be_decided(const wire::Tag& tag) const {
  return state_votes().undecided(tag) && state_votes().dispute(tag).empty() &&
         state_votes().votes_awaited(tag) && !JCCL_PLANTED("restores-before-the-vote");
}

void StateRestore::restore_by_wish(const wire::Tag& tag) {
  const Standing& at = ledger().standing(tag);
  if (!at.born || wish_stands(tag) || rounds().at(tag).running.has_value()) return;
  if (is_to_be_decided(tag)) return;
  for (const auto& [site, digests] : offered(tag, true)) {
    if (is_newest(at, digests) || !may_restore(site)) continue;
    const Wish wish = wish_of(site, tag);
    if (was_granted(at, digests) && wish < Wish::kAgain) continue;
    if (!unknown_text(tag, site, digests).empty()) continue;
    return restore({tag, 0, 0, true, site, digests});
  }
}

// A run that goes on from fresh parameters, since a script found no checkpoint, has lost all that
// it learnt. So a state that is no revision with a number takes a wish that says so.
std::string StateRestore::unknown_text(const wire::Tag& tag, const std::string& site,
                                       const Ballot& digests) const {
  const Standing& at = ledger().standing(tag);
  if (wish_of(site, tag) >= Wish::kAny || JCCL_PLANTED("restores-unknown-states")) return {};
  if (number_of(at, digests) > 0) return {};
  const std::string what =
      digests == at.first ? cat("the one that ", tag, " began with")
                          : cat("no revision of ", tag, " that the journal remembers (the ",
                                "last ", options().history, "): perhaps no checkpoint was found");
  return cat("the state that ", site, " requests is ", what,
             R"(. restore="any" makes the run continue from it all the same)");
}

// Whether its wish keeps it from what others that synchronise are told. A wish that was fulfilled
// once is over: a script that is started again with it goes on with the run. One that was undone,
// as nobody had that state any more, is none that was fulfilled.
bool StateRestore::answer_wish(ProcessRecord& process, const wire::Tag& tag) {
  AskedSync& asked = process.syncs.at(tag);
  const Standing& at = ledger().standing(tag);
  const Wish wish = asked.sync.restore;
  if (wish == Wish::kNone) return false;
  const auto newest = at.digests.find(process.shard);
  if (newest != at.digests.end() && newest->second == asked.sync.digest) return false;
  const auto is_it = [&](const wire::RestoreRecord& one) {
    return process.shard < one.digests.size() && one.digests[process.shard] == asked.sync.digest;
  };
  if (at.was_granted(is_it) && wish < Wish::kAgain) return false;
  if (!may_restore(process.site)) {
    state_sync().reply_refused(
        process, tag, Code::kAuth,
        "restore is an operator's: join with a token of the role admin (jccl token create --from "
        "run.secret --role admin); without tokens, from the master's machine");
  } else if (wish_stands(tag)) {
    state_sync().reply_refused(
        process, tag, Code::kMismatch,
        cat(restored_text(tag), "; ", process.site, " asks for another one. One may restore: call ",
            "without restore here, or again after the run's next revision"));
  } else if (const std::string why = refused_text(process, tag); !why.empty()) {
    state_sync().reply_refused(process, tag, Code::kMismatch, why);
  } else if (rounds().at(tag).running.has_value()) {
    state_sync().reply_wait(process, asked,
                            "goes back to this state when the attempt under way has ended");
  } else if (is_to_be_decided(tag)) {
    state_sync().reply_wait(
        process, asked,
        cat("goes back to this state when revision ", at.committed, " of ", tag, " is published"));
  } else {
    state_sync().reply_wait(process, asked,
                            cat("waits for all shards of ", process.site, " to restore ", tag));
  }
  return true;
}

std::string StateRestore::refused_text(const ProcessRecord& process, const wire::Tag& tag) const {
  const auto sites = offered(tag, true);
  const auto own = sites.find(process.site);
  return own == sites.end() ? std::string() : unknown_text(tag, own->first, own->second);
}

// The newest earlier revision that somebody brings; of = 0: there is none.
wire::RestoreRecord StateRestore::fallback(const wire::Tag& tag) const {
  const Standing& at = ledger().standing(tag);
  wire::RestoreRecord best;
  for (const auto& [site, digests] : offered(tag, false)) {
    const std::uint64_t of =
        JCCL_PLANTED("goes-back-to-anything") ? at.committed : number_of(at, digests);
    if (at.was_given_up(of) && !JCCL_PLANTED("goes-back-to-what-was-given-up")) continue;
    if (of <= best.of && !(of > 0 && JCCL_PLANTED("goes-back-to-the-oldest"))) continue;
    best = {tag, 0, of, false, site, digests};
  }
  return best;
}

std::string StateRestore::lost_text(const wire::Tag& tag, const std::string& what) const {
  const Standing& at = ledger().standing(tag);
  const std::string lost = cat("every holder of ", what, " is gone");
  for (const auto& [site, digests] : offered(tag, false)) {
    const std::uint64_t of = number_of(at, digests);
    if (!at.was_given_up(of)) continue;
    return cat(lost, "; revision ", of, ", which ", site,
               " has, is one that an operator went back from: restore a checkpoint that is good");
  }
  return lost;
}

std::string StateRestore::fallback_text(const wire::Tag& tag) const {
  const wire::RestoreRecord back = fallback(tag);
  if (back.of == 0) return {};
  return cat("no holder of revision ", ledger().standing(tag).committed, " of ", tag,
             " is left; the run goes back to revision ", back.of, ", which ", back.site,
             " has, if none comes within ", options().restore_after / base::kSecond, " s");
}

// Nobody has the newest revision: how long until that is said. Who has a checkpoint of an earlier
// one may be on the way, and is waited for as long as those wait who brought theirs.
base::Duration StateRestore::lost_after(const wire::Tag& tag) const {
  const bool may_go_back =
      !ledger().standing(tag).decided.empty() && !JCCL_PLANTED("lost-before-checkpoints-come");
  return may_go_back ? std::max(options().silence, options().restore_after) : options().silence;
}

// Nobody has the newest revision, for so long that nobody is waited for.
void StateRestore::restore_by_loss(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  const base::Time since = round.lost_since;
  const base::Duration patience =
      JCCL_PLANTED("goes-back-at-once") ? options().silence / 2 : options().restore_after;
  if (since == base::kNever) return;
  wire::RestoreRecord back = fallback(tag);
  if (back.of >= round.brought) {
    round.brought = back.of;
    round.brought_at = now();
  }
  if (now() < since + patience || back.of == 0) return;
  // Whose call has just ended may be about to call again.
  const bool better = back.of < round.brought && now() < round.brought_at + options().silence;
  if (better && !JCCL_PLANTED("between-two-calls-is-gone")) return;
  restore(std::move(back));
}

void StateRestore::restore(wire::RestoreRecord back) {
  const wire::Tag tag = back.tag;
  const Standing& at = ledger().standing(tag);
  back.revision = at.committed + 1;
  back.of = number_of(at, back.digests);
  note("restore", {{"tag", tag},
                   {"site", back.site},
                   {"revision", cat(back.revision)},
                   {"of", back.of > 0 ? cat(back.of) : "unknown"},
                   {"digest", base::to_hex(back.digests.front())}});
  journal(std::move(back));
  Round& round = rounds().at(tag);
  round.poll.reset();
  round.lost_since = round.unheld_since = base::kNever;
  round.brought = 0;
  const std::string text = restored_text(tag);
  forming().reject_all(tag, Code::kResync, text);
  for (auto& [incarnation, process] : processes()) {
    const bool concerned =
        process.id != 0 || process.syncs.count(tag) > 0 || JCCL_PLANTED("all-hear-of-a-restore");
    if (concerned && process.connected() && process.resumed) tell_of_restore(process, tag, text);
  }
  membership().roster_dirty_ = connections().processes_changed_ = true;
  touch(tag);
}

// To who was away when the run went back to an older state than its own.
void StateRestore::tell_what_was_lost(ProcessRecord& process, const AskedSync& asked) {
  const wire::Tag& tag = asked.sync.tag;
  const Standing& at = ledger().standing(tag);
  if (at.restores.empty()) return;
  const wire::RestoreRecord& last = at.restores.back();
  const bool lost = std::any_of(at.decided.begin(), at.decided.end(), [&](const Revision& one) {
    return one.number > last.of && one.number < last.revision &&
           process.shard < one.digests.size() && one.digests[process.shard] == asked.sync.digest;
  });
  if (lost) tell_of_restore(process, tag, restored_text(tag));
}

void StateRestore::tell_of_restore(ProcessRecord& process, const wire::Tag& tag,
                                   const std::string& text) {
  const std::uint64_t newest = ledger().standing(tag).restores.back().revision;
  if (std::exchange(process.told_back[tag], newest) == newest) return;
  send(process, wire::Notice{text});
}

std::string StateRestore::restored_text(const wire::Tag& tag) const {
  const wire::RestoreRecord& last = ledger().standing(tag).restores.back();
  return cat("the run went back to ", last.of > 0 ? cat("revision ", last.of) : "an earlier state",
             " of ", tag, ", which ", last.site, " had, as revision ", last.revision);
}

}  // namespace jccl::protocol
