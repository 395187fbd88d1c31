// The simulator's clockwork: events ordered by (time, order of posting), nothing else. Every
// choice of a run comes from its seed, through one stream per subsystem, so that a new draw in one
// does not shift the others. Pure; one thread per world.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "base/time.h"

namespace jccl::sim {

using base::Duration;
using base::kMillisecond;
using base::kSecond;
using base::Time;

enum class Kind : std::uint8_t {
  kControl,    // bytes are due on a control connection; a = connection, b = direction
  kPipe,       // a frame is due; a = pipe, b = the end that sent it
  kPipeUp,     // answer to a dial of a peer; a = its slot, b = which of its lives
  kPipeEnd,    // a pipe broke; a = pipe, b = the end that hears of it
  kData,       // a message about a snapshot is due; a = sender's slot
  kDataReset,  // the link to slot a broke; b = to which of its lives, 0: any
  kDialed,     // answer to a dial; a = 1 accepted, b = dial number
  kMasterWake,
  kMasterSynced,  // a = whether the write holds
  kStoreApply,    // a write reaches the store; a = its number
  kLease,         // a master looks after its lease
  kMasterUp,
  kMasterResume,
  kPeerWake,
  kPeerUp,
  kPeerResume,
  kPeerGone,  // a leaver's patience ends
  kProbe,     // answer to a probe; a = incarnation, b = refused
  kEngine,    // the data plane looks for stalls
  kApp,       // the user's program acts on tag a, if b is still its turn
  kCancel,    // the user interrupts the call on tag a, if b is still its turn
  kCompared,  // the state of the call on tag a was compared, if b is still its call
  kFault,     // a = number in the list
  kThaw,      // a frozen master wakes; a = which
  kGhost,     // a ghost's connection ends; a = connection
  kHeal,
  kAudit,
};

inline constexpr std::uint32_t kMaster = 1000;  // targets that are no slot: masters from here on
inline constexpr std::uint32_t kNobody = 2000;

struct Event {
  Time at = 0;
  std::uint64_t order = 0;
  Kind kind = Kind::kAudit;
  std::uint32_t target = kNobody;
  std::uint32_t life = 0;  // of the target; an event for a past life is void. 0: for any life
  std::uint64_t a = 0, b = 0;
};

class EventQueue {
 public:
  void post(Event event) {
    event.order = ++order_;
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool empty() const { return heap_.empty(); }
  Event take() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }

 private:
  static bool later(const Event& x, const Event& y) {
    return x.at != y.at ? x.at > y.at : x.order > y.order;
  }
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
};

struct Streams {
  explicit Streams(std::uint64_t seed)
      : net(seed ^ 0x6E6574),
        data(seed ^ 0x64617461),
        faults(seed ^ 0x6661756C74),
        app(seed ^ 0x617070),
        disk(seed ^ 0x6469736B),
        ids(seed ^ 0x696473),
        clocks(seed ^ 0x636C6F636B),
        liar(seed ^ 0x6C6961),
        slips(seed ^ 0x736C697073),
        frames(seed ^ 0x6672616D65),
        audits(seed ^ 0x6175646974),
        terms(seed ^ 0x7465726D73) {}
  base::Rng net, data, faults, app, disk, ids, clocks, liar, slips, frames, audits, terms;
};

inline Duration between(base::Rng& rng, Duration low, Duration high) {
  return low + static_cast<Duration>(rng.below(static_cast<std::uint64_t>(high - low) + 1));
}

inline std::uint64_t mix_in(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = (hash ^ value) * 0xBF58476D1CE4E5B9ULL;
  z ^= z >> 29;
  return (z + 0x9E3779B97F4A7C15ULL) * 0x94D049BB133111EBULL ^ (z >> 32);
}

}  // namespace jccl::sim
