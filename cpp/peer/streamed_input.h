// Inputs of a call that come while its round runs, as copies out of a device's memory do: leaf
// after leaf in the order of the call, and in each from its first byte on. Whoever brings them says
// how far that is; attempts begin with what is here (see attempt.h), so that bus and network carry
// parts of one call at one time. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/time.h"
#include "exchange/call.h"

namespace jccl::peer {

class StreamedInput : public exchange::Incoming {
 public:
  explicit StreamedInput(std::uint64_t bytes) : bytes_(bytes) {}

  // `here` bytes of all the inputs have come and change no more. What is less than before says
  // nothing. Waits for no round and calls no driver: a device's host function may call it.
  void advance(std::uint64_t here);
  // What is missing will not come.
  void fail(std::string why);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t here() const override { return here_.load(std::memory_order_acquire); }
  bool whole() const override { return here() >= bytes_; }
  std::optional<std::string> fault() const override;
  // True once everything is here; false if that fails or takes longer.
  bool wait(base::Duration limit) const;

  // `told` is called after every change from now on, on the thread that makes it, instead of the
  // one given before. It must not call the feed.
  void listen(std::function<void()> told);

 private:
  void changed();

  const std::uint64_t bytes_;
  std::atomic<std::uint64_t> here_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  std::optional<std::string> fault_;
  std::function<void()> told_;
};

}  // namespace jccl::peer
