#include "usage.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

namespace jccl::bench {
namespace {

std::int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) return std::atoll(line.c_str() + name.size()) * 1024;
  }
  return 0;
}

std::int64_t nanoseconds(const timeval& t) {
  return t.tv_sec * 1'000'000'000LL + t.tv_usec * 1'000LL;
}

}  // namespace

CpuTime cpu_now() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {nanoseconds(usage.ru_utime), nanoseconds(usage.ru_stime)};
}

std::int64_t clock_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

std::int64_t resident_bytes() { return status_bytes("VmRSS:"); }
std::int64_t resident_peak_bytes() { return status_bytes("VmHWM:"); }

void reset_resident_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
}

double load_average() {
  double load[1] = {0};
  return ::getloadavg(load, 1) == 1 ? load[0] : 0;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    std::fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
    std::exit(1);
  }
  std::memset(data_, 0, bytes);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace jccl::bench
