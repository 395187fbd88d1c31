// The one rule for a machine's own pauses: whoever is woken later than it asked, by more than a
// third of the silence by which it judges others, was not there to hear them. For that time it
// counts nobody's silence, and no lateness. Pure.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace jccl::base {

class OwnPause {
 public:
  // `asked`: when it wanted to be woken at the latest; kNever: not at all.
  OwnPause(Time asked, Time now, Duration silence) : now_(now) {
    const Duration late = now > asked ? now - asked : 0;
    length_ = late > silence / 3 ? late : 0;
  }
  bool counts() const { return length_ > 0; }
  Duration length() const { return length_; }
  // A moment since when something is waited for, moved on by the pause; kNever stays.
  void pass_over(Time* since) const {
    if (*since != kNever) *since = std::min(now_, *since + length_);
  }

 private:
  Time now_;
  Duration length_ = 0;
};

}  // namespace jccl::base
