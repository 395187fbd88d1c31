// The loops of mark.h, compiled once per instruction set. Internal to this folder. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "snapshot/mark.h"

namespace jccl::snapshot {

struct MarkKernels {
  // `count` words, the first at place `at`.
  Mark (*words8)(const void* from, std::size_t count, std::uint32_t at);
  Mark (*words16)(const void* from, std::size_t count, std::uint32_t at);
  Mark (*words32)(const void* from, std::size_t count, std::uint32_t at);
};

extern const MarkKernels kMarkBaseline;
#if defined(__x86_64__)
extern const MarkKernels kMarkV3;
extern const MarkKernels kMarkV4;
#endif

}  // namespace jccl::snapshot
