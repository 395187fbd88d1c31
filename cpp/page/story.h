// What has happened since this master started, as the page tells it: the last events by number, the
// last rounds with their phases, when each site joined, and sums for Prometheus. All of it bounded,
// whoever makes events. Pure.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace jccl::page {

// A line of the master's history; or a mark of a round that the history does not tell: kind
// "ready" (tag, n: a peer called) and "done" (attempt: a peer has its results).
struct Event {
  double t = 0;  // seconds since the master started
  std::string kind;
  std::vector<std::pair<std::string, std::string>> fields;
  bool is_mark = false;
};

enum class Phase : std::uint8_t {
  kForming,  // from the first call to START: waits for the others
  kMoving,   // from START until the last peer has its results
  kDeciding  // from there to the commit: audit, journal
};
inline constexpr std::string_view kPhases[] = {"forming", "moving", "deciding"};

class Story {
 public:
  static constexpr std::size_t kEventsMax = 1024, kRoundsMax = 256, kTagsMax = 256, kKindsMax = 64,
                               kSitesMax = 1024, kFieldBytesMax = 600;
  struct Numbered {
    std::uint64_t id = 0;  // from 1, without gaps
    std::string text;      // {"id":…,"t":…,"kind":…,…} in one line
  };
  struct Sum {
    double seconds = 0;
    std::uint64_t count = 0;
  };

  void add(const Event& event);
  std::uint64_t last() const { return last_; }
  // Those kept with higher numbers, oldest first; the first of them says by its number how many
  // are gone.
  std::vector<const Numbered*> after(std::uint64_t id) const;
  boost::json::array rounds() const;   // oldest first
  boost::json::object joined() const;  // site → t; sites that were there at the start have none
  const std::map<std::string, std::uint64_t>& counts() const { return counts_; }  // by kind
  const std::map<std::string, Sum>& phase_sums(Phase phase) const {               // by tag
    return sums_[static_cast<std::size_t>(phase)];
  }

 private:
  struct Round {
    std::string tag, n, attempt, contributors, world, end, why;
    double formed = -1, started = -1, done = -1, ended = -1;  // t; -1: not known
  };
  void mark(const Event& event);
  void keep(const Event& event);
  void note_round(const Event& event);
  void note_site(const Event& event);
  Round* running(std::string_view attempt);
  void sum(Phase phase, const std::string& tag, double from, double to);

  std::uint64_t last_ = 0;
  std::deque<Numbered> events_;
  std::deque<Round> rounds_;
  std::map<std::string, double> forming_;  // tag → t of the first call
  std::map<std::string, double> joined_;
  std::map<std::string, std::uint64_t> counts_;
  std::map<std::string, Sum> sums_[3];
};

}  // namespace jccl::page
