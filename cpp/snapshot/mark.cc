// Chooses the widest loop that this processor runs.
#include "snapshot/mark.h"

#include "base/check.h"
#include "base/planted.h"
#include "snapshot/mark_kernels.h"

namespace jccl::snapshot {
namespace {

const MarkKernels& choose_mark() {
#if defined(__x86_64__)
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) return kMarkV4;
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  if (v3) return kMarkV3;
#endif
  return kMarkBaseline;
}

}  // namespace

Mark mark_of(base::ByteView bytes, std::size_t element_bytes, std::uint64_t at) {
  static const MarkKernels& kernels = choose_mark();
  const std::size_t word = element_bytes < 4 ? element_bytes : 4;
  JCCL_CHECK(word == 1 || word == 2 || word == 4);
  const auto place = static_cast<std::uint32_t>(
      JCCL_PLANTED("mark-without-place") ? 0 : at * (element_bytes / word));
  const std::size_t count =
      bytes.size() / (JCCL_PLANTED("mark-of-f64-half") ? element_bytes : word);
  if (word == 1) return kernels.words8(bytes.data(), count, place);
  if (word == 2) return kernels.words16(bytes.data(), count, place);
  return kernels.words32(bytes.data(), count, place);
}

}  // namespace jccl::snapshot
