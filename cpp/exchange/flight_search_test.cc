// Every order in which a link of two stripes can carry three frames and lose two of its
// connections: frames are taken, arrive, are acknowledged; a connection breaks, and each end
// notices when it does; time passes, and late frames go again; new connections come. Two ends, each
// with its Flight. Each state is looked at once, by all that decides what happens in it: of times
// their order and the waits between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/text.h"
#include "exchange/flight.h"
#include "snapshot/digest.h"
#include "wire/serialize.h"

namespace jccl::exchange {

// What a Flight knows of a stripe.
struct FlightSearch {
  static void print(const Flight& flight, StripeId stripe, base::Time wait, base::Writer& out) {
    const auto put = [&](base::Time time) { out.u8(static_cast<std::uint8_t>(time / wait)); };
    const auto found = flight.lanes_.find(stripe);
    if (found == flight.lanes_.end()) return out.u8(0xFF);
    const Flight::Lane& lane = found->second;
    put(lane.heard), put(lane.spoke), put(lane.late_since);
    for (const Flight::Item& item : lane.items) {
      out.u8(static_cast<std::uint8_t>(2 * item.key + (item.again ? 1 : 0)));
      put(item.since);
    }
    out.u8(static_cast<std::uint8_t>(0xF0 + lane.first + lane.items.size() - lane.told));
  }
};

namespace {
namespace searched {

using base::cat;
using Keys = std::vector<std::uint64_t>;

constexpr std::size_t kStripes = 2;
constexpr base::Duration kWait = 2500 * base::kMillisecond;  // long enough to be replaced

struct Way {                       // of a connection, from one end to the other
  Keys taken;                      // all that it was given
  std::size_t came = 0, told = 0;  // so many arrived; of so many the sender has heard
  std::set<std::size_t> named;     // of taken: went again because it was late
  bool ended = false;              // nothing follows what was given
  bool may_speak = false;          // the receiver, though it has no news
  std::size_t left() const { return taken.size() - came; }
};

struct Connection {
  StripeId id = 0;
  bool broken = false;  // carries nothing more, though an end may not know it
  std::array<bool, 2> open{true, true};
  std::array<Way, 2> way;  // by the end that sends
};

struct End {
  Flight flight{16};
  std::deque<std::uint64_t> queue;
  std::set<std::uint64_t> received;
  bool looks = false;  // time has passed since it looked for late ones
};

struct Scope {
  std::array<Keys, 2> frames;  // of each end
  int losses = 2, waits = 1;
};

struct Step {
  enum class Kind : std::uint8_t {
    kTake,
    kCome,
    kHear,
    kEnd,
    kBreak,
    kNotice,
    kWait,
    kLook,
    kDial
  };
  Kind kind;
  std::size_t connection = 0, end = 0;
  std::size_t count = 0;  // kHear: so many arrived
};

class World {
 public:
  explicit World(const Scope& scope) : losses_(scope.losses), waits_(scope.waits) {
    for (std::size_t end = 0; end < 2; ++end) {
      ends_[end].queue.assign(scope.frames[end].begin(), scope.frames[end].end());
      for (const std::uint64_t key : scope.frames[end]) owed_[1 - end].insert(key);
    }
    for (std::size_t i = 0; i < kStripes; ++i) dial();
  }

  std::vector<Step> steps() const {
    std::vector<Step> out;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const Connection& one = connections_[i];
      if (!one.broken && one.open[0] && one.open[1] && losses_ > 0)
        out.push_back({Step::Kind::kBreak, i});
      for (std::size_t end = 0; end < 2; ++end) {
        if (one.open[end]) add_steps(i, end, &out);
      }
    }
    for (std::size_t end = 0; end < 2; ++end) {
      if (ends_[end].looks) out.push_back({Step::Kind::kLook, 0, end});
    }
    if (waits_ > 0) out.push_back({Step::Kind::kWait});
    if (stands(0) < kStripes || stands(1) < kStripes) out.push_back({Step::Kind::kDial});
    return out;
  }

  void take(const Step& step) {
    run(step);
    // An end that sends nothing hears at once: what it would do before changes nothing.
    for (Connection& one : connections_) {
      for (std::size_t end = 0; end < 2; ++end) {
        const Way& back = one.way[1 - end];
        const bool over = one.broken || (back.ended && back.left() == 0);
        if (owed_[1 - end].empty() && one.open[end] && over) lose(one, end);
      }
    }
  }

  void run(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kTake:
        return give(connections_[step.connection], step.end);
      case Step::Kind::kCome:
        return come(connections_[step.connection], step.end);
      case Step::Kind::kHear:
        return hear(connections_[step.connection], step.end, step.count);
      case Step::Kind::kBreak:
        --losses_;
        connections_[step.connection].broken = true;
        return;
      case Step::Kind::kEnd:
      case Step::Kind::kNotice:
        return lose(connections_[step.connection], step.end);
      case Step::Kind::kWait:
        return wait();
      case Step::Kind::kLook:
        return look(step.end);
      case Step::Kind::kDial:
        return dial();
    }
  }

  // Nothing can happen any more: all of it is done, and both ends know it.
  void check_end() {
    for (std::size_t end = 0; end < 2; ++end) {
      expect(ends_[end].received == owed_[end], cat("a frame never came to end ", end));
      expect(ends_[end].queue.empty(), cat("end ", end, " has frames that never leave"));
      for (const Connection& one : connections_) {
        if (!one.open[end]) continue;
        Flight& flight = ends_[end].flight;
        expect(!flight.late(one.id), cat("stripe ", one.id, " is late for ever"));
        expect(flight.all_arrived(one.id), cat("stripe ", one.id, " waits for ever"));
        const Flight::Rest rest = flight.remove_stripe(one.id);
        expect(rest.keys.empty() && rest.complete, cat("stripe ", one.id, " is not empty"));
      }
    }
  }

  // Which of the stripes has which number does not matter.
  std::uint64_t print() const {
    base::Writer out;
    out.u8(static_cast<std::uint8_t>(losses_)), out.u8(static_cast<std::uint8_t>(waits_));
    for (const End& end : ends_) {
      out.u32(static_cast<std::uint32_t>(end.flight.typical() / base::kMillisecond));
      for (const std::uint64_t key : end.queue) out.u8(static_cast<std::uint8_t>(key));
      out.u8(end.looks ? 0x81 : 0x80);
      for (const std::uint64_t key : end.received) out.u8(static_cast<std::uint8_t>(key));
      out.u8(0);
    }
    std::vector<base::Bytes> stripes;
    for (const Connection& one : connections_) {
      if (one.open[0] || one.open[1]) stripes.push_back(print(one));
    }
    std::sort(stripes.begin(), stripes.end());
    for (const base::Bytes& one : stripes) out.raw(one.data(), one.size());
    const base::Digest digest = snapshot::digest_of(out.bytes());
    return digest.low ^ digest.high * 0x9E3779B97F4A7C15ULL;
  }

  const std::string& wrong() const { return wrong_; }

 private:
  base::Bytes print(const Connection& one) const {
    base::Writer out;
    for (std::size_t end = 0; end < 2; ++end) {
      const Way& way = one.way[end];
      out.u8(static_cast<std::uint8_t>((one.open[end] ? 1 : 0) | (one.broken ? 2 : 0) |
                                       (way.ended ? 4 : 0) | (way.may_speak ? 8 : 0)));
      FlightSearch::print(ends_[end].flight, one.id, kWait, out);
      out.u8(static_cast<std::uint8_t>(way.came - way.told));
      for (std::size_t k = way.came; k < way.taken.size(); ++k)
        out.u8(static_cast<std::uint8_t>(way.taken[k]));
      out.u8(0);
    }
    return out.bytes();
  }

  void expect(bool holds, const std::string& what) {
    if (!holds && wrong_.empty()) wrong_ = what;
  }

  std::size_t stands(std::size_t end) const {
    return static_cast<std::size_t>(
        std::count_if(connections_.begin(), connections_.end(),
                      [end](const Connection& one) { return one.open[end]; }));
  }

  // Of an end to which the connection is open.
  void add_steps(std::size_t i, std::size_t end, std::vector<Step>* out) const {
    const Connection& one = connections_[i];
    const Way &there = one.way[end], &back = one.way[1 - end];
    const bool late = ends_[end].flight.late(one.id);
    if (!ends_[end].queue.empty() && !late) out->push_back({Step::Kind::kTake, i, end});
    if (one.broken) return out->push_back({Step::Kind::kNotice, i, end});
    if (back.left() > 0) out->push_back({Step::Kind::kCome, i, end});
    if (back.left() == 0 && back.ended) out->push_back({Step::Kind::kEnd, i, end});
    // A word may have been long on its way: it says what had arrived then.
    for (std::size_t n = there.told + (there.may_speak ? 0 : 1); n <= there.came; ++n) {
      out->push_back({Step::Kind::kHear, i, end, n});
    }
  }

  void give(Connection& one, std::size_t end) {
    End& here = ends_[end];
    const std::uint64_t key = here.queue.front();
    here.queue.pop_front();
    here.flight.took(one.id, key, now_);
    one.way[end].taken.push_back(key);
  }

  void come(Connection& one, std::size_t end) {  // of copies the first one counts
    Way& way = one.way[1 - end];
    ends_[end].received.insert(way.taken[way.came++]);
  }

  void hear(Connection& one, std::size_t end, std::size_t count) {
    Way& way = one.way[end];
    Flight& flight = ends_[end].flight;
    if (count == way.told) way.may_speak = false;
    way.told = count;
    expect(flight.arrived(one.id, count, now_), "a true word is refused");
    expect(flight.all_arrived(one.id) == (count == way.taken.size()),
           cat("of stripe ", one.id, " all is said to have arrived"));
  }

  void again(std::size_t end, const Keys& keys) {
    ends_[end].queue.insert(ends_[end].queue.begin(), keys.begin(), keys.end());
  }

  // What was sent goes on; the other end hears of the end after it.
  void lose(Connection& one, std::size_t end) {
    one.open[end] = false;
    one.way[end].ended = true;
    const Way& way = one.way[end];
    const Flight::Rest rest = ends_[end].flight.remove_stripe(one.id);
    expect(rest.complete &&
               rest.keys == Keys(way.taken.begin() + std::ptrdiff_t(way.told), way.taken.end()),
           cat("stripe ", one.id, " was lost, and names other frames than it held"));
    again(end, rest.keys);
  }

  void wait() {
    --waits_;
    now_ += kWait;
    for (std::size_t end = 0; end < 2; ++end) {
      if (owed_[1 - end].empty()) continue;  // it has no frames, and looks for none
      ends_[end].looks = true;
      for (Connection& one : connections_) one.way[end].may_speak = one.open[0] && one.open[1];
    }
  }

  void look(std::size_t end) {
    End& here = ends_[end];
    here.looks = false;
    for (const Flight::Late& late : here.flight.check(now_, 0)) {
      Connection& one = connections_.at(late.stripe - 1);
      Way& way = one.way[end];
      Keys named;
      for (std::size_t k = way.told; k < way.taken.size(); ++k) {
        if (way.named.insert(k).second) named.push_back(way.taken[k]);
      }
      expect(late.again == named,
             cat("late stripe ", one.id, " names other frames than it holds, or names them twice"));
      again(end, late.again);
      if (late.replace) lose(one, end);
    }
  }

  void dial() {
    Connection fresh;
    fresh.id = static_cast<StripeId>(connections_.size() + 1);
    connections_.push_back(fresh);
    for (End& end : ends_) end.flight.add_stripe(fresh.id, now_);
  }

  std::array<End, 2> ends_;
  std::array<std::set<std::uint64_t>, 2> owed_;  // to that end
  std::vector<Connection> connections_;          // by id, from 1
  int losses_, waits_;
  base::Time now_ = kWait;
  std::string wrong_;
};

struct Found {
  std::size_t states = 0, ends = 0;
  std::string wrong;
};

Found search(const Scope& scope) {
  Found found;
  std::unordered_set<std::uint64_t> seen;
  std::vector<World> open{World(scope)};
  seen.insert(open.front().print());
  while (!open.empty() && found.wrong.empty()) {
    World world = std::move(open.back());
    open.pop_back();
    ++found.states;
    const std::vector<Step> steps = world.steps();
    if (steps.empty()) {
      ++found.ends;
      world.check_end();
      found.wrong = world.wrong();
    }
    for (const Step& step : steps) {
      World next = world;
      next.take(step);
      if (!next.wrong().empty()) found.wrong = next.wrong();
      if (seen.insert(next.print()).second) open.push_back(std::move(next));
    }
  }
  std::printf("%zu states, %zu of them ends\n", found.states, found.ends);
  return found;
}

void expect_all_found(const Scope& scope, std::size_t states) {
  const Found found = search(scope);
  EXPECT_EQ(found.wrong, "");
  EXPECT_GT(found.states, states);
  EXPECT_GT(found.ends, 1u);
}

TEST(FlightSearchTest, three_frames_outlive_two_losses) {
  expect_all_found({{Keys{1, 2, 3}, Keys{}}, 2, 0}, 5'000);
}

TEST(FlightSearchTest, frames_of_both_ends_outlive_two_losses) {
  expect_all_found({{Keys{1, 2}, Keys{3}}, 2, 0}, 50'000);
}

TEST(FlightSearchTest, three_frames_that_may_be_late_come_once_more) {
  expect_all_found({{Keys{1, 2, 3}, Keys{}}, 0, 1}, 5'000);
}

TEST(FlightSearchTest, two_frames_that_may_be_late_outlive_a_loss) {
  expect_all_found({{Keys{1, 2}, Keys{}}, 1, 1}, 10'000);
}

TEST(FlightSearchTest, a_frame_whose_stripe_is_replaced_comes_over_another) {
  expect_all_found({{Keys{1}, Keys{}}, 1, 2}, 10'000);
}

// Minutes, and some GB: make long-model.
TEST(FlightSearchTest, DISABLED_three_frames_that_may_be_late_outlive_two_losses) {
  expect_all_found({{Keys{1, 2, 3}, Keys{}}, 2, 1}, 1'000'000);
}

}  // namespace searched
}  // namespace
}  // namespace jccl::exchange
