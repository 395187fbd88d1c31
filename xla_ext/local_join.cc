#include "local_join.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"

namespace jccl::xla_ext {

using base::Code;

Join::Join(std::uint32_t devices, std::size_t bytes, peer::BufferPool& pool)
    : devices_(devices),
      in_(pool.take(std::max<std::size_t>(bytes, 1))),
      out_(pool.take(std::max<std::size_t>(bytes, 1))) {}

JoinOutcome Join::arrive(const base::Status& own, const std::vector<double>& scalars,
                         base::Duration wait_max, const std::function<JoinOutcome(Join&)>& work) {
  std::unique_lock lock(mutex_);
  if (arrived_ == 0) scalars_ = scalars;
  if (scalars != scalars_) {
    outcome_.status = {Code::kInvalid,
                       "weight or deadline differ between local devices; they are of the peer: "
                       "give all the same, e.g. a psum over the mesh"};
  }
  if (!own.ok()) outcome_.status = own;
  ++arrived_;
  if (arrived_ < devices_ || done_) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait_max);
    while (!done_) {
      if (running_) {
        changed_.wait(lock);  // the runner ends by the round's deadline
        continue;
      }
      if (changed_.wait_until(lock, limit) != std::cv_status::timeout) continue;
      if (done_ || running_) continue;
      outcome_.status = {Code::kLocalSkew,
                         base::cat(arrived_, " of ", devices_, " local devices came within ",
                                   wait_max / base::kMillisecond,
                                   " ms; every device of the mesh must make this call")};
      done_ = true;
      changed_.notify_all();
    }
    return outcome_;
  }
  running_ = true;
  if (outcome_.status.ok()) {
    lock.unlock();
    JoinOutcome made = work(*this);
    lock.lock();
    outcome_ = std::move(made);
  }
  done_ = true;
  changed_.notify_all();
  return outcome_;
}

std::shared_ptr<Join> JoinTable::enter(const base::Tag& tag, std::int64_t execution,
                                       std::int32_t device, std::uint32_t devices,
                                       std::size_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto at = open_.begin(); at != open_.end(); ++at) {
    if (at->tag != tag || at->execution != execution) continue;
    if (at->join->entered_.count(device) > 0 ||
        at->join->in_->size() != std::max<std::size_t>(bytes, 1))
      continue;
    const auto join = at->join;
    join->entered_.insert(device);
    if (join->entered_.size() == devices) open_.erase(at);
    return join;
  }
  if (open_.size() >= kOpenMax) open_.pop_front();
  auto join = std::make_shared<Join>(devices, bytes, pool_);
  join->entered_.insert(device);
  if (devices > 1) open_.push_back({tag, execution, join});
  return join;
}

}  // namespace jccl::xla_ext
