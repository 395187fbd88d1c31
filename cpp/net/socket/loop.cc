#include "net/socket/loop.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::net {
namespace {

thread_local const void* current_loop = nullptr;

}  // namespace

// Posted functions and timers are kept here and not in Asio, so that what they capture is freed
// in a known order: before the io_context that it may still refer to.
struct Loop::Impl {
  boost::asio::io_context context{1};
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work;
  boost::asio::steady_timer alarm{context};
  std::thread thread;
  std::mutex stopping;  // one stop() at a time

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::function<void()>> posted;
  bool drain_asked = false;
  std::atomic<bool> running{false};

  // Confined.
  std::map<std::pair<Time, TimerId>, std::function<void()>> timers;
  std::unordered_map<TimerId, Time> due;
  TimerId timer_last = 0;
  Time alarm_at = base::kNever;

  void post(std::function<void()> fn) {
    const std::lock_guard lock(mutex);
    posted.push_back(std::move(fn));
    if (drain_asked) return;
    drain_asked = true;
    boost::asio::post(context, [this] { drain(); });
  }

  void drain() {
    std::vector<std::function<void()>> batch;
    {
      const std::lock_guard lock(mutex);
      batch.swap(posted);
      drain_asked = false;
    }
    for (std::function<void()>& fn : batch) {
      if (context.stopped()) return;
      fn();
      fn = nullptr;
    }
  }

  void arm(Time now) {
    if (timers.empty() || timers.begin()->first.first >= alarm_at) return;
    alarm_at = timers.begin()->first.first;
    alarm.expires_after(std::chrono::nanoseconds(alarm_at > now ? alarm_at - now : 0));
    alarm.async_wait([this](const boost::system::error_code& error) {
      if (!error) fire();
    });
  }

  void fire() {
    alarm_at = base::kNever;
    const Time now = clock();
    const TimerId last = timer_last;  // timers set from here on wait for another turn
    while (!timers.empty() && timers.begin()->first.first <= now && !context.stopped()) {
      const auto first = timers.begin();
      if (first->first.second > last) break;
      const std::function<void()> fn = std::move(first->second);
      due.erase(first->first.second);
      timers.erase(first);
      fn();
    }
    arm(clock());
  }

  static Time clock() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

struct Loop::Poster::Gate {
  std::mutex mutex;
  Impl* impl = nullptr;
};

void Loop::Poster::post(std::function<void()> fn) const {
  const std::lock_guard lock(gate_->mutex);
  if (gate_->impl != nullptr && !JCCL_PLANTED("post-after-the-loop"))
    gate_->impl->post(std::move(fn));
}

Loop::Loop() : impl_(std::make_unique<Impl>()), gate_(std::make_shared<Poster::Gate>()) {
  gate_->impl = impl_.get();
}

Loop::~Loop() {
  stop();
  {
    const std::lock_guard lock(gate_->mutex);
    gate_->impl = nullptr;
  }
  // What is freed may post or set timers again; that goes the same way.
  for (bool more = true; more;) {
    const auto timers = std::exchange(impl_->timers, {});
    const auto posted = std::exchange(impl_->posted, {});
    more = !timers.empty() || !posted.empty();
  }
}

void Loop::start() {
  const std::lock_guard lock(impl_->stopping);
  JCCL_CHECK(!impl_->thread.joinable());
  impl_->context.restart();
  impl_->work.emplace(impl_->context.get_executor());
  impl_->running = true;
  impl_->thread = std::thread([impl = impl_.get()] {
    current_loop = impl;
    impl->context.run();
    const std::lock_guard state(impl->mutex);
    impl->running = false;
    impl->changed.notify_all();
  });
}

void Loop::stop() {
  JCCL_CHECK(!on_loop_thread());
  const std::lock_guard lock(impl_->stopping);
  if (!impl_->thread.joinable()) return;
  impl_->work.reset();
  impl_->context.stop();
  impl_->thread.join();
}

void Loop::post(std::function<void()> fn) { impl_->post(std::move(fn)); }

bool Loop::call(std::function<void()> fn) {
  if (confined()) {
    fn();
    return true;
  }
  const auto done = std::make_shared<bool>(false);
  impl_->post([impl = impl_.get(), done, fn = std::move(fn)] {
    fn();
    const std::lock_guard lock(impl->mutex);
    *done = true;
    impl->changed.notify_all();
  });
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return *done || !impl_->running; });
  return *done;
}

TimerId Loop::run_after(Duration delay, std::function<void()> fn) {
  JCCL_CHECK(confined());
  const Time now = Impl::clock();
  const TimerId id = ++impl_->timer_last;
  const Time at = delay > 0 ? (delay > base::kNever - now ? base::kNever : now + delay) : now;
  impl_->timers.emplace(std::pair{at, id}, std::move(fn));
  impl_->due.emplace(id, at);
  impl_->arm(now);
  return id;
}

void Loop::cancel(TimerId timer) {
  JCCL_CHECK(confined());
  const auto found = impl_->due.find(timer);
  if (found == impl_->due.end()) return;
  if (JCCL_PLANTED("cancelled-timer-fires")) return;
  const auto entry = impl_->timers.extract({found->second, timer});
  impl_->due.erase(found);
}  // `entry` frees what the timer captured, after the books are in order

Time Loop::now() const { return Impl::clock(); }

bool Loop::on_loop_thread() const { return current_loop == impl_.get(); }

bool Loop::confined() const { return on_loop_thread() || !impl_->running; }

Loop::Poster Loop::poster() const {
  Poster poster;
  poster.gate_ = gate_;
  return poster;
}

void* Loop::io_context() { return &impl_->context; }

}  // namespace jccl::net
