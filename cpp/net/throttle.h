// How many bytes a second may leave by all links of a peer together. Those that want to send take
// turns, one batch each, so that none starves beside another. Pure: time comes in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "base/planted.h"
#include "base/time.h"

namespace jccl::net {

class Throttle {
 public:
  explicit Throttle(double bytes_per_second) : rate_(bytes_per_second) {}

  bool bounds() const { return rate_ > 0; }  // 0: no bound, and nobody waits
  void set(double bytes_per_second) { rate_ = bytes_per_second; }

  // How long until `who` may ask again; 0: it may send a batch now. It keeps its place until it has
  // sent or leaves.
  base::Duration wait(const void* who, base::Time now) {
    if (std::find(waiting_.begin(), waiting_.end(), who) == waiting_.end()) waiting_.push_back(who);
    const bool first = waiting_.front() == who || JCCL_PLANTED("throttle-without-turns");
    if (first && free_at_ <= now) return 0;
    return std::max(free_at_ - now, kTick);
  }
  void sent(const void* who, std::uint64_t bytes, base::Time now) {
    if (!JCCL_PLANTED("throttle-keeps-the-turn")) leave(who);
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

  double rate_;
  base::Time free_at_ = 0;
  std::deque<const void*> waiting_;  // in the order of their turns
};

}  // namespace jccl::net
