// How many connections a link should have, and how many of them are given frames now. Starts by
// round-trip time; while the link is busy it tries other counts against the present one, turn by
// turn on the same path (A B A B A), and changes where the paired differences say that it pays.
// What is not in a trial's turns counts for nothing: paths change. Pure: fed with what was
// measured.
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "base/time.h"

namespace jccl::exchange {

// The logarithms of B against A of a trial, one of each pair of turns.
class PairedTurns {
 public:
  enum class Verdict { kGoOn, kPays, kDoesNot };

  void add(double difference);
  // `asked`: by so much B has to be faster, as a logarithm.
  Verdict verdict(double asked) const;
  int pairs() const { return pairs_; }

 private:
  int pairs_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

class StripeTuner {
 public:
  explicit StripeTuner(std::uint32_t pinned = 0) : pinned_(pinned) {}

  // So many should stand; before a path is known a single connection finds it out. Never fewer
  // than the round-trip time asks for, as the other direction uses them too.
  std::uint32_t wanted() const;
  // So many of them should be given frames.
  std::uint32_t used() const;
  // What it has decided for, whatever a trial does now.
  std::uint32_t chosen() const;
  // A connection of the link stands. `rtt` as the kernel measured it while connecting.
  // `handed`: other threads move what is large, and of a connection one thing at a time.
  void connected(bool loopback, base::Duration rtt, bool handed = false);
  // A window in which the link was busy all the time, and of so many standing stripes gave frames
  // to used().
  void measured(std::uint64_t bytes, base::Duration busy, std::uint32_t standing,
                base::Duration rtt);

 private:
  void settle(base::Duration rtt);
  void turn_ended(double rate);
  void present_turn(double rate);
  void end_trial(bool pays);
  void next_trial();

  std::uint32_t pinned_;
  std::uint32_t start_ = 0;  // 0: no path known yet
  std::uint32_t base_ = 0;
  std::uint32_t trial_ = 0;  // 0: none
  bool trying_ = false;      // this turn is the trial's
  bool loopback_ = true;
  int candidate_ = 0;  // of kSteps
  PairedTurns pairs_;
  double before_ = 0;        // rate of the last turn of base_; 0: none
  double trial_rate_ = 0;    // of the last turn of trial_
  double level_ = 0;         // rate of base_ that is usual here
  int off_level_ = 0;        // turns since it was
  std::uint32_t given_ = 0;  // stripes that were given frames in this turn
  std::uint64_t bytes_ = 0;  // of this turn
  base::Duration busy_ = 0;
  base::Duration settling_ = 0;  // busy time that does not count yet
  base::Duration missing_ = 0;   // busy time without all of a trial's stripes
  base::Duration rest_ = 0;      // busy time until the next trial
  base::Duration long_rest_ = 0;
};

}  // namespace jccl::exchange
