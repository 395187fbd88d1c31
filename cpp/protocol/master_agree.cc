// Whether those that are READY for a round ask for the same: call, plan, state. Who does not hears
// who sent what. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using State = MasterMachine::State;

bool State::agree(const wire::Tag& tag) {
  std::map<std::uint32_t, wire::Digest> descriptors;
  std::set<std::uint32_t> counts;
  std::set<wire::Digest> fingerprints;
  bool equal = true;
  for (const auto& [id, member] : ledger_.members()) {
    if (!takes_part(tag, member)) continue;
    const wire::Ready& ready = ready_of(tag, member)->ready;
    const auto [entry, fresh] = descriptors.try_emplace(member.shard, ready.descriptor);
    equal = equal && entry->second == ready.descriptor;
    counts.insert(member.shards);
    if (ready.has_state) fingerprints.insert(ready.fingerprint);
  }
  if (counts.size() > 1 || !equal || fingerprints.size() > 1) {
    reject_all(tag, Code::kMismatch, mismatch_text(tag));
    return false;
  }
  if (!agree_on_hint(tag) || !agree_on_state(tag)) return false;
  const std::vector<Part> parts = parts_for(tag);
  if (std::none_of(parts.begin(), parts.end(), [](const Part& p) { return p.contributes(); })) {
    reject_all(
        tag, Code::kEmpty,
        cat("nobody contributes to round ", ledger_.standing(tag).committed + 1, " of ", tag,
            rounds_.at(tag).memory.guarded.empty() ? "" : ": ", rounds_.at(tag).memory.guarded));
    return false;
  }
  return true;
}

// A hint follows from the call, so among equal calls it is equal. Who says another than most has
// made it up: the plan would not fit the others' calls.
bool State::agree_on_hint(const wire::Tag& tag) {
  std::map<std::pair<std::uint32_t, base::Bytes>, std::vector<wire::Incarnation>> hints;
  std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> most;  // by shard; how many have it
  for (const auto& [id, member] : ledger_.members()) {
    if (!takes_part(tag, member)) continue;
    auto& same = hints[{member.shard, ready_of(tag, member)->ready.hint}];
    same.push_back(member.incarnation);
    auto& [first, second] = most[member.shard];
    first = std::max(first, same.size());
  }
  if (hints.size() == most.size()) return true;
  for (const auto& [key, same] : hints)
    most[key.first].second += same.size() == most[key.first].first;
  for (const auto& [key, same] : hints) {
    const auto& [first, ties] = most[key.first];
    if (same.size() == first && ties == 1) continue;
    for (const wire::Incarnation incarnation : same) {
      reject(tag, incarnation, ties == 1 ? Code::kInvalid : Code::kMismatch,
             cat("the plan hint of ", name(*life_of(incarnation)),
                 " differs from that of others with the same call"));
    }
  }
  return false;
}

bool State::agree_on_state(const wire::Tag& tag) {
  const Standing& at = ledger_.standing(tag);
  if (!at.born) return true;
  std::vector<wire::Incarnation> other;
  for (const auto& [id, member] : ledger_.members()) {
    if (!takes_part(tag, member)) continue;
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

}  // namespace jccl::protocol
