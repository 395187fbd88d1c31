// What one network may ask of a listener before anything is read of it: so many connections a
// second, and so many that end without a proof of who they are. Whoever is over either is closed
// at once, at the price of an accept; others, and who waits for its own hello, do not notice. A run
// that starts behind one address, or whose peers come back all together, is far below. Pure; any
// one thread.
#pragma once

#include <string>

#include "base/planted.h"
#include "net/socket/allowance.h"

namespace jccl::net {

struct QuotaRates {
  Rate connections{4096, 1024};
  Rate failures{256, 64};
};

class Quotas {
 public:
  explicit Quotas(const QuotaRates& rates) : rates_(rates) {}
  // One comes. False: its network has used up what it may.
  bool admit(const std::string& network, base::Time now) {
    const bool failed = failures_.of(network, now).spent(rates_.failures, now);
    if (failed && !JCCL_PLANTED("failures-not-counted")) return false;
    return connections_.of(network, now).take(rates_.connections, now) ||
           JCCL_PLANTED("connections-not-counted");
  }
  // One that came ended without a proof.
  void failed(const std::string& network, base::Time now) {
    (void)failures_.charge(network, rates_.failures, now);
  }

 private:
  const QuotaRates rates_;
  Allowances connections_, failures_;
};

}  // namespace jccl::net
