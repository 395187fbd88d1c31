// Which build this is, for files that another build may have to read.
#pragma once

#include <string>

namespace jccl::base {

// "jccl 0.1.0 (a1b2c3d), gcc 12.2.0": release, commit of the last configuration ("unknown" outside
// of a checkout), compiler.
std::string build_text();

}  // namespace jccl::base
