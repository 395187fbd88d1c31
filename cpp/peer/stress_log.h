// The log of a stress peer, one JSON line a call, and how long its machine kept it waiting: a judge
// that has both knows whether a late answer is the transport's. Test-only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/text.h"

namespace jccl::peer::stress {

// Of the clock that all processes of a machine share.
inline std::int64_t milliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + "\"";
}

inline std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

template <typename Values, typename Text>
std::string list_of(const Values& values, const Text& text_of) {
  std::string text;
  for (const auto& v : values) text += base::cat(text.empty() ? "" : ",", text_of(v));
  return "[" + text + "]";
}

class Log {
 public:
  explicit Log(const std::string& path) : file_(std::fopen(path.c_str(), "a")) {}
  void line(const std::string& text) {
    std::lock_guard lock(mutex_);
    std::fprintf(file_, "%s\n", text.c_str());
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
  std::mutex mutex_;
};

// Sleeps for ten milliseconds again and again, and remembers how much longer it was: threads of
// this process wait as long for a processor, or the process was stopped.
class Starvation {
 public:
  explicit Starvation(Log& log) : log_(log), woke_(milliseconds()), thread_([this] { watch(); }) {}
  ~Starvation() {
    stop_ = true;
    thread_.join();
  }

  // The longest wait that had not ended by then, in milliseconds.
  std::int64_t since(std::int64_t then) {
    std::lock_guard lock(mutex_);
    std::int64_t worst = std::max<std::int64_t>(0, milliseconds() - woke_ - kPeriod);
    for (auto it = waits_.rbegin(); it != waits_.rend() && it->first >= then; ++it) {
      worst = std::max(worst, it->second);
    }
    return worst;
  }

 private:
  static constexpr std::int64_t kPeriod = 10, kWorthALine = 150;

  void watch() {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kPeriod));
      const std::int64_t now = milliseconds();
      std::int64_t late = 0;
      {
        std::lock_guard lock(mutex_);
        late = now - woke_ - kPeriod;
        woke_ = now;
        if (late > 0) waits_.emplace_back(now, late);
        if (waits_.size() > 30'000) waits_.pop_front();
      }
      if (late >= kWorthALine) {
        log_.line(base::cat("{\"starved\":", late, ",\"at\":", now, "}"));
      }
    }
  }

  Log& log_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::int64_t woke_;                                        // the time of the last look
  std::deque<std::pair<std::int64_t, std::int64_t>> waits_;  // (when it ended, how long)
  std::thread thread_;
};

}  // namespace jccl::peer::stress
