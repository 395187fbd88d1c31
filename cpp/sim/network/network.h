// The network model: control connections as FIFO byte streams (frames cut, joined, delayed, held
// up, reset, half open) and messages about snapshots as FIFO streams; frames of data: pipes.h.
// Holds what is in flight; refuses to know what it means. Pure; one thread per world.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "sim/events.h"
#include "wire/messages.h"

namespace jccl::sim {

inline constexpr std::uint32_t kSlotsMax = 16;
inline constexpr std::uint32_t kMastersMax = 3;

struct Segment {
  Time at = 0;
  base::Bytes bytes;
  bool end = false;  // FIN or RST: the sender is gone
};

struct Direction {
  std::deque<Segment> queue;
  base::Bytes in;         // arrived, not yet a whole frame
  std::size_t in_at = 0;  // read up to here
  Time last = 0;
  bool posted = false;
};

enum class Stranger : std::uint8_t {  // who is no process of the run behind a connection
  kBabbler,                           // greets, or not, and speaks out of turn
  kFenced,                            // a life that was a member
  kObserver,                          // a life that never was
  kImpostor,                          // names a life, or has a seat, of another key
};

struct Conn {
  std::uint64_t id = 0;
  std::uint32_t slot = 0, master = 0;
  bool ghost = false;                      // nobody reads at the peer's end
  Stranger stranger = Stranger::kBabbler;  // of a ghost
  wire::PublicKey key{};                   // that its peer has proved
  std::uint32_t peer_life = 0, master_life = 0;
  bool peer_open = false, master_open = false;
  bool peer_vanished = false, master_vanished = false;  // nobody is left to answer with a reset
  Direction up, down;
};

enum class DataKind : std::uint8_t { kSnapshotAsk, kSnapshotPart, kSnapshotGone };

struct DataMessage {  // about a snapshot
  DataKind kind = DataKind::kSnapshotAsk;
  Time at = 0;    // when it arrives …
  Time turn = 0;  // … and on a line that is slow all the time
  wire::Incarnation from = 0, to = 0;
  wire::Held held;
};

struct Trickle {  // a slot whose links carry one message per `step` until then
  Time until = 0, free_at = 0;
  Duration step = 0;
};

struct DataLink {
  std::deque<DataMessage> queue;
  Time last = 0;
  Time blocked_until = 0, flips_until = 0;
  bool posted = false;
};

// Appends `payload` as a frame; cuts it or joins it to what is already under way.
struct StreamLaw {
  double split = 0, coalesce = 0;
};
void push_frame(Direction& direction, const base::Bytes& payload, Time at, StreamLaw law,
                base::Rng& rng);
// The next whole frame of what has arrived; false: none yet.
bool pop_frame(Direction& direction, base::Bytes* payload);

}  // namespace jccl::sim
