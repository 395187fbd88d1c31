// What the master machine asks when it needs a plan, answered by collective/. Pure: the same
// request gives the same bytes.
#pragma once

#include "protocol/master_machine.h"

namespace jccl::master {

// kLinkLost, naming the link, when no plan avoids the failed ones; kInvalid for a hint that no
// release of this protocol version writes.
base::Result<base::Bytes> make_plan(const protocol::PlanRequest& request);

}  // namespace jccl::master
