// One call of a device's program, on its way through the host: operands are copied into pinned
// memory on the stream, a host function posts the call, the stream waits for a word of that memory
// to be raised, and results are copied back. What the call can begin without may be copied after
// the post, in parts, each followed by a host function that tells a feed of it. Three rules keep it
// free of deadlocks:
//   1. Host functions only post. They "must not make any CUDA API calls" and "may be serialized",
//      so one that waited for a round could keep another call, which that round needs, from
//      being posted (driver API, cuLaunchHostFunc).
//   2. Between post and release no work of the host calls the driver: any call of it may block
//      behind the waiting stream (driver API, "API synchronization behavior"), and what a stream's
//      wait orders "is not visible to CUDA" (cuStreamWaitValue32). The host alone raises the word.
//   3. A deadline releases the stream whatever became of the call.
// Where a stream cannot wait for a word, the thread that launches waits instead.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/cuda_driver.h"
#include "host_threads.h"
#include "peer/streamed_input.h"

namespace jccl::xla_ext::cuda {

// Pinned memory, kept for reuse until close(): allocating it may wait for the device. A block that
// is out at close() is freed by a host thread when it comes back.
class PinnedPool {
 public:
  struct Block {
    std::uint8_t* memory = nullptr;
    std::size_t bytes = 0;
    Context context = nullptr;
  };
  using Ref = std::shared_ptr<Block>;

  explicit PinnedPool(const Driver& driver);
  ~PinnedPool() { close(); }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // kLimit if the driver has no more; the text names the size. Needs a current context.
  base::Result<Ref> take(std::size_t bytes, Context context);
  void close();
  std::size_t held_bytes() const;  // in use and kept

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

// The stream of a call and its context, current on this thread while this object lives.
class StreamScope {
 public:
  StreamScope(const Driver& driver, Stream stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  // kInternal: the device is lost, or the stream records a graph, in which a call would be played
  // again later with the operands of its first time.
  const base::Status& status() const { return status_; }
  const Driver& driver() const { return driver_; }
  Stream stream() const { return stream_; }
  Context context() const { return context_; }
  bool can_wait() const;  // whether the stream can wait for a word of memory

 private:
  const Driver& driver_;
  const Stream stream_;
  Context context_ = nullptr;
  bool pushed_ = false;
  base::Status status_;
};

class StagedCall : public std::enable_shared_from_this<StagedCall> {
 public:
  struct Host {
    std::function<void()> work;                            // fills the results
    std::function<void(const base::Status& why)> give_up;  // fills them, if work did not
    std::function<base::Duration()> patience;              // for work, once operands are here
  };

  // With a region of pinned memory for each size.
  static base::Result<std::shared_ptr<StagedCall>> make(const StreamScope& scope, PinnedPool& pool,
                                                        const std::vector<std::size_t>& sizes);

  std::uint8_t* region(std::size_t at) const { return block_->memory + offsets_[at]; }

  // Each enqueues on the stream of the scope and answers kInternal, naming function and error, if
  // the driver refuses.
  // Into the region from its byte `first` on.
  base::Status fetch(const StreamScope& scope, std::size_t at, DevicePointer from,
                     std::size_t bytes, std::size_t first = 0);
  // Tells the feed how much is here, once the stream has come to this.
  base::Status tell(const StreamScope& scope, std::shared_ptr<peer::StreamedInput> feed,
                    std::uint64_t here);
  base::Status store(const StreamScope& scope, std::size_t at, DevicePointer to, std::size_t bytes);
  base::Status post(const StreamScope& scope, Host host);
  base::Status wait(const StreamScope& scope);    // the stream, or this thread, until it is over
  base::Status retire(const StreamScope& scope);  // after the last copy

  bool posted() const { return posted_.load(std::memory_order_acquire); }
  bool over() const { return over_.load(std::memory_order_acquire); }

 private:
  StagedCall(const Driver& driver, PinnedPool::Ref block, std::vector<std::size_t> offsets);
  struct Told {
    std::shared_ptr<peer::StreamedInput> feed;
    std::uint64_t here;
  };
  static void when_here(void* reference);
  static void when_posted(void* reference);
  static void when_retired(void* reference);
  void work();
  void expire();
  void raise_flag();  // under mutex_; nothing is written to the results after it

  const Driver& driver_;
  const PinnedPool::Ref block_;
  const std::vector<std::size_t> offsets_;  // the last one is the end
  std::mutex mutex_;
  std::condition_variable ended_;
  Host host_;
  std::atomic<bool> posted_{false}, over_{false};
};

base::Status synchronize(const StreamScope& scope);

}  // namespace jccl::xla_ext::cuda
