// What a test program may put between a communicator and its master: a member that lies is a real
// one whose words are changed on their way. In the product nobody sets the hook, and it is one load
// of a null pointer; test programs set it before their first thread starts.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "wire/messages.h"

namespace jccl::peer {

// Called on the control thread of every communicator of the process.
class ControlHook {
 public:
  virtual ~ControlHook() = default;
  // What is sent instead, one frame each: bytes, since some lies are no message.
  virtual std::vector<base::Bytes> says(const wire::Message& message) = 0;
  // What is sent at once, before the peer itself hears this word of the master's.
  virtual std::vector<base::Bytes> hears(const wire::Message& message) = 0;
};

inline ControlHook* control_hook = nullptr;

}  // namespace jccl::peer
