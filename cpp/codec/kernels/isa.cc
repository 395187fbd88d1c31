// Detection of the instruction set, once, and its override.
#include "codec/kernels/isa.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace jccl::codec {
namespace {

bool has_v3() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
#else
  return false;
#endif
}

bool has_v4() {
#if defined(__x86_64__)
  return has_v3() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512cd") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
  return false;
#endif
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{available_isas().back()};
  return isa;
}

}  // namespace

std::vector<Isa> available_isas() {
  std::vector<Isa> isas{Isa::kBaseline};
  if (has_v3()) isas.push_back(Isa::kV3);
  if (has_v4()) isas.push_back(Isa::kV4);
  return isas;
}

Isa active_isa() { return chosen().load(std::memory_order_relaxed); }

void force_isa(Isa isa) {
  const std::vector<Isa> isas = available_isas();
  JCCL_CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end());
  chosen().store(isa, std::memory_order_relaxed);
}

}  // namespace jccl::codec
