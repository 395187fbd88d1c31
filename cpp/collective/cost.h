// What a plan takes, predicted from measured links: everything in flight at once, plus the delays
// that nothing hides. Equations: ALGORITHMS.md §6. Also the shares and the order of a ring that
// this model finds best. What nobody measured counts as a fast local network, so that an unmeasured
// run gets equal shares. Deterministic, bounded work. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collective/plan.h"

namespace jccl::collective {

struct LinkCost {  // one way
  double delay_s = 50e-6;
  double bytes_per_s = 1.25e9;  // infinity: no bound of its own
};

// Between the contributors of a plan, by position among the sorted members.
class Network {
 public:
  struct Measure {
    std::uint32_t from = 0, to = 0;
    LinkCost cost;
  };
  explicit Network(std::size_t count = 0);

  void set(std::uint32_t from, std::uint32_t to, LinkCost cost);
  // What all links of a peer carry together.
  void set_up(std::uint32_t peer, double bytes_per_s) { up_[peer] = bytes_per_s; }
  void set_down(std::uint32_t peer, double bytes_per_s) { down_[peer] = bytes_per_s; }
  // What a peer has of a processor core: less than one where peers share those of a machine, whose
  // rates are then those of processors.
  void set_core(std::uint32_t peer, double share) { core_[peer] = share; }

  std::size_t count() const { return up_.size(); }
  double up(std::uint32_t peer) const { return up_[peer]; }
  double down(std::uint32_t peer) const { return down_[peer]; }
  double capacity(std::uint32_t peer) const;  // both ways at once
  double core(std::uint32_t peer) const { return core_[peer]; }
  // A link that was not measured bounds nothing but by its ends, as in plans of other kinds.
  LinkCost at(std::uint32_t from, std::uint32_t to) const;
  const std::vector<Measure>& measured() const { return measured_; }  // ascending

 private:
  std::vector<Measure> measured_;
  std::vector<double> up_, down_, core_;
};

// Bytes of one contributor. If nothing is known: so many that a delay does not matter.
struct Work {
  double data = 256e6;
  double encoded = 256e6;
  double accumulator = 256e6;
};

// Seconds. place[i]: the position in the network of the i-th in the plan's order.
double predict(const Plan& plan, const std::vector<std::uint32_t>& place, const Network& network,
               const Work& work);

// Shares for a direct plan, by position; 0 where `owners` is false. Equal among the owners unless
// others are predicted to be faster by a tenth.
std::vector<std::uint32_t> balanced_shares(const Network& network, const Work& work,
                                           const std::vector<bool>& owners);

// A ring predicted to be no slower, whose neighbours are linked like those of the given one: 2-opt,
// for up to 32.
using Linked = std::function<bool(std::uint32_t, std::uint32_t)>;
std::vector<std::uint32_t> ordered_ring(std::vector<std::uint32_t> ring, const Network& network,
                                        const Work& work, const Linked& linked);

}  // namespace jccl::collective
