#include "net/rate.h"

#include <algorithm>
#include <vector>

#include "base/planted.h"

namespace jccl::net {
namespace {

using base::Duration;
using base::Time;

constexpr Duration kWindowMin = 20 * base::kMillisecond;
constexpr std::size_t kRatesKept = 32;
constexpr Duration kSampleEvery = 10 * base::kMillisecond;

}  // namespace

double RateWindow::bytes_per_second() const {
  return busy_ns > 0 ? static_cast<double>(bytes) * 1e9 / static_cast<double>(busy_ns) : 0;
}

bool RateMeter::due(Time now, Duration rtt) const {
  return !busy_ || now - sampled_at_ >= std::max(kSampleEvery, rtt / 4);
}

std::optional<RateWindow> RateMeter::sample(Time now, std::uint64_t delivered, bool busy,
                                            Duration rtt) {
  sampled_at_ = now;
  if (!busy_ || !busy) {  // what a window had so far may have ended at any time before now
    if (busy) counts_from_ = now + (JCCL_PLANTED("first-flight-measured") ? 0 : rtt);
    busy_ = busy;
    window_from_ = 0;
    return std::nullopt;
  }
  if (now < counts_from_) return std::nullopt;
  if (window_from_ == 0) {
    window_from_ = now;
    window_bytes_ = delivered;
    return std::nullopt;
  }
  if (now - window_from_ < std::max(kWindowMin, window_rtts_ * rtt)) return std::nullopt;
  const RateWindow window{delivered - window_bytes_, now - window_from_};
  window_from_ = now;
  window_bytes_ = delivered;
  busy_ns_ += window.busy_ns;
  rates_.push_back(window.bytes_per_second());
  if (rates_.size() > kRatesKept) rates_.pop_front();
  return window;
}

double RateMeter::bytes_per_second() const { return three_quarters(rates_); }

double three_quarters(const std::deque<double>& rates) {
  if (rates.empty()) return 0;
  std::vector<double> sorted(rates.begin(), rates.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() - 1) * 3 / 4];
}

}  // namespace jccl::net
