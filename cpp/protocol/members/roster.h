// Rosters as changes. A peer hears the whole roster once per connection, then what differs: with n
// members an eviction costs a few bytes for each, not a roster of n. Pure; any one thread.
#pragma once

#include "wire/messages.h"

namespace jccl::protocol {

// What turns `from` into `to`, which come from one master in this order.
wire::Roster change_of(const wire::Roster& from, const wire::Roster& to);

// Makes *at what `news` says: a whole roster replaces it, a change is applied. False, and *at as it
// was, if the change does not build on *at.
[[nodiscard]] bool apply(const wire::Roster& news, wire::Roster* at);

}  // namespace jccl::protocol
