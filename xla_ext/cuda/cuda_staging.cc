#include "cuda/cuda_staging.h"

#include <bit>
#include <cstring>
#include <map>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::xla_ext::cuda {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr std::size_t kAlign = 256;
constexpr std::size_t kFlagBytes = kAlign;  // the word waited for has its own cache lines
constexpr std::size_t kSmallest = 64 * 1024;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Quarters of powers of two: at most a quarter of a block is wasted.
std::size_t class_of(std::size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const std::size_t quarter = std::bit_floor(bytes - 1) / 4;
  return (bytes + quarter - 1) / quarter * quarter;
}

Status refused(const Driver& driver, const char* function, Result error) {
  return {Code::kInternal,
          cat("the device refused a call, ", driver.text(function, error),
              "; after such an error it takes no more work in this process: start it again")};
}

}  // namespace

struct PinnedPool::Shelf {
  explicit Shelf(const Driver& d) : driver(d) {}
  const Driver& driver;
  std::mutex mutex;
  bool closed = false;
  std::size_t held_bytes = 0;
  std::multimap<std::size_t, Block> kept;  // by size

  void free(const Block& block) {
    // A context that is gone took its pinned memory with it.
    if (driver.ctx_push(block.context) != kSuccess) return;
    (void)driver.host_free(block.memory);
    Context popped = nullptr;
    (void)driver.ctx_pop(&popped);
  }
};

PinnedPool::PinnedPool(const Driver& driver) : shelf_(std::make_shared<Shelf>(driver)) {}

base::Result<PinnedPool::Ref> PinnedPool::take(std::size_t bytes, Context context) {
  Block block;
  const std::size_t wanted = class_of(bytes);
  {
    std::lock_guard lock(shelf_->mutex);
    const auto kept = shelf_->kept.find(wanted);
    if (kept != shelf_->kept.end()) {
      block = kept->second;
      shelf_->kept.erase(kept);
    }
  }
  if (block.memory == nullptr) {
    void* memory = nullptr;
    const Result error =
        shelf_->driver.host_alloc(&memory, wanted, kHostAllocPortable | kHostAllocMapped);
    if (error != kSuccess) {
      const std::string why = shelf_->driver.text("cuMemHostAlloc", error);
      return Status{error == kOutOfMemory ? Code::kLimit : Code::kInternal,
                    cat("no ", base::bytes_text(wanted), " of pinned memory beside the ",
                        base::bytes_text(held_bytes()), " in use (", why,
                        "); send less at once, or give the machine more memory")};
    }
    block = {static_cast<std::uint8_t*>(memory), wanted, context};
    std::lock_guard lock(shelf_->mutex);
    shelf_->held_bytes += wanted;
  }
  // Blocks come back from host functions too, which must not call the driver.
  const auto give_back = [shelf = shelf_](Block* raw) {
    const std::unique_ptr<Block> owned(raw);
    std::lock_guard lock(shelf->mutex);
    if (!shelf->closed) {
      shelf->kept.emplace(raw->bytes, *raw);
      return;
    }
    shelf->held_bytes -= raw->bytes;
    HostThreads::get().reserve();
    HostThreads::get().post([shelf, gone = *raw] { shelf->free(gone); });
  };
  return Ref(new Block(block), give_back);
}

void PinnedPool::close() {
  std::multimap<std::size_t, Block> kept;
  {
    std::lock_guard lock(shelf_->mutex);
    shelf_->closed = true;
    kept.swap(shelf_->kept);
    for (const auto& [bytes, block] : kept) shelf_->held_bytes -= bytes;
  }
  for (const auto& [bytes, block] : kept) shelf_->free(block);
}

std::size_t PinnedPool::held_bytes() const {
  std::lock_guard lock(shelf_->mutex);
  return shelf_->held_bytes;
}

StreamScope::StreamScope(const Driver& driver, Stream stream) : driver_(driver), stream_(stream) {
  int capturing = kCaptureNone;
  Result error = driver.stream_capturing(stream, &capturing);
  const char* function = "cuStreamIsCapturing";
  if (error == kSuccess) {
    error = driver.stream_ctx(stream, &context_);
    function = "cuStreamGetCtx";
  }
  if (error == kSuccess) {
    error = driver.ctx_push(context_);
    function = "cuCtxPushCurrent";
    pushed_ = error == kSuccess;
  }
  if (error != kSuccess) {
    status_ = refused(driver, function, error);
  } else if (capturing != kCaptureNone) {
    status_ = {Code::kInternal,
               "a collective was called while its stream records a CUDA graph; it is not part of "
               "one: run the program without command buffers (XLA_FLAGS="
               "--xla_gpu_enable_command_buffer=)"};
  }
}

StreamScope::~StreamScope() {
  Context popped = nullptr;
  if (pushed_) (void)driver_.ctx_pop(&popped);
}

bool StreamScope::can_wait() const {
  if (driver_.stream_wait_always) return true;
  if (driver_.stream_wait_value == nullptr) return false;
  int device = 0, can = 0;
  if (driver_.ctx_device(&device) != kSuccess) return false;
  return driver_.device_attribute(&can, kCanUseStreamMemOps, device) == kSuccess && can != 0;
}

Status synchronize(const StreamScope& scope) {
  const Result error = scope.driver().stream_synchronize(scope.stream());
  if (error != kSuccess) return refused(scope.driver(), "cuStreamSynchronize", error);
  return {};
}

StagedCall::StagedCall(const Driver& driver, PinnedPool::Ref block,
                       std::vector<std::size_t> offsets)
    : driver_(driver), block_(std::move(block)), offsets_(std::move(offsets)) {
  if (!JCCL_PLANTED("flag-of-the-call-before")) std::memset(block_->memory, 0, kFlagBytes);
}

base::Result<std::shared_ptr<StagedCall>> StagedCall::make(const StreamScope& scope,
                                                           PinnedPool& pool,
                                                           const std::vector<std::size_t>& sizes) {
  std::vector<std::size_t> offsets{kFlagBytes};
  for (const std::size_t size : sizes)
    offsets.push_back(offsets.back() +
                      (JCCL_PLANTED("staging-regions-touch") ? size / 2 : aligned(size)));
  auto block = pool.take(offsets.back(), scope.context());
  if (!block.ok()) return block.status();
  return std::shared_ptr<StagedCall>(
      new StagedCall(scope.driver(), std::move(block.value()), std::move(offsets)));
}

Status StagedCall::fetch(const StreamScope& scope, std::size_t at, DevicePointer from,
                         std::size_t bytes, std::size_t first) {
  if (bytes == 0) return {};
  const Result error =
      driver_.copy_to_host(region(at) + first, from + first, bytes, scope.stream());
  return error == kSuccess ? Status{} : refused(driver_, "cuMemcpyDtoHAsync", error);
}

Status StagedCall::tell(const StreamScope& scope, std::shared_ptr<peer::StreamedInput> feed,
                        std::uint64_t here) {
  auto reference = std::make_unique<Told>(Told{std::move(feed), here});
  const Result error =
      driver_.launch_host_function(scope.stream(), &StagedCall::when_here, reference.get());
  if (error != kSuccess) return refused(driver_, "cuLaunchHostFunc", error);
  (void)reference.release();  // the host function's now
  return {};
}

void StagedCall::when_here(void* reference) {
  const std::unique_ptr<Told> told(static_cast<Told*>(reference));
  told->feed->advance(told->here);
}

Status StagedCall::store(const StreamScope& scope, std::size_t at, DevicePointer to,
                         std::size_t bytes) {
  if (bytes == 0) return {};
  const Result error = driver_.copy_to_device(to, region(at), bytes, scope.stream());
  return error == kSuccess ? Status{} : refused(driver_, "cuMemcpyHtoDAsync", error);
}

Status StagedCall::post(const StreamScope& scope, Host host) {
  host_ = std::move(host);
  HostThreads::get().reserve();
  auto reference = std::make_unique<std::shared_ptr<StagedCall>>(shared_from_this());
  const Result error =
      driver_.launch_host_function(scope.stream(), &StagedCall::when_posted, reference.get());
  if (error != kSuccess) return refused(driver_, "cuLaunchHostFunc", error);
  (void)reference.release();  // the host function's now
  return {};
}

Status StagedCall::wait(const StreamScope& scope) {
  if (!scope.can_wait()) {
    if (!posted()) {
      return {Code::kInternal, "a call was waited for before the stream came to its start"};
    }
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return over(); });  // its deadline ends it
    return {};
  }
  DevicePointer flag = 0;
  Result error = driver_.host_device_pointer(&flag, block_->memory, 0);
  if (error != kSuccess) return refused(driver_, "cuMemHostGetDevicePointer", error);
  error = driver_.stream_wait_value(scope.stream(), flag, 1, kWaitGreaterOrEqual);
  return error == kSuccess ? Status{} : refused(driver_, "cuStreamWaitValue32", error);
}

Status StagedCall::retire(const StreamScope& scope) {
  auto reference = std::make_unique<std::shared_ptr<StagedCall>>(shared_from_this());
  const Result error =
      driver_.launch_host_function(scope.stream(), &StagedCall::when_retired, reference.get());
  if (error == kSuccess) {
    (void)reference.release();  // the host function's now
    return {};
  }
  // The stream may still read or write the memory: it is not given back without word from it.
  static std::mutex mutex;
  static auto* const held = new std::vector<std::shared_ptr<StagedCall>>;
  const std::lock_guard lock(mutex);
  held->push_back(shared_from_this());
  return refused(driver_, "cuLaunchHostFunc", error);
}

void StagedCall::when_posted(void* reference) {
  const std::unique_ptr<std::shared_ptr<StagedCall>> call(
      static_cast<std::shared_ptr<StagedCall>*>(reference));
  (*call)->posted_.store(true, std::memory_order_release);
  HostThreads::get().post([call = *call] { call->work(); });
}

void StagedCall::when_retired(void* reference) {
  const std::unique_ptr<std::shared_ptr<StagedCall>> call(
      static_cast<std::shared_ptr<StagedCall>*>(reference));
}

void StagedCall::work() {
  const Deadlines::Id deadline =
      Deadlines::get().add(host_.patience(), [call = shared_from_this()] { call->expire(); });
  host_.work();
  Deadlines::get().remove(deadline);
  std::lock_guard lock(mutex_);
  host_ = {};
  if (!over()) raise_flag();
}

void StagedCall::expire() {
  std::lock_guard lock(mutex_);
  if (over()) return;
  if (!JCCL_PLANTED("expired-call-not-told"))
    host_.give_up({Code::kInternal, "the host's part of the call outlived its deadline"});
  raise_flag();
}

void StagedCall::raise_flag() {
  over_.store(true, std::memory_order_release);
  std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(block_->memory))
      .store(1, std::memory_order_release);
  ended_.notify_all();
}

}  // namespace jccl::xla_ext::cuda
