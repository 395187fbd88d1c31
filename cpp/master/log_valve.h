// Lets one line about strangers through per interval and counts the rest, so that garbage sent to
// a port can't fill a log. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/planted.h"
#include "base/text.h"
#include "base/time.h"

namespace jccl::master {

class LogValve {
 public:
  explicit LogValve(base::Duration interval = base::kSecond) : interval_(interval) {}
  // The line to write now, if any.
  std::optional<std::string> pass(const std::string& line, base::Time now) {
    if (open_at_ && now < *open_at_) {
      held_ += JCCL_PLANTED("held-lines-not-counted") ? 0 : 1;
      return std::nullopt;
    }
    std::string out = line;
    if (held_ > 0) out += base::cat(" (and ", held_, " more like it)");
    held_ = 0;
    open_at_ = now + interval_;
    return out;
  }

 private:
  base::Duration interval_;
  std::optional<base::Time> open_at_;
  std::uint64_t held_ = 0;
};

}  // namespace jccl::master
