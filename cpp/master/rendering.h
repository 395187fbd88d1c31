// The answer to a question that is dear to make, kept for a while that grows with what it cost:
// making it takes at most a twentieth of the thread's time, however often it is asked. What is
// cheap is fresh; nothing is older than a second. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/time.h"

namespace jccl::master {

class Rendering {
 public:
  // `make` gives the text, `now` the time, before and after.
  template <typename Make, typename Now>
  const std::string& get(const Make& make, const Now& now) {
    const base::Time begun = now();
    if (made_ > 0 && begun < keep_until_) return text_;
    text_ = make();
    ++made_;
    const base::Time ended = now();
    keep_until_ = ended + std::min(kShare * (ended - begun), base::kSecond);
    return text_;
  }
  std::uint64_t made() const { return made_; }

 private:
  static constexpr base::Duration kShare = 20;

  std::string text_;
  std::uint64_t made_ = 0;
  base::Time keep_until_ = 0;
};

}  // namespace jccl::master
