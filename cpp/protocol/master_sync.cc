// State tags at the master: what a peer that wants the newest revision is told. How a state begins,
// master_birth.cc says; what the newest is, master_votes.cc decides, and who has it,
// master_holders.cc knows. Pure; one event at a time.
#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/lives.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/durations.h"
#include "protocol/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;
using State = MasterMachine::State;

namespace {

bool holds_back(std::uint32_t missed) {  // after 2, 4, 8 … offers in vain
  return missed >= 2 && (missed & (missed - 1)) == 0;
}

// Then for 1, 4, 16, 32 s: all of a state may differ each time, and take longer than a step or two.
base::Duration hold_after(std::uint32_t missed) {
  if (JCCL_PLANTED("holds-stay-short")) return kHoldMax;
  return kHoldMax * (missed <= 2 ? 1 : missed <= 4 ? 4 : missed <= 8 ? 16 : 32);
}

// The time since a revision was lost, or could have begun, goes on from one call to the next,
// however short their deadlines are. Between two it stands: who may be on the way is waited for by
// those who ask.
void ask_again(Round* round, base::Time now, base::Duration forgotten) {
  const base::Time since = std::exchange(round->unasked_since, base::kNever);
  if (since == base::kNever) return;
  const base::Duration unasked = now - since;
  const bool anew = unasked >= forgotten || JCCL_PLANTED("lost-anew-with-each-call");
  for (base::Time* one : {&round->lost_since, &round->unborn_since}) {
    if (*one != base::kNever) *one = anew ? base::kNever : *one + unasked;
  }
}

}  // namespace

// Makes a place for the tag, if there is none. One peer can't take them all.
std::optional<Status> State::open_tag(const Life& life, const wire::Tag& tag) {
  if (rounds_.count(tag) > 0) return std::nullopt;
  if (tag.empty() || tag.size() > base::kTagBytesMax || !base::is_one_line(tag)) {
    return Status{Code::kInvalid, "a tag has 1 to 64 bytes, without control characters"};
  }
  if (ledger_.tags().count(tag) == 0) {
    const auto own = std::count_if(rounds_.begin(), rounds_.end(), [&](const auto& entry) {
      return entry.second.opened_by == life.key && !JCCL_PLANTED("one-peer-takes-all-tags") &&
             ledger_.standing(entry.first).committed == 0;
    });
    if (static_cast<std::size_t>(own) >= base::kTagsMax / 2) {
      return Status{Code::kLimit, cat(name(life), " has opened ", own,
                                      " tags that no round was committed of; one peer may open ",
                                      base::kTagsMax / 2)};
    }
    if (rounds_.size() >= base::kTagsMax) {
      return Status{Code::kLimit, cat("the run has ", rounds_.size(), " tags, the most it takes")};
    }
  }
  rounds_[tag].opened_by = life.key;
  return std::nullopt;
}

bool State::is_state(const wire::Tag& tag) const {
  if (ledger_.standing(tag).born) return true;
  const auto round = rounds_.find(tag);
  if (round == rounds_.end()) return false;
  const auto& asking = round->second.asking;
  return std::any_of(asking.begin(), asking.end(), [&](wire::Incarnation incarnation) {
    const Life* life = life_of(incarnation);
    return life != nullptr && life->syncs.count(tag) > 0;
  });
}

void State::on_sync(Life& life, const wire::Sync& sync) {
  const Standing& at = ledger_.standing(sync.tag);
  if (const auto no = open_tag(life, sync.tag)) {
    return reply_refused(life, sync.tag, no->code, no->text);
  }
  Round& round = rounds_.at(sync.tag);
  if (!at.born && (at.committed > 0 || round.running.has_value() || !round.ready.empty())) {
    return reply_refused(life, sync.tag, Code::kMismatch,
                         cat(sync.tag, " is in use without state"));
  }
  if (sync.source && !at.born && !options_.source.empty() && life.site != options_.source) {
    return reply_refused(life, sync.tag, Code::kMismatch,
                         cat("the operator named ", options_.source, " as the source of the run's ",
                             "states, so ", life.site, " is none: call without source=True there"));
  }
  if (sync.source && another_source(life, sync)) {
    return reply_refused(life, sync.tag, Code::kMismatch,
                         cat("the state of ", sync.tag, " began as that of ", at.site, "; ",
                             name(life), " is named as its source too and has another: name one ",
                             "source, and let start_peers wait for it"));
  }
  note_asked_edit(life, sync);
  AskedSync asked;
  asked.sync = sync;
  asked.fetching = sync.fetching && at.born;
  asked.deadline = now_ + bounded(sync.deadline);
  round.asking.insert(life.incarnation);
  round.sync_due = std::min(round.sync_due, asked.deadline);
  life.syncs[sync.tag] = std::move(asked);
  life.may_hold.erase(sync.tag);
  if (sync.fetching && at.born) {
    if (sync.revision == at.committed) life.may_hold[sync.tag] = sync.revision;
    return touch(sync.tag);
  }
  if (has_newest_beside(life, sync)) return touch(sync.tag);
  report(life, {sync.tag, sync.revision, sync.digest});
}

// It wishes another state back than the newest, which it has and keeps unless it gets its wish.
bool State::has_newest_beside(const Life& life, const wire::Sync& sync) const {
  const auto known = ledger_.standing(sync.tag).digests.find(life.shard);
  return sync.restore != wire::Wish::kNone && holds_newest(life, sync.tag) &&
         known != ledger_.standing(sync.tag).digests.end() &&
         life.held.at(sync.tag).digest == known->second;
}

// Who says that its state is the first one is not given another in silence. Only of revision 0 is
// that said; who comes later takes the run's, and so does the source itself in its next life.
bool State::another_source(const Life& life, const wire::Sync& sync) const {
  const Standing& at = ledger_.standing(sync.tag);
  const auto first = at.digests.find(life.shard);
  return !JCCL_PLANTED("second-source-is-taken") && at.born && at.committed == 0 &&
         first != at.digests.end() && first->second != sync.digest && at.site != life.site;
}

// A joiner may enter between a commit and the first READY for the next round: later, it would keep
// waiting those that are ready already. Unless the round can't start without it, or waits for it.
bool State::admission_open(const wire::Tag& tag, const std::string& site) const {
  const Round& round = rounds_.at(tag);
  if (round.running.has_value()) return false;
  if (held_for(site) || JCCL_PLANTED("door-never-shut")) return true;
  if (sites_in(tag) < std::max({1U, options_.min_peers, start_peers()})) return true;
  return std::none_of(round.ready.begin(), round.ready.end(), [&](const auto& entry) {
    const auto life = lives_.find(entry.first);
    return life != lives_.end() && life->second.id != 0;
  });
}

// What rounds are held for is waited for anyway, and all joiners that are current come in beside
// one. A member is held for by itself: its hold ends as soon as it is current.
bool State::held_for(const std::string& site) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const auto& hold) {
    const auto& lives = lives_at(hold.first);
    return hold.first == site || (!lives.empty() && lives_.at(*lives.begin()).id == 0);
  });
}

// Those that got their answer, are gone, or have waited for long enough.
void State::drop_ended_syncs(const wire::Tag& tag) {
  Round& round = rounds_.at(tag);
  round.sync_due = base::kNever;
  std::erase_if(round.asking, [&](wire::Incarnation incarnation) {
    Life* life = life_of(incarnation);
    if (life == nullptr || life->syncs.count(tag) == 0) return true;
    const base::Time deadline = life->syncs.at(tag).deadline;
    if (now_ >= deadline) {
      life->syncs.erase(tag);
      life->may_hold.erase(tag);
      return true;
    }
    round.sync_due = std::min(round.sync_due, deadline);
    return false;
  });
}

void State::sync_tag(const wire::Tag& tag) {
  const auto entry = rounds_.find(tag);
  if (entry == rounds_.end()) return;
  Round& round = entry->second;
  drop_ended_syncs(tag);
  if (round.asking.empty()) {
    const bool lost = round.lost_since != base::kNever || round.unborn_since != base::kNever;
    if (lost) round.unasked_since = std::min(round.unasked_since, now_);
    return;
  }
  ask_again(&round, now_, options_.restore_after);
  const std::vector<wire::Incarnation> asking(round.asking.begin(), round.asking.end());
  decide(tag);
  const bool again = JCCL_PLANTED("born-again") && round.lost_since != base::kNever;
  if (!ledger_.standing(tag).born || again) try_birth(tag);
  restore_by_wish(tag);
  bool lost = false, unheld = false;
  std::map<std::uint32_t, Serving> by_shard;
  for (const wire::Incarnation incarnation : asking) {
    Life* life = life_of(incarnation);
    if (life->syncs.count(tag) == 0 || !ledger_.standing(tag).born) continue;
    const auto [found, fresh] = by_shard.try_emplace(life->shard);
    if (fresh) found->second = serving(tag, life->shard);
    Serving& now = found->second;
    const bool decided = ledger_.standing(tag).digests.count(life->shard) > 0;
    unheld = unheld || (decided && now.holders.empty());
    sync_one(*life, tag, now);
    const auto left = life->syncs.find(tag);
    if (left == life->syncs.end() || left->second.matches) continue;
    const bool fetches = left->second.fetching && now_ < awaited_until(round);
    now.awaited = now.awaited || (fetches && !JCCL_PLANTED("fetcher-not-awaited"));
    if (left->second.fetching || out_of_reach(now, *life)) continue;
    lost = lost || !now.awaited;
  }
  round.unheld_since = unheld ? std::min(round.unheld_since, now_) : base::kNever;
  if (!lost) {
    round.lost_since = base::kNever;
    round.brought = 0;
  } else if (round.lost_since == base::kNever) {
    round.lost_since = now_;
  }
  restore_by_loss(tag);
}

// A member that is current enters the tag while nobody there is READY, or a member would wait for
// its steps. Not for longer than this: its own next call may be what those wait for.
bool State::may_enter(Life& life, const wire::Tag& tag) {
  if (owes(tag, life.id) || admission_open(tag, life.site)) return true;
  const base::Time since = life.knocking.try_emplace(tag, now_).first->second;
  const base::Time by = since + 2 * options_.silence;
  if (now_ >= by) return true;
  Round& round = rounds_.at(tag);
  round.sync_due = std::min(round.sync_due, by);
  return false;
}

void State::sync_one(Life& life, const wire::Tag& tag, Serving& serving) {
  AskedSync& asked = life.syncs.at(tag);
  const Standing& at = ledger_.standing(tag);
  asked.matches = false;
  if (asked.fetching || !descriptor_fits(life, asked)) return;
  if (asked.sync.source && another_source(life, asked.sync)) {  // it asked before the birth, too
    return on_sync(life, wire::Sync(asked.sync));
  }
  if (answer_wish(life, tag)) return;
  if (const std::string why = dispute(tag); !why.empty()) {
    return reply_refused(life, tag, Code::kDisputed, why);
  }
  const auto known = at.digests.find(life.shard);
  const bool is_newest = known != at.digests.end() && known->second == asked.sync.digest;
  if (is_newest || has_newest_beside(life, asked.sync)) {
    if (life.id != 0 && may_enter(life, tag)) return reply_current(life, tag);
    asked.matches = true;
    if (life.id == 0 && !kept_outside(life.site).empty()) {
      return reply_wait(life, asked, outsider_text(life));
    }
    return reply_wait(life, asked,
                      admission_open(tag, life.site)
                          ? "current; waits for its other tags and shards"
                          : "current; enters at the next commit");
  }
  // Its user asks for a newer state: whatever its part in the newest round, it will not publish it.
  if (asked.sync.revision < at.committed) life.behind[tag] = at.committed;
  std::vector<wire::Member> holders = holders_of(serving, life);
  if (!holders.empty()) return offer(life, asked, std::move(holders));
  const std::string what = cat("revision ", at.committed, " of ", tag);
  if (out_of_reach(serving, life)) {
    return reply_wait(life, asked,
                      cat("waits for a holder of ", what, " that listens: this peer ",
                          "and those there are can only dial out"));
  }
  if (serving.awaited) {
    return reply_wait(life, asked, cat("waits for a holder to publish ", what));
  }
  if (!serving.back) serving.back = fallback_text(tag);  // once for all who ask
  if (!serving.back->empty()) return reply_wait(life, asked, *serving.back);
  const base::Time since = rounds_.at(tag).lost_since;
  if (since != base::kNever && now_ >= since + lost_after(tag)) {
    if (!serving.lost) serving.lost = lost_text(tag, what);
    return reply_refused(life, tag, Code::kStateLost, *serving.lost);
  }
  reply_wait(life, asked, cat("no holder of ", what, " is connected"));
}

bool State::descriptor_fits(Life& life, const AskedSync& asked) {
  const wire::Sync& sync = asked.sync;
  const Standing& at = ledger_.standing(sync.tag);
  const auto shards_text = [](std::size_t n) { return cat(n, n == 1 ? " shard" : " shards"); };
  if (life.shards != at.descriptors.size() && !JCCL_PLANTED("sites-of-any-shards")) {
    reply_refused(life, wire::Tag(sync.tag), Code::kMismatch,
                  cat("the state of the run lies in ", shards_text(at.descriptors.size()),
                      " at each site; ", life.site, " has ", shards_text(life.shards)));
    return false;
  }
  if (life.shard >= at.descriptors.size() || at.descriptors[life.shard] == sync.descriptor) {
    return true;
  }
  const std::string own = sync.summary;
  reply_refused(life, wire::Tag(sync.tag), Code::kMismatch,
                cat("the state of the run is ", brief(at.summary), " (", at.site,
                    " began it); this peer's is ", brief(own), first_difference(at.summary, own)));
  return false;
}

void State::offer(Life& life, AskedSync& asked, std::vector<wire::Member> holders) {
  const wire::Tag& tag = asked.sync.tag;
  const Standing& at = ledger_.standing(tag);
  wire::SyncReply reply;
  reply.tag = tag;
  reply.verdict = wire::SyncVerdict::kFetch;
  reply.revision = at.committed;
  reply.restored = at.restored();
  reply.digest = at.digests.at(life.shard);
  reply.holders = std::move(holders);
  tell_what_was_lost(life, asked);
  reply.links.generation = links_;
  asked.fetching = true;
  asked.holders.clear();
  for (const wire::Member& holder : reply.holders) asked.holders.insert(holder.incarnation);
  const auto last = life.fetched.find(tag);
  const bool missed = last != life.fetched.end() && last->second.revision < at.committed;
  life.fetched[tag] = {tag, reply.revision, reply.digest};
  life.may_hold[tag] = reply.revision;
  const bool rest = !holds_.empty() || now_ < holds_rest_until_;
  // Who could not come in with the newest state either has no round held for it.
  const bool may_enter = complete(life.site) && kept_outside(life.site).empty() && !pays(life.site);
  if (missed && may_enter && !rest && holds_back(++life.missed) && !waited_for(life.site)) {
    holds_[life.site] = now_ + hold_after(life.missed);
    hold_began_ = now_;
  }
  send(life, std::move(reply));
}

void State::reply_wait(Life& life, AskedSync& asked, const std::string& text) {
  if (asked.told == text) return;
  asked.told = text;
  wire::SyncReply reply;
  reply.tag = asked.sync.tag;
  reply.verdict = wire::SyncVerdict::kWait;
  reply.text = text;
  send(life, std::move(reply));
}

void State::reply_refused(Life& life, const wire::Tag& tag, Code code, const std::string& text) {
  wire::SyncReply reply;
  reply.tag = tag;
  reply.verdict = wire::SyncVerdict::kRefused;
  reply.code = code;
  reply.text = text;
  note("reject", {{"site", life.site},
                  {"tag", tag},
                  {"code", std::string(base::name_of(code))},
                  {"text", text}});
  send(life, std::move(reply));
  life.syncs.erase(tag);
  if (rounds_.count(tag) > 0) touch(tag);
}

void State::reply_current(Life& life, const wire::Tag& tag) {
  const Standing& at = ledger_.standing(tag);
  wire::SyncReply reply;
  reply.tag = tag;
  reply.verdict = wire::SyncVerdict::kCurrent;
  reply.revision = at.committed;
  reply.restored = at.restored();
  reply.digest = at.digests.at(life.shard);
  life.held[tag] = {tag, reply.revision, reply.digest};
  life.missed = 0;
  life.fetched.erase(tag);
  life.knocking.erase(tag);
  life.syncs.erase(tag);
  send(life, std::move(reply));
  if (life.id != 0) enter(tag, life.site);
  take_back(life.site, tag);
  touch(tag);
}

}  // namespace jccl::protocol
