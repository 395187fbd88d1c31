// The journal in etcd v3, shared by the active master and its standbys: whoever holds the leader
// key writes, everybody else waits and reads along. Opening is waiting to become the active one.
// A write is one transaction that fails once another master has become active, however late it
// arrives; one whose answer was lost is sent again and says whether it had been carried out.
#pragma once

#include <memory>
#include <string>

#include "master/store.h"

namespace jccl::master {

// Codes: kInvalid (bad address or option; plain etcd off loopback), kIo (etcd can't be reached at
// first), kAuth, kDamaged, kVersion, kAborted (options.keep_waiting said so).
base::Result<std::unique_ptr<StateStore>> open_etcd_store(const std::string& where,
                                                          const StoreOptions& options);

}  // namespace jccl::master
