// Plans as the simulator's master makes them and its oracles read them: the real ones, of real
// planners, for arrays of a few chunks. Pure.
#pragma once

#include <map>

#include "base/rng.h"
#include "collective/plan.h"
#include "protocol/master/master_machine.h"
#include "sim/values.h"

namespace jccl::sim {

base::Bytes hint_of(const exchange::Terms& terms);

// As the product's, but for its chance.
protocol::Auditor auditor_of(base::Rng& rng);

class Planner {  // of a master; the same calls in the same order give the same plans
 public:
  base::Result<base::Bytes> plan(const protocol::PlanRequest& request);
  std::uint64_t rings() const { return rings_; }  // that nobody asked for by name, so far
  void note(wire::PeerId peer, std::uint64_t bytes_per_s);

 private:
  using Key = std::pair<base::Bytes, std::vector<std::vector<wire::PeerId>>>;
  base::Result<base::Bytes> make(const protocol::PlanRequest& request) const;

  std::map<wire::PeerId, std::uint64_t> speeds_;
  std::map<Key, base::Bytes> kept_;  // since something was measured last
  std::uint64_t rings_ = 0;
};

struct Part {  // of a sum
  Array input;
  double weight = 1;
};
bool covers(const base::Bytes& plan, const std::map<wire::PeerId, Part>& parts);
// What a plan makes of these, by id: each once, in its order.
Array result_of(const base::Bytes& plan, const std::map<wire::PeerId, Part>& parts,
                const exchange::Terms& terms);
// Who adds up the chunk, if there is one; and how long each is.
wire::PeerId owner_of(const collective::Plan& plan, std::uint32_t chunk,
                      const collective::Aggregator& aggregator);
std::vector<std::size_t> chunk_bytes_of(const collective::Plan& plan,
                                        const collective::Aggregator& aggregator);
// What a result's digest is: of its chunks' digests.
base::Digest reported_digest(const base::Bytes& plan, const Array& result,
                             const collective::Aggregator& aggregator = {});
// Payload between contributors, if every frame leaves once. See ALGORITHMS.md §5.
std::uint64_t documented_bytes(const base::Bytes& plan);

// Bytes of chunks that a peer holds for an attempt at most, besides the arrays of its call: until
// it is done, and from then on. See ALGORITHMS.md §5.
struct HeldMax {
  std::size_t running = 0, done = 0;
};
HeldMax held_max(const wire::Start& start, wire::PeerId self, const Buffers& call);

}  // namespace jccl::sim
