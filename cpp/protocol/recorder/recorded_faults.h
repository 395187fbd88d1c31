// The effects after which a recording is written without a request. Pure; any one thread.
#pragma once

#include <string>

#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::protocol {

// What happened, in words; empty: nothing of the kind. At a master: a peer is evicted or banned, a
// peer gets a fault (also for frames that no plan allows, or a snapshot that others contradict), a
// revision has no majority, the run goes back to an earlier state, or calls end Corrupt, Internal,
// Disputed or StateLost.
std::string fault_in(const MasterEffects& effects);
// At a peer: it is evicted or cut off for good, and its calls end as above, Deadline or InDoubt.
std::string fault_in(const PeerEffects& effects);

}  // namespace jccl::protocol
