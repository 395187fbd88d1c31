// Linked with main.cc into jccl-failing-master: the master that tests kill at its failpoints.
#include <cstdio>
#include <cstdlib>

#include "net/fail_at.h"

namespace {

const bool kArmed = [] {
  if (jccl::net::FailAt::arm(std::getenv("JCCL_FAIL"))) return true;
  std::fprintf(stderr, "JCCL_FAIL='%s' is not name:count:action\n", std::getenv("JCCL_FAIL"));
  std::_Exit(2);
}();

}  // namespace
