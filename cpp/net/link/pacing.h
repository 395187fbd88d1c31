// How fast a link should send in all: what it was seen to deliver. Several
// connections that each look for the most they can get overfill the queue of the line they share:
// it drops a fifth of what comes, holds up the acknowledgements of the other direction, and the end
// of every call waits for repetitions. Pure: time comes in.
#pragma once

#include <cstdint>
#include <deque>

#include "net/rate.h"

namespace jccl::net {

class Pacing {
 public:
  // As RateMeter::sample(). True: there is a new rate. A busy period begins with the best that was
  // known of late: what the one before ended with may have been a bad moment of the path.
  bool sample(base::Time now, std::uint64_t delivered, bool busy, base::Duration rtt);
  // 0: not known, as long as the rate still grows.
  double bytes_per_second() const { return rate_; }

 private:
  // Short windows: the calls of a thin codec are over after a few round trips.
  RateMeter meter_{1};
  std::deque<double> rates_;
  double full_ = 0;  // what later windows did not exceed by much
  int level_ = 0;    // windows since
  double rate_ = 0;
  double peak_ = 0;  // of this busy period
  double best_ = 0;  // of those before; older ones count less
};

}  // namespace jccl::net
