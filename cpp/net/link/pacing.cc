#include "net/link/pacing.h"

#include <algorithm>

#include "base/planted.h"

namespace jccl::net {
namespace {

constexpr std::size_t kWindowsKept = 16;
constexpr double kGrowing = 1.25;  // a window that is so much faster is one of the start
constexpr double kBestKept = 0.9;  // a path that got slower is believed after some periods
constexpr int kLevelWindows = 3;   // without growth: the line is full

}  // namespace

bool Pacing::sample(base::Time now, std::uint64_t delivered, bool busy, base::Duration rtt) {
  const bool begins = busy && !meter_.busy();
  const auto window = meter_.sample(now, delivered, busy, rtt);
  if (begins && rate_ > 0) {
    if (peak_ > 0) best_ = std::max(peak_, kBestKept * best_);
    if (!JCCL_PLANTED("pace-of-the-last-moment")) rate_ = best_;
    peak_ = 0;
    rates_.clear();
    return true;
  }
  if (!window) return false;
  rates_.push_back(window->bytes_per_second());
  if (rates_.size() > kWindowsKept) rates_.pop_front();
  if (rate_ == 0) {
    level_ =
        rates_.back() > full_ * kGrowing && !JCCL_PLANTED("pace-of-the-start") ? 0 : level_ + 1;
    full_ = std::max(full_, rates_.back());
    if (level_ < kLevelWindows) return false;
  }
  // Neither the windows of the start nor one into which acknowledgements were bunched.
  const double rate = three_quarters(rates_);
  peak_ = std::max(peak_, rate);
  if (rates_.size() < kLevelWindows) return false;
  rate_ = rate;
  return true;
}

}  // namespace jccl::net
