// SIGUSR1 as the wish for recordings, for communicators that ask for that. The signal stays the
// program's: where it has a handler, or ignores it, nothing is installed. One thread per process
// waits for it, so a recording is left while all threads of the program wait. Any thread.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace jccl::peer {

// `leave` is called on that thread, at each signal, until forget_signal(key). kInvalid: the signal
// is the program's.
base::Status record_at_signal(const void* key, std::function<void(const std::string& why)> leave);
void forget_signal(const void* key);  // returns when `leave` does not run any more

}  // namespace jccl::peer
