#include "fuzz/hostile/hostile_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace jccl::fuzz {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Sums of small integers with these are exact in f32, in any order.
bool is_exact_weight(double weight) { return weight == 1 || weight == 2 || weight == 0.5; }

}  // namespace

void Oracle::enters(const wire::Attempt& attempt, wire::PeerId peer, double weight,
                    const std::vector<float>& in, bool hostile) {
  inputs_[attempt][peer] = {weight, in, hostile};
  constexpr std::size_t kRemembered = 64;
  while (inputs_.size() > kRemembered) inputs_.erase(inputs_.begin());
}

void Oracle::failed(const std::vector<float>& out) const {
  JCCL_CHECK(std::ranges::all_of(out, [](float v) { return v == kUntouched; }));
}

bool Oracle::exact(const UserResult& result) const {
  if (bent_.count(result.attempt) > 0) return false;
  const auto inputs = inputs_.find(result.attempt);
  if (inputs == inputs_.end()) return false;
  for (const wire::Contributor& one : result.done->contributors) {
    const auto input = inputs->second.find(one.id);
    const bool sums = result.collective == peer::Collective::kAllReduce;
    if (!is_exact_weight(one.weight) || (!sums && one.weight != 1)) return false;
    if (input == inputs->second.end()) return false;  // a bare connection of the hostile one's
  }
  return true;
}

void Oracle::committed(const UserResult& result) {
  if (!holds_) return;
  const protocol::CompleteCall& done = *result.done;
  JCCL_CHECK(!done.contributors.empty() && done.world >= 1);
  for (const wire::Contributor& one : done.contributors) {
    const auto inputs = inputs_.find(result.attempt);
    if (inputs == inputs_.end()) break;
    const auto input = inputs->second.find(one.id);
    if (input == inputs->second.end() || input->second.hostile) continue;
    JCCL_CHECK(input->second.weight == one.weight);  // nobody else says what an honest one weighs
  }
  const bool whole =
      collective::spec_of(result.collective).digest == collective::CollectiveSpec::Digest::kCommon;
  const auto [at, fresh] = results_.try_emplace({done.tag, done.n});
  if (fresh) {
    at->second.attempt = result.attempt;
    at->second.contributors = done.contributors;
    if (whole) at->second.out = *result.out;
  } else {
    JCCL_CHECK(at->second.attempt == result.attempt);
    JCCL_CHECK(at->second.contributors == done.contributors);
    if (whole) JCCL_CHECK(same_bits(at->second.out, *result.out));
  }
  if (!exact(result)) return;
  if (result.collective == peer::Collective::kAllToAll) return check_blocks(result);
  check_sum(result);
}

// Who has no slot gets nothing.
void Oracle::check_blocks(const UserResult& result) const {
  const auto& inputs = inputs_.at(result.attempt);
  const std::vector<float>& out = *result.out;
  const auto& contributors = result.done->contributors;
  const std::size_t slots = out.size() / kUserValues;
  std::size_t own = slots;
  for (std::size_t i = 0; i < contributors.size(); ++i) {
    if (contributors[i].id == result.self) own = i;
  }
  std::size_t begin = 0;  // of the leaf
  for (const std::size_t block : {std::size_t{24}, kUserValues - 24}) {
    for (std::size_t at = 0; at < slots * block; ++at) {
      const std::size_t slot = at / block, i = at % block;
      const bool filled = own < slots && slot < contributors.size();
      const float want =
          filled ? inputs.at(contributors[slot].id).values[begin + own * block + i] : 0;
      JCCL_CHECK(out[begin + at] == want);
    }
    begin += slots * block;
  }
}

void Oracle::check_sum(const UserResult& result) const {
  const auto& inputs = inputs_.at(result.attempt);
  const std::vector<float>& out = *result.out;
  const auto& contributors = result.done->contributors;
  if (result.collective == peer::Collective::kAllGather) {
    const std::size_t first = 24;  // values of the first leaf: slots of it, then of the second
    const std::size_t slots = out.size() / kUserValues;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      for (std::size_t i = 0; i < kUserValues; ++i) {
        const std::size_t rest = kUserValues - first;
        const std::size_t at =
            i < first ? slot * first + i : slots * first + slot * rest + (i - first);
        const float want =
            slot < contributors.size() ? inputs.at(contributors[slot].id).values[i] : 0;
        JCCL_CHECK(out[at] == want);
      }
    }
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!result.scattered.empty() && !result.scattered[i]) {
      JCCL_CHECK(result.private_out || out[i] == kUntouched);
      continue;
    }
    double sum = 0;
    for (const wire::Contributor& one : contributors) {
      sum += one.weight * inputs.at(one.id).values[i];
    }
    JCCL_CHECK(out[i] == static_cast<float>(sum));
  }
}

void Oracle::published(const wire::Held& held) {
  if (!holds_) return;
  const auto [at, fresh] = states_.try_emplace({held.tag, held.revision}, held.digest);
  JCCL_CHECK(fresh || at->second == held.digest);
}

}  // namespace jccl::fuzz
