// Which connections a peer's data plane opens, and takes: by the product's rule
// (exchange/dialling.h), for as many stripes as the run has.
#include <algorithm>

#include "sim/network/plane.h"
#include "sim/world.h"

namespace jccl::sim {

namespace {

constexpr Duration kRepairMax = kSecond;

}  // namespace

Duration DataPlane::repair_max() const { return std::min(world_.mix.silence, kRepairMax); }

exchange::Dialling DataPlane::dialling(const Other& other, wire::Incarnation life,
                                       const Link& link) const {
  const bool listens = peer_.slot < world_.mix.slots - world_.mix.dial_only;
  exchange::LinkNow now;
  now.wanted = world_.mix.stripes;
  now.stripes = link.stripes.size();
  now.dials = link.dials;
  now.in_use = attempts_.wanted(life);
  now.down_since = link.down_since;
  now.heard = std::max(link.received, link.taken_in);
  return {{self_id_, other.id, listens, other.listens, true}, now, world_.now, repair_max()};
}

bool DataPlane::takes(wire::Incarnation from) const {
  const auto other = members_.find(from);
  const auto link = links_.find(from);
  if (other == members_.end()) return false;
  if (link == links_.end()) return true;
  // A little more: this end may not know yet that some broke.
  return dialling(other->second, from, link->second)
      .takes(link->second.redial, 2 * world_.mix.stripes);
}

void DataPlane::dial_if_needed(wire::Incarnation to, Link& link) {
  const auto other = members_.find(to);
  if (other == members_.end()) return;
  for (std::size_t due = dialling(other->second, to, link).due(link.redial); due > 0; --due) {
    ++link.dials;
    world_.dial_pipe(peer_.slot, to);
  }
}

bool DataPlane::dialled(wire::Incarnation to) {
  const auto found = links_.find(to);
  if (found == links_.end()) return false;
  if (found->second.dials > 0) --found->second.dials;
  return found->second.stripes.size() < world_.mix.stripes;  // the other side may have dialled too
}

void DataPlane::dial_failed(wire::Incarnation to) {
  Link& link = links_.at(to);
  link.redial.failed(world_.now);
  if (link.stripes.empty() && link.dials == 0 && attempts_.wanted(to) && link.redial.failing()) {
    attempts_.link_failed(to, "nobody answers");
  }
}

// It closes without a word.
void DataPlane::dial_refused(wire::Incarnation to) {
  links_.at(to).redial.closed_unheard(world_.now);
}

}  // namespace jccl::sim
