// State tags at the master: what a peer that wants the newest revision is told. How a state begins,
// master_birth.cc says; what the newest is, master_votes.cc decides, and who has it,
// master_holders.cc knows. Pure; one event at a time.
#include <algorithm>

#include "base/check.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/durations.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

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
std::optional<Status> StateSync::open_tag(const ProcessRecord& process, const wire::Tag& tag) {
  if (rounds().count(tag) > 0) return std::nullopt;
  if (tag.empty() || tag.size() > base::kTagBytesMax || !base::is_one_line(tag)) {
    return Status{Code::kInvalid, "a tag has 1 to 64 bytes, without control characters"};
  }
  if (ledger().tags().count(tag) == 0) {
    const auto own = std::count_if(rounds().begin(), rounds().end(), [&](const auto& entry) {
      return entry.second.opened_by == process.key && !JCCL_PLANTED("one-peer-takes-all-tags") &&
             ledger().standing(entry.first).committed == 0;
    });
    if (static_cast<std::size_t>(own) >= base::kTagsMax / 2) {
      return Status{Code::kLimit, cat(wording().name(process), " has opened ", own,
                                      " tags without a round that committed; one peer may open ",
                                      base::kTagsMax / 2)};
    }
    if (rounds().size() >= base::kTagsMax) {
      return Status{Code::kLimit, cat("the run has ", rounds().size(), " tags, the most it takes")};
    }
  }
  rounds()[tag].opened_by = process.key;
  return std::nullopt;
}

bool StateSync::is_state(const wire::Tag& tag) const {
  if (ledger().standing(tag).born) return true;
  const auto round = rounds().find(tag);
  if (round == rounds().end()) return false;
  const auto& asking = round->second.asking;
  return std::any_of(asking.begin(), asking.end(), [&](wire::Incarnation incarnation) {
    const ProcessRecord* process = connections().record_of(incarnation);
    return process != nullptr && process->syncs.count(tag) > 0;
  });
}

void StateSync::on_sync(ProcessRecord& process, const wire::Sync& sync) {
  const Standing& at = ledger().standing(sync.tag);
  if (const auto no = open_tag(process, sync.tag)) {
    return reply_refused(process, sync.tag, no->code, no->text);
  }
  Round& round = rounds().at(sync.tag);
  if (!at.born && (at.committed > 0 || round.running.has_value() || !round.ready.empty())) {
    return reply_refused(process, sync.tag, Code::kMismatch,
                         cat(sync.tag, " is in use without state"));
  }
  if (sync.source && !at.born && !options().source.empty() && process.site != options().source) {
    return reply_refused(
        process, sync.tag, Code::kMismatch,
        cat("the operator named ", options().source, " as the source of the run's ", "states, not ",
            process.site, ": call without source=True on that peer"));
  }
  if (sync.source && another_source(process, sync)) {
    return reply_refused(
        process, sync.tag, Code::kMismatch,
        cat("the state of ", sync.tag, " began as that of ", at.site, "; ", wording().name(process),
            " is named as its source too and has another: name one ",
            "source, and let start_peers wait for it"));
  }
  stragglers().note_asked_edit(process, sync);
  AskedSync asked;
  asked.sync = sync;
  asked.fetching = sync.fetching && at.born;
  asked.deadline = now() + bounded(sync.deadline);
  round.asking.insert(process.incarnation);
  round.sync_due = std::min(round.sync_due, asked.deadline);
  process.syncs[sync.tag] = std::move(asked);
  process.may_hold.erase(sync.tag);
  if (sync.fetching && at.born) {
    if (sync.revision == at.committed) process.may_hold[sync.tag] = sync.revision;
    return touch(sync.tag);
  }
  if (has_newest_beside(process, sync)) return touch(sync.tag);
  state_votes().report(process, {sync.tag, sync.revision, sync.digest});
}

// It wishes another state back than the newest, which it has and keeps unless it gets its wish.
bool StateSync::has_newest_beside(const ProcessRecord& process, const wire::Sync& sync) const {
  const auto known = ledger().standing(sync.tag).digests.find(process.shard);
  return sync.restore != wire::Wish::kNone && state_votes().holds_newest(process, sync.tag) &&
         known != ledger().standing(sync.tag).digests.end() &&
         process.held.at(sync.tag).digest == known->second;
}

// Who says that its state is the first one is not given another in silence. Only of revision 0 is
// that said; who comes later takes the run's, and so does the source itself in its next life.
bool StateSync::another_source(const ProcessRecord& process, const wire::Sync& sync) const {
  const Standing& at = ledger().standing(sync.tag);
  const auto first = at.digests.find(process.shard);
  return !JCCL_PLANTED("second-source-is-taken") && at.born && at.committed == 0 &&
         first != at.digests.end() && first->second != sync.digest && at.site != process.site;
}

// A joiner may enter between a commit and the first READY for the next round: later, it would keep
// waiting those that are ready already. Unless the round can't start without it, or waits for it.
bool StateSync::admission_open(const wire::Tag& tag, const std::string& site) const {
  const Round& round = rounds().at(tag);
  if (round.running.has_value()) return false;
  if (held_for(site) || JCCL_PLANTED("door-never-shut")) return true;
  if (membership().sites_in(tag) < std::max({1U, options().min_peers, membership().start_peers()}))
    return true;
  return std::none_of(round.ready.begin(), round.ready.end(), [&](const auto& entry) {
    const auto process = processes().find(entry.first);
    return process != processes().end() && process->second.id != 0;
  });
}

// What rounds are held for is waited for anyway, and all joiners that are current come in beside
// one. A member is held for by itself: its hold ends as soon as it is current.
bool StateSync::held_for(const std::string& site) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const auto& hold) {
    const auto& ids = connections().processes_at(hold.first);
    return hold.first == site || (!ids.empty() && processes().at(*ids.begin()).id == 0);
  });
}

// Those that got their answer, are gone, or have waited for long enough.
void StateSync::drop_ended_syncs(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  round.sync_due = base::kNever;
  std::erase_if(round.asking, [&](wire::Incarnation incarnation) {
    ProcessRecord* process = connections().record_of(incarnation);
    if (process == nullptr || process->syncs.count(tag) == 0) return true;
    const base::Time deadline = process->syncs.at(tag).deadline;
    if (now() >= deadline) {
      process->syncs.erase(tag);
      process->may_hold.erase(tag);
      return true;
    }
    round.sync_due = std::min(round.sync_due, deadline);
    return false;
  });
}

void StateSync::sync_tag(const wire::Tag& tag) {
  const auto entry = rounds().find(tag);
  if (entry == rounds().end()) return;
  Round& round = entry->second;
  drop_ended_syncs(tag);
  if (round.asking.empty()) {
    const bool lost = round.lost_since != base::kNever || round.unborn_since != base::kNever;
    if (lost) round.unasked_since = std::min(round.unasked_since, now());
    return;
  }
  ask_again(&round, now(), options().restore_after);
  const std::vector<wire::Incarnation> asking(round.asking.begin(), round.asking.end());
  state_votes().decide(tag);
  const bool again = JCCL_PLANTED("born-again") && round.lost_since != base::kNever;
  if (!ledger().standing(tag).born || again) state_birth().try_birth(tag);
  state_restore().restore_by_wish(tag);
  bool lost = false, unheld = false;
  std::map<std::uint32_t, Serving> by_shard;
  for (const wire::Incarnation incarnation : asking) {
    ProcessRecord* process = connections().record_of(incarnation);
    if (process->syncs.count(tag) == 0 || !ledger().standing(tag).born) continue;
    const auto [found, fresh] = by_shard.try_emplace(process->shard);
    if (fresh) found->second = serving(tag, process->shard);
    Serving& from = found->second;
    const bool decided = ledger().standing(tag).digests.count(process->shard) > 0;
    unheld = unheld || (decided && from.holders.empty());
    sync_one(*process, tag, from);
    const auto left = process->syncs.find(tag);
    if (left == process->syncs.end() || left->second.matches) continue;
    const bool fetches = left->second.fetching && now() < awaited_until(round);
    from.awaited = from.awaited || (fetches && !JCCL_PLANTED("fetcher-not-awaited"));
    if (left->second.fetching || out_of_reach(from, *process)) continue;
    lost = lost || !from.awaited;
  }
  round.unheld_since = unheld ? std::min(round.unheld_since, now()) : base::kNever;
  if (!lost) {
    round.lost_since = base::kNever;
    round.brought = 0;
  } else if (round.lost_since == base::kNever) {
    round.lost_since = now();
  }
  state_restore().restore_by_loss(tag);
}

// A member that is current enters the tag while nobody there is READY, or a member would wait for
// its steps. Not for longer than this: its own next call may be what those wait for.
bool StateSync::may_enter(ProcessRecord& process, const wire::Tag& tag) {
  if (membership().owes(tag, process.id) || admission_open(tag, process.site)) return true;
  const base::Time since = process.knocking.try_emplace(tag, now()).first->second;
  const base::Time by = since + 2 * options().silence;
  if (now() >= by) return true;
  Round& round = rounds().at(tag);
  round.sync_due = std::min(round.sync_due, by);
  return false;
}

void StateSync::sync_one(ProcessRecord& process, const wire::Tag& tag, Serving& serving) {
  AskedSync& asked = process.syncs.at(tag);
  const Standing& at = ledger().standing(tag);
  asked.matches = false;
  if (asked.fetching || !descriptor_fits(process, asked)) return;
  if (asked.sync.source && another_source(process, asked.sync)) {  // it asked before the birth, too
    return on_sync(process, wire::Sync(asked.sync));
  }
  if (state_restore().answer_wish(process, tag)) return;
  if (const std::string why = state_votes().dispute(tag); !why.empty()) {
    return reply_refused(process, tag, Code::kDisputed, why);
  }
  const auto known = at.digests.find(process.shard);
  const bool is_newest = known != at.digests.end() && known->second == asked.sync.digest;
  if (is_newest || has_newest_beside(process, asked.sync)) {
    if (process.id != 0 && may_enter(process, tag)) return reply_current(process, tag);
    asked.matches = true;
    if (process.id == 0 && !conduct().kept_outside(process.site).empty()) {
      return reply_wait(process, asked, wording().outsider_text(process));
    }
    return reply_wait(process, asked,
                      admission_open(tag, process.site)
                          ? "current; waits for its other tags and shards"
                          : "current; enters at the next commit");
  }
  // Its user asks for a newer state: whatever its part in the newest round, it will not publish it.
  if (asked.sync.revision < at.committed) process.behind[tag] = at.committed;
  std::vector<wire::Member> holders = holders_of(serving, process);
  if (!holders.empty()) return offer(process, asked, std::move(holders));
  const std::string what = cat("revision ", at.committed, " of ", tag);
  if (out_of_reach(serving, process)) {
    return reply_wait(process, asked,
                      cat("waits for a holder of ", what, " that listens: this peer ",
                          "and those there are can only dial out"));
  }
  if (serving.awaited) {
    return reply_wait(process, asked, cat("waits for a holder to publish ", what));
  }
  if (!serving.back) serving.back = state_restore().fallback_text(tag);  // once for all who ask
  if (!serving.back->empty()) return reply_wait(process, asked, *serving.back);
  const base::Time since = rounds().at(tag).lost_since;
  if (since != base::kNever && now() >= since + state_restore().lost_after(tag)) {
    if (!serving.lost) serving.lost = state_restore().lost_text(tag, what);
    return reply_refused(process, tag, Code::kStateLost, *serving.lost);
  }
  reply_wait(process, asked, cat("no holder of ", what, " is connected"));
}

bool StateSync::descriptor_fits(ProcessRecord& process, const AskedSync& asked) {
  const wire::Sync& sync = asked.sync;
  const Standing& at = ledger().standing(sync.tag);
  const auto shards_text = [](std::size_t n) { return cat(n, n == 1 ? " shard" : " shards"); };
  if (process.shards != at.descriptors.size() && !JCCL_PLANTED("sites-of-any-shards")) {
    reply_refused(process, wire::Tag(sync.tag), Code::kMismatch,
                  cat("the state of the run lies in ", shards_text(at.descriptors.size()),
                      " at each site; ", process.site, " has ", shards_text(process.shards)));
    return false;
  }
  if (process.shard >= at.descriptors.size() || at.descriptors[process.shard] == sync.descriptor) {
    return true;
  }
  const std::string own = sync.summary;
  reply_refused(process, wire::Tag(sync.tag), Code::kMismatch,
                cat("the state of the run is ", brief(at.summary), " (", at.site,
                    " began it); this peer's is ", brief(own), first_difference(at.summary, own)));
  return false;
}

void StateSync::offer(ProcessRecord& process, AskedSync& asked, std::vector<wire::Member> holders) {
  const wire::Tag& tag = asked.sync.tag;
  const Standing& at = ledger().standing(tag);
  wire::SyncReply reply;
  reply.tag = tag;
  reply.verdict = wire::SyncVerdict::kFetch;
  reply.revision = at.committed;
  reply.restored = at.restored();
  reply.digest = at.digests.at(process.shard);
  reply.holders = std::move(holders);
  state_restore().tell_what_was_lost(process, asked);
  reply.links.generation = connections().links_;
  asked.fetching = true;
  asked.holders.clear();
  for (const wire::Member& holder : reply.holders) asked.holders.insert(holder.incarnation);
  const auto last = process.fetched.find(tag);
  const bool missed = last != process.fetched.end() && last->second.revision < at.committed;
  process.fetched[tag] = {tag, reply.revision, reply.digest};
  process.may_hold[tag] = reply.revision;
  const bool rest = !holds_.empty() || now() < holds_rest_until_;
  // Who could not come in with the newest state either has no round held for it.
  const bool may_enter = membership().complete(process.site) &&
                         conduct().kept_outside(process.site).empty() &&
                         !wait_charges().pays(process.site);
  if (missed && may_enter && !rest && holds_back(++process.missed) &&
      !stragglers().waited_for(process.site)) {
    holds_[process.site] = now() + hold_after(process.missed);
    hold_began_ = now();
  }
  send(process, std::move(reply));
}

void StateSync::reply_wait(ProcessRecord& process, AskedSync& asked, const std::string& text) {
  if (asked.told == text) return;
  asked.told = text;
  wire::SyncReply reply;
  reply.tag = asked.sync.tag;
  reply.verdict = wire::SyncVerdict::kWait;
  reply.text = text;
  send(process, std::move(reply));
}

void StateSync::reply_refused(ProcessRecord& process, const wire::Tag& tag, Code code,
                              const std::string& text) {
  wire::SyncReply reply;
  reply.tag = tag;
  reply.verdict = wire::SyncVerdict::kRefused;
  reply.code = code;
  reply.text = text;
  note("reject", {{"site", process.site},
                  {"tag", tag},
                  {"code", std::string(base::name_of(code))},
                  {"text", text}});
  send(process, std::move(reply));
  process.syncs.erase(tag);
  if (rounds().count(tag) > 0) touch(tag);
}

void StateSync::reply_current(ProcessRecord& process, const wire::Tag& tag) {
  const Standing& at = ledger().standing(tag);
  wire::SyncReply reply;
  reply.tag = tag;
  reply.verdict = wire::SyncVerdict::kCurrent;
  reply.revision = at.committed;
  reply.restored = at.restored();
  reply.digest = at.digests.at(process.shard);
  process.held[tag] = {tag, reply.revision, reply.digest};
  process.missed = 0;
  process.fetched.erase(tag);
  process.knocking.erase(tag);
  process.syncs.erase(tag);
  send(process, std::move(reply));
  if (process.id != 0) membership().enter(tag, process.site);
  stragglers().take_back(process.site, tag);
  touch(tag);
}

}  // namespace jccl::protocol
