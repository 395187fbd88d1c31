// The page itself: what lies in web/, compiled in (stratum.cmake).
#pragma once

#include <string_view>

namespace jccl::page {

extern const std::string_view kIndexFile, kStyleFile, kScriptFile, kIconFile;

}  // namespace jccl::page
