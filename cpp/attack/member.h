// What each member of an attacked run does on one tag, honest or not: it reduces again and again;
// on the tag of the state it moves that by the result and publishes it. What it contributes follows
// from its weight (exchange/stress_oracle.h), so that every result can be checked exactly. One
// thread drives each: tags never wait for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "peer/communicator.h"

namespace jccl::attack {

// Of one member, so far. Read by other threads.
struct Tally {
  std::atomic<std::uint64_t> rounds{0};    // committed
  std::atomic<std::uint64_t> wrong{0};     // … whose values are not what their weights say
  std::atomic<std::uint64_t> left_out{0};  // … without its own contribution
  std::atomic<std::uint64_t> failed{0};    // calls that ended otherwise
  std::mutex mutex;
  std::map<std::string, std::uint64_t> codes;  // of those
  std::string last;                            // of them, in words
  std::vector<double> took_ms;                 // each round since the last report
};

// What the honest members of one process got: of one round all must have the same.
class Board {
 public:
  // False: another member has another result of that round.
  bool agrees(const std::string& tag, std::uint64_t n, const std::vector<double>& weights);
  // The same of the state of that revision.
  bool agrees(std::uint64_t revision, const std::vector<std::int32_t>& state);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::uint64_t>, std::vector<double>> seen_;
  std::map<std::uint64_t, std::vector<std::int32_t>> states_;
};

// Who is told where a call's input lies while the call lasts, and of no values when it ended.
class Borrower {
 public:
  virtual ~Borrower() = default;
  virtual void lends(const std::string& tag, float* values, std::size_t count) = 0;
};

inline const char* const kTags[] = {"grads", "model"};  // the second has a state

class Member {
 public:
  // `number` is its own: it names its contributions.
  Member(std::shared_ptr<peer::Communicator> comm, std::string tag, std::uint64_t number,
         std::uint64_t elements, Board* board, std::string plan = "");

  // One round. False: the communicator is of no use any more.
  bool step();
  const std::string& tag() const { return tag_; }
  const base::Status& last() const { return last_; }
  Tally& tally() { return tally_; }
  void lend_to(Borrower* borrower) { borrower_ = borrower; }
  void forge() { forges_ = true; }  // from now on what it publishes is not what was made

 private:
  bool has_state() const { return tag_ == kTags[1]; }
  peer::RoundResult reduce(std::vector<float>* values);
  void judge(const peer::RoundResult& result, double weight, const std::vector<float>& values);
  void note(const base::Status& status);
  bool synchronise();
  void publish();
  void stands_at(std::uint64_t revision);
  void advance(const std::vector<float>& result);
  std::vector<peer::Leaf> leaves();

  std::shared_ptr<peer::Communicator> comm_;
  const std::string tag_;
  const std::uint64_t number_, elements_;
  Board* board_;
  const std::string plan_;
  Borrower* borrower_ = nullptr;
  base::Rng rng_;
  std::uint64_t calls_ = 0;
  std::vector<std::int32_t> state_;
  bool synced_ = false;
  std::atomic<bool> forges_{false};
  base::Status last_;
  Tally tally_;
};

}  // namespace jccl::attack
