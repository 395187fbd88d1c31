// How much one connection or one address may cause: so many at once, so many a second from then
// on. Who is over it is served later (charge), or not at all (take); others do not pay. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "base/planted.h"
#include "base/time.h"

namespace jccl::net {

struct Rate {
  std::uint32_t burst, per_second;
};

class Allowance {
 public:
  // Counts one. How long its turn is away: 0 while there is some left.
  base::Duration charge(const Rate& rate, base::Time now) {
    const base::Duration each = cost(rate);
    used_until_ = (JCCL_PLANTED("burst-not-used-up") ? now : std::max(used_until_, now)) + each;
    return std::max<base::Duration>(0, used_until_ - now - each * rate.burst);
  }
  // Counts one if there is some left.
  bool take(const Rate& rate, base::Time now) {
    if (spent(rate, now)) return false;
    (void)charge(rate, now);
    return true;
  }
  bool spent(const Rate& rate, base::Time now) const {
    return used_until_ - now > cost(rate) * (static_cast<base::Duration>(rate.burst) - 1);
  }
  // Gives `count` back, for what was of use to others.
  void refund(const Rate& rate, std::uint32_t count) { used_until_ -= cost(rate) * count; }
  bool unused(base::Time now) const { return used_until_ <= now; }

 private:
  static base::Duration cost(const Rate& rate) {
    return base::kSecond / static_cast<base::Duration>(rate.per_second);
  }
  base::Time used_until_ = 0;  // all that was charged is paid then
};

// One for each address that was heard lately. At most kMost: those beyond share one.
class Allowances {
 public:
  base::Duration charge(const std::string& network, const Rate& rate, base::Time now) {
    return of(network, now).charge(rate, now);
  }
  Allowance& of(const std::string& network, base::Time now) {
    if (held_.size() >= kMost && held_.count(network) == 0) {
      std::erase_if(held_, [now](const auto& entry) { return entry.second.unused(now); });
      if (held_.size() >= kMost && !JCCL_PLANTED("allowances-without-bound")) return shared_;
    }
    return held_[network];
  }
  std::size_t size() const { return held_.size(); }

  static constexpr std::size_t kMost = 4096;

 private:
  std::map<std::string, Allowance> held_;
  Allowance shared_;
};

}  // namespace jccl::net
