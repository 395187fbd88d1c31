#include "net/link/io_thread.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::net {

std::size_t usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max(1u, std::thread::hardware_concurrency());  // more cores than the set has room for
}

// ---- one job, on the thread ----

bool IoThread::Job::move() {
  std::size_t n = 0;
  if (reads_) {
    n = stream_->read_apart(std::span(into_).subspan(part_));
  } else {
    n = stream_->write_apart(std::span(from_).subspan(part_));
  }
  bytes_ += n;
  const bool moved = n > 0;
  const auto skip = [&](auto& views) {
    while (part_ < views.size() && n >= views[part_].size()) n -= views[part_++].size();
    if (n > 0) views[part_] = views[part_].subspan(n);
  };
  reads_ ? skip(into_) : skip(from_);
  return moved;
}

bool IoThread::Job::ended() const {
  return bytes_ >= needed_ ||
         (reads_ ? stream_->read_apart_failed() : stream_->write_apart_failed());
}

// ---- on the loop ----

IoThread::~IoThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) {
    wake();
    thread_.join();
  }
  if (waker_ >= 0) ::close(waker_);
}

IoThread::JobPtr IoThread::write(ByteStream* stream, std::span<const ByteView> parts,
                                 std::function<void()> done) {
  auto job = std::make_shared<Job>();
  job->stream_ = stream;
  job->from_.assign(parts.begin(), parts.end());
  for (const ByteView& part : parts) job->needed_ += part.size();
  job->done_ = std::move(done);
  return give(std::move(job));
}

IoThread::JobPtr IoThread::read(ByteStream* stream, std::span<const MutableView> parts,
                                std::function<void()> done) {
  auto job = std::make_shared<Job>();
  job->stream_ = stream;
  job->into_.assign(parts.begin(), parts.end());
  const std::size_t waited_for = parts.size() - (JCCL_PLANTED("waits-for-the-next-header") ? 0 : 1);
  for (const MutableView& part : parts.first(waited_for)) job->needed_ += part.size();
  job->reads_ = true;
  job->done_ = std::move(done);
  return give(std::move(job));
}

IoThread::JobPtr IoThread::give(JobPtr job) {
  JCCL_CHECK(loop_.confined());
  if (!thread_.joinable() && !begin()) return nullptr;
  ++given_;
  {
    const std::lock_guard lock(mutex_);
    new_.push_back(job);
  }
  wake();
  return job;
}

bool IoThread::begin() {
  if (waker_ < 0) waker_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (waker_ < 0) return false;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void IoThread::recall(const JobPtr& job) {
  JCCL_CHECK(loop_.confined());
  if (JCCL_PLANTED("recall-does-not-wait")) return;
  std::unique_lock lock(mutex_);
  if (std::erase(new_, job) > 0) {  // the thread has not come to it
    job->over_ = true;
    loop_.post(std::move(job->done_));
  }
  if (job->over_) return;
  job->recalled_ = true;
  wake();
  ended_.wait(lock, [&job] { return job->over_; });  // not long: nothing that moves bytes blocks
}

void IoThread::wake() {
  const std::uint64_t one = 1;
  (void)!::write(waker_, &one, sizeof(one));
}

// ---- the thread ----

void IoThread::run() {
  std::vector<JobPtr> jobs;
  while (take_new(&jobs)) {
    bool moved = false;
    for (const JobPtr& job : jobs) moved |= !job->recalled_ && !job->ended() && job->move();
    std::erase_if(jobs, [this](const JobPtr& job) {
      const bool over = job->recalled_ || job->ended();
      if (over) end(job);
      return over;
    });
    if (!moved) wait(jobs);
  }
}

bool IoThread::take_new(std::vector<JobPtr>* jobs) {
  const std::lock_guard lock(mutex_);
  for (JobPtr& job : new_) jobs->push_back(std::move(job));
  new_.clear();
  return !stop_ || !jobs->empty();
}

void IoThread::end(const JobPtr& job) {
  const std::lock_guard lock(mutex_);
  job->over_ = true;
  ended_.notify_all();
  poster_.post(std::move(job->done_));
}

void IoThread::wait(const std::vector<JobPtr>& jobs) {
  std::vector<pollfd> fds{{waker_, POLLIN, 0}};
  for (const JobPtr& job : jobs) {
    fds.push_back(
        {job->stream_->descriptor(), static_cast<short>(job->reads_ ? POLLIN : POLLOUT), 0});
  }
  (void)::poll(fds.data(), fds.size(), -1);
  std::uint64_t count = 0;
  if (fds[0].revents != 0) (void)!::read(waker_, &count, sizeof(count));
}

}  // namespace jccl::net
