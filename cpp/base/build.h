// Which build this is, for files that another build may have to read.
#pragma once

#include <string>

namespace jccl::base {

struct Build {
  std::string version;   // "0.1.0"
  std::string commit;    // of the last configuration; "unknown" outside of a checkout
  std::string compiler;  // "gcc 12.2.0"
};
Build build();

// "jccl 0.1.0 (a1b2c3d), gcc 12.2.0"
std::string build_text();

}  // namespace jccl::base
