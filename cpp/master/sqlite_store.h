// The journal in one SQLite file: WAL, synchronous=FULL, one row per record, locked for as long as
// the store is open. Refuses files that are not a jccl journal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "master/store.h"

namespace jccl::master {

std::optional<std::string> sqlite_path(std::string_view where);  // of "sqlite:PATH"
base::Result<std::unique_ptr<StateStore>> open_sqlite_store(const std::string& path,
                                                            const StoreOptions& options);
// The file of a group's journal, beside the run's. None that SQLite keeps beside another ends so.
std::string file_of_group(const std::string& path, const std::string& group);

}  // namespace jccl::master
