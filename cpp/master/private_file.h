// A file of a master that was there before, such as one of an older version, is made its owner's
// alone. Blocks on the disk; any one thread.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace jccl::master {

// `what` names it in texts. Says so in one line if others could read or write it. A missing file,
// or one that is no regular file, is left as it is. kIo: others can, and that can't be changed.
base::Status make_private(const std::string& what, const std::string& path,
                          const std::function<void(const std::string&)>& log);

}  // namespace jccl::master
