#include "cuda/device_rendezvous.h"

#include <algorithm>
#include <chrono>

#include "base/text.h"

namespace jccl::xla_ext {

using base::Code;

DeviceRendezvous::DeviceRendezvous(std::uint32_t devices, std::size_t bytes, std::size_t out_bytes,
                                   peer::BufferPool& pool)
    : devices_(devices),
      in_(pool.take(std::max<std::size_t>(bytes, 1))),
      out_(pool.take(std::max<std::size_t>(out_bytes, 1))) {}

void DeviceRendezvous::add_state(const std::vector<peer::StateMarks>& parts) {
  std::lock_guard lock(mutex_);
  if (state_.empty()) state_ = parts;
  for (std::size_t part = 0; part < parts.size() && part < state_.size(); ++part) {
    peer::StateMarks& all = state_[part];
    const peer::StateMarks& own = parts[part];
    if (all.size() != own.size()) all.clear();  // programs of two states
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != own[i]) all[i] += {own[i].second + 1, own[i].first + 1};
    }
  }
}

RendezvousOutcome DeviceRendezvous::arrive(
    const base::Status& own, const std::vector<double>& scalars, base::Duration wait_max,
    const std::function<RendezvousOutcome(DeviceRendezvous&)>& work) {
  std::unique_lock lock(mutex_);
  if (arrived_ == 0) scalars_ = scalars;
  if (scalars != scalars_) {
    outcome_.status = {Code::kInvalid,
                       "weight, deadline or handle differ between local devices; they are of the "
                       "peer: give all the same, e.g. a psum over the mesh"};
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
    RendezvousOutcome made = work(*this);
    lock.lock();
    outcome_ = std::move(made);
  }
  done_ = true;
  changed_.notify_all();
  return outcome_;
}

void DeviceRendezvous::abort() {
  std::lock_guard lock(mutex_);
  if (running_ || done_) return;
  outcome_.status = {Code::kAborted, base::cat("aborted while ", devices_ - arrived_, " of ",
                                               devices_, " local devices had not made the call")};
  done_ = true;
  changed_.notify_all();
}

std::shared_ptr<DeviceRendezvous> RendezvousTable::enter(const base::Tag& tag, const Caller& caller,
                                                         std::size_t bytes, std::size_t out_bytes) {
  std::lock_guard lock(mutex_);
  for (auto at = open_.begin(); at != open_.end(); ++at) {
    if (at->tag != tag || at->execution != caller.execution) continue;
    if (at->met->entered_.count(caller.device) > 0 ||
        at->met->in_->size() != std::max<std::size_t>(bytes, 1))
      continue;
    const auto met = at->met;
    met->entered_.insert(caller.device);
    if (met->entered_.size() == caller.devices) open_.erase(at);
    return met;
  }
  if (open_.size() >= kOpenMax) open_.pop_front();
  auto met = std::make_shared<DeviceRendezvous>(caller.devices, bytes, out_bytes, pool_);
  met->entered_.insert(caller.device);
  if (caller.devices > 1) open_.push_back({tag, caller.execution, met});
  return met;
}

void RendezvousTable::abort() {
  std::list<Open> all;
  {
    std::lock_guard lock(mutex_);
    all = open_;
  }
  for (const Open& one : all) one.met->abort();
}

void RendezvousTable::keep(peer::Handle handle, std::shared_ptr<const OpenRound> round) {
  std::lock_guard lock(mutex_);
  // A tag has one round at a time: where a new one runs on all parts, the last one has ended on all
  // of them, and nobody came for it.
  const auto runs = [](const base::Result<peer::Handle>& part) { return part.ok(); };
  if (std::all_of(round->handles.begin(), round->handles.end(), runs)) {
    std::erase_if(rounds_, [&](const auto& kept) { return kept.second->tag == round->tag; });
  }
  rounds_[handle] = std::move(round);
}

base::Duration RendezvousTable::deadline_of(peer::Handle handle) {
  std::lock_guard lock(mutex_);
  const auto at = rounds_.find(handle);
  return at == rounds_.end() ? 0 : at->second->deadline;
}

std::shared_ptr<const OpenRound> RendezvousTable::take(peer::Handle handle) {
  std::lock_guard lock(mutex_);
  const auto at = rounds_.find(handle);
  if (at == rounds_.end()) return nullptr;
  auto round = std::move(at->second);
  rounds_.erase(at);
  return round;
}

}  // namespace jccl::xla_ext
