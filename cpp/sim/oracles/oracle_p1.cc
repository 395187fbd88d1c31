// P1 atomic: a round commits on every non-evicted member or on none; whoever was told success was
// told the same bytes and the same contributors, also those that died since; a code that says
// "surely not committed" is true.
#include "sim/history.h"

namespace jccl::sim {

using base::cat;

namespace {

// Whoever lives has reported what the journal says everybody has.
void p1_equal_digests(History& history, const wire::CommitRecord& record,
                      const AttemptInfo& attempt) {
  for (const wire::Contributor& contributor : record.contributors) {
    const auto part = attempt.parts.find(contributor.id);
    if (history.members.count(contributor.id) == 0 || part == attempt.parts.end()) continue;
    const std::uint32_t shard = part->second.shard;
    const wire::Digest& due = shard == 0 ? record.result : record.shard_results.at(shard - 1);
    if (part->second.result == due) continue;
    history.fail("P1",
                 cat("attempt ", to_text(record.attempt), " is committed with digest ", to_hex(due),
                     ", member ", contributor.id, " reported ", to_hex(part->second.result)));
  }
}

}  // namespace

void p1_commit_is_everywhere(History& history, const wire::CommitRecord& record) {
  const auto attempt = history.attempts.find(record.attempt);
  if (attempt == history.attempts.end()) {
    history.fail("P1",
                 cat("attempt ", to_text(record.attempt), " was committed but nobody ran it"));
    return;
  }
  std::set<std::string> sites, broken, all;
  for (const wire::Contributor& contributor : record.contributors) {
    const auto member = history.members.find(contributor.id);
    const auto known = history.everybody.find(contributor.id);
    if (known == history.everybody.end()) {
      history.fail("P1", cat("contributor ", contributor.id, " was never admitted"));
      return;
    }
    all.insert(known->second.site);
    if (member == history.members.end()) {
      broken.insert(known->second.site);
      continue;
    }
    const auto part = attempt->second.parts.find(contributor.id);
    if (part == attempt->second.parts.end() || !part->second.done) {
      history.fail("P1", cat("attempt ", to_text(record.attempt), " of ", record.round.tag, " ",
                             record.round.n, " is committed, but member ", contributor.id,
                             " does not have the result"));
    }
    sites.insert(member->second.site);
  }
  for (const std::string& site : broken) sites.erase(site);
  if (sites.size() < std::max(1U, history.min_peers)) {
    history.fail("P1", cat("attempt ", to_text(record.attempt), " is committed with ", sites.size(),
                           " living sites of ", history.min_peers));
  }
  if (record.world != all.size()) {
    history.fail("P1", cat("attempt ", to_text(record.attempt), " is committed with world ",
                           record.world, ", its contributors are of ", all.size(), " sites"));
  }
  if (!history.failed()) p1_equal_digests(history, record, attempt->second);
}

void p1_same_for_all(History& history, const Published& published) {
  CommitInfo& commit = history.commits.at(history.committed.at(published.attempt));
  const auto [first, fresh] = commit.results.emplace(published.shard, *published.result);
  if (!fresh && !same(first->second, *published.result)) {
    history.fail(
        "P1", cat("slot ", published.slot, " was given another result of ", commit.record.round.tag,
                  " ", commit.record.round.n,
                  " than another peer: ", difference_of(*published.result, first->second)));
  }
  if (published.complete == nullptr) return;
  if (published.complete->contributors != commit.record.contributors ||
      published.complete->world != commit.record.world) {
    history.fail("P1", cat("slot ", published.slot, " was told another contributor set for ",
                           commit.record.round.tag, " ", commit.record.round.n,
                           " than the journal has: ", published.complete->contributors.size(),
                           " of ", commit.record.contributors.size(), ", world ",
                           published.complete->world, " of ", commit.record.world));
  }
}

// The end of a run: nobody was told "surely not" about a round that counted his input.
void p1_no_means_no(History& history) {
  using base::Code;
  for (const auto& [id, round] : history.counted) {
    const CallRecord& call = history.call(id);
    if (call.open || call.success) continue;
    switch (call.code) {
      case Code::kEmpty:
      case Code::kTooFew:
      case Code::kDeadline:
      case Code::kMismatch:
      case Code::kGuard:
      case Code::kCorrupt:
      case Code::kAborted:
      case Code::kPeerLost:
      case Code::kLinkLost:
      case Code::kBusyTag:
      case Code::kInvalid:
        history.fail(
            "P1", cat("slot ", call.slot, " was told ", name_of(call.code), " for ", round.tag, " ",
                      round.n, ", which counted its input (call ", id, ")"));
        return;
      default:
        break;
    }
  }
}

}  // namespace jccl::sim
