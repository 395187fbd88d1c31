// For test programs: does at a failpoint what JCCL_FAIL says, name:count:action[:milliseconds].
// The action happens the count-th time the point is reached, once: `kill` (SIGKILL), `stop`
// (SIGSTOP, until somebody wakes the process), `exit` (without any farewell), `delay` (that
// thread sleeps). Just before it the name is written to descriptor 2, so that the test knows.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "base/failpoint.h"
#include "base/text.h"

namespace jccl::net {

class FailAt {
 public:
  // False: the text names no failpoint, or is not of the form above. Empty or null: nothing to do.
  static bool arm(const char* text) {
    if (text == nullptr || *text == '\0') return true;
    if (!plan().read(text)) return false;
    base::failpoint_hook = &FailAt::reached;
    return true;
  }

 private:
  static FailAt& plan() {
    static FailAt only;
    return only;
  }

  bool read(const std::string& text) {
    std::string parts[4];
    std::size_t count = 0;
    for (std::size_t at = 0; count < 4 && at <= text.size(); ++count) {
      const std::size_t end = std::min(text.find(':', at), text.size());
      parts[count] = text.substr(at, end - at);
      at = end + 1;
    }
    const auto* name =
        std::find(std::begin(base::kFailpointNames), std::end(base::kFailpointNames), parts[0]);
    if (name == std::end(base::kFailpointNames) || count < 3) return false;
    point_ = static_cast<base::Failpoint>(name - std::begin(base::kFailpointNames));
    left_ = std::atol(parts[1].c_str());
    action_ = parts[2];
    milliseconds_ = std::atol(parts[3].c_str());
    return left_ > 0 && (action_ == "kill" || action_ == "stop" || action_ == "exit" ||
                         (action_ == "delay" && milliseconds_ > 0));
  }

  static void reached(base::Failpoint point) {
    FailAt& self = plan();
    if (point != self.point_ || self.left_.fetch_sub(1) != 1) return;
    const std::string line = base::cat("failpoint ", name_of(point), "\n");
    (void)!::write(2, line.data(), line.size());
    if (self.action_ == "kill") ::kill(::getpid(), SIGKILL);
    if (self.action_ == "stop") ::kill(::getpid(), SIGSTOP);
    if (self.action_ == "exit") ::_exit(0);
    ::usleep(static_cast<useconds_t>(self.milliseconds_ * 1000));  // delay; or until the signal
  }

  base::Failpoint point_{};
  std::atomic<long> left_{0};
  std::string action_;
  long milliseconds_ = 0;
};

}  // namespace jccl::net
