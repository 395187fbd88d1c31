// One target for libFuzzer, named by JCCL_FUZZ_TARGET when compiled.
#include <cstddef>
#include <cstdint>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const jccl::fuzz::Target* target = jccl::fuzz::find_target(JCCL_FUZZ_TARGET);
  JCCL_CHECK(target != nullptr);
  target->run({data, size});
  return 0;
}
