// What the master machine needs for audits: which attempts can have one, the sums of cells formed
// anew by the kernels of rounds, and secret numbers. `random` asks the system, the rest is pure.
#pragma once

#include "protocol/rounds/audit.h"

namespace jccl::master {

protocol::Auditor auditor();

}  // namespace jccl::master
