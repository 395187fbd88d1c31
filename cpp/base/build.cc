#include "base/build.h"

#include "base/text.h"

#ifndef JCCL_BUILD_VERSION
#define JCCL_BUILD_VERSION "unknown"
#endif
#ifndef JCCL_BUILD_COMMIT
#define JCCL_BUILD_COMMIT "unknown"
#endif

namespace jccl::base {

std::string build_text() {
#ifdef __clang__
  const std::string compiler = "clang";
#else
  const std::string compiler = "gcc";
#endif
  return cat("jccl ", JCCL_BUILD_VERSION, " (", JCCL_BUILD_COMMIT, "), ", compiler, " ",
             __VERSION__);
}

}  // namespace jccl::base
