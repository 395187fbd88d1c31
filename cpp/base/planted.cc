// Empty in the product. The one place in this folder that looks at the environment and at stderr.
#include "base/planted.h"

#ifdef JCCL_PLANTED_BUGS

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace jccl::base {
namespace {

Planted from_environment() {
  const char* name = std::getenv("JCCL_PLANTED");
  return name == nullptr || *name == 0 ? Planted::kNone : planted(name);
}

}  // namespace

const Planted planted_in_process = from_environment();
constinit thread_local Planted planted_in_thread = Planted::kNone;

bool planted_bug_reached() {
  static std::atomic_flag said;
  if (!said.test_and_set()) std::fputs("planted bug reached\n", stderr);
  return true;
}

}  // namespace jccl::base

#endif
