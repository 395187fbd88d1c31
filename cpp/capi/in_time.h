// For tests: whether a call ends by its deadline, on a machine of whatever load. What comes late by
// itself is late each time, what the load delays is not: one try that is in time is enough, and
// what the load may explain of it is measured beside it.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/text.h"
#include "base/time.h"

namespace jccl::capi::test {

inline base::Duration steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// How much longer than asked a short sleep with a little work takes at most, while this lives.
class Delays {
 public:
  Delays()
      : thread_([this] {
          while (!over_) probe();
        }) {}
  ~Delays() { end(); }
  base::Duration end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    return worst_;
  }

 private:
  static constexpr base::Duration kSleep = 2 * base::kMillisecond, kWork = base::kMillisecond / 2;

  static base::Duration worked() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * base::kSecond + used.tv_nsec;
  }
  void probe() {
    const base::Duration begun = steady_now(), before = worked();
    std::this_thread::sleep_for(std::chrono::nanoseconds(kSleep));
    while (worked() - before < kWork) {
    }
    worst_ = std::max(worst_, steady_now() - begun - kSleep - kWork);
  }

  std::atomic<bool> over_{false};
  base::Duration worst_ = 0;
  std::thread thread_;  // last: it uses the others
};

// `call` gets a deadline, makes a call that can end by nothing else, and returns how long that
// took. It is tried until it is in time, twelve times.
inline testing::AssertionResult ends_in_time(
    const std::function<base::Duration(base::Duration)>& call) {
  constexpr base::Duration kDeadline = 500 * base::kMillisecond, kSlack = 150 * base::kMillisecond;
  constexpr base::Duration kDelayMax = 250 * base::kMillisecond;
  constexpr int kTries = 12, kHops = 4;  // threads that wait for one another
  std::string tries;
  for (int k = 0; k < kTries; ++k) {
    Delays delays;
    const base::Duration took = call(kDeadline);
    const base::Duration delay = delays.end();
    tries += base::cat(" ", took / base::kMillisecond, " ms with a worst delay of ",
                       delay / base::kMillisecond, " ms;");
    if (took < kDeadline / 2) return testing::AssertionFailure() << "it did not wait:" << tries;
    if (took <= kDeadline + kSlack + kHops * std::min(delay, kDelayMax)) {
      return testing::AssertionSuccess() << tries;
    }
  }
  return testing::AssertionFailure() << "late each time, by a deadline of 500 ms:" << tries;
}

}  // namespace jccl::capi::test
