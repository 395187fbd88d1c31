// What a test waits for, looked at again and again.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace jccl::master {

inline constexpr auto kPatience = std::chrono::seconds(60);  // never waited for in full

inline bool eventually(const std::function<bool()>& holds,
                       std::chrono::milliseconds time_max = kPatience) {
  const auto end = std::chrono::steady_clock::now() + time_max;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace jccl::master
