// After which effects a recording is worth a file that nobody asked for. Pure; any one thread.
#pragma once

#include <string>

#include "protocol/master_machine.h"
#include "protocol/peer_machine.h"

namespace jccl::protocol {

// What happened, in words; empty: nothing of the kind. At a master: somebody is evicted or banned,
// something is held against somebody (a fault, frames that no plan allows, a snapshot that others
// contradict), nobody has a majority for what a revision is, the run goes back to an earlier state,
// and calls that end Corrupt, Internal, Disputed or StateLost.
std::string fault_in(const MasterEffects& effects);
// At a peer: it is evicted or cut off for good, and its calls end as above, Deadline or InDoubt.
std::string fault_in(const PeerEffects& effects);

}  // namespace jccl::protocol
