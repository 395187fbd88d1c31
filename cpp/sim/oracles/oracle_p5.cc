// P5: nobody learns of a commit or an epoch before its record is durable; at most one outcome per
// attempt and one commit per round; no gap in a tag's numbers; what a restarted master reads is
// what was decided.
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

namespace {

void check_epoch(History& history, const wire::EpochRecord& record) {
  if (record.epoch <= history.epoch) {
    history.fail("P5", cat("epoch ", record.epoch, " journaled after ", history.epoch));
  }
  std::set<wire::Incarnation> seen;
  std::set<std::pair<std::string, std::uint32_t>> seats;
  for (const wire::Member& member : record.members) {
    const auto known = history.everybody.find(member.id);
    if (known != history.everybody.end() && known->second.incarnation != member.incarnation) {
      history.fail("P5", cat("id ", member.id, " was given to a second incarnation"));
    }
    if (!seen.insert(member.incarnation).second) {
      history.fail("P5", cat("one incarnation is twice in epoch ", record.epoch));
    }
    if (!seats.emplace(member.site, member.shard).second) {
      history.fail("P5", cat("two members have the seat ", member.site, "/", member.shard,
                             " in epoch ", record.epoch));
    }
    if (member.id >= record.next_id) {
      history.fail("P5", cat("id ", member.id, " is not below next_id ", record.next_id));
    }
  }
  for (const auto& [id, member] : history.everybody) {
    if (history.members.count(id) == 0 && seen.count(member.incarnation) != 0) {
      history.fail("P5", cat("evicted peer ", id, " is back in epoch ", record.epoch));
    }
  }
}

void check_commit(History& history, const wire::CommitRecord& record) {
  const auto last = history.last.find(record.round.tag);
  const std::uint64_t due = (last == history.last.end() ? 0 : last->second) + 1;
  if (record.round.n != due) {
    history.fail(
        "P5", cat("commit of ", record.round.tag, " ", record.round.n, " where ", due, " was due"));
  }
  if (history.committed.count(record.attempt) != 0) {
    history.fail("P5", cat("attempt ", to_text(record.attempt), " committed twice"));
  }
  const auto attempt = history.attempts.find(record.attempt);
  if (attempt != history.attempts.end() && attempt->second.told_aborted) {
    history.fail("P5", cat("attempt ", to_text(record.attempt), " committed after ABORT was told"));
  }
}

}  // namespace

void p5_record(History& history, const wire::Record& record) {
  if (std::holds_alternative<wire::RunRecord>(record) != history.durable.empty()) {
    history.fail("P5", "the run record is not the first, or not the only one");
  }
  if (const auto* epoch = std::get_if<wire::EpochRecord>(&record)) check_epoch(history, *epoch);
  if (const auto* commit = std::get_if<wire::CommitRecord>(&record)) check_commit(history, *commit);
}

// Whoever is welcomed at a seat has replaced the life that had it.
void p5_seat(History& history, const std::string& site, std::uint32_t shard,
             wire::Incarnation welcome) {
  for (const auto& [id, member] : history.members) {
    if (member.site != site || member.shard != shard || member.incarnation == welcome) continue;
    history.fail("P5", cat("a new life of ", site, "/", shard, " is welcomed while member ", id,
                           " still has its seat"));
  }
}

void p5_told(History& history, std::uint32_t slot, const wire::Message& message) {
  p5_true(history, slot, message);
  p5_names(history, slot, message);
}

// A START names only those whom its receiver was told of.
void p5_names(History& history, std::uint32_t slot, const wire::Message& message) {
  if (const auto* roster = std::get_if<wire::Roster>(&message)) {
    for (const wire::Member& member : roster->members) history.named[slot].insert(member.id);
  }
  const auto* start = std::get_if<wire::Start>(&message);
  if (start == nullptr) return;
  for (const wire::Contributor& one : start->contributors) {
    if (history.named[slot].count(one.id) > 0) continue;
    history.fail("P5", cat("slot ", slot, ": START ", to_text(start->attempt), " names peer ",
                           one.id, ", of whom it was not told"));
  }
}

// What is told is durable.
void p5_true(History& history, std::uint32_t slot, const wire::Message& message) {
  if (const auto* roster = std::get_if<wire::Roster>(&message)) {
    // The whole has all members of its epoch; a change can name no more than these.
    const auto durable = history.epochs.lower_bound({roster->epoch, roster->members.size()});
    // Who is no member hears of none.
    const bool all = roster->base == 0 && !roster->members.empty();
    const bool known = durable != history.epochs.end() && durable->first == roster->epoch &&
                       (!all || durable->second == roster->members.size());
    if (!known) {
      history.fail("P5", cat("slot ", slot, " learnt epoch ", roster->epoch, " (",
                             roster->members.size(), " members) before it was durable"));
    }
  }
  if (const auto* start = std::get_if<wire::Start>(&message)) {
    if (start->attempt.epoch > history.epoch) {
      history.fail("P5", cat("START ", to_text(start->attempt), " before its epoch was durable"));
    }
  }
  const auto* outcome = std::get_if<wire::Outcome>(&message);
  if (outcome == nullptr) return;
  if (outcome->verdict == wire::Verdict::kExpired) {
    const auto last = history.last.find(outcome->round.tag);
    const std::uint64_t commits = last == history.last.end() ? 0 : last->second;
    if (outcome->round.n + history.remembered > commits) {
      history.fail("P5", cat("slot ", slot, " was told EXPIRED of ", outcome->round.tag, " ",
                             outcome->round.n, " after ", commits, " commits"));
    }
  }
  const bool committed = history.committed.count(outcome->attempt) != 0;
  if (outcome->verdict == wire::Verdict::kCommitted && !committed) {
    history.fail("P5", cat("slot ", slot, " learnt COMMIT ", to_text(outcome->attempt), " of ",
                           outcome->round.tag, " ", outcome->round.n, " before it was durable"));
  }
  if (outcome->verdict == wire::Verdict::kAborted) {
    history.attempts[outcome->attempt].told_aborted = true;
    // Who names another round than the attempt's has made that up: nothing is known of the two.
    if (committed && history.committed.at(outcome->attempt) == outcome->round) {
      history.fail("P5", cat("slot ", slot, " was told ABORT of the committed attempt ",
                             to_text(outcome->attempt)));
    }
  }
}

void p5_published(History& history, const Published& published) {
  if (history.committed.count(published.attempt) == 0) {
    history.fail("P5", cat("slot ", published.slot, " reported success of attempt ",
                           to_text(published.attempt), ", which is not committed"));
    return;
  }
  const wire::RoundName& round = history.committed.at(published.attempt);
  if (published.complete != nullptr &&
      (published.complete->tag != round.tag || published.complete->n != round.n)) {
    history.fail("P5", cat("slot ", published.slot, " took ", round.tag, " ", round.n, " for ",
                           published.complete->tag, " ", published.complete->n));
  }
}

// A master that is back in time loses nobody.
void p5_nobody_lost(History& history, const wire::EpochRecord& record) {
  if (!history.master_only) return;
  for (const auto& [id, member] : history.members) {
    bool stays = false;
    for (const wire::Member& other : record.members) stays = stays || other.id == id;
    if (stays) continue;
    history.fail("P5", cat("member ", id, " is out in epoch ", record.epoch,
                           " though only the master stopped: ", record.reason));
  }
}

// Not before a restarted master has waited for its grace.
void World::check_grace(const wire::Member& member, const std::string& reason) {
  if (!says(reason, "after the master's restart") || !site_is_there(member.site)) return;
  if (now + kSecond / 10 >= served_at_ + mix.restart_grace) return;
  if (now < disk_disturbed_until_ + mix.restart_grace + kSecond) return;
  history.fail("P5", cat("site ", member.site, " had ", mix.restart_grace / kMillisecond,
                         " ms and is evicted ", (now - served_at_) / kMillisecond,
                         " ms after the master's start"));
}

void p5_journal_is_history(History& history, const std::vector<wire::Record>& journal) {
  if (journal != history.durable) {
    history.fail("P5", cat("the journal has ", journal.size(), " records, history ",
                           history.durable.size(), ", or they differ"));
  }
}

}  // namespace jccl::sim
