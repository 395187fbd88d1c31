#include "peer/streamed_input.h"

#include <chrono>
#include <utility>

#include "base/planted.h"

namespace jccl::peer {

void StreamedInput::advance(std::uint64_t here) {
  const std::lock_guard lock(mutex_);
  if (here <= this->here() && !JCCL_PLANTED("feed-goes-back")) return;
  here_.store(here, std::memory_order_release);
  changed();
}

void StreamedInput::fail(std::string why) {
  const std::lock_guard lock(mutex_);
  if ((whole() && !JCCL_PLANTED("fault-after-the-end")) || fault_) return;
  fault_ = std::move(why);
  changed();
}

void StreamedInput::changed() {
  news_.notify_all();
  if (told_) told_();
}

std::optional<std::string> StreamedInput::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool StreamedInput::wait(base::Duration limit) const {
  std::unique_lock lock(mutex_);
  (void)news_.wait_for(lock, std::chrono::nanoseconds(limit), [&] { return whole() || fault_; });
  return whole();
}

void StreamedInput::listen(std::function<void()> told) {
  const std::lock_guard lock(mutex_);
  told_ = std::move(told);
}

}  // namespace jccl::peer
