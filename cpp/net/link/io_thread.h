// Threads beside a loop's that move bytes of large frames: one hands them to the kernel, sealed if
// need be, the other fetches them, while the loop's thread adds and decides. What they are given
// are a stream and views; of the stream they touch what writing (reading) alone uses. All calls are
// confined to the loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "net/link/stream.h"
#include "net/socket/loop.h"

namespace jccl::net {

std::size_t usable_cores();  // by this process

class IoThread {
 public:
  class Job {
   public:
    std::uint64_t bytes() const { return bytes_; }  // moved, of a job that is over

   private:
    friend class IoThread;
    bool move();  // false: nothing now
    bool ended() const;

    ByteStream* stream_ = nullptr;
    std::vector<ByteView> from_;
    std::vector<MutableView> into_;
    bool reads_ = false;
    std::size_t part_ = 0;  // all before it are moved, and what it has lost at its front
    std::function<void()> done_;
    std::uint64_t bytes_ = 0, needed_ = 0;
    bool over_ = false;
    std::atomic<bool> recalled_{false};
  };
  using JobPtr = std::shared_ptr<Job>;

  explicit IoThread(Loop& loop) : loop_(loop), poster_(loop.poster()) {}
  ~IoThread();  // all jobs are over
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Null: the machine gives no thread or descriptor. Else writes all of `parts`, or what goes
  // before the stream fails, then runs `done` on the loop. Of those that are filled the last is not
  // waited for: it is the header behind a payload, and takes what comes along. The stream is in
  // begin_apart() (begin_read_apart()); it and the memory stay until `done` runs or recall()
  // returns.
  JobPtr write(ByteStream* stream, std::span<const ByteView> parts, std::function<void()> done);
  JobPtr read(ByteStream* stream, std::span<const MutableView> parts, std::function<void()> done);
  // On return the job is over, perhaps before its end, and its stream and memory are not touched
  // any more. `done` still runs.
  void recall(const JobPtr& job);
  std::uint64_t jobs() const { return given_; }

 private:
  JobPtr give(JobPtr job);
  bool begin();
  void run();
  bool take_new(std::vector<JobPtr>* jobs);
  void end(const JobPtr& job);
  void wait(const std::vector<JobPtr>& jobs);
  void wake();

  Loop& loop_;
  Loop::Poster poster_;
  std::uint64_t given_ = 0;
  int waker_ = -1;  // an eventfd
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<JobPtr> new_;
  bool stop_ = false;
  std::thread thread_;  // from the first job on
};

// Both of them, of one loop.
struct IoThreads {
  explicit IoThreads(Loop& loop) : writing(loop), reading(loop) {}
  bool used = false;  // whether links hand them anything from here on
  IoThread writing, reading;
};

}  // namespace jccl::net
