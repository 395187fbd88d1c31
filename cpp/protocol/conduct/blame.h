// The account of each key: faults that only its owner can have made, each with a weight that halves
// every ten minutes. Also, how often its site had to go for causes that a bad line may have (broken
// links, slowness). These keep the key out for a while, longer each time. Decides nothing: the
// master bans and keeps out by it. Pure; any one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/time.h"
#include "wire/messages.h"

namespace jccl::protocol {

enum class Fault : std::uint8_t {
  kMismatch,    // a READY for another call, plan or state than most others'
  kResult,      // a result that differs from most others'
  kRefusal,     // ended a round by a FAIL that nobody shares
  kBadCall,     // a READY that is no call: weight, digest of a decided revision
  kWithdrawal,  // left an attempt that ran
  kDeadline,    // … for a deadline that nobody shares
  kGuard,       // NaN or Inf where a contribution should be
  kEdited,      // left an attempt since its own state had changed: a program's mistake
  kCrossed,     // took back a call while its START was under way to it
  kForgery,     // served another state than most, as a fetcher reports
  kOutvoted,    // reports another revision than most of its makers
  kFrames,      // sent frames that its plan does not allow, as most others report
  kFrame,       // … as one reports
  kAudit,       // added up wrong, or showed what it had not sent, as a proof says
  kWithheld,    // showed an audit nothing, and was there
  kWork,        // claims work that most others, who repeated it, found different
  kCount
};

// 1: three of them within some minutes are a ban. A tenth: what a broken machine may do at times.
// NaN costs the others one try, and some programs make it on purpose, as loss scaling does.
// Of work most others have voted already: a ban at once.
constexpr std::array<double, static_cast<std::size_t>(Fault::kCount)> kFaultWeights = {
    1, 1, 1, 0.25, 0.25, 0.1, 0.02, 0.1, 0.1, 0.1, 0.1, 1, 0.1, 1, 0.25, 2.5};
inline constexpr double kBanAt = 2.5;
inline constexpr std::size_t kAccusersMax = 5;
inline constexpr base::Duration kKnown = 60 * base::kSecond;  // in commits for so long
inline constexpr base::Duration kFaultHalfLife = 600 * base::kSecond;

// Members of one token that left without having been in a commit. Some are no fault, as programs
// that fail at their start. More of them cost the others attempts, and new keys wait until that is
// paid. Members that go together, as a cluster without power does, cost less.
class Visits {
 public:
  // Counts one, of which so many are free at once. How long new keys wait, `most` at most.
  base::Duration add(int free, base::Duration most, base::Time now) {
    const bool together = now < counted_at_ + kTogether;
    if (!together) counted_at_ = now;
    const base::Duration cost = together ? kEach / 8 : kEach;
    paid_at_ = std::min(std::max(paid_at_, now) + cost, now + free * kEach + most);
    return std::max<base::Duration>(0, paid_at_ - now - free * kEach);
  }
  template <typename Canon>
  void each_field(Canon& canon) const {  // for canonical.cc
    canon.put(paid_at_), canon.put(counted_at_);
  }

  static constexpr base::Duration kEach = base::kSecond;
  static constexpr base::Duration kTogether = 100 * base::kMillisecond;
  static constexpr int kFree = 8;
  static constexpr int kFreeAtFirst = 64;  // a run may take many tries to begin

 private:
  friend struct Archived;
  base::Time paid_at_ = 0;              // all that were counted
  base::Time counted_at_ = -kTogether;  // the last of whom the whole was charged
};

// Time for which others waited for a peer that then went, or was passed over. Some of it is free.
// The peer waits outside for a multiple of the rest. The same time counts once, even if others
// waited for several peers of a token.
class Held {
 public:
  // From `since` to now. Until when new ones wait; `most` at most, or, in full, for what this time
  // alone cost: long deadlines would else cost the others more than a ninth of their time.
  base::Time add(base::Time since, base::Duration free, base::Duration most, base::Time now,
                 bool in_full = false) {
    const base::Duration held = count(std::min(since, now), now);
    total_ += held;
    const base::Duration alone = in_full ? kBack * std::max<base::Duration>(0, held - free) : 0;
    paid_at_ = std::min(std::max(paid_at_, now) + kBack * held,
                        now + kBack * free + std::max(most, alone));
    return std::max(now, paid_at_ - kBack * free);
  }
  base::Duration total() const { return total_; }
  base::Time owed_to(base::Duration free) const { return paid_at_ - kBack * free; }
  template <typename Canon>
  void each_field(Canon& canon) const {  // for canonical.cc; the total is words
    canon.put(paid_at_), canon.put(counted_.size());
    for (const auto& [since, until] : counted_) canon.put(since), canon.put(until);
  }

  static constexpr int kBack = 8;                             // at most a ninth of all time is lost
  static constexpr base::Duration kFree = 5 * base::kSecond;  // one hung machine and another
  static constexpr std::size_t kSpansMax = 16;

 private:
  friend struct Archived;
  // What of the span was not counted before. Rounds of several tags overlap, and end in any order.
  base::Duration count(base::Time since, base::Time until);

  base::Time paid_at_ = 0;
  std::map<base::Time, base::Time> counted_;  // apart from one another; kSpansMax at most
  base::Duration total_ = 0;
};

// As it is told.
inline std::string brief_key(const wire::PublicKey& key) { return base::to_hex(key).substr(0, 16); }

class Blame {
 public:
  // The sum of the faults of the key, which came by the token, with this one.
  double charge(const wire::PublicKey& key, const std::string& token, Fault fault, base::Time now);
  // The same for all keys that came by the token, without one accident of each.
  double of_token(const std::string& token, base::Time now) const;
  double held_against(const wire::PublicKey& key, base::Time now) const;
  // More than a broken machine may do at times.
  bool is_blamed(const wire::PublicKey& key, base::Time now) const;
  // Whether one more accusation counts: each accuser's once, and kAccusersMax of them within a
  // half-life. So accusations alone are no ban, however many members make them.
  bool accused(const wire::PublicKey& key, const wire::PublicKey& by, base::Time now);
  // A site says that the key's frames are not what plans allow. True: more than half of `sites`,
  // those of the others, have said so within a half-life; then they are to say it anew.
  bool seen_by_most(const wire::PublicKey& key, const std::string& by,
                    const std::set<std::string>& sites, base::Time now);
  // It was at one end of a link that failed, and `other` at the other end. broken(): with how many
  // others of late, at least `times` each. broken_elsewhere(): how often with others than `other`,
  // minus how often with `other`.
  void broke(const wire::PublicKey& key, const std::string& other, base::Time now);
  std::size_t broken(const wire::PublicKey& key, std::uint32_t times, base::Time now) const;
  std::int64_t broken_elsewhere(const wire::PublicKey& key, const std::string& other,
                                base::Time now) const;
  void forgive_links_with(const std::string& other);
  // Of the two it was the one that had to go, though it had served as long.
  void yield(const wire::PublicKey& key, const wire::PublicKey& to, base::Time now);
  bool yielded(const wire::PublicKey& key, const wire::PublicKey& to, base::Time now) const;
  // "2 mismatches, 1 result that differs"; empty: nothing.
  std::string words(const wire::PublicKey& key, base::Time now) const;
  // Its site went, and cost the others so long. The first time is free; then it stays out for as
  // long as that, then for twice as long, and so on.
  void departed(const wire::PublicKey& key, base::Duration cost, base::Duration out_max,
                base::Time now);
  base::Time out_until(const wire::PublicKey& key) const;
  std::uint32_t departures(const wire::PublicKey& key) const;  // that count still
  // Others have waited for it since then: beyond `free` it stays out for several times as long.
  void held(const wire::PublicKey& key, base::Time since, base::Duration free,
            base::Duration out_max, base::Time now);
  bool held_of_late(const wire::PublicKey& key, base::Time now) const;
  // It was in commits for so long, as a member that now goes. After a minute it is known: others of
  // its token do not keep it out.
  void served(const wire::PublicKey& key, base::Duration time, base::Time now);
  base::Duration served(const wire::PublicKey& key) const;
  bool known(const wire::PublicKey& key) const;
  // Whether its last time as a member ended without a commit: then it counts as new.
  void visited(const wire::PublicKey& key, bool in_vain, base::Time now);
  bool in_vain(const wire::PublicKey& key) const;
  // For canonical.cc.
  template <typename Canon>
  void each_field(Canon& canon) const {
    canon.put(accounts_.size());
    for (const auto& [key, account] : accounts_) {
      const auto& [sum, at, token, counts, departures, out_until, departed_at, in_vain, accusers,
                   witnesses, broken, yielded, held, served] = account;
      canon.put(key), canon.put(token), canon.put(sum), canon.put(at), canon.put(departures);
      canon.put(out_until), canon.put(departed_at), canon.put(in_vain);
      canon.put(accusers), canon.put(witnesses), canon.put(yielded), canon.put(served);
      canon.put(broken.size());
      for (const auto& [with, link] : broken) {
        canon.put(with), canon.put(link.at), canon.put(link.times), canon.put(link.forgiven);
      }
      held.each_field(canon);
      (void)counts;  // words
    }
  }
  void forget_faults(const wire::PublicKey& key);  // it was punished for them

 private:
  friend struct Archived;
  struct Broken {  // links with one: the last time, and how often
    base::Time at = 0;
    std::uint32_t times = 0;
    bool forgiven = false;  // that one went, or was cut off
    bool is_new(base::Time now) const { return now < at + kFaultHalfLife; }
  };
  struct Account {
    double sum = 0;
    base::Time at = 0;  // of `sum`
    std::string token;  // by which it came when it was charged last
    std::array<std::uint32_t, static_cast<std::size_t>(Fault::kCount)> counts{};
    std::uint32_t departures = 0;
    base::Time out_until = 0, departed_at = 0;
    bool in_vain = false;
    std::map<wire::PublicKey, base::Time> accusers;
    std::map<std::string, base::Time> witnesses;    // sites that saw its frames
    std::map<std::string, Broken> broken;           // with whom it broke links
    std::map<wire::PublicKey, base::Time> yielded;  // for whom it went
    Held held;
    base::Duration served = 0;
  };
  Account& account(const wire::PublicKey& key, base::Time now);

  std::map<wire::PublicKey, Account> accounts_;
};

}  // namespace jccl::protocol
