// Readiness of one file descriptor, which it owns. Internal to this folder. Confined to its
// loop's thread; after close() or destruction no handler runs.
#pragma once

#include <functional>
#include <memory>

#include "net/socket/loop.h"

namespace jccl::net {

class Watch {
 public:
  Watch(Loop& loop, int fd);
  ~Watch();
  // Run `fn` once when the descriptor can be read (written) or has failed. A later call replaces
  // an earlier one that still waits.
  void readable(std::function<void()> fn);
  void writable(std::function<void()> fn);
  int fd() const { return fd_; }
  void close();
  int release();  // gives the descriptor back, open

 private:
  struct State;
  std::shared_ptr<State> state_;
  int fd_;
};

}  // namespace jccl::net
