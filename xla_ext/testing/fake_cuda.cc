// A CUDA driver over host memory: the functions that the device route calls, and a thread for each
// stream. See fake_cuda.h. Built twice; without FAKE_CUDA_WITHOUT_STREAM_WAITS as CUDA 11.8 and
// newer are.
#include "testing/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

enum Error {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidContext = 201,
  kNotPermitted = 800,
  kLost = 719,
};

struct Stream {
  int device = 0;
  std::deque<std::function<void()>> steps;
  bool busy = false, held = false, recording = false;
  int copies_to_hold = 0;  // to the host; 0: it is not to be held
  std::atomic<bool> waiting{false};
};

struct Fault {
  int left = 0;
  int error = 0;
  bool lost = false;
};

// One for all, never destroyed: threads of streams outlive main().
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::mutex host_functions;
  std::set<Stream*> streams;
  std::map<std::uintptr_t, std::size_t> on_device, pinned;
  std::set<std::uintptr_t> pinned_before;  // the last reset
  std::map<std::string, int> counts;
  std::map<std::string, std::uint64_t> copied;  // bytes, by function
  std::map<std::string, Fault> faults;
  std::vector<std::deque<std::function<void()>>> never_done;  // kept: what they hold is in use
  std::string violation;
  int lost = kOk, pushed = 0;
  bool pageable_copies = false;
  std::uint64_t ns_per_step = 0;
};

World& world() {
  static auto* one = new World;
  return *one;
}

thread_local bool in_host_function = false;
thread_local std::vector<void*> contexts;
int context_marks[16];  // a context is the address of its device's mark

void violate(const std::string& what) {
  if (world().violation.empty()) world().violation = what;
}

// Counts the call, and answers what it was told to.
int enter(const char* function, bool needs_context = false) {
  World& w = world();
  std::lock_guard lock(w.mutex);
  ++w.counts[function];
  if (in_host_function) {
    violate(std::string(function) + " was called by a host function");
    return kNotPermitted;
  }
  if (w.lost != kOk) return w.lost;
  if (needs_context && contexts.empty()) {
    violate(std::string(function) + " was called without a context");
    return kInvalidContext;
  }
  const auto fault = w.faults.find(function);
  if (fault == w.faults.end() || --fault->second.left > 0) return kOk;
  const Fault hit = fault->second;
  w.faults.erase(fault);
  if (hit.lost) w.lost = hit.error;
  w.changed.notify_all();
  return hit.error;
}

void check_inside(const std::map<std::uintptr_t, std::size_t>& memory, std::uintptr_t at,
                  std::size_t bytes, const char* what) {
  auto block = memory.upper_bound(at);
  if (block != memory.begin()) {
    --block;
    if (at + bytes <= block->first + block->second) return;
  }
  violate(std::string(what) + " lies outside of every allocation");
}

void serve(Stream* stream) {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (;;) {
    w.changed.wait(lock, [&] { return w.lost == kOk && !stream->held && !stream->steps.empty(); });
    auto step = std::move(stream->steps.front());
    stream->steps.pop_front();
    stream->busy = true;
    const auto pace = std::chrono::nanoseconds(w.ns_per_step);
    lock.unlock();
    if (pace.count() > 0) std::this_thread::sleep_for(pace);
    step();
    lock.lock();
    stream->busy = false;
    w.changed.notify_all();
  }
}

int enqueue(void* stream, std::function<void()> step) {
  World& w = world();
  std::lock_guard lock(w.mutex);
  auto* on = static_cast<Stream*>(stream);
  if (w.streams.count(on) == 0) {
    violate("no such stream");
    return kInvalidValue;
  }
  on->steps.push_back(std::move(step));
  w.changed.notify_all();
  return kOk;
}

int enqueue_copy(const char* function, void* stream, std::uintptr_t to, std::uintptr_t from,
                 std::size_t bytes, bool to_host, bool from_host) {
  if (const int error = enter(function, true); error != kOk) return error;
  {
    std::lock_guard lock(world().mutex);
    world().copied[function] += bytes;
    const auto check = [&](std::uintptr_t at, bool on_host, const char* what) {
      if (on_host && world().pageable_copies) return;
      check_inside(on_host ? world().pinned : world().on_device, at, bytes, what);
    };
    check(to, to_host, "a copy's target");
    check(from, from_host, "a copy's source");
  }
  auto* on = static_cast<Stream*>(stream);
  if (to_host && on->copies_to_hold > 0 && --on->copies_to_hold == 0) {
    (void)enqueue(stream, [on] {
      std::lock_guard lock(world().mutex);
      on->held = true;
    });
  }
  return enqueue(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  });
}

void wait_for_word(Stream* stream, std::uintptr_t at, std::uint32_t value) {
  {
    std::lock_guard lock(world().mutex);
    stream->waiting = true;
    world().changed.notify_all();
  }
  const std::atomic_ref<std::uint32_t> word(*reinterpret_cast<std::uint32_t*>(at));
  while (static_cast<std::int32_t>(word.load(std::memory_order_acquire) - value) < 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::lock_guard lock(world().mutex);
    if (world().lost != kOk) break;
  }
  stream->waiting = false;
  std::lock_guard lock(world().mutex);
  world().changed.notify_all();
}

}  // namespace

void fake_cuda_reset() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (Stream* stream : w.streams) {
    if (!stream->steps.empty()) w.never_done.push_back(std::move(stream->steps));
    stream->steps.clear();
    stream->held = stream->recording = false;
    stream->copies_to_hold = 0;
  }
  w.changed.wait(lock, [&] {  // until none is in the middle of a copy
    return std::none_of(w.streams.begin(), w.streams.end(),
                        [](const Stream* one) { return one->busy && !one->waiting; });
  });
  for (const auto& [at, bytes] : w.on_device) std::free(reinterpret_cast<void*>(at));
  w.on_device.clear();
  for (const auto& [at, bytes] : w.pinned) w.pinned_before.insert(at);
  w.counts.clear();
  w.copied.clear();
  w.faults.clear();
  w.violation.clear();
  w.lost = kOk;
  w.ns_per_step = 0;
  w.pageable_copies = false;
  w.changed.notify_all();
}

void* fake_cuda_stream(int device) {
  auto* stream = new Stream;
  stream->device = device;
  std::lock_guard lock(world().mutex);
  world().streams.insert(stream);
  std::thread(serve, stream).detach();
  return stream;
}

void* fake_cuda_alloc(std::size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  std::lock_guard lock(world().mutex);
  world().on_device[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
  return memory;
}

void fake_cuda_hold(void* stream, bool held) {
  std::lock_guard lock(world().mutex);
  static_cast<Stream*>(stream)->held = held;
  world().changed.notify_all();
}

void fake_cuda_hold_before_copy(void* stream, int nth) {
  std::lock_guard lock(world().mutex);
  static_cast<Stream*>(stream)->copies_to_hold = nth;
}

bool fake_cuda_held(void* stream) {
  std::lock_guard lock(world().mutex);
  return static_cast<Stream*>(stream)->held;
}

void fake_cuda_record(void* stream, bool recording) {
  std::lock_guard lock(world().mutex);
  static_cast<Stream*>(stream)->recording = recording;
}

void fake_cuda_allow_pageable_copies() {
  std::lock_guard lock(world().mutex);
  world().pageable_copies = true;
}

void fake_cuda_pace(std::uint64_t ns_per_step) {
  std::lock_guard lock(world().mutex);
  world().ns_per_step = ns_per_step;
}

void fake_cuda_fail(const char* function, int nth, int error, bool lost) {
  std::lock_guard lock(world().mutex);
  world().faults[function] = {nth, error, lost};
}

bool fake_cuda_idle(void* stream) {
  std::lock_guard lock(world().mutex);
  const auto* one = static_cast<Stream*>(stream);
  return one->steps.empty() && !one->busy;
}

bool fake_cuda_waiting(void* stream) { return static_cast<Stream*>(stream)->waiting; }

int fake_cuda_count(const char* function) {
  std::lock_guard lock(world().mutex);
  return world().counts[function];
}

std::uint64_t fake_cuda_bytes(const char* function) {
  std::lock_guard lock(world().mutex);
  return world().copied[function];
}

std::uint64_t fake_cuda_pinned_bytes() {
  std::lock_guard lock(world().mutex);
  std::uint64_t bytes = 0;
  for (const auto& [at, size] : world().pinned) {
    if (world().pinned_before.count(at) == 0) bytes += size;
  }
  return bytes;
}

int fake_cuda_contexts_pushed() {
  std::lock_guard lock(world().mutex);
  return world().pushed;
}

const char* fake_cuda_violation() {
  std::lock_guard lock(world().mutex);
  return world().violation.c_str();
}

FAKE_CUDA_API int cuInit(unsigned) { return kOk; }

FAKE_CUDA_API int cuGetErrorName(int error, const char** text) {
  *text = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kLost      ? "CUDA_ERROR_LAUNCH_FAILED"
                                : "CUDA_ERROR_UNKNOWN";
  return kOk;
}

FAKE_CUDA_API int cuGetErrorString(int error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory"
          : error == kLost      ? "unspecified launch failure"
                                : "unknown error";
  return kOk;
}

FAKE_CUDA_API int cuDeviceGetAttribute(int* value, int, int) {
  *value = 0;  // streams wait only with the second version of the functions
  return enter("cuDeviceGetAttribute");
}

FAKE_CUDA_API int cuCtxPushCurrent_v2(void* context) {
  if (const int error = enter("cuCtxPushCurrent"); error != kOk) return error;
  contexts.push_back(context);
  std::lock_guard lock(world().mutex);
  ++world().pushed;
  return kOk;
}

// Also on a lost device: a thread's stack is the host's.
FAKE_CUDA_API int cuCtxPopCurrent_v2(void** context) {
  std::lock_guard lock(world().mutex);
  if (contexts.empty()) {
    violate("no context to pop");
    return kInvalidContext;
  }
  *context = contexts.back();
  contexts.pop_back();
  --world().pushed;
  return world().lost;
}

FAKE_CUDA_API int cuCtxGetDevice(int* device) {
  if (const int error = enter("cuCtxGetDevice", true); error != kOk) return error;
  *device = static_cast<int>(static_cast<int*>(contexts.back()) - context_marks);
  return kOk;
}

FAKE_CUDA_API int cuStreamGetCtx(void* stream, void** context) {
  if (const int error = enter("cuStreamGetCtx"); error != kOk) return error;
  *context = &context_marks[static_cast<Stream*>(stream)->device];
  return kOk;
}

FAKE_CUDA_API int cuStreamIsCapturing(void* stream, int* status) {
  if (const int error = enter("cuStreamIsCapturing"); error != kOk) return error;
  std::lock_guard lock(world().mutex);
  *status = static_cast<Stream*>(stream)->recording ? 1 : 0;
  return kOk;
}

FAKE_CUDA_API int cuStreamSynchronize(void* stream) {
  if (const int error = enter("cuStreamSynchronize", true); error != kOk) return error;
  World& w = world();
  std::unique_lock lock(w.mutex);
  const auto* one = static_cast<Stream*>(stream);
  w.changed.wait(lock, [&] { return w.lost != kOk || (one->steps.empty() && !one->busy); });
  return w.lost;
}

FAKE_CUDA_API int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (const int error = enter("cuLaunchHostFunc", true); error != kOk) return error;
  return enqueue(stream, [function, data] {
    std::lock_guard one_at_a_time(world().host_functions);
    in_host_function = true;
    function(data);
    in_host_function = false;
  });
}

#ifndef FAKE_CUDA_WITHOUT_STREAM_WAITS
FAKE_CUDA_API int cuStreamWaitValue32_v2(void* stream, std::uint64_t at, std::uint32_t value,
                                         unsigned flags) {
  if (const int error = enter("cuStreamWaitValue32", true); error != kOk) return error;
  if (flags != 0) return kInvalidValue;
  return enqueue(stream, [=] { wait_for_word(static_cast<Stream*>(stream), at, value); });
}
#endif

FAKE_CUDA_API int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  if (const int error = enter("cuMemHostAlloc", true); error != kOk) return error;
  if (flags != 3) return kInvalidValue;
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::memset(*memory, 0xCD, bytes);
  std::lock_guard lock(world().mutex);
  world().pinned[reinterpret_cast<std::uintptr_t>(*memory)] = bytes;
  return kOk;
}

FAKE_CUDA_API int cuMemFreeHost(void* memory) {
  if (const int error = enter("cuMemFreeHost", true); error != kOk) return error;
  World& w = world();
  std::unique_lock lock(w.mutex);
  const auto nobody_waits = [&] {
    for (const Stream* stream : w.streams) {
      if (stream->waiting) return false;
    }
    return true;
  };
  w.changed.wait(lock, [&] { return w.lost != kOk || nobody_waits(); });
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  if (w.pinned.erase(at) == 0) violate("freed twice");
  w.pinned_before.erase(at);
  std::memset(memory, 0xDD, 64);
  std::free(memory);
  return w.lost;
}

FAKE_CUDA_API int cuMemHostGetDevicePointer_v2(std::uint64_t* at, void* memory, unsigned) {
  if (const int error = enter("cuMemHostGetDevicePointer", true); error != kOk) return error;
  *at = reinterpret_cast<std::uint64_t>(memory);
  return kOk;
}

FAKE_CUDA_API int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes,
                                       void* stream) {
  return enqueue_copy("cuMemcpyDtoHAsync", stream, reinterpret_cast<std::uintptr_t>(to), from,
                      bytes, true, false);
}

FAKE_CUDA_API int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes,
                                       void* stream) {
  return enqueue_copy("cuMemcpyHtoDAsync", stream, to, reinterpret_cast<std::uintptr_t>(from),
                      bytes, false, true);
}

FAKE_CUDA_API int cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes,
                                       void* stream) {
  return enqueue_copy("cuMemcpyDtoDAsync", stream, to, from, bytes, false, false);
}

FAKE_CUDA_API int cuMemsetD8Async(std::uint64_t at, unsigned char value, std::size_t count,
                                  void* stream) {
  if (const int error = enter("cuMemsetD8Async", true); error != kOk) return error;
  return enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(at), value, count); });
}

FAKE_CUDA_API int cuMemsetD32Async(std::uint64_t at, unsigned value, std::size_t count,
                                   void* stream) {
  if (const int error = enter("cuMemsetD32Async", true); error != kOk) return error;
  return enqueue(stream, [=] {
    auto* words = reinterpret_cast<std::uint32_t*>(at);
    for (std::size_t i = 0; i < count; ++i) words[i] = value;
  });
}
