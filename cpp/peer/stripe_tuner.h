// How many connections a link should have. Starts by round-trip time, then tries more while the
// link is busy and keeps them as long as the link got faster by it. Never asks for fewer while
// they work: what did not pay is merely not replaced. Pure: fed with what was measured.
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "net/rate.h"

namespace jccl::peer {

class StripeTuner {
 public:
  explicit StripeTuner(std::uint32_t pinned = 0) : pinned_(pinned) {}

  // Before a path is known a single connection finds it out.
  std::uint32_t wanted() const;
  // A connection of the link stands. `rtt` as the kernel measured it while connecting.
  void connected(bool loopback, base::Duration rtt);
  // A window in which the link was busy all the time and had so many stripes.
  void measured(const net::RateWindow& window, std::uint32_t stripes, base::Duration rtt);

 private:
  void decide(std::uint32_t stripes);

  std::uint32_t pinned_;
  std::uint32_t start_ = 0;  // 0: no path known yet
  std::uint32_t best_ = 0;
  std::uint32_t trial_ = 0;  // 0: none
  std::uint32_t stripes_ = 0;
  bool loopback_ = true;
  double best_rate_ = 0;            // with best_; 0: not measured yet
  base::Duration settling_ = 0;     // busy time that does not count yet
  base::Duration until_trial_ = 0;  // busy time
  net::RateWindow sum_;
};

}  // namespace jccl::peer
