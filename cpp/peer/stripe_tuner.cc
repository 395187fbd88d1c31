#include "peer/stripe_tuner.h"

#include <algorithm>

#include "base/planted.h"

namespace jccl::peer {
namespace {

using base::Duration;
using base::kMillisecond;

constexpr std::uint32_t kLoopback = 1;
constexpr std::uint32_t kNear = 2;
constexpr std::uint32_t kMiddle = 4;
constexpr std::uint32_t kFar = 8;
constexpr Duration kMiddleRtt = kMillisecond;
constexpr Duration kFarRtt = 5 * kMillisecond;
constexpr std::uint32_t kStripesTried = 48;
constexpr double kPays = 1.07;  // a trial must be faster by so much
// After a change congestion control has to find its new rate.
constexpr Duration kSettleMin = 100 * kMillisecond;
constexpr int kSettleRtts = 6;
constexpr Duration kMeasureMin = 150 * kMillisecond;
constexpr int kMeasureRtts = 6;
// What did not pay is tried again after so much busy time: paths change.
constexpr Duration kRetry = 60 * base::kSecond;

// Half as many again, in steps of 4 from 8 on.
std::uint32_t more_than(std::uint32_t stripes) {
  if (stripes < 8) return 2 * stripes;
  return std::min((stripes + stripes / 2 + 3) / 4 * 4, kStripesTried);
}

}  // namespace

std::uint32_t StripeTuner::wanted() const {
  if (pinned_ > 0) return std::min(pinned_, base::kStripesMax);
  if (start_ == 0) return 1;
  return trial_ > 0 ? trial_ : best_;
}

void StripeTuner::connected(bool loopback, Duration rtt) {
  if (start_ != 0) return;
  loopback_ = loopback;
  start_ = loopback ? kLoopback : rtt >= kFarRtt ? kFar : rtt >= kMiddleRtt ? kMiddle : kNear;
  best_ = start_;
}

void StripeTuner::measured(const net::RateWindow& window, std::uint32_t stripes, Duration rtt) {
  if (pinned_ > 0 || loopback_ || start_ == 0) return;
  if (stripes != stripes_) {
    stripes_ = stripes;
    settling_ = std::max(kSettleMin, kSettleRtts * rtt);
    sum_ = {};
  }
  if (settling_ > 0) {
    settling_ -= window.busy_ns;
    return;
  }
  if (until_trial_ > 0) {
    until_trial_ -= window.busy_ns;
    if (until_trial_ > 0) return;
    best_rate_ = 0;
  }
  sum_.bytes += window.bytes;
  sum_.busy_ns += window.busy_ns;
  if (sum_.busy_ns < std::max(kMeasureMin, kMeasureRtts * rtt)) return;
  if (stripes >= wanted()) decide(stripes);
  sum_ = {};
}

void StripeTuner::decide(std::uint32_t stripes) {
  const double rate = sum_.bytes_per_second();
  if (best_rate_ > 0 &&
      rate < (JCCL_PLANTED("trial-that-does-not-pay") ? 0.5 : kPays) * best_rate_) {
    trial_ = 0;
    until_trial_ = kRetry;
    return;
  }
  best_ = stripes;
  best_rate_ = rate;
  const std::uint32_t next = more_than(stripes);
  trial_ = next > stripes ? next : 0;
  if (trial_ == 0) until_trial_ = kRetry;
}

}  // namespace jccl::peer
