// What a process has used so far, and memory that a benchmark owns: resident from the start, so
// that no page fault of the caller's arrays falls into the time measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace jccl::bench {

struct CpuTime {
  std::int64_t user_ns = 0, system_ns = 0;
};
CpuTime cpu_now();  // of all threads of this process

std::int64_t clock_ns();  // CLOCK_MONOTONIC: one clock for all processes of a machine

std::int64_t resident_bytes();
std::int64_t resident_peak_bytes();
void reset_resident_peak();  // where the kernel allows it; else the peak is that of the whole life

double load_average();

// Anonymous pages, touched.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace jccl::bench
