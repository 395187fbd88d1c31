#include "cuda/cuda_driver.h"

#include <dlfcn.h>

#include "base/text.h"

namespace jccl::xla_ext::cuda {

using base::cat;
using base::Code;
using base::Status;

std::string Driver::text(const char* function, Result error) const {
  const char* name = nullptr;
  const char* words = nullptr;
  if (error_name(error, &name) != kSuccess || name == nullptr) name = "unknown error";
  if (error_string(error, &words) != kSuccess || words == nullptr) words = "no description";
  return cat(function, ": ", name, " (", words, ")");
}

base::Result<Driver> open_driver(const char* library) {
  // Never closed: the driver keeps threads of its own.
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Status{Code::kIo, cat("no CUDA driver: ", why == nullptr ? library : why)};
  }
  Driver driver{};
  std::string missing;
  const auto find = [&](auto& place, const char* name) {
    place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(::dlsym(handle, name));
    if (place == nullptr && missing.empty()) missing = name;
  };
  find(driver.init, "cuInit");
  find(driver.error_name, "cuGetErrorName");
  find(driver.error_string, "cuGetErrorString");
  find(driver.device_attribute, "cuDeviceGetAttribute");
  find(driver.ctx_push, "cuCtxPushCurrent_v2");
  find(driver.ctx_pop, "cuCtxPopCurrent_v2");
  find(driver.ctx_device, "cuCtxGetDevice");
  find(driver.stream_ctx, "cuStreamGetCtx");
  find(driver.stream_capturing, "cuStreamIsCapturing");
  find(driver.stream_synchronize, "cuStreamSynchronize");
  find(driver.launch_host_function, "cuLaunchHostFunc");
  find(driver.host_alloc, "cuMemHostAlloc");
  find(driver.host_free, "cuMemFreeHost");
  find(driver.host_device_pointer, "cuMemHostGetDevicePointer_v2");
  find(driver.copy_to_host, "cuMemcpyDtoHAsync_v2");
  find(driver.copy_to_device, "cuMemcpyHtoDAsync_v2");
  find(driver.copy_on_device, "cuMemcpyDtoDAsync_v2");
  find(driver.fill_bytes, "cuMemsetD8Async");
  find(driver.fill_words, "cuMemsetD32Async");
  if (!missing.empty()) {
    return Status{Code::kIo, cat("the CUDA driver ", library, " is too old: it has no ", missing,
                                 "; CUDA 10 or newer is needed")};
  }
  find(driver.stream_wait_value, "cuStreamWaitValue32_v2");
  driver.stream_wait_always = driver.stream_wait_value != nullptr;
  if (!driver.stream_wait_always) find(driver.stream_wait_value, "cuStreamWaitValue32");
  if (const Result begun = driver.init(0); begun != kSuccess) {
    return Status{Code::kIo, driver.text("cuInit", begun)};
  }
  return driver;
}

const base::Result<Driver>& driver() {
  static const auto* opened = new base::Result<Driver>(open_driver("libcuda.so.1"));
  return *opened;
}

}  // namespace jccl::xla_ext::cuda
