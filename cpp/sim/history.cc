// Keeps the books and hands each entry to the oracles it concerns.
#include "sim/history.h"

namespace jccl::sim {

void History::on_durable(const wire::Record& record) {
  p5_record(*this, record);
  if (const auto* e = std::get_if<wire::EpochRecord>(&record)) {
    p5_nobody_lost(*this, *e);
    p7_members_stay(*this, *e);
    p8_no_member(*this, *e);
    epoch = e->epoch;
    epochs.insert({e->epoch, e->members.size()});
    members.clear();
    for (const wire::Member& member : e->members) {
      members[member.id] = member;
      everybody[member.id] = member;
    }
  } else if (const auto* c = std::get_if<wire::CommitRecord>(&record)) {
    p1_commit_is_everywhere(*this, *c);
    p2_calls_in_commit(*this, *c);
    p2_bytes_as_documented(*this, *c);
    p6_all_synced(*this, *c);
    p6_contributors_agree(*this, *c);
    if (c->is_state) {
      p6_state(*this, "the journal's commit", 0, {c->round.tag, c->round.n - 1, c->state});
    }
    commits.emplace(c->round, CommitInfo{*c, {}, {}, {}});
    committed.emplace(c->attempt, c->round);
    last[c->round.tag] = c->round.n;
  } else if (const auto* b = std::get_if<wire::BirthRecord>(&record)) {
    births[b->tag] = b->site;
    for (std::size_t shard = 0; shard < b->digests.size(); ++shard) {
      p6_state(*this, "the journal's birth", static_cast<std::uint32_t>(shard),
               {b->tag, 0, b->digests[shard]});
    }
  } else if (const auto* s = std::get_if<wire::StateRecord>(&record)) {
    for (std::size_t shard = 0; shard < s->digests.size(); ++shard) {
      const auto at = static_cast<std::uint32_t>(shard);
      const wire::Held held{s->tag, s->revision, s->digests[shard]};
      if (liars_decide(held, s->weak)) {
        states[{held.tag, at, held.revision}] = held.digest;
        forged.emplace(held.tag, held.revision);
      }
      p6_state(*this, "the journal's state", at, held);
    }
  }
  if (const auto* r = std::get_if<wire::RestoreRecord>(&record)) {
    for (std::size_t shard = 0; shard < r->digests.size(); ++shard) {
      p6_state(*this, "the journal's restored state", static_cast<std::uint32_t>(shard),
               {r->tag, r->revision, r->digests[shard]});
    }
    p6_restored(*this, *r);
    last[r->tag] = r->revision;
    restored.emplace(r->tag, r->revision);
  }
  durable.push_back(record);
}

void History::on_told(std::uint32_t slot, const wire::Message& message) {
  p5_told(*this, slot, message);
  if (const auto* outcome = std::get_if<wire::Outcome>(&message))
    p7_nothing_aborts(*this, *outcome);
}

void History::on_published(const Published& published) {
  p5_published(*this, published);
  if (failed()) return;
  p1_same_for_all(*this, published);
  p2_each_once(*this, published);
  if (published.complete != nullptr) p9_published(*this, published);
}

void History::on_call_ended(const CallRecord& call, bool untouched) {
  p3_untouched(*this, call, untouched);
  p7_calls_end_well(*this, call);
}

void History::on_state(std::uint32_t slot, std::uint32_t shard, const wire::Held& held) {
  p6_state(*this, base::cat("slot ", slot), shard, held);
  p6_never_back(*this, slot, held);
}

void History::on_end(const std::vector<wire::Record>& journal) {
  p5_journal_is_history(*this, journal);
  p1_no_means_no(*this);
}

}  // namespace jccl::sim
