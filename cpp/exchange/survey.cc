// See survey.h.
#include "exchange/survey.h"

#include <algorithm>
#include <cmath>

#include "base/planted.h"

namespace jccl::exchange {
namespace {

constexpr base::Duration kStretchMin = 50 * base::kMillisecond;
constexpr std::uint64_t kStretchesMin = 5;  // fewer say more of other programs than of the line
constexpr double kForgetSeconds = 120;  // the most that was seen falls by a factor e in this time
constexpr base::Duration kPauseMin = 2 * base::kSecond;   // between two reports
constexpr base::Duration kPauseMax = 10 * base::kSecond;  // if anything moved at all
constexpr double kChange = 0.2;
constexpr std::uint32_t kRttNoiseUs = 1000;

bool moved(double before, double now, double by) {
  return std::abs(now - before) > by * std::max(before, now);
}

// More than `by` of one another; delays below a millisecond are all alike.
bool differ(const wire::Measured& a, const wire::Measured& b, double by) {
  if (moved(static_cast<double>(a.up_bytes_per_s), static_cast<double>(b.up_bytes_per_s), by)) {
    return true;
  }
  if (moved(a.core, b.core, by) && !JCCL_PLANTED("core-not-compared")) return true;
  return !JCCL_PLANTED("links-not-compared") &&
         !std::equal(a.links.begin(), a.links.end(), b.links.begin(), b.links.end(),
                     [by](const wire::LinkMeasured& x, const wire::LinkMeasured& y) {
                       const std::uint32_t rtt =
                           std::max(x.rtt_us, y.rtt_us) - std::min(x.rtt_us, y.rtt_us);
                       return x.peer == y.peer &&
                              (rtt <= kRttNoiseUs || !moved(x.rtt_us, y.rtt_us, by)) &&
                              !moved(static_cast<double>(x.bytes_per_s),
                                     static_cast<double>(y.bytes_per_s), by);
                     });
}

}  // namespace

void Survey::sample(base::Time now, std::uint64_t sent_bytes, bool waiting) {
  const base::Duration stretch = now - sampled_at_;
  if (sampled_at_ != 0 && stretch < kStretchMin) {
    waiting_ = waiting_ && waiting;
    return;
  }
  const double seconds = static_cast<double>(stretch) / 1e9;
  if (sampled_at_ != 0 && (waiting_ || JCCL_PLANTED("idle-stretch-counts")) && waiting) {
    const double rate = static_cast<double>(sent_bytes - sent_bytes_) / seconds;
    up_ = std::max(
        rate,
        up_ * (JCCL_PLANTED("rate-never-forgotten") ? 1.0 : std::exp(-seconds / kForgetSeconds)));
    ++stretches_;
  }
  sampled_at_ = now;
  sent_bytes_ = sent_bytes;
  waiting_ = waiting;
}

bool Survey::time_to_look(base::Time now) {
  if (looked_at_ != 0 && now - looked_at_ < kPauseMin) return false;
  looked_at_ = now;
  return true;
}

std::optional<wire::Measured> Survey::due(base::Time now, std::vector<wire::LinkMeasured> links,
                                          std::uint32_t core) {
  if (told_at_ != 0 && !JCCL_PLANTED("survey-pause-left-out") && now - told_at_ < kPauseMin)
    return std::nullopt;
  wire::Measured fresh{0, std::move(links), core};
  if (stretches_ >= (JCCL_PLANTED("few-stretches-told") ? 1 : kStretchesMin))
    fresh.up_bytes_per_s = static_cast<std::uint64_t>(up_);
  const bool long_ago = told_at_ == 0 || now - told_at_ >= kPauseMax;
  if (!differ(told_, fresh, long_ago ? kChange / 10 : kChange)) return std::nullopt;
  told_at_ = now;
  if (!JCCL_PLANTED("told-not-remembered")) told_ = fresh;
  return fresh;
}

}  // namespace jccl::exchange
