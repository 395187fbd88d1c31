#include "host_threads.h"

#include <chrono>
#include <thread>

namespace jccl::xla_ext {
namespace {

base::Time now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

HostThreads& HostThreads::get() {
  static auto* instance = new HostThreads;
  return *instance;
}

void HostThreads::reserve() {
  std::lock_guard lock(mutex_);
  ++promised_;
  if (promised_ <= threads_) return;
  ++threads_;
  std::thread([this] { serve(); }).detach();
}

void HostThreads::post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

std::size_t HostThreads::threads() const {
  std::lock_guard lock(mutex_);
  return threads_;
}

void HostThreads::serve() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    task = nullptr;  // what it holds goes before its place is given to another
    std::lock_guard lock(mutex_);
    --promised_;
  }
}

Deadlines& Deadlines::get() {
  static auto* instance = [] {
    auto* made = new Deadlines;
    std::thread([made] { made->serve(); }).detach();
    return made;
  }();
  return *instance;
}

Deadlines::Id Deadlines::add(base::Duration after, std::function<void()> action) {
  std::lock_guard lock(mutex_);
  const Id id = next_++;
  const base::Time at = now() + after;
  times_[id] = at;
  actions_.emplace(Key{at, id}, std::move(action));
  changed_.notify_one();
  return id;
}

void Deadlines::remove(Id id) {
  std::function<void()> last;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  const auto at = times_.find(id);
  if (at == times_.end()) return;
  const auto action = actions_.find({at->second, id});
  last = std::move(action->second);
  actions_.erase(action);
  times_.erase(at);
}

void Deadlines::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (actions_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = actions_.begin();
    const base::Duration left = first->first.first - now();
    if (left > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left));
      continue;
    }
    auto action = std::move(first->second);
    times_.erase(first->first.second);
    actions_.erase(first);
    lock.unlock();
    action();
    action = nullptr;
    lock.lock();
  }
}

}  // namespace jccl::xla_ext
