#include "net/pacing.h"

#include <algorithm>

#include "base/planted.h"

namespace jccl::net {
namespace {

constexpr std::size_t kWindowsKept = 16;
constexpr double kGrowing = 1.25;  // a window that is so much faster is one of the start
constexpr int kLevelWindows = 3;   // without growth: the line is full

}  // namespace

bool Pacing::sample(base::Time now, std::uint64_t delivered, bool busy, base::Duration rtt) {
  const auto window = meter_.sample(now, delivered, busy, rtt);
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
  rate_ = three_quarters(rates_);
  return true;
}

}  // namespace jccl::net
