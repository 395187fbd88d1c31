// How many bytes a second may leave by all links of a peer together, and how many in any day. Those
// that want to send take turns, one batch each, so that none starves beside another. Pure: time
// comes in.
//
// A day has 0.04 of its bytes at once, and gains the rest evenly: 0.96 in 86,400 s, its bytes in
// 90,000 s. So rounds go at the line's speed until that is used up, and any day is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/planted.h"
#include "base/time.h"

namespace jccl::net {

class Throttle {
 public:
  explicit Throttle(double bytes_per_second, double day_bytes = 0)
      : rate_(bytes_per_second), day_(day_bytes) {}

  bool bounds() const { return rate_ > 0 || day_ > 0; }  // else nobody waits
  void set(double bytes_per_second) { rate_ = bytes_per_second; }

  // How long until `who` may ask again; 0: it may send a batch now. It keeps its place until it has
  // sent or leaves.
  base::Duration wait(const void* who, base::Time now) {
    if (std::find(waiting_.begin(), waiting_.end(), who) == waiting_.end()) waiting_.push_back(who);
    const bool first = waiting_.front() == who || JCCL_PLANTED("throttle-without-turns");
    gain(now);
    const base::Time free_at = std::max(free_at_, now + until(-left_));
    if (first && free_at <= now) return 0;
    return std::max(free_at - now, kTick);
  }
  void sent(const void* who, std::uint64_t bytes, base::Time now) {
    if (!JCCL_PLANTED("throttle-keeps-the-turn")) leave(who);
    if (day_ > 0) left_ -= static_cast<double>(bytes);
    if (rate_ <= 0) return;
    const double seconds = static_cast<double>(bytes) / rate_;
    free_at_ = std::max(free_at_, now - kSlack) +
               static_cast<base::Duration>(seconds * static_cast<double>(base::kSecond));
  }
  // It has nothing to send, or cannot.
  void leave(const void* who) { std::erase(waiting_, who); }

 private:
  static constexpr base::Duration kTick = base::kMillisecond;  // timers are no finer
  // What a late timer or an idle moment left over may be made up for.
  static constexpr base::Duration kSlack = 20 * base::kMillisecond;

  static constexpr double kDay = 90'000.0 * static_cast<double>(base::kSecond);
  static constexpr double kAtOnce = 0.04;

  void gain(base::Time now) {
    const double most = (JCCL_PLANTED("a-day-at-once") ? 1 : kAtOnce) * day_;
    const auto since = static_cast<double>(now - gained_at_);
    left_ = gained_at_ == base::kNever ? most : std::min(most, left_ + day_ * since / kDay);
    gained_at_ = now;
  }
  base::Duration until(double bytes) const {
    return day_ > 0 && bytes > 0 ? static_cast<base::Duration>(bytes / day_ * kDay) : 0;
  }

  double rate_, day_;
  double left_ = 0;  // of the day, now
  base::Time gained_at_ = base::kNever;
  base::Time free_at_ = 0;
  std::deque<const void*> waiting_;  // in the order of their turns
};

}  // namespace jccl::net
