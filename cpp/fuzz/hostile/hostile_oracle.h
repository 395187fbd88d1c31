// The promises, as checks on what honest peers get: results that are equal on all of them and the
// exact sum over the reported contributors, each counted once; outputs that stay untouched when a
// call fails; one state per revision. Ends the process when one is broken. Test only.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "peer/call.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::fuzz {

inline constexpr std::size_t kUserValues =
    29;  // in two leaves, of 24 and 5; or so many for each slot
inline constexpr float kUntouched = -123456.0F;

struct UserResult {
  peer::Collective collective = peer::Collective::kAllReduce;
  wire::Attempt attempt;
  wire::PeerId self = 0;
  const protocol::CompleteCall* done = nullptr;
  const std::vector<float>* out = nullptr;
  std::vector<bool> scattered;  // which values of `out` are of the result; empty: all
  bool private_out = false;     // the rest may hold what an attempt left that was aborted
};

class Oracle {
 public:
  // Without a master that tells the truth nothing is promised of results.
  explicit Oracle(bool holds) : holds_(holds) {}
  bool holds() const { return holds_; }
  // What a peer puts into an attempt. Of the hostile one: what it would, if it were honest.
  void enters(const wire::Attempt& attempt, wire::PeerId peer, double weight,
              const std::vector<float>& in, bool hostile);
  void bent(const wire::Attempt& attempt) { bent_.insert(attempt); }
  void committed(const UserResult& result);  // of an honest peer, whose value may be in it or not
  void failed(const std::vector<float>& out) const;
  void published(const wire::Held& held);  // by an honest peer, after a round
  std::size_t results() const { return results_.size(); }

 private:
  struct Input {
    double weight = 0;
    std::vector<float> values;
    bool hostile = false;
  };
  void check_sum(const UserResult& result) const;
  void check_blocks(const UserResult& result) const;
  bool exact(const UserResult& result) const;

  const bool holds_;
  std::map<wire::Attempt, std::map<wire::PeerId, Input>> inputs_;
  std::set<wire::Attempt> bent_;
  struct Result {
    wire::Attempt attempt;
    std::vector<wire::Contributor> contributors;
    std::vector<float> out;  // empty where each peer gets another part
  };
  std::map<std::pair<wire::Tag, std::uint64_t>, Result> results_;
  std::map<std::pair<wire::Tag, std::uint64_t>, wire::Digest> states_;
};

}  // namespace jccl::fuzz
