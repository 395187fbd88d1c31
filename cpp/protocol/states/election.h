// The vote of the sites that made a revision on what it is. A vote consists of the digests that all
// shards of a site report, whole or none. The first report of a shard counts. Counts and compares;
// master_votes.cc decides who may vote, how long to wait, and what follows. Pure; any one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/messages.h"

namespace jccl::protocol {

using Ballot = std::vector<wire::Digest>;  // by shard

class Election {
 public:
  explicit Election(std::map<std::string, std::uint32_t> voters);  // sites and their shards

  void vote(const std::string& site, std::uint32_t shard, const wire::Digest& digest);
  void leave(const std::string& site);  // takes its vote along

  std::size_t voters() const { return boxes_.size(); }
  std::size_t votes() const { return votes_; }  // whole ones
  std::vector<std::string> silent() const;      // sites without a whole vote, ascending
  const Ballot* majority() const;               // of all voters; null: none, or not yet
  const Ballot* most() const;  // of those that voted; null: none did, or not yet half of them
  // Of shards of different sites, where no site gave a whole vote: all that spoke for a shard
  // alike, and somebody for each.
  std::optional<Ballot> pieced() const;
  bool any() const { return votes_ > 0 || pieced().has_value(); }  // a decision can rest on
  std::string sides() const;                                       // who says what, in words

  // For canonical.cc.
  template <typename Canon>
  void each_field(Canon& canon) const {
    const auto& [boxes, count, votes] = *this;
    canon.put(boxes.size()), canon.put(votes);
    for (const auto& [site, box] : boxes) {
      canon.put(site), canon.put(box.size());
      for (const auto& digest : box) canon.put(digest);
    }
    canon.put(count.size());  // follows from the boxes
  }

 private:
  friend struct Archived;
  using Box = std::vector<std::optional<wire::Digest>>;
  static std::optional<Ballot> whole(const Box& box);

  std::map<std::string, Box> boxes_;
  std::map<Ballot, std::size_t> count_;
  std::size_t votes_ = 0;
};

}  // namespace jccl::protocol
