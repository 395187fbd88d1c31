// What the public type jccl_comm is.
#pragma once

#include <memory>

#include "peer/communicator.h"

struct jccl_comm {
  std::shared_ptr<jccl::peer::Communicator> held;
};
