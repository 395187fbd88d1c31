#include "protocol/conduct/blame.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::protocol {

namespace {

constexpr std::size_t kAccountsMax = 4096;  // fresh keys are free to make
constexpr double kAccident = 0.9;  // less is what a broken machine may do; a lie that fades is more

constexpr std::array<std::string_view, static_cast<std::size_t>(Fault::kCount)> kNames = {
    "calls unlike the others'",
    "results unlike the others'",
    "rounds refused alone",
    "malformed calls",
    "attempts left",
    "deadlines of its own",
    "contributions with NaN or Inf",
    "states of its own that it had changed",
    "calls taken back as they began",
    "parts of a state unlike the others'",
    "revisions unlike the others'",
    "rounds with frames that no plan allows, as most say",
    "frames that no plan allows, as one says",
    "cells that an audit proved wrong",
    "audits that it showed nothing",
    "rounds of work unlike what it claims, as most that repeated it say"};

template <typename Whom>
void forget_old(std::map<Whom, base::Time>& noted, base::Time now) {
  std::erase_if(noted, [&](const auto& one) { return now >= one.second + kFaultHalfLife; });
}

// A few at most, so that a book stays small.
template <typename Whom>
void note_of_late(std::map<Whom, base::Time>& noted, const Whom& whom, base::Time now) {
  forget_old(noted, now);
  if (noted.size() < kAccusersMax || noted.count(whom) > 0) noted[whom] = now;
}

double decayed(double sum, base::Duration time) {
  if (JCCL_PLANTED("faults-never-fade")) return sum;
  return sum * std::exp2(-static_cast<double>(time) / static_cast<double>(kFaultHalfLife));
}

}  // namespace

// A full book loses the account that says least.
Blame::Account& Blame::account(const wire::PublicKey& key, base::Time now) {
  if (accounts_.count(key) == 0 && accounts_.size() >= kAccountsMax) {
    const auto rank = [now](const Account& one) {
      return std::tuple(now < one.out_until, decayed(one.sum, now - one.at), one.served);
    };
    accounts_.erase(std::min_element(
        accounts_.begin(), accounts_.end(),
        [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); }));
  }
  Account& one = accounts_[key];
  one.sum = decayed(one.sum, now - one.at);
  one.at = now;
  return one;
}

double Blame::charge(const wire::PublicKey& key, const std::string& token, Fault fault,
                     base::Time now) {
  Account& one = account(key, now);
  one.token = token;
  ++one.counts[static_cast<std::size_t>(fault)];
  return one.sum += kFaultWeights[static_cast<std::size_t>(fault)];
}

double Blame::of_token(const std::string& token, base::Time now) const {
  double faults = 0;
  for (const auto& [key, one] : accounts_) {
    const double sum = one.token == token ? decayed(one.sum, now - one.at) : 0;
    if (sum >= kAccident) faults += sum;
  }
  return faults;
}

bool Blame::accused(const wire::PublicKey& key, const wire::PublicKey& by, base::Time now) {
  auto& accusers = account(key, now).accusers;
  forget_old(accusers, now);
  if (accusers.size() >= kAccusersMax && !JCCL_PLANTED("accusers-without-bound")) return false;
  return accusers.try_emplace(by, now).second || JCCL_PLANTED("accuser-counts-again");
}

bool Blame::seen_by_most(const wire::PublicKey& key, const std::string& by,
                         const std::set<std::string>& sites, base::Time now) {
  auto& witnesses = account(key, now).witnesses;
  std::erase_if(witnesses, [&](const auto& one) {
    const bool left = sites.count(one.first) == 0 && !JCCL_PLANTED("witnesses-that-left-count");
    return now >= one.second + kFaultHalfLife || left;
  });
  witnesses[by] = now;
  if (2 * witnesses.size() <= sites.size() && !JCCL_PLANTED("one-witness-is-enough")) return false;
  witnesses.clear();
  return true;
}

base::Duration Held::count(base::Time since, base::Time until) {
  if (JCCL_PLANTED("the-last-end-is-counted-to") && !counted_.empty())
    since = std::clamp(since, std::min(counted_.rbegin()->second, until), until);
  base::Duration fresh = until - since;
  for (auto one = counted_.begin(); one != counted_.end();) {
    if (one->second < since || until < one->first) {
      ++one;
      continue;
    }
    fresh -= std::min(until, one->second) - std::max(since, one->first);
    since = std::min(since, one->first), until = std::max(until, one->second);
    one = counted_.erase(one);
  }
  counted_[since] = until;
  if (counted_.size() > kSpansMax) {  // to forget one is to count it again, at worst
    counted_.erase(std::min_element(counted_.begin(), counted_.end(), [](auto& a, auto& b) {
      return a.second - a.first < b.second - b.first;
    }));
  }
  return fresh;
}

void Blame::broke(const wire::PublicKey& key, const std::string& other, base::Time now) {
  auto& broken = account(key, now).broken;
  std::erase_if(broken, [&](const auto& one) { return !one.second.is_new(now); });
  if (broken.size() >= kAccusersMax && broken.count(other) == 0) {
    const auto first = std::find_if(broken.begin(), broken.end(),
                                    [](const auto& one) { return one.second.forgiven; });
    if (first == broken.end()) return;
    broken.erase(first);
  }
  Broken& link = broken[other];
  link = {now, link.times + 1, false};
}

std::size_t Blame::broken(const wire::PublicKey& key, std::uint32_t times, base::Time now) const {
  const auto found = accounts_.find(key);
  if (found == accounts_.end()) return 0;
  const auto& broken = found->second.broken;
  return static_cast<std::size_t>(std::count_if(broken.begin(), broken.end(), [&](const auto& one) {
    const Broken& link = one.second;
    return link.is_new(now) && link.times >= times && !link.forgiven;
  }));
}

std::int64_t Blame::broken_elsewhere(const wire::PublicKey& key, const std::string& other,
                                     base::Time now) const {
  std::int64_t times = 0;
  const auto found = accounts_.find(key);
  if (found == accounts_.end()) return 0;
  for (const auto& [with, link] : found->second.broken) {
    if (!link.is_new(now) || (link.forgiven && with != other)) continue;
    times += with == other ? -std::int64_t{link.times} : std::int64_t{link.times};
  }
  return times;
}

void Blame::forgive_links_with(const std::string& other) {
  for (auto& [key, account] : accounts_) {
    const auto found = account.broken.find(other);
    if (found != account.broken.end()) found->second.forgiven = true;
  }
}

void Blame::yield(const wire::PublicKey& key, const wire::PublicKey& to, base::Time now) {
  note_of_late(account(key, now).yielded, to, now);
}

bool Blame::yielded(const wire::PublicKey& key, const wire::PublicKey& to, base::Time now) const {
  const auto found = accounts_.find(key);
  if (found == accounts_.end()) return false;
  const auto when = found->second.yielded.find(to);
  if (when == found->second.yielded.end()) return false;
  return now < std::max(when->second, found->second.out_until) + kFaultHalfLife;
}

double Blame::held_against(const wire::PublicKey& key, base::Time now) const {
  const auto found = accounts_.find(key);
  return found == accounts_.end() ? 0 : decayed(found->second.sum, now - found->second.at);
}

bool Blame::is_blamed(const wire::PublicKey& key, base::Time now) const {
  return held_against(key, now) >= kAccident;
}

std::string Blame::words(const wire::PublicKey& key, base::Time now) const {
  const auto found = accounts_.find(key);
  std::string text;
  if (found == accounts_.end()) return text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::uint32_t count = found->second.counts[i];
    if (count > 0) text += base::cat(text.empty() ? "" : ", ", count, " ", kNames[i]);
  }
  if (found->second.held.total() >= Held::kFree) {
    text += base::cat(text.empty() ? "" : ", ", "others waited for it for ",
                      found->second.held.total() / base::kSecond, " s");
  }
  if (now < found->second.out_until) {
    text += base::cat(text.empty() ? "" : ", ", "kept out for ",
                      (found->second.out_until - now) / base::kSecond + 1, " s");
  }
  return text;
}

void Blame::departed(const wire::PublicKey& key, base::Duration cost, base::Duration out_max,
                     base::Time now) {
  Account& one = account(key, now);
  // While it was out it did nothing good, either.
  const base::Duration since =
      std::max<base::Duration>(0, now - std::max(one.departed_at, one.out_until));
  for (base::Duration t = kFaultHalfLife; t <= since && one.departures > 0; t += kFaultHalfLife) {
    --one.departures;
  }
  one.departed_at = now;
  const std::uint32_t before = one.departures++;
  if (before == 0 || JCCL_PLANTED("departures-are-free")) return;
  const base::Duration least = std::max<base::Duration>(cost, base::kSecond);
  one.out_until = now + std::min(out_max, least << std::min(before - 1, 10U));
}

std::uint32_t Blame::departures(const wire::PublicKey& key) const {
  const auto found = accounts_.find(key);
  return found == accounts_.end() ? 0 : found->second.departures;
}

base::Time Blame::out_until(const wire::PublicKey& key) const {
  const auto found = accounts_.find(key);
  return found == accounts_.end() ? 0 : found->second.out_until;
}

void Blame::held(const wire::PublicKey& key, base::Time since, base::Duration free,
                 base::Duration out_max, base::Time now) {
  Account& one = account(key, now);
  const bool in_full = !JCCL_PLANTED("long-deadlines-are-cheap");
  one.out_until = std::max(one.out_until, one.held.add(since, free, out_max, now, in_full));
}

bool Blame::held_of_late(const wire::PublicKey& key, base::Time now) const {
  const auto found = accounts_.find(key);
  if (found == accounts_.end() || JCCL_PLANTED("known-holders-are-let-in")) return false;
  const Held& held = found->second.held;
  return held.owed_to(Held::kFree) > now;
}

void Blame::served(const wire::PublicKey& key, base::Duration time, base::Time now) {
  account(key, now).served += time;
}

base::Duration Blame::served(const wire::PublicKey& key) const {
  const auto found = accounts_.find(key);
  return found == accounts_.end() ? 0 : found->second.served;
}

bool Blame::known(const wire::PublicKey& key) const {
  const base::Duration least = JCCL_PLANTED("one-round-makes-known") ? 0 : kKnown;
  return accounts_.count(key) > 0 && served(key) >= least;
}

void Blame::visited(const wire::PublicKey& key, bool in_vain, base::Time now) {
  if (in_vain || accounts_.count(key) > 0) account(key, now).in_vain = in_vain;
}

bool Blame::in_vain(const wire::PublicKey& key) const {
  const auto found = accounts_.find(key);
  return found != accounts_.end() && found->second.in_vain;
}

void Blame::forget_faults(const wire::PublicKey& key) {
  const auto found = accounts_.find(key);
  if (found == accounts_.end()) return;
  found->second.sum = 0;
  found->second.counts = {};
}

}  // namespace jccl::protocol
