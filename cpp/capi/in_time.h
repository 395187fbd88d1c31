// For tests: whether a call ends by its deadline, on a machine of whatever load. What the load may
// explain is measured beside the call; what it may not is far less than the call's deadline once
// that is long enough.
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
// took. Twice the deadline is always enough for us; what goes beyond needs a machine so loaded that
// ten times its worst delay explains it, and then the call is tried again with more time.
inline testing::AssertionResult ends_in_time(
    const std::function<base::Duration(base::Duration)>& call) {
  constexpr base::Duration kFirst = 300 * base::kMillisecond, kLast = 6 * base::kSecond;
  for (base::Duration deadline = kFirst;; deadline *= 2) {
    Delays delays;
    const base::Duration took = call(deadline);
    const base::Duration delay = delays.end();
    const std::string what = base::cat(
        "a call of ", deadline / base::kMillisecond, " ms took ", took / base::kMillisecond,
        " ms; the worst delay of this process was ", delay / base::kMillisecond, " ms");
    if (took < deadline / 2) return testing::AssertionFailure() << what << ": it did not wait";
    if (took <= 2 * deadline) return testing::AssertionSuccess() << what;
    if (took > 2 * deadline + 10 * delay) return testing::AssertionFailure() << what;
    if (deadline > kLast) return testing::AssertionSuccess() << what << ": nobody can tell";
  }
}

}  // namespace jccl::capi::test
