// How many links peers may have here that are no members: joiners that fetch the state, and whoever
// else holds this peer's ticket and says so. Decides whose link goes so that another one has room;
// a busy one never does. Pure: told about the links that stand, asks nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace jccl::peer {

struct StrangerBounds {
  std::size_t links_max = 64;
  std::size_t links_per_network = 32;  // see net::network_of
  std::size_t stripes_max = 128;       // of all of them
  std::size_t stripes_per_link = 16;
};

struct StrangerLink {
  base::Incarnation peer = 0;
  std::string network;
  std::size_t stripes = 0;
  base::Time used = 0;  // when anything came by it last
  bool busy = false;    // something is being sent or fetched by it
};

struct StrangerRoom {
  bool granted = false;
  base::Incarnation instead_of = 0;  // 0: nobody has to go
};

// For one more stripe of `peer`, which comes from `network`.
StrangerRoom room_for(const std::vector<StrangerLink>& links, base::Incarnation peer,
                      const std::string& network, const StrangerBounds& bounds = {});

}  // namespace jccl::peer
