#include "cuda/cuda_state.h"

#include <atomic>
#include <random>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::xla_ext::cuda {

using base::Status;

namespace {

// Random, so that a handle from a checkpoint names no round of this process; bit 63 marks starts
// that failed.
std::uint64_t first_handle() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device() & 0x7FFF'FFFF) << 32) + 1;
}

}  // namespace

std::shared_ptr<State> State::of(const Driver& driver, const std::shared_ptr<Entry>& entry) {
  static const auto* process = new std::shared_ptr<State>(std::make_shared<State>(driver));
  if (!entry) return *process;
  const auto held = entry->attached([&] { return std::make_shared<State>(driver); });
  return held ? std::static_pointer_cast<State>(held) : *process;
}

std::uint64_t State::opened(Started started) {
  static std::atomic<std::uint64_t> next{first_handle()};
  const std::uint64_t handle = next++;
  std::lock_guard lock(mutex_);
  started_[handle] = std::move(started);
  return handle;
}

Status State::take(std::uint64_t handle, const std::vector<Shape>& shapes, Started* started) {
  std::lock_guard lock(mutex_);
  const auto at = started_.find(handle);
  if (at == started_.end()) return unknown_handle(handle);
  if (at->second.shapes != shapes && !JCCL_PLANTED("device-done-with-other-leaves"))
    return other_leaves(at->second.tag);
  *started = std::move(at->second);
  if (!JCCL_PLANTED("device-handle-kept")) started_.erase(at);
  return {};
}

}  // namespace jccl::xla_ext::cuda
