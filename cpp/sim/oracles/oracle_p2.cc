// P2 exactly once: a result is the sum over the reported contributors of their inputs at call
// time, each once; no input is in two rounds, and none that was not to count.
#include <algorithm>

#include "sim/history.h"

namespace jccl::sim {

using base::cat;

namespace {

// The one that is left of an attempt is hostile, and its result with it.
bool only_liars_are_done(const History& history, const AttemptInfo& attempt) {
  if (history.liars.empty()) return false;
  return std::all_of(attempt.parts.begin(), attempt.parts.end(), [&](const auto& entry) {
    const auto member = history.everybody.find(entry.first);
    return !entry.second.done || (member != history.everybody.end() &&
                                  history.liars.count(member->second.incarnation) > 0);
  });
}

// Its own word, and the others' harm: one that does not fit the call, or that drowns theirs.
void p2_weight_fits(History& history, const wire::CommitRecord& record,
                    const wire::Contributor& contributor) {
  constexpr double kHonestMost = 4;  // see SimPeer::call
  const bool drowns =
      record.contributors.size() >= 2 && contributor.weight > base::kWeightRatioMax * kHonestMost;
  if (!drowns && (!history.unweighted || contributor.weight == 1)) return;
  history.fail("P2", cat("contributor ", contributor.id, " of attempt ", to_text(record.attempt),
                         " counted with weight ", contributor.weight,
                         drowns ? ", far above all others'" : ", which the call does not take"));
}

}  // namespace

void p2_calls_in_commit(History& history, const wire::CommitRecord& record) {
  const auto attempt = history.attempts.find(record.attempt);
  if (attempt == history.attempts.end()) return;  // P1 has said so
  if (only_liars_are_done(history, attempt->second)) return;
  for (const wire::Contributor& contributor : record.contributors) {
    const auto part = attempt->second.parts.find(contributor.id);
    if (part == attempt->second.parts.end()) {
      history.fail("P2", cat("contributor ", contributor.id, " of attempt ",
                             to_text(record.attempt), " never accepted its START"));
      return;
    }
    if (part->second.weight != contributor.weight) {
      history.fail("P2", cat("contributor ", contributor.id, " counted with weight ",
                             contributor.weight, " instead of ", part->second.weight));
    }
    if (!(contributor.weight > 0)) {
      history.fail("P2", cat("contributor ", contributor.id, " of attempt ",
                             to_text(record.attempt), " has no weight"));
    }
    p2_weight_fits(history, record, contributor);
    const auto [other, fresh] = history.counted.emplace(part->second.call, record.round);
    if (!fresh) {
      history.fail("P2", cat("the input of call ", part->second.call, " is in rounds ",
                             other->second.n, " and ", record.round.n, " of ", record.round.tag));
    }
  }
}

// An input that the guard refused goes on without its weight.
void p2_refused_once(History& history, CallRecord& call) {
  if (call.refused) {
    history.fail("P2", cat("slot ", call.slot, ": the input of call ", call.id, " on ", call.tag,
                           " was refused by the guard and is asked for again"));
  }
  call.refused = true;
}

void p2_each_once(History& history, const Published& published) {
  CommitInfo& commit = history.commits.at(history.committed.at(published.attempt));
  const AttemptInfo& attempt = history.attempts.at(published.attempt);
  if (!commit.judged.insert(published.shard).second) return;  // P1 holds the others against it
  std::map<wire::PeerId, Part> parts;
  const base::Bytes* plan = nullptr;
  for (const wire::Contributor& contributor : commit.record.contributors) {
    const auto part = attempt.parts.find(contributor.id);
    if (part == attempt.parts.end() || part->second.shard != published.shard) continue;
    parts[contributor.id] = {input_of(part->second.call), contributor.weight};
    plan = &part->second.plan;
  }
  if (attempt.bent) return;  // P1 holds them to each other
  const bool known = plan != nullptr && covers(*plan, parts);
  const Array due = known ? result_of(*plan, parts, *published.terms) : Array{};
  if (known && same(*published.result, due)) return;
  history.fail("P2", cat("slot ", published.slot, ", ", commit.record.round.tag, " ",
                         commit.record.round.n, ", attempt ", to_text(published.attempt), ": ",
                         difference_of(*published.result, due)));
}

// What nobody had to send again is sent once.
void p2_bytes_as_documented(History& history, const wire::CommitRecord& record) {
  const auto attempt = history.attempts.find(record.attempt);
  if (attempt == history.attempts.end() || attempt->second.sent_again) return;
  if (!history.counts_bytes || !history.liars.empty()) return;
  std::map<std::uint32_t, std::uint64_t> due;  // by shard
  std::uint64_t sent = 0, all = 0;
  for (const wire::Contributor& contributor : record.contributors) {
    const auto part = attempt->second.parts.find(contributor.id);
    if (part == attempt->second.parts.end() || !part->second.done || part->second.failed) return;
    const auto [bytes, fresh] = due.try_emplace(part->second.shard);
    if (fresh) bytes->second = documented_bytes(part->second.plan);
    const auto to = attempt->second.sent_to.find(history.everybody.at(contributor.id).incarnation);
    if (to != attempt->second.sent_to.end()) sent += to->second;
  }
  for (const auto& [shard, bytes] : due) all += bytes;
  if (sent == all) return;
  history.fail("P2", cat("attempt ", to_text(record.attempt), " took ", sent,
                         " bytes between contributors, its plan ", all));
}

}  // namespace jccl::sim
