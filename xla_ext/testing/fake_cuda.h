// How tests steer the library that stands in for the CUDA driver (fake_cuda.cc). It is as strict as
// the driver's documentation allows a driver to be: host functions of all streams run one at a
// time and may call nothing, freeing pinned memory waits for streams that wait, copies must stay
// inside allocations, and an error of the device is final.
#pragma once

#include <cstddef>
#include <cstdint>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

// Frees all memory of devices, forgets errors and counts, and drops what streams did not come to.
FAKE_CUDA_API void fake_cuda_reset();
FAKE_CUDA_API void* fake_cuda_stream(int device);        // with a thread of its own, for good
FAKE_CUDA_API void* fake_cuda_alloc(std::size_t bytes);  // memory of a device; the host may look

FAKE_CUDA_API void fake_cuda_hold(void* stream, bool held);  // held: it does nothing
// The stream gets held before the `nth` copy to the host that is enqueued from now on (1: the
// next).
FAKE_CUDA_API void fake_cuda_hold_before_copy(void* stream, int nth);
FAKE_CUDA_API bool fake_cuda_held(void* stream);
FAKE_CUDA_API void fake_cuda_record(void* stream, bool recording);  // into a graph
// From now to the next reset, from and to memory of the host that is not pinned.
FAKE_CUDA_API void fake_cuda_allow_pageable_copies();
FAKE_CUDA_API void fake_cuda_pace(std::uint64_t ns_per_step);
// The `nth` call of `function` from now on (1: the next) answers `error`; `lost`: and so does every
// call after it, and no stream does anything any more.
FAKE_CUDA_API void fake_cuda_fail(const char* function, int nth, int error, bool lost);

FAKE_CUDA_API bool fake_cuda_idle(void* stream);
FAKE_CUDA_API bool fake_cuda_waiting(void* stream);  // for a word of memory
FAKE_CUDA_API int fake_cuda_count(const char* function);
FAKE_CUDA_API std::uint64_t fake_cuda_bytes(const char* function);  // that it copied
FAKE_CUDA_API std::uint64_t fake_cuda_pinned_bytes();  // allocated since the last reset
FAKE_CUDA_API int fake_cuda_contexts_pushed();         // on all threads, less those popped
FAKE_CUDA_API const char* fake_cuda_violation();  // the first thing that no driver allows, or ""
