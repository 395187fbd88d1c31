// Where the journal's rows live. A store keeps them durable and in order; what they mean, and
// whether they form a chain, is wire/chain.h's. One store serves one master: opening fails while
// another holds it. A failed append or truncate is final: every later call fails too, because
// what is on the disk is no longer known. Not thread-safe; may move between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "wire/chain.h"

namespace jccl::master {

class StateStore {
 public:
  virtual ~StateStore() = default;
  // All rows in ascending sequence. Codes: kIo, kDamaged.
  virtual base::Result<std::vector<wire::Row>> load() = 0;
  // One transaction: all of the rows are durable when this returns ok, or none ever is seen.
  virtual base::Status append(const std::vector<wire::Row>& rows) = 0;
  // Deletes the rows behind `last`, durably: what a walk has cut from a torn tail.
  virtual base::Status truncate(std::uint64_t last) = 0;
};

// "sqlite:PATH", or "memory:" for a journal that dies with its master. Codes: kInvalid (unknown
// form), kIo (cannot be opened, or in use by another master), kDamaged (not a jccl journal).
base::Result<std::unique_ptr<StateStore>> open_store(const std::string& where);

}  // namespace jccl::master
