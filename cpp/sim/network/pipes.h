// Connections between two processes, several to a link: each carries frames both ways in order, and
// is slow, stands still or breaks by itself. What is on its way are views of the sender's memory,
// read when they arrive: a network that reads as late as it can. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "exchange/frame.h"
#include "sim/events.h"
#include "wire/serialize.h"

namespace jccl::sim {

struct Transit {
  enum class Kind : std::uint8_t { kFrame, kAck, kEnd };
  Kind kind = Kind::kFrame;
  Time at = 0;    // when it arrives …
  Time turn = 0;  // … and on a line that is slow all the time
  exchange::OutFrame frame;
  std::uint64_t number = 0;  // kAck: frames of the other direction that have arrived
  std::optional<wire::ViolationKind> violates;  // a liar's: what no plan allows, for certain
  std::optional<std::uint64_t> flip;            // which of its bits is another on arrival
};

struct Reading {  // the frame of which a part is here
  wire::FrameHeader header;
  exchange::Placement place;
  bool dropped = false;  // its place is not touched any more
};

struct Way {  // from one end to the other
  std::deque<Transit> queue;
  std::optional<Reading> reading;
  Time last = 0;
  bool posted = false;
  bool paused = false;  // the receiver can't place what is first
};

struct Pipe {
  std::uint32_t id = 0;
  std::array<std::uint32_t, 2> slot{};
  std::array<wire::Incarnation, 2> life{};
  std::array<bool, 2> open{};
  std::array<bool, 2> heard{};
  bool reset = false;      // carries nothing more, though an end may not know it
  std::array<Way, 2> way;  // by the end that sends
  Time since = 0;
  Time stands_until = 0;  // alone of its link
};

}  // namespace jccl::sim
