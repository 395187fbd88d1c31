// Where the journal's rows live. A store keeps them durable and in order; what they mean, and
// whether they form a chain, is wire/chain.h's. One store serves one master: opening fails while
// another holds it, or waits as its standby, and a store that several machines reach may be lost to
// a standby: then the rows stay as they are for whoever has it now (it is *fenced*). A failed
// append or truncate is final: every later call fails too. Its rows are durable or never will be,
// but this master doesn't know which; the next one reads it. Not thread-safe; may move between
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "wire/chain.h"

namespace jccl::master {

struct StoreOptions;

class StateStore {
 public:
  virtual ~StateStore() = default;
  // All rows in ascending sequence. Codes: kIo, kDamaged.
  virtual base::Result<std::vector<wire::Row>> load() = 0;
  // One transaction: all of the rows are durable when this returns ok, or none ever is seen.
  // kEvicted: fenced; the text names the master that took over.
  virtual base::Status append(const std::vector<wire::Row>& rows) = 0;
  // Deletes the rows behind `last`, durably: what a walk has cut from a torn tail.
  virtual base::Status truncate(std::uint64_t last) = 0;
  // ok as long as no other master can have taken over. Asked before anything is told, and while
  // nothing happens; kEvicted is final.
  virtual base::Status held() { return {}; }
  // The journal of a group of the run, made if there is none: kept beside this one, and the
  // master's as long as this one is. `name` is a group's (net/security/group_name.h). Codes: kLimit
  // (there are kGroupJournalsMax), those of open_store().
  virtual base::Result<std::unique_ptr<StateStore>> of_group(const std::string& name,
                                                             const StoreOptions& options) = 0;
};
base::Status too_many_groups(std::size_t journals);  // of_group()'s kLimit

struct StoreOptions {
  std::string address;                          // where this master will serve, for others to read
  bool insecure = false;                        // plain connections off loopback, by explicit wish
  bool make_private = false;                    // files that are there, if others can read them
  std::function<void(const std::string&)> log;  // one line at a time; empty: nowhere
  // Asked about ten times a second while another master is the active one; false ends the wait.
  // Empty: waits for ever.
  std::function<bool()> keep_waiting;
};

// "sqlite:PATH", "etcd://…" (etcd_where.h), or "memory:" for a journal that dies with its master.
// Codes: kInvalid (unknown form), kIo (cannot be opened, or in use by another master), kDamaged
// (not a jccl journal), kVersion, kAuth (etcd), kAborted (the wait was ended).
base::Result<std::unique_ptr<StateStore>> open_store(const std::string& where,
                                                     const StoreOptions& options = {});

}  // namespace jccl::master
