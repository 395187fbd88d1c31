// When an end dials again: at once where a link broke, later and later where none comes about.
// Pure: given the time, asks nothing else.
#pragma once

#include <algorithm>

#include "base/planted.h"
#include "base/time.h"

namespace jccl::exchange {

class Redial {
 public:
  static constexpr base::Duration kFirst = 20 * base::kMillisecond;
  static constexpr base::Duration kLongest = base::kSecond;

  bool due(base::Time now) const { return now >= at_; }

  // No connection could be made.
  void failed(base::Time now) {
    if (!due(now) && !JCCL_PLANTED("redial-without-pause"))
      return;  // of several that failed together one counts
    at_ = now + wait_;
    wait_ = std::min(2 * wait_, kLongest);
  }
  // Several attempts in a row, whatever their number at once.
  bool failing() const { return wait_ > 2 * kFirst; }

  // One that carried something; `last`: no other is left.
  void broke(base::Time now, bool last) {
    wait_ = kFirst;
    at_ = last ? now : now + wait_;
  }
  // One that was closed before a word came. The stripes of a link, dialled together, are lost
  // together: counted one by one, they made a link wait a second after two cuts.
  void closed_unheard(base::Time now) {
    const bool first = due(now) || JCCL_PLANTED("unheard-losses-count-one-by-one");
    if (first && !JCCL_PLANTED("unheard-links-are-dialled-for-ever"))
      wait_ = std::min(2 * wait_, kLongest);
    at_ = now + wait_;
  }

 private:
  base::Duration wait_ = kFirst;
  base::Time at_ = 0;
};

}  // namespace jccl::exchange
