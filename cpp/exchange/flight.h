// The frames in flight on each stripe of a link: which ones the other side has acknowledged, and
// which stripe is so late that its frames should go again over another. Pure: time comes in.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/time.h"

namespace jccl::exchange {

using StripeId = std::uint32_t;  // counts up from 1 in a link, never reused

class Flight {
 public:
  explicit Flight(std::size_t keys_max) : keys_max_(keys_max) {}

  void add_stripe(StripeId stripe, base::Time now);
  void took(StripeId stripe, std::uint64_t key, base::Time now);
  // The other side has the first `frames` frames of the stripe. False: more than were sent.
  [[nodiscard]] bool arrived(StripeId stripe, std::uint64_t frames, base::Time now);
  // Nobody cares any more for these: they count, but are neither named nor waited for.
  void forget(const std::function<bool(std::uint64_t key)>& which);

  bool all_arrived(StripeId stripe) const;

  struct Rest {
    std::vector<std::uint64_t> keys;  // may not have arrived, in the order they were sent
    bool complete = true;  // false: more than keys_max were under way; the oldest are not named
  };
  Rest remove_stripe(StripeId stripe);

  // A stripe is late when its oldest frame has been in flight for several times the usual time,
  // while another one delivered frames that it took later, or has none in flight and reported that.
  // A late stripe gets nothing until it catches up, and its frames are named once. If it is late
  // for long, it should be replaced.
  struct Late {
    StripeId stripe = 0;
    std::vector<std::uint64_t> again;
    bool replace = false;
  };
  std::vector<Late> check(base::Time now, base::Duration rtt);
  bool late(StripeId stripe) const;
  std::uint64_t sent_again() const { return sent_again_; }
  base::Duration typical() const { return typical_; }  // from taking a frame to hearing of it

 private:
  friend struct FlightSearch;  // tells states apart: flight_search_test.cc
  struct Item {
    std::uint64_t key = 0;
    base::Time since = 0;
    bool forgotten = false;
    bool again = false;
  };
  struct Lane {
    std::deque<Item> items;
    std::uint64_t first = 0;  // number of items.front(), from 0
    base::Time heard = 0;     // something arrived
    base::Time spoke = 0;     // the other side told, perhaps nothing new
    base::Time late_since = 0;
    std::uint64_t unnamed = 0;  // the first so many have no item any more, for want of room
    std::uint64_t told = 0;     // so many arrived
  };
  bool overtaken(const Lane& lane, base::Duration late_after) const;
  bool others_heard_after(const Lane& lane, base::Time time) const;
  static void drop_forgotten(Lane* lane);
  static bool all_named(const Lane& lane);  // of what has not arrived

  std::size_t keys_max_;
  std::map<StripeId, Lane> lanes_;
  base::Duration typical_ = 0;
  std::uint64_t sent_again_ = 0;
};

}  // namespace jccl::exchange
