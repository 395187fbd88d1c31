#include "protocol/states/election.h"

#include <algorithm>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::protocol {

namespace {

constexpr std::size_t kSitesNamed = 8;  // of one side

}  // namespace

Election::Election(std::map<std::string, std::uint32_t> voters) {
  for (const auto& [site, shards] : voters) boxes_[site].resize(shards);
}

std::optional<Ballot> Election::whole(const Box& box) {
  Ballot ballot;
  for (const auto& digest : box) {
    if (!digest.has_value()) return std::nullopt;
    ballot.push_back(*digest);
  }
  return ballot;
}

void Election::vote(const std::string& site, std::uint32_t shard, const wire::Digest& digest) {
  const auto found = boxes_.find(site);
  if (found == boxes_.end() || shard >= found->second.size()) return;
  Box& box = found->second;
  if (box[shard].has_value()) return;
  box[shard] = digest;
  const auto ballot = whole(box);
  if (!ballot) return;
  ++votes_;
  ++count_[*ballot];
}

void Election::leave(const std::string& site) {
  const auto found = boxes_.find(site);
  if (found == boxes_.end()) return;
  if (const auto ballot = whole(found->second)) {
    --votes_;
    if (--count_[*ballot] == 0) count_.erase(*ballot);
  }
  boxes_.erase(found);
}

std::vector<std::string> Election::silent() const {
  std::vector<std::string> sites;
  for (const auto& [site, box] : boxes_) {
    if (!whole(box)) sites.push_back(site);
  }
  return sites;
}

const Ballot* Election::majority() const {
  if (JCCL_PLANTED("first-word-decides") && !count_.empty()) return &count_.begin()->first;
  for (const auto& [ballot, sites] : count_) {
    if (2 * sites > boxes_.size()) return &ballot;
  }
  return nullptr;
}

const Ballot* Election::most() const {
  if (JCCL_PLANTED("all-must-agree") && count_.size() > 1) return nullptr;
  for (const auto& [ballot, sites] : count_) {
    if (2 * sites > votes_) return &ballot;
  }
  return nullptr;
}

std::optional<Ballot> Election::pieced() const {
  Box all;
  for (const auto& [site, box] : boxes_) {
    all.resize(std::max(all.size(), box.size()));
    for (std::size_t shard = 0; shard < box.size(); ++shard) {
      if (!box[shard].has_value()) continue;
      if (all[shard].has_value() && all[shard] != box[shard]) return std::nullopt;
      all[shard] = box[shard];
    }
  }
  return all.empty() ? std::nullopt : whole(all);
}

std::string Election::sides() const {
  std::string text;
  for (const auto& [ballot, sites] : count_) {
    std::string names;
    std::size_t named = 0;
    for (const auto& [site, box] : boxes_) {
      if (whole(box) != ballot) continue;
      if (named++ < kSitesNamed) names += base::cat(names.empty() ? "" : ", ", site);
    }
    if (named > kSitesNamed) names += base::cat(" and ", named - kSitesNamed, " more");
    text += base::cat(text.empty() ? "" : "; ", names, named == 1 ? " holds " : " hold ",
                      base::to_hex(ballot.front()));
  }
  return text;
}

}  // namespace jccl::protocol
