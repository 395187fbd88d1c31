// The journal in one SQLite file: WAL, synchronous=FULL, one row per record, locked for as long as
// the store is open. Refuses files that are not a jccl journal.
#pragma once

#include <memory>
#include <string>

#include "master/store.h"

namespace jccl::master {

base::Result<std::unique_ptr<StateStore>> open_sqlite_store(const std::string& path);

}  // namespace jccl::master
