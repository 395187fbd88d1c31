// What a test program may put between an attempt and its links, as control_hook.h does with words:
// a member that lies in frames is a real one whose frames are changed on their way. In the product
// nobody sets the hook, and it is one load of a null pointer; test programs set it before their
// first thread starts.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "exchange/frame.h"
#include "wire/serialize.h"

namespace jccl::peer {

enum class Sends : std::uint8_t {
  kDropped,  // as if nobody wanted it any more
  kOnce,
  kAgain  // it is asked about the same frame once more
};

// Called on the data thread of every communicator of the process.
class FrameHook {
 public:
  virtual ~FrameHook() = default;
  // May change the frame.
  virtual Sends sends(base::Incarnation to, exchange::OutFrame* frame) = 0;
  // False: it is read and acknowledged, and goes nowhere.
  virtual bool takes(base::Incarnation from, const wire::FrameHeader& header) = 0;
};

inline FrameHook* frame_hook = nullptr;

}  // namespace jccl::peer
