// Whether those that are READY for a round ask for the same: call, plan, state. Who does not hears
// who sent what. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

bool Forming::agree(const wire::Tag& tag) {
  if (!agree_on_call(tag) || !agree_on_hint(tag) || !agree_on_state(tag)) return false;
  if (!agree_on_contributors(tag) || !agree_on_weights(tag)) return false;
  const std::vector<Participant> parts = parts_for(tag);
  if (std::none_of(parts.begin(), parts.end(),
                   [](const Participant& p) { return p.contributes(); })) {
    const bool stay = JCCL_PLANTED("the-only-ones-stay-out");
    if (!stay && stragglers().take_back_left_out(tag)) return false;  // perhaps they alone do
    const std::string text =
        cat("nobody contributes to round ", ledger().standing(tag).committed + 1, " of ", tag,
            rounds().at(tag).memory.guarded.empty() ? "" : ": ", rounds().at(tag).memory.guarded);
    // Whose site is not let in yet, as not all its shards have called, is what may contribute.
    reject_all(tag, Code::kEmpty, text, JCCL_PLANTED("outsiders-hear-of-empty-rounds"));
    return false;
  }
  return true;
}

// More than half of the sites decide what the call is, if there are three or more: who asks for
// another hears so, and the others wait for it. Else nobody can say which is meant, and all hear.
bool Forming::agree_on_call(const wire::Tag& tag) {
  if (all_ask_alike(tag)) return true;
  // Of each shard: descriptor and fingerprint.
  using Asked = std::vector<std::pair<wire::Digest, wire::Digest>>;
  std::map<std::string, Asked> by_site;
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    const wire::Ready& ready = ready_of(tag, member)->ready;
    Asked& asked = by_site[member.site];
    asked.resize(member.shards);
    asked[member.shard] = {ready.descriptor, ready.has_state ? ready.fingerprint : wire::Digest{}};
  }
  std::map<Asked, std::size_t> votes;
  for (const auto& [site, asked] : by_site) ++votes[asked];
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string text = wording().mismatch_text(tag);
  const bool decided = by_site.size() >= 3 && 2 * most->second > by_site.size();
  if (!decided || votes.size() == 1 || JCCL_PLANTED("one-mismatch-ends-all")) {
    reject_all(tag, Code::kMismatch, text);
    return false;
  }
  rounds().at(tag).memory.refusal = text;
  for (const auto& [site, asked] : by_site) {
    if (asked == most->first) continue;
    for (const ProcessRecord* process : connections().shards_of(site)) {
      if (rounds().at(tag).ready.count(process->incarnation) == 0) continue;
      reject(tag, process->incarnation, Code::kMismatch, text);
      const bool as_most = process->shard < most->first.size() &&
                           asked.size() == most->first.size() &&
                           asked[process->shard] == most->first[process->shard];
      if (as_most) continue;  // another shard of its site
      conduct().charge(*process, Fault::kMismatch, cat("asked for another call in ", tag));
    }
  }
  return false;
}

// What every round passes: shards, and of each shard one call; one fingerprint of all.
bool Forming::all_ask_alike(const wire::Tag& tag) const {
  std::map<std::uint32_t, wire::Digest> descriptors;
  std::set<std::uint32_t> counts;
  std::set<wire::Digest> fingerprints;
  bool equal = true;
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    const wire::Ready& ready = ready_of(tag, member)->ready;
    const auto [entry, fresh] = descriptors.try_emplace(member.shard, ready.descriptor);
    equal = equal && entry->second == ready.descriptor;
    counts.insert(member.shards);
    if (ready.has_state) fingerprints.insert(ready.fingerprint);
  }
  return equal && counts.size() <= 1 && fingerprints.size() <= 1;
}

// A hint follows from the call, so among equal calls it is equal, and so does what the call allows
// its contributors. A member whose hint differs from that of most is at fault: the plan would not
// fit the others' calls.
bool Forming::agree_on_hint(const wire::Tag& tag) {
  using Follows = std::tuple<base::Bytes, std::uint32_t, bool, base::Quorum>;
  std::map<std::pair<std::uint32_t, Follows>, std::vector<wire::Incarnation>> hints;
  std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> most;  // by shard; how many have it
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    const wire::Ready& ready = ready_of(tag, member)->ready;
    const bool unit = ready.unit_weights && !JCCL_PLANTED("kinds-of-weights-not-compared");
    const base::Quorum quorum =
        JCCL_PLANTED("quorums-not-compared") ? base::Quorum{} : ready.quorum;
    auto& same = hints[{member.shard, Follows{ready.hint, ready.contributors_max, unit, quorum}}];
    same.push_back(member.incarnation);
    auto& [first, second] = most[member.shard];
    first = std::max(first, same.size());
  }
  if (hints.size() == most.size() || JCCL_PLANTED("hints-not-compared")) return true;
  for (const auto& [key, same] : hints)
    most[key.first].second += same.size() == most[key.first].first;
  for (const auto& [key, same] : hints) {
    const auto& [first, ties] = most[key.first];
    if (same.size() == first && ties == 1) continue;
    for (const wire::Incarnation incarnation : same) {
      if (ties == 1 && first > same.size()) {
        conduct().charge(*connections().record_of(incarnation), Fault::kMismatch,
                         cat("another plan hint in ", tag));
      }
      reject(tag, incarnation, ties == 1 ? Code::kInvalid : Code::kMismatch,
             cat("the plan hint of ", wording().name(*connections().record_of(incarnation)),
                 " differs from that of others with the same call"));
    }
  }
  return false;
}

// Their calls end. The round goes on without them if there are enough others for that; else those
// wait for another call of theirs.
void Forming::refuse_sites(const wire::Tag& tag, const std::map<std::string, base::Status>& unfit,
                           bool go_on) {
  Round& round = rounds().at(tag);
  for (const auto& [site, why] : unfit) {
    if (go_on) round.without.insert(site);
    for (const ProcessRecord* process : connections().shards_of(site)) {
      if (round.ready.count(process->incarnation) > 0)
        reject(tag, process->incarnation, why.code, why.text);
    }
  }
  touch(tag);  // the others may be complete without them
}

// What a call allows its contributors. Each weight is its owner's word, and so is that it
// contributes: peers refuse a START that does not fit the call, all of them. Who has contributed to
// the last round goes before who has not, and who came first before who came later.
bool Forming::agree_on_contributors(const wire::Tag& tag) {
  const Round& round = rounds().at(tag);
  const std::vector<Participant> parts = parts_for(tag);
  std::map<std::uint32_t, std::vector<const Participant*>> groups;
  std::map<std::string, base::Status> unfit;  // sites
  for (const Participant& part : parts) {
    if (!part.contributes() || JCCL_PLANTED("contributors-not-compared")) continue;
    if (!round.ready.at(part.incarnation).ready.unit_weights || part.weight == 1) {
      groups[part.shard].push_back(&part);
      continue;
    }
    unfit[part.site] = {Code::kInvalid, cat("the weight ", part.weight, " of ", part.site,
                                            " is not 1 in this call: weights apply to sum and "
                                            "mean of floating-point leaves; use 1")};
    if (JCCL_PLANTED("unfit-weights-are-free")) continue;
    conduct().charge(*connections().record_of(part.incarnation), Fault::kBadCall,
                     "a weight in a call of unweighted values");
  }
  const bool few = membership().sites_in(tag) < 3;
  for (auto& [shard, group] : groups) {
    const std::size_t most = round.ready.at(group.front()->incarnation).ready.contributors_max;
    if (most == 0 || group.size() <= most) continue;
    const auto rank = [&](const Participant* part) {
      const bool before = round.contributed.count(part->id) > 0;
      return std::pair(before ? 0 : 1,
                       JCCL_PLANTED("the-newest-contribute") ? ~part->id : part->id);
    };
    std::sort(group.begin(), group.end(),
              [&](const Participant* a, const Participant* b) { return rank(a) < rank(b); });
    std::string first;
    for (std::size_t i = 0; i < most; ++i)
      first += cat(first.empty() ? "" : ", ", wording().name(group[i]->id));
    for (std::size_t i = most; i < group.size(); ++i) {
      unfit[group[i]->site] = {
          Code::kLimit,
          cat(group.size(), " peers contribute to one round, at most ", most, " may: ", first,
              " did so before ", wording().name(group[i]->id),
              ", or joined before it (a broadcast has one root, and all_gather a slot for each)")};
    }
    if (!few) continue;  // of two each is in the other's way
    reject_all(tag, Code::kLimit, unfit.at(group[most]->site).text);
    return false;
  }
  if (unfit.empty()) return true;
  refuse_sites(tag, unfit, !few && !JCCL_PLANTED("the-unfit-are-waited-for"));
  return false;
}

bool Forming::agree_on_state(const wire::Tag& tag) {
  const Standing& at = ledger().standing(tag);
  if (!at.born) return true;
  std::vector<wire::Incarnation> other;
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    const auto known = at.digests.find(member.shard);
    if (known == at.digests.end() || known->second != ready_of(tag, member)->ready.state) {
      other.push_back(member.incarnation);
    }
  }
  for (const wire::Incarnation incarnation : other) {
    reject(tag, incarnation, Code::kResync,
           cat("own state of ", tag, " is not revision ", at.committed, " of the run"));
  }
  return other.empty();
}

// Who is READY in a call that goes before another tag's rounds, while somebody that this one lacks
// is in the next of those: each would wait for the other. It hears so, and goes on to that round.
void Forming::send_on(const wire::Tag& tag) {
  const wire::Tag before = rounds().at(tag).before;
  const auto found = rounds().find(before);
  if (before.empty() || found == rounds().end() || JCCL_PLANTED("waits-before-a-round")) return;
  Round& later = found->second;
  if (later.ready.empty() && !later.running.has_value()) return;
  bool ahead = false;
  for (const auto& [id, member] : ledger().members()) {
    if (!membership().owes(tag, id) || ready_of(tag, member) != nullptr) continue;
    ahead = ahead || later.ready.count(member.incarnation) > 0 ||
            (later.running.has_value() && later.running->part_of(member.incarnation) != nullptr);
  }
  if (!ahead) return;
  std::vector<wire::Incarnation> behind;
  for (const auto& [incarnation, open] : rounds().at(tag).ready) {
    if (open.ready.before == before) behind.push_back(incarnation);
  }
  for (const wire::Incarnation incarnation : behind) {
    reject(tag, incarnation, Code::kResync, cat("others are in the next round of ", before));
  }
}

// Its Sync waits for what somebody else is to say first, and not for a moment at which the votes
// that there are decide.
bool Forming::asks_in_vain(const wire::Member& member, const wire::Tag& tag) const {
  const auto& poll = rounds().at(tag).poll;
  const bool time_decides = poll.has_value() && poll->doubt_since != base::kNever;
  if (time_decides && !JCCL_PLANTED("a-vote-in-doubt-is-a-cross-wait")) return false;
  const auto& syncs = processes().at(member.incarnation).syncs;
  const auto asked = syncs.find(tag);
  return asked != syncs.end() && !asked->second.fetching && !asked->second.matches;
}

// All members wait in calls of states, or for a state, and each call lacks somebody who waits
// elsewhere: none of them will come by itself.
std::set<wire::Tag> Forming::crossed_states() const {
  std::set<wire::Tag> tags;
  for (const auto& [tag, round] : rounds()) {
    const bool lacks = round.ready.size() < membership().owing(tag);
    if (round.running.has_value() || (!round.ready.empty() && !lacks)) return {};
  }
  for (const auto& [id, member] : ledger().members()) {
    bool waits = false;
    for (const auto& [tag, round] : rounds()) {
      const bool of_state = ledger().standing(tag).born || !round.before.empty();
      const bool here = round.ready.count(member.incarnation) > 0 || asks_in_vain(member, tag);
      if (!of_state || !here) continue;
      waits = true;
      tags.insert(tag);
    }
    if (!waits) return {};
  }
  return tags.size() < 2 ? std::set<wire::Tag>() : tags;
}

// Fragments of one state take turns by counters that lie in it, so whoever edited them, or brought
// one fragment back, is in another turn than the others, and each would wait for its deadline. All
// look at their states anew.
void Forming::uncross() {
  const std::set<wire::Tag> tags = crossed_states();
  if (tags.empty() || JCCL_PLANTED("cross-wait-for-ever")) {
    states_crossed_since_ = base::kNever;
    return;
  }
  if (states_crossed_since_ == base::kNever) states_crossed_since_ = now();
  if (now() < states_crossed_since_ + options().silence) return;
  const base::Time since = std::exchange(states_crossed_since_, base::kNever);
  const std::string text = wording().cross_wait();
  for (const wire::Tag& tag : tags) {
    // Where most are, the others are late: they pay for it, and the run's policy for who is late
    // goes on.
    const bool most = 2 * rounds().at(tag).ready.size() > membership().owing(tag);
    if (most && !JCCL_PLANTED("one-uncrosses-all")) {
      note_elsewhere(tag, since);
      if (options().straggler != Straggler::kWait) continue;
    }
    reject_all(tag, Code::kResync, text);
  }
}

void Forming::note_elsewhere(const wire::Tag& tag, base::Time since) {
  std::set<std::string> late;
  for (const auto& [id, member] : ledger().members()) {
    if (ready_of(tag, member) != nullptr || !stragglers().takes_part(tag, member)) continue;
    const bool has_none = asks_in_vain(member, tag);  // no choice of its own keeps it from there
    if (has_none && !JCCL_PLANTED("who-has-no-state-is-late")) continue;
    for (const auto& [other, round] : rounds()) {  // who waits for a state waits for others
      if (round.ready.count(member.incarnation) > 0) late.insert(member.site);
    }
  }
  for (const std::string& site : late) wait_charges().note_absence(site, since);
}

}  // namespace jccl::protocol
