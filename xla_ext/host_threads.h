// Threads for what a device's stream may not do itself: run the host's part of a call, and end it
// when its time is over. A host function of a stream may post here, as posting neither blocks nor
// calls the driver. The threads live as long as the process; nothing of theirs is ever destroyed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "base/time.h"

namespace jccl::xla_ext {

// As many threads as there are tasks that may be under way together: each may wait for the network
// or for the others (the calls of several local devices make one round), so none waits for a
// thread.
class HostThreads {
 public:
  static HostThreads& get();
  void reserve();                         // once before each post, where a thread may be made
  void post(std::function<void()> task);  // by a host function
  std::size_t threads() const;

 private:
  void serve();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::size_t threads_ = 0, promised_ = 0;  // promised: reserved, or running
};

// Calls `action` at its time unless it was taken back before. Actions run one after another on one
// thread, so they must be short.
class Deadlines {
 public:
  using Id = std::uint64_t;  // 0: none
  static Deadlines& get();
  Id add(base::Duration after, std::function<void()> action);
  void remove(Id id);

 private:
  using Key = std::pair<base::Time, Id>;
  void serve();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::function<void()>> actions_;
  std::map<Id, base::Time> times_;
  Id next_ = 1;
};

}  // namespace jccl::xla_ext
