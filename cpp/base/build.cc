#include "base/build.h"

#include "base/text.h"

#ifndef JCCL_BUILD_VERSION
#define JCCL_BUILD_VERSION "unknown"
#endif
#ifndef JCCL_BUILD_COMMIT
#define JCCL_BUILD_COMMIT "unknown"
#endif

namespace jccl::base {

Build build() {
#ifdef __clang__
  const std::string compiler = cat("clang ", __clang_version__);
#else
  const std::string compiler = cat("gcc ", __VERSION__);
#endif
  return {JCCL_BUILD_VERSION, JCCL_BUILD_COMMIT, compiler};
}

std::string build_text() {
  const Build now = build();
  return cat("jccl ", now.version, " (", now.commit, "), ", now.compiler);
}

}  // namespace jccl::base
