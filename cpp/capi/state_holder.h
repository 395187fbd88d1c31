// A peer of a test cluster with shared state of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "capi/cluster_support.h"

namespace jccl::capi::test {

// A peer with a state of two leaves under the tag "model".
struct Holder {
  std::vector<std::int32_t> count{0};
  std::vector<float> anchor = std::vector<float>(1000, 1.0F);

  std::vector<Leaf> leaves() {
    return {leaf_of(count, count, "count"), leaf_of(anchor, anchor, "anchor/w")};
  }
  SyncOptions options() const {
    SyncOptions o;
    o.tag = "model";
    o.deadline = 60 * kSecond;
    return o;
  }
  SyncResult sync(Communicator& comm) { return comm.sync_state(leaves(), options()); }
  SmallRound round(Communicator& comm, float value) {
    RoundOptions o = sum_of("model");
    o.state = peer::marks_of(leaves());
    return small_round(comm, o, value);
  }
  // With the state as it was before the outer step, and a step that only adds one.
  SyncResult publish(Communicator& comm) {
    SyncOptions o = options();
    o.before = peer::marks_of(leaves());
    ++count[0];
    for (float& x : anchor) x += 1;
    return comm.publish(leaves(), o);
  }
};

}  // namespace jccl::capi::test
