// One thread and its event loop: timers, posted functions, readiness of sockets. Every other
// object of this folder is confined to one loop: it is created, used and destroyed on that loop's
// thread, or while the loop does not run. Handlers run on the loop's thread only, never inside
// the call that asked for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/time.h"

namespace jccl::net {

using base::Duration;
using base::Time;

using TimerId = std::uint64_t;  // 0 names no timer

class Loop {
 public:
  Loop();
  ~Loop();  // stops
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void start();
  // Joins the thread. Handlers not yet run are never run; what they captured is freed at the
  // latest with the loop. From any thread but the loop's own. May be called twice.
  void stop();

  // From any thread. After stop() it has no effect.
  void post(std::function<void()> fn);
  // Runs `fn` on the loop's thread and waits for it; inline where that is the caller's thread or
  // the loop is not running. From any thread. False if the loop stopped before `fn` ran.
  bool call(std::function<void()> fn);

  // Confined. A cancelled timer never runs, even if it was due.
  TimerId run_after(Duration delay, std::function<void()> fn);
  void cancel(TimerId timer);

  Time now() const;  // steady clock; from any thread
  bool on_loop_thread() const;
  // True where confined objects may be touched: on the loop's thread, or while none runs.
  bool confined() const;

  // Posts for as long as the loop lives; for threads that may outlive it.
  class Poster {
   public:
    void post(std::function<void()> fn) const;

   private:
    friend class Loop;
    struct Gate;
    std::shared_ptr<Gate> gate_;
  };
  Poster poster() const;

  // The boost::asio::io_context, for code that brings its own Asio objects.
  void* io_context();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::shared_ptr<Poster::Gate> gate_;
};

}  // namespace jccl::net
