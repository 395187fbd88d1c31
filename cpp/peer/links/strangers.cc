// See strangers.h.
#include "peer/links/strangers.h"

#include <algorithm>

#include "base/planted.h"

namespace jccl::peer {
namespace {

StrangerRoom instead_of_oldest(const std::vector<StrangerLink>& links, base::Incarnation peer,
                               const std::string& network, bool same_network) {
  const StrangerLink* oldest = nullptr;
  for (const StrangerLink& link : links) {
    if ((link.busy && !JCCL_PLANTED("busy-stranger-gives-way")) || link.peer == peer ||
        (same_network && link.network != network))
      continue;
    if (oldest == nullptr ||
        (JCCL_PLANTED("youngest-gives-way") ? link.used > oldest->used : link.used < oldest->used))
      oldest = &link;
  }
  if (oldest == nullptr) return {};
  return {true, oldest->peer};
}

}  // namespace

StrangerRoom room_for(const std::vector<StrangerLink>& links, base::Incarnation peer,
                      const std::string& network, const StrangerBounds& bounds) {
  std::size_t stripes = 0, beside = 0;
  bool known = false;
  for (const StrangerLink& link : links) {
    stripes += link.stripes;
    if (link.peer != peer) {
      beside += link.network == network ? 1 : 0;
      continue;
    }
    known = true;
    if (link.stripes >= bounds.stripes_per_link + (JCCL_PLANTED("stripes-of-a-stranger") ? 1 : 0))
      return {};
  }
  if (!known && beside >= bounds.links_per_network) {
    return instead_of_oldest(links, peer, network, true);
  }
  const bool full = (!known && links.size() >= bounds.links_max) || stripes >= bounds.stripes_max;
  if (full) return instead_of_oldest(links, peer, network, false);
  return {true, 0};
}

}  // namespace jccl::peer
