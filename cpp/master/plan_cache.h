// What the master machine asks when it needs a plan, answered by collective/ from what the members
// measured. Keeps the newest measurements of each member, and the plan of each kind of request
// until its predicted gain from another one is worth the change. Holds nothing durable: a restarted
// master hears the measurements again. The same calls in the same order give the same plans. No
// clock, no thread: confined to its owner's.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collective/hint.h"
#include "collective/planner.h"
#include "protocol/master/master_machine.h"

namespace jccl::master {

struct PlanView {  // one kind of request, for people
  std::vector<wire::PeerId> contributors;
  collective::Hint hint;
  std::vector<collective::Candidate> candidates;  // the plan in use first
  std::uint64_t uses = 0;                         // attempts that had it
};

class PlanCache {
 public:
  // kLinkLost, naming the link, when no plan avoids the failed ones; kInvalid for a hint that no
  // release of this protocol version writes.
  base::Result<base::Bytes> plan(const protocol::PlanRequest& request);
  void note(wire::PeerId peer, wire::Measured measured);

  const std::map<wire::PeerId, wire::Measured>& measured() const { return measured_; }
  std::vector<PlanView> plans() const;  // the last used first

 private:
  struct Kept {
    base::Bytes bytes;
    PlanView view;
    std::uint64_t planned_at = 0;  // notes_ then
    std::uint64_t used_at = 0;     // requests_ then
  };
  using Key = std::pair<base::Bytes, std::vector<std::vector<wire::PeerId>>>;

  static Key key_of(const protocol::PlanRequest& request);
  base::Status choose(const protocol::PlanRequest& request, Kept& kept) const;
  // Where any order of addition will do: with what rings are compared by.
  collective::Network network_of(const std::vector<wire::PeerId>& members, bool any_order) const;
  void forget_some();

  std::map<wire::PeerId, wire::Measured> measured_;
  std::map<Key, Kept> kept_;
  std::uint64_t notes_ = 0, requests_ = 0;
};

}  // namespace jccl::master
