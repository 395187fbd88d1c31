// Asks whether a listener that used to be there refuses connections now: the sign that its process
// is gone, as against a lost connection or a cut network. Says nothing to the listener.
// Confined to its loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "net/socket/address.h"
#include "net/socket/loop.h"
#include "net/socket/reach.h"

namespace jccl::net {

// A probe under way. Destroying it cancels: `done` is not called afterwards.
class Probe {
 public:
  virtual ~Probe() = default;
};

// `done` runs once: true if at least one endpoint answered, and all that answered refused; false
// if one accepted, none could be resolved, or none answered within `time_max`. Endpoints that
// `policy` does not allow are not asked, after names are resolved.
[[nodiscard]] std::unique_ptr<Probe> probe(Loop& loop, std::vector<Address> addresses,
                                           DialPolicy policy, Duration time_max,
                                           std::function<void(bool)> done);

}  // namespace jccl::net
