// The count of who stands by each part. See proof_plan.h.
#include "snapshot/proof_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::snapshot {

ProofPlan::ProofPlan(ProofOptions options, const Holders& holders, std::uint32_t first_part,
                     std::uint32_t last_part)
    : options_(options), first_(first_part), last_(last_part) {
  JCCL_CHECK(first_part <= last_part);
  JCCL_CHECK(options.asks_per_holder > 0);
  std::map<base::PublicKey, std::size_t> by_key;
  for (const auto& [holder, key] : holders) {
    const auto [at, is_new] = by_key.try_emplace(key, voters_.size());
    if (is_new || JCCL_PLANTED("vote-for-each-life")) {
      at->second = voters_.size();
      voters_.emplace_back().holder = holder;
    }
    number_[holder] = at->second;
  }
  count_voters();
}

void ProofPlan::count_voters() {
  count_ = static_cast<std::size_t>(std::count_if(
      voters_.begin(), voters_.end(), [](const Voter& voter) { return !voter.evicted; }));
  majority_ = count_ / 2 + (JCCL_PLANTED("half-of-the-holders-prove") ? 0 : 1);
}

ProofPlan::Voter* ProofPlan::voter_of(base::Incarnation holder) {
  const auto found = number_.find(holder);
  if (found == number_.end()) return nullptr;
  Voter& voter = voters_[found->second];
  return voter.holder == holder ? &voter : nullptr;
}

void ProofPlan::on_part(std::uint32_t part, base::Incarnation from) {
  JCCL_CHECK(part >= first_ && part < last_);
  const auto [at, is_new] = open_.try_emplace(part);
  JCCL_CHECK(is_new);
  at->second.from = from;
  const auto sender = number_.find(from);
  if (sender != number_.end()) at->second.same.insert(sender->second);
  look_.insert(part);
  if (decide(part, at->second)) close(at);
}

std::optional<std::uint32_t> ProofPlan::asked(base::Incarnation holder, std::uint64_t ask) const {
  const auto number = number_.find(holder);
  if (number == number_.end() || voters_[number->second].holder != holder) return std::nullopt;
  const auto found = voters_[number->second].asks.find(ask);
  if (found == voters_[number->second].asks.end()) return std::nullopt;
  return found->second;
}

void ProofPlan::on_answer(base::Incarnation holder, std::uint64_t ask, bool same, base::Time now) {
  const auto part = asked(holder, ask);
  if (!part) return;
  Voter& voter = *voter_of(holder);
  voter.asks.erase(ask);
  voter.heard = now;
  if (std::exchange(voter.slow, false)) look_at_all();
  const auto at = open_.find(*part);
  const std::size_t number = number_.at(holder);
  at->second.asked.erase(number);
  (same || JCCL_PLANTED("any-mac-proves") ? at->second.same : at->second.other).insert(number);
  look_.insert(*part);
  if (decide(*part, at->second)) close(at);
}

// An answer that comes later is to an ask of other bytes, or of no use.
void ProofPlan::close(std::map<std::uint32_t, Open>::iterator part) {
  for (const std::size_t number : part->second.asked) {
    if (JCCL_PLANTED("late-answer-counts")) break;
    std::erase_if(voters_[number].asks, [&](const auto& ask) { return ask.second == part->first; });
    look_at_all();  // it has room
  }
  open_.erase(part);
}

void ProofPlan::on_holder_lost(base::Incarnation holder, const std::string& why) {
  Voter* voter = voter_of(holder);
  if (voter == nullptr) return;
  voter->gone = why;
  if (!JCCL_PLANTED("lost-voter-waited-for")) drop_asks(*voter);
}

void ProofPlan::on_holder_back(base::Incarnation holder) {
  Voter* voter = voter_of(holder);
  if (voter == nullptr) return;
  voter->gone.clear();
  voter->slow = false;
  look_at_all();
}

void ProofPlan::on_holder_evicted(base::Incarnation holder) {
  Voter* voter = voter_of(holder);
  if (voter == nullptr || std::exchange(voter->evicted, true)) return;
  drop_asks(*voter);
  if (JCCL_PLANTED("evicted-still-votes")) return;
  const std::size_t number = number_.at(holder);
  for (auto& [part, open] : open_) open.same.erase(number), open.other.erase(number);
  count_voters();
}

// What it was asked may be asked again, of it or of others.
void ProofPlan::drop_asks(Voter& voter) {
  for (const auto& [ask, part] : voter.asks) {
    const auto open = open_.find(part);
    if (open != open_.end()) open->second.asked.erase(number_.at(voter.holder));
  }
  voter.asks.clear();
  look_at_all();
}

void ProofPlan::look_at_all() {
  for (const auto& [part, open] : open_) look_.insert(part);
}

bool ProofPlan::decide(std::uint32_t part, const Open& open) {
  if (open.same.size() >= majority_) {
    ++proved_;
    outvote(std::set(open.other), part);
    return true;
  }
  if (open.other.size() < majority_) return false;
  unproved_.push_back({part, open.from});
  outvote(std::set(open.same), part);
  return true;
}

void ProofPlan::outvote(const std::set<std::size_t>& voters, std::uint32_t part) {
  for (const std::size_t number : voters) {
    Voter& voter = voters_[number];
    if (std::exchange(voter.outvoted, true)) continue;
    outvoted_.push_back({voter.holder, part});
    drop_asks(voter);
  }
}

bool ProofPlan::ask_for(std::uint32_t part, Open& open, base::Time now,
                        std::vector<ProofAsk>* out) {
  const auto waits_for = [&](std::size_t number) { return !voters_[number].slow; };
  std::size_t count = open.same.size() + static_cast<std::size_t>(std::count_if(
                                             open.asked.begin(), open.asked.end(), waits_for));
  const bool all = !open.other.empty() && !JCCL_PLANTED("doubt-asks-nobody");
  bool had_room = true;
  // From another one for each part, so that all have as much to do.
  for (std::size_t i = 0; i < voters_.size() && (all || count < majority_); ++i) {
    const std::size_t number = (part + i) % voters_.size();
    Voter& voter = voters_[number];
    if (open.said(number) || open.asked.contains(number) || !voter.may_answer()) continue;
    if (voter.slow) continue;
    ++count;
    if (voter.asks.size() >= options_.asks_per_holder) {
      had_room = false;
      continue;
    }
    if (voter.asks.empty()) voter.heard = now;
    open.asked.insert(number);
    out->push_back({voter.holder, next_ask_, part});
    voter.asks.emplace(next_ask_++, part);
  }
  return had_room;
}

// True: it is to be fetched again. Else there may be a majority yet, or the plan has failed.
bool ProofPlan::give_up(std::uint32_t part, const Open& open) {
  std::size_t left = 0;
  for (std::size_t i = 0; i < voters_.size(); ++i) left += !open.said(i) && voters_[i].may_answer();
  if (open.same.size() + left >= majority_) return false;
  const std::string counts =
      base::cat("part ", part, ": ", open.same.size(), " of ", count_, " holders stand by it and ",
                open.other.size(), " contradict; ");
  if (count_ - open.other.size() >= majority_) {  // who is silent might have said yes
    status_ = {base::Code::kPeerLost,
               base::cat(counts, "the others don't answer: ", waiting_for())};
    return false;
  }
  if (left > 0) return false;  // they may say whose fault it is
  if (!fetched_again_.insert(part).second) {
    status_ = {base::Code::kDisputed, base::cat(counts, "nobody can say who is right")};
    return false;
  }
  unproved_.push_back({part, open.from});
  return true;
}

void ProofPlan::notice_silence(base::Time now) {
  if (JCCL_PLANTED("silent-voter-waited-for")) return;
  for (Voter& voter : voters_) {
    if (voter.asks.empty() || now < voter.heard + options_.slow_after) continue;
    if (!std::exchange(voter.slow, true)) look_at_all();
    if (now >= voter.heard + options_.lost_after) on_holder_lost(voter.holder, "is silent");
  }
}

std::vector<ProofAsk> ProofPlan::next_asks(base::Time now) {
  notice_silence(now);
  std::vector<ProofAsk> out;
  for (auto part = look_.begin(); part != look_.end() && status_.ok();) {
    const auto at = open_.find(*part);
    bool settled = true;
    if (at != open_.end() && decide(at->first, at->second)) {  // since one was evicted
      close(at);
    } else if (at != open_.end()) {
      settled = ask_for(at->first, at->second, now, &out);
      if (give_up(at->first, at->second)) close(at);
    }
    part = settled ? look_.erase(part) : std::next(part);
  }
  return out;
}

std::vector<Unproved> ProofPlan::take_unproved() { return std::exchange(unproved_, {}); }

std::vector<Outvoted> ProofPlan::take_outvoted() { return std::exchange(outvoted_, {}); }

base::Time ProofPlan::wake() const {
  base::Time wake = base::kNever;
  for (const Voter& voter : voters_) {
    const base::Duration patience = voter.slow ? options_.lost_after : options_.slow_after;
    if (!voter.asks.empty()) wake = std::min(wake, voter.heard + patience);
  }
  return wake;
}

std::string ProofPlan::waiting_for() const {
  std::string text = base::cat(last_ - first_ - proved_, " parts to be proved");
  for (const Voter& voter : voters_) {
    if (voter.evicted || (voter.asks.empty() && voter.gone.empty() && !voter.outvoted)) continue;
    text += base::cat(", ", base::to_hex(voter.holder), " ",
                      voter.outvoted        ? "was outvoted"
                      : !voter.gone.empty() ? voter.gone
                      : voter.slow          ? "is slow"
                                            : "was asked");
  }
  return text;
}

}  // namespace jccl::snapshot
