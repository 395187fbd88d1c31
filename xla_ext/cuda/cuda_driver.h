// The functions of the CUDA driver that the device route calls, looked up in libcuda.so.1 when the
// first program on a GPU needs them: no toolkit, no header of it, no cost where there is no GPU.
// Signatures, numbers and versioned symbol names are those of the driver API reference
// (docs.nvidia.com/cuda/cuda-driver-api). Called from any thread; the table never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace jccl::xla_ext::cuda {

using Stream = void*;                 // CUstream
using Context = void*;                // CUcontext
using DevicePointer = std::uint64_t;  // CUdeviceptr
using Result = int;                   // CUresult
using HostFunction = void (*)(void*);

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr unsigned kHostAllocPortable = 0x01;  // pinned for every context
inline constexpr unsigned kHostAllocMapped = 0x02;    // a stream can wait on a word of it
inline constexpr unsigned kWaitGreaterOrEqual = 0x0;  // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr int kCanUseStreamMemOps = 92;        // of the first version of the functions
inline constexpr int kCaptureNone = 0;

struct Driver {
  Result (*init)(unsigned flags);
  Result (*error_name)(Result error, const char** text);
  Result (*error_string)(Result error, const char** text);
  Result (*device_attribute)(int* value, int attribute, int device);
  Result (*ctx_push)(Context context);
  Result (*ctx_pop)(Context* context);
  Result (*ctx_device)(int* device);
  Result (*stream_ctx)(Stream stream, Context* context);
  Result (*stream_capturing)(Stream stream, int* status);
  Result (*stream_synchronize)(Stream stream);
  // The second version, which is on by default (CUDA 11.8 and newer), else the first, which the
  // kernel module has to allow; null if the library has neither.
  Result (*stream_wait_value)(Stream stream, DevicePointer at, std::uint32_t value, unsigned flags);
  bool stream_wait_always = false;
  Result (*launch_host_function)(Stream stream, HostFunction function, void* data);
  Result (*host_alloc)(void** memory, std::size_t bytes, unsigned flags);
  Result (*host_free)(void* memory);
  Result (*host_device_pointer)(DevicePointer* at, void* memory, unsigned flags);
  Result (*copy_to_host)(void* to, DevicePointer from, std::size_t bytes, Stream stream);
  Result (*copy_to_device)(DevicePointer to, const void* from, std::size_t bytes, Stream stream);
  Result (*copy_on_device)(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream);
  Result (*fill_bytes)(DevicePointer at, unsigned char value, std::size_t count, Stream stream);
  Result (*fill_words)(DevicePointer at, unsigned value, std::size_t count, Stream stream);

  // "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string text(const char* function, Result error) const;
};

// kIo: no such library, or one without a function that is needed; the text names it.
base::Result<Driver> open_driver(const char* library);

// The one of this process, opened at the first call.
const base::Result<Driver>& driver();

}  // namespace jccl::xla_ext::cuda
