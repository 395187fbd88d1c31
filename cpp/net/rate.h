// How fast a path delivers while it has something to deliver, from samples of what the other side
// has acknowledged. Pure. A busy period is one without a sample at which nothing waited for room;
// its first round trip does not count, for nothing can be acknowledged in it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/time.h"

namespace jccl::net {

struct RateWindow {
  std::uint64_t bytes = 0;
  base::Duration busy_ns = 0;
  double bytes_per_second() const;
};

// The rate that three quarters do not exceed; 0 of none.
double three_quarters(const std::deque<double>& rates);

class RateMeter {
 public:
  RateMeter(int window_rtts = 3) : window_rtts_(window_rtts) {}

  // `delivered` never shrinks; it is looked at where busy() and `busy` hold. `busy`: frames wait
  // for room in the connections right now. A window that was completed by this sample, if any.
  std::optional<RateWindow> sample(base::Time now, std::uint64_t delivered, bool busy,
                                   base::Duration rtt);
  // Whether the next sample is due, for those who are asked more often.
  bool due(base::Time now, base::Duration rtt) const;

  bool busy() const { return busy_; }
  // Of the latest windows the one that three quarters do not exceed: queues that drain make some
  // look faster than the path is, and connections that start make others slower. 0: none yet.
  double bytes_per_second() const;
  base::Duration busy_ns() const { return busy_ns_; }  // in all windows

 private:
  int window_rtts_;
  bool busy_ = false;
  base::Time counts_from_ = 0;  // of this busy period
  base::Time window_from_ = 0;
  std::uint64_t window_bytes_ = 0;
  base::Time sampled_at_ = 0;
  base::Duration busy_ns_ = 0;
  std::deque<double> rates_;
};

}  // namespace jccl::net
