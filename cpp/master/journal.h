// What an operator does with a journal while no master has it: see that it is whole and what it
// says, copy it to another store, write it out. Each opens the store as a master does, so none runs
// beside a master, and none changes what is there. Blocks on the disk or on etcd.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "master/store.h"

namespace jccl::master {

// A JSON object: run, rows, bytes, torn_rows (0 or 1: a master cuts that row off), epoch, members,
// tags with their newest revision or round, bans, tokens. Codes: kInvalid (no such journal), kIo
// (a master has it), kDamaged (the row is named), kVersion.
base::Result<std::string> journal_summary(const std::string& where, const StoreOptions& options);

// All rows of `from` but a torn one, into `to`, which has to be empty; reads them back. How many.
// A run must not go on from both.
base::Result<std::uint64_t> copy_journal(const std::string& from, const std::string& to,
                                         const StoreOptions& options);

// Each record as a JSON object, in order, without the line end. `write` returns false to stop:
// kAborted.
base::Status export_journal(const std::string& where, const StoreOptions& options,
                            const std::function<bool(const std::string&)>& write);

// One record as a JSON object: its row, its kind, and its fields by their names in PROTOCOL.md.
std::string record_json(std::uint64_t row, const wire::Record& record);

}  // namespace jccl::master
