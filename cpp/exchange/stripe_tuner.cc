#include "exchange/stripe_tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/planted.h"

namespace jccl::exchange {
namespace {

using base::Duration;
using base::kMillisecond;
using base::kSecond;

constexpr std::uint32_t kLoopback = 1;
constexpr std::uint32_t kLoopbackHanded = 4;
constexpr std::uint32_t kNear = 2;
constexpr std::uint32_t kMiddle = 4;
constexpr std::uint32_t kFar = 8;
constexpr Duration kMiddleRtt = kMillisecond;
constexpr Duration kFarRtt = 5 * kMillisecond;
// Half as many again, and half of them, are two steps away at the most.
constexpr std::array<std::uint32_t, 10> kLadder = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
constexpr std::array<int, 4> kSteps = {2, -2, 1, -1};  // tried in this order

// A turn: congestion control looks for its rate anew, then it counts.
constexpr Duration kSettleMin = 100 * kMillisecond;
constexpr int kSettleRtts = 8;
constexpr Duration kMeasureMin = 150 * kMillisecond;
constexpr int kMeasureRtts = 12;
constexpr Duration kMissingMax = 5 * kSecond;

// Statistics of a trial, in logarithms of rates.
constexpr double kPairMost = 0.4;    // one pair says no more than that
constexpr double kSpread = 0.10;     // what pairs differ by before any was seen,
constexpr double kSpreadCounts = 3;  // worth so many pairs
constexpr int kPairsMin = 2;         // to say that it pays
constexpr int kPairsMax = 12;
constexpr double kSure = 2.5;      // standard errors above what is asked: it pays
constexpr double kHopeless = 1.0;  // below kWorth more than that: it does not
constexpr double kWorth = 0.02;
constexpr double kAtLast = 0.01;  // more than that in the mean of all pairs: it pays
// What is asked of a count that is farther from what the round-trip time says, and of one that is
// nearer: who leaves home has to prove it.
constexpr double kAway = 0.015;
constexpr double kHome = -0.015;
constexpr double kOther = 0.35;  // so far from its level a path is another one

// Busy time between trials. What did not pay in any direction is tried again later and later.
constexpr Duration kRest = 5 * kSecond;
constexpr Duration kLongRest = 60 * kSecond;
constexpr Duration kLongestRest = 240 * kSecond;
constexpr int kOffLevelTurns = 3;

int step_of(std::uint32_t stripes) {
  return static_cast<int>(std::find(kLadder.begin(), kLadder.end(), stripes) - kLadder.begin());
}

int steps_between(std::uint32_t some, std::uint32_t others) {
  return std::abs(step_of(some) - step_of(others));
}

// Not below two where the path asks for several: one that is stuck must show beside another.
std::uint32_t step_from(std::uint32_t stripes, int steps) {
  const int last = static_cast<int>(kLadder.size()) - 1;
  const int to = std::clamp(step_of(stripes) + steps, step_of(kNear), last);
  return kLadder[static_cast<std::size_t>(to)];
}

}  // namespace

void PairedTurns::add(double difference) {
  const double most = JCCL_PLANTED("one-pair-outweighs-all") ? 1e9 : kPairMost;
  const double d = std::clamp(difference, -most, most);
  ++pairs_;
  sum_ += d;
  squares_ += d * d;
}

PairedTurns::Verdict PairedTurns::verdict(double asked) const {
  if (pairs_ == 0) return Verdict::kGoOn;
  const double n = pairs_;
  const double mean = sum_ / n;
  const double off = std::max(0.0, squares_ - n * mean * mean);
  const double variance = (kSpreadCounts * kSpread * kSpread + off) / (kSpreadCounts + n - 1);
  const double error = std::sqrt(variance / n);
  if (JCCL_PLANTED("trial-that-does-not-pay")) return Verdict::kPays;
  const int least = JCCL_PLANTED("one-pair-decides") ? 1 : kPairsMin;
  if (pairs_ >= least && mean - kSure * error > asked) return Verdict::kPays;
  if (mean + kHopeless * error < asked + kWorth) return Verdict::kDoesNot;
  if (pairs_ < kPairsMax) return Verdict::kGoOn;
  return mean > asked + kAtLast ? Verdict::kPays : Verdict::kDoesNot;
}

std::uint32_t StripeTuner::chosen() const {
  if (pinned_ > 0) return std::min(pinned_, base::kStripesMax);
  return start_ == 0 ? 1 : base_;
}

std::uint32_t StripeTuner::wanted() const { return std::max({chosen(), start_, trial_}); }

std::uint32_t StripeTuner::used() const { return trying_ ? trial_ : chosen(); }

void StripeTuner::connected(bool loopback, Duration rtt, bool handed) {
  if (start_ != 0 || pinned_ > 0) return;
  loopback_ = loopback;
  start_ = rtt >= kFarRtt ? kFar : rtt >= kMiddleRtt ? kMiddle : kNear;
  if (loopback) start_ = handed ? kLoopbackHanded : kLoopback;
  base_ = start_;
  long_rest_ = kLongRest;
}

void StripeTuner::settle(Duration rtt) {
  settling_ = std::max(kSettleMin, kSettleRtts * rtt);
  bytes_ = 0;
  busy_ = 0;
}

void StripeTuner::measured(std::uint64_t bytes, Duration busy, std::uint32_t standing,
                           Duration rtt) {
  if (pinned_ > 0 || loopback_ || start_ == 0) return;
  rest_ -= std::min(rest_, busy);
  const std::uint32_t given = std::min(standing, used());
  if (given != given_) {
    given_ = given;
    settle(rtt);
  }
  if (trying_ && given < trial_) {  // not all stand yet
    missing_ += JCCL_PLANTED("waits-for-stripes-for-ever") ? 0 : busy;
    if (missing_ > std::max(kMissingMax, kSettleRtts * rtt)) end_trial(false);
    return;
  }
  if (settling_ > 0) {
    settling_ -= busy;
    return;
  }
  bytes_ += bytes;
  busy_ += busy;
  if (busy_ < std::max(kMeasureMin, kMeasureRtts * rtt)) return;
  const double rate = static_cast<double>(bytes_) / static_cast<double>(busy_);
  bytes_ = 0;
  busy_ = 0;
  turn_ended(std::log(std::max(rate, 1e-9)));
}

// `rate` as a logarithm.
void StripeTuner::turn_ended(double rate) {
  if (trying_) {
    trial_rate_ = rate;
    trying_ = false;
    return;
  }
  if (trial_ == 0) {
    present_turn(rate);
    return;
  }
  // A pair is B and the turns of A around it: what changes evenly meanwhile cancels out.
  const double present = JCCL_PLANTED("turns-against-the-past") ? level_ : (before_ + rate) / 2;
  if (std::abs(rate - before_) < kOther) pairs_.add(trial_rate_ - present);
  before_ = rate;
  const bool nearer = steps_between(trial_, start_) < steps_between(base_, start_);
  const PairedTurns::Verdict verdict = pairs_.verdict(nearer ? kHome : kAway);
  if (verdict == PairedTurns::Verdict::kGoOn) {
    trying_ = true;
  } else {
    end_trial(verdict == PairedTurns::Verdict::kPays);
  }
}

void StripeTuner::present_turn(double rate) {
  before_ = rate;
  if (level_ == 0) level_ = rate;
  off_level_ = std::abs(rate - level_) < kOther ? 0 : off_level_ + 1;
  if (off_level_ == 0) level_ += (rate - level_) / 4;
  if (off_level_ >= kOffLevelTurns &&
      !JCCL_PLANTED(
          "another-level-ignored")) {  // another path: what was found out says nothing of it
    level_ = rate;
    off_level_ = 0;
    candidate_ = 0;
    rest_ = 0;
    long_rest_ = kLongRest;
  }
  if (rest_ == 0) next_trial();
}

void StripeTuner::next_trial() {
  for (; candidate_ < static_cast<int>(kSteps.size()); ++candidate_) {
    const std::uint32_t other = step_from(base_, kSteps[static_cast<std::size_t>(candidate_)]);
    if (other == base_ || (other < base_ && JCCL_PLANTED("no-way-down"))) continue;
    trial_ = other;
    trying_ = true;
    pairs_ = {};
    missing_ = 0;
    return;
  }
  candidate_ = 0;
  rest_ = long_rest_;
  long_rest_ = std::min(2 * long_rest_, kLongestRest);
}

void StripeTuner::end_trial(bool pays) {
  if (pays) {
    base_ = trial_;
    level_ = 0;
    rest_ = 0;
    long_rest_ = kLongRest;
  } else {
    ++candidate_;
    rest_ = kRest;
  }
  if (!JCCL_PLANTED("stripes-of-a-trial-stay")) trial_ = 0;
  trying_ = false;
}

}  // namespace jccl::exchange
