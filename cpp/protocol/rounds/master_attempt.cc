#include "protocol/rounds/master_attempt.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::protocol {

namespace {

constexpr std::size_t kWaitersMax = 8;  // in one text

using Phase = AttemptPhase;
using Input = AttemptInput;

// Where an input leads, by what is then left of the attempt.
struct Edge {
  Phase from;
  Input input;
  Phase complete;    // every contributor is done or evicted, and enough sites are left
  Phase open;        // some are not done, and enough sites are left
  Phase impossible;  // fewer sites are left than a commit needs
};

constexpr std::array kEdges = {
    Edge{Phase::kMoving, Input::kDone, Phase::kAgreed, Phase::kMoving, Phase::kLost},
    Edge{Phase::kMoving, Input::kUnequalDone, Phase::kUnequal, Phase::kUnequal, Phase::kUnequal},
    Edge{Phase::kMoving, Input::kDoneGone, Phase::kAgreed, Phase::kMoving, Phase::kLost},
    // Its data may be missing somewhere, and who isn't done would wait for a peer that is gone.
    Edge{Phase::kMoving, Input::kUndoneGone, Phase::kAgreed, Phase::kLost, Phase::kLost},
    // Sites may leave while it is audited.
    Edge{Phase::kAgreed, Input::kDone, Phase::kAgreed, Phase::kAgreed, Phase::kAgreed},
    Edge{Phase::kAgreed, Input::kUnequalDone, Phase::kAgreed, Phase::kAgreed, Phase::kAgreed},
    Edge{Phase::kAgreed, Input::kDoneGone, Phase::kAgreed, Phase::kAgreed, Phase::kLost},
    Edge{Phase::kAgreed, Input::kUndoneGone, Phase::kAgreed, Phase::kAgreed, Phase::kLost},
    // The rest is final: whoever holds the attempt ends it within the same event.
    Edge{Phase::kUnequal, Input::kDone, Phase::kUnequal, Phase::kUnequal, Phase::kUnequal},
    Edge{Phase::kUnequal, Input::kUnequalDone, Phase::kUnequal, Phase::kUnequal, Phase::kUnequal},
    Edge{Phase::kUnequal, Input::kDoneGone, Phase::kUnequal, Phase::kUnequal, Phase::kUnequal},
    Edge{Phase::kUnequal, Input::kUndoneGone, Phase::kUnequal, Phase::kUnequal, Phase::kUnequal},
    Edge{Phase::kLost, Input::kDone, Phase::kLost, Phase::kLost, Phase::kLost},
    Edge{Phase::kLost, Input::kUnequalDone, Phase::kLost, Phase::kLost, Phase::kLost},
    Edge{Phase::kLost, Input::kDoneGone, Phase::kLost, Phase::kLost, Phase::kLost},
    Edge{Phase::kLost, Input::kUndoneGone, Phase::kLost, Phase::kLost, Phase::kLost},
};

constexpr bool answers_every_input() {
  for (int phase = 0; phase < static_cast<int>(Phase::kCount); ++phase) {
    for (int input = 0; input < static_cast<int>(Input::kCount); ++input) {
      int rows = 0;
      for (const Edge& edge : kEdges) {
        rows += edge.from == static_cast<Phase>(phase) && edge.input == static_cast<Input>(input);
      }
      if (rows != 1) return false;
    }
  }
  return true;
}
static_assert(answers_every_input(), "each phase answers each input exactly once");

const Edge& edge_of(Phase phase, Input input) {
  const auto* found = std::find_if(kEdges.begin(), kEdges.end(), [&](const Edge& edge) {
    return edge.from == phase && edge.input == input;
  });
  JCCL_CHECK(found != kEdges.end());
  return *found;
}

}  // namespace

MasterAttempt::MasterAttempt(wire::Attempt attempt, wire::RoundName round,
                             std::vector<Participant> parts, std::uint32_t min_peers)
    : attempt_(attempt), round_(std::move(round)), sites_min_(std::max(1U, min_peers)) {
  for (Participant& part : parts) {
    const wire::PeerId id = part.id;
    ids_[part.incarnation] = id;
    parts_[id] = std::move(part);
  }
  recount();
  world_ = sites_left_;
  JCCL_CHECK(world_ >= sites_min_);
}

Participant* MasterAttempt::part_of(wire::Incarnation incarnation) {
  const auto found = ids_.find(incarnation);
  return found == ids_.end() ? nullptr : &parts_.at(found->second);
}

std::set<wire::PeerId> MasterAttempt::of_site(const std::string& site) const {
  std::set<wire::PeerId> ids;
  for (const auto& [id, part] : parts_) {
    if (part.site == site) ids.insert(id);
  }
  return ids;
}

// Its DONE is waited for, and its site is one of those a commit needs.
bool MasterAttempt::decides(const Participant& part) {
  return part.contributes() || JCCL_PLANTED("receivers-decide");
}

bool MasterAttempt::enough() const {
  return sites_left_ >= sites_min_ || (JCCL_PLANTED("too-few-commit") && sites_left_ > 0);
}

Told MasterAttempt::told(const Participant& part) {
  Told told{*part.done, part.audit.result};
  if (JCCL_PLANTED("counts-of-cells-differ")) return told;
  for (const wire::PartsRoot& root : part.audit.parts) told.cells.push_back(root.cells);
  return told;
}

void MasterAttempt::recount() {
  std::set<std::string> sites;
  open_ = 0;
  agreed_.clear();
  for (const auto& [id, part] : parts_) {
    if (!decides(part) || part.evicted) continue;
    sites.insert(part.site);
    open_ += !part.done.has_value();
    if (part.done.has_value()) agreed_.try_emplace(part.shard, told(part));
  }
  sites_left_ = static_cast<std::uint32_t>(sites.size());
}

const Participant* MasterAttempt::lost() const {
  for (const auto& [id, part] : parts_) {
    if (part.contributes() && part.evicted) return &part;
  }
  return nullptr;
}

bool MasterAttempt::agree() const {
  return std::all_of(parts_.begin(), parts_.end(), [this](const auto& entry) {
    const Participant& part = entry.second;
    const bool counts = decides(part) && !part.evicted && part.done.has_value();
    return !counts || agreed_.at(part.shard) == told(part);
  });
}

void MasterAttempt::done(Participant& part, const wire::Digest& result) {
  if (part.done.has_value() || part.evicted) return;
  part.done = result;
  if (!decides(part)) return;
  JCCL_CHECK(open_ > 0);
  --open_;
  const bool equal = agreed_.try_emplace(part.shard, told(part)).first->second == told(part) ||
                     JCCL_PLANTED("unequal-commit");
  settle(equal ? Input::kDone : Input::kUnequalDone);
}

void MasterAttempt::gone(const std::string& site) {
  bool contributed = false, undone = false;
  for (auto& [id, part] : parts_) {
    if (part.site != site || part.evicted) continue;
    part.evicted = true;
    contributed = contributed || decides(part);
    undone = undone || (decides(part) && !part.done.has_value());
  }
  if (!contributed) return;
  recount();
  if (phase_ == Phase::kUnequal && agree() && !JCCL_PLANTED("the-gone-still-differ")) {
    phase_ = Phase::kMoving;  // who differed is who went
    if (silent.empty() && refusals.empty()) judged_at = base::kNever;
  }
  settle(undone ? Input::kUndoneGone : Input::kDoneGone);
  if (phase_ == Phase::kLost && reason_.empty()) {
    reason_ = undone ? base::cat(site, " lost before DONE")
                     : base::cat("fewer sites left than the ", sites_min_, " a commit needs");
  }
}

void MasterAttempt::settle(Input input) {
  const Edge& edge = edge_of(phase_, input);
  const int row = static_cast<int>(phase_) * static_cast<int>(Input::kCount);
  edges_ |= 1U << (row + static_cast<int>(input));
  if (!enough()) {
    phase_ = edge.impossible;
  } else {
    phase_ = open_ == 0 || JCCL_PLANTED("first-done-commits") ? edge.complete : edge.open;
  }
}

std::vector<wire::Contributor> MasterAttempt::contributors() const {
  std::vector<wire::Contributor> all;
  for (const auto& [id, part] : parts_) {
    if (JCCL_PLANTED("dead-contributor-left-out") && part.evicted) continue;
    if (part.contributes()) all.push_back({id, part.weight});
  }
  return all;
}

std::vector<wire::Digest> MasterAttempt::results() const {
  JCCL_CHECK(phase_ == Phase::kAgreed);
  JCCL_CHECK(enough());
  std::vector<wire::Digest> results;
  for (const auto& [id, part] : parts_) {
    if (!part.contributes() || part.evicted) continue;  // an evicted one's digest decides nothing
    if (JCCL_PLANTED("first-done-commits") && !part.done.has_value()) continue;
    if (part.shard >= results.size()) results.resize(part.shard + 1);
    results[part.shard] = *part.done;
  }
  return results;
}

void MasterAttempt::forget_untrue_shares(const Senders& senders) {
  for (auto& [id, part] : parts_) {
    std::vector<wire::PeerId> owners, from;
    for (const wire::Share& share : part.shares) {
      owners.push_back(share.owner), from.push_back(share.from);
    }
    if (owners.empty() || JCCL_PLANTED("any-sender-is-believed")) continue;
    if (senders(starts.at(part.shard).plan, id, owners) != from) part.shares.clear();
  }
}

std::vector<const Participant*> MasterAttempt::outvoted() const {
  std::map<std::uint32_t, std::map<Told, std::size_t>> votes;
  std::map<std::uint32_t, std::size_t> voters;
  for (const auto& [id, part] : parts_) {
    if (!decides(part) || part.evicted) continue;
    ++voters[part.shard];
    if (part.done.has_value()) ++votes[part.shard][told(part)];
  }
  std::vector<const Participant*> out;
  for (const auto& [id, part] : parts_) {
    if (!decides(part) || part.evicted || !part.done.has_value()) continue;
    for (const auto& [most, count] : votes[part.shard]) {
      if (2 * count > voters[part.shard] && most != told(part)) out.push_back(&part);
    }
  }
  return out;
}

// How the share came to be what it is, back from the part: until somebody says that it got
// something else, or that it made it. Nullopt: they hand it round.
std::optional<Origin> MasterAttempt::origin_of(const Participant& part,
                                               const wire::Share& share) const {
  Origin origin{{part.id, share.from}};
  for (std::size_t steps = 0; steps < parts_.size(); ++steps) {
    const auto& [whom, by] = origin.link;
    if (whom == by) return {{origin.link, by}};
    const auto sender = parts_.find(by);
    if (sender == parts_.end() || !sender->second.contributes()) return std::nullopt;
    const auto& shares = sender->second.shares;
    const auto same = std::find_if(shares.begin(), shares.end(), [&](const wire::Share& one) {
      return one.owner == share.owner && one.digest == share.digest;
    });
    if (same == shares.end()) return origin;
    if (same->from == by) return {{origin.link, by}};
    origin.link = {by, same->from};
  }
  return std::nullopt;
}

// Most of the others say that it sent each of them something else than it says itself.
bool MasterAttempt::sent_otherwise(const Participant& maker, const wire::Share& share) const {
  std::size_t others = 0, otherwise = 0;
  for (const auto& [id, part] : parts_) {
    const bool foreign = part.shard != maker.shard && !JCCL_PLANTED("other-shards-have-a-say");
    if (!decides(part) || part.evicted || id == maker.id || foreign) continue;
    ++others;
    otherwise += std::any_of(part.shares.begin(), part.shares.end(), [&](const wire::Share& one) {
      return one.owner == share.owner && one.from == maker.id && one.digest != share.digest;
    });
  }
  return 2 * otherwise > others && !JCCL_PLANTED("makers-are-always-right");
}

// Over which link the share of one of the two became another. Who made it says what it was at
// first, unless most others say that it sent them another one. Nullopt: `part` made the difference.
std::optional<Misled> MasterAttempt::parting_of(const Participant& part, const wire::Share& own,
                                                const Participant& other,
                                                const wire::Share& its) const {
  const auto origin = origin_of(part, own);
  if (!origin.has_value()) return std::nullopt;
  const bool as_made = origin->maker != 0 && !JCCL_PLANTED("who-made-a-result-pays");
  if (as_made && !sent_otherwise(parts_.at(origin->maker), own)) {
    const auto theirs = origin_of(other, its);
    if (theirs.has_value() && theirs->maker == 0) return theirs->link;
  }
  if (origin->link.whom == origin->link.by) return std::nullopt;
  return origin->link;
}

// Where the two part. Empty: that is not why their results differ, or one made the difference.
std::set<Misled> MasterAttempt::misled_against(const Participant& part,
                                               const Participant& other) const {
  std::set<Misled> links;
  if (part.shares.size() != other.shares.size()) return {};
  for (std::size_t i = 0; i < part.shares.size(); ++i) {
    const wire::Share& own = part.shares[i];
    if (own.owner != other.shares[i].owner) return {};
    if (own.digest == other.shares[i].digest) continue;
    const auto link = parting_of(part, own, other, other.shares[i]);
    if (!link.has_value()) return {};
    links.insert(*link);
  }
  return links;
}

// As most of those say that have the result of most: one of them that lies says what it likes.
std::set<Misled> MasterAttempt::misled(const Participant& part) const {
  std::set<wire::PeerId> wrong;
  for (const Participant* one : outvoted()) wrong.insert(one->id);
  std::map<std::set<Misled>, std::size_t> votes;
  std::size_t others = 0;
  for (const auto& [id, other] : parts_) {
    const bool foreign = other.shard != part.shard;
    if (!decides(other) || other.evicted || id == part.id) continue;
    if (foreign && !JCCL_PLANTED("other-shards-have-a-say")) continue;
    ++others;
    if (!other.done.has_value() || foreign || wrong.count(id) > 0) continue;
    if (JCCL_PLANTED("the-misled-pay")) continue;
    ++votes[misled_against(part, other)];
  }
  votes.erase(std::set<Misled>{});
  std::set<Misled> most;
  for (const auto& [links, count] : votes) {
    // Few mislead one. Who says that more than half of the others do is wrong itself.
    const auto own = static_cast<std::size_t>(std::count_if(
        links.begin(), links.end(), [&](const Misled& link) { return link.whom == part.id; }));
    const std::size_t named = JCCL_PLANTED("others-links-count-against-one") ? links.size() : own;
    if (2 * named > others && !JCCL_PLANTED("whoever-names-all-is-misled")) continue;
    if (most.empty() || count > votes.at(most)) most = links;
  }
  return most;
}

// Of what it made it has said nothing yet, so it is what it sent most of those that say so.
bool MasterAttempt::sent_most(wire::PeerId maker, const wire::Share& share) const {
  const auto found = parts_.find(maker);
  const bool says_nothing = found != parts_.end() && !found->second.done.has_value();
  if (!says_nothing || share.owner != maker || JCCL_PLANTED("who-is-not-done-said-otherwise"))
    return false;
  std::map<wire::Digest, std::size_t> sent;
  for (const auto& [id, part] : parts_) {
    for (const wire::Share& one : part.shares) {
      if (one.owner == maker && one.from == maker) ++sent[one.digest];
    }
  }
  return std::all_of(sent.begin(), sent.end(), [&](const auto& other) {
    return other.first == share.digest || other.second < sent[share.digest];
  });
}

Partings MasterAttempt::partings() const {
  Partings found;
  std::set<Misled> links;
  for (const auto& [id, part] : parts_) {
    if (!decides(part) || part.evicted || JCCL_PLANTED("halves-part-nowhere")) continue;
    for (const wire::Share& share : part.shares) {
      const auto origin = origin_of(part, share);
      if (!origin.has_value()) continue;
      if (origin->maker == 0) {
        if (!sent_most(origin->link.by, share)) links.insert(origin->link);
      } else if (sent_otherwise(parts_.at(origin->maker), share)) {
        found.makers.insert(origin->maker);
      }
    }
  }
  for (const Misled& link : links) {
    if (found.makers.count(link.by) == 0) found.links.insert(link);
  }
  return found;
}

wire::PeerId MasterAttempt::blamed_by(wire::PeerId reporter) const {
  for (const auto& [named, reporters] : silent) {
    if (reporters.count(reporter) > 0) return named;
  }
  return 0;
}

bool MasterAttempt::excused(wire::PeerId named, wire::PeerId reporter) const {
  wire::PeerId next = blamed_by(named);
  if (next == 0 || next == reporter) return false;  // each blames the other
  if (silent.at(named).size() == 1) return true;
  if (JCCL_PLANTED("who-many-name-is-to-blame")) return false;
  for (std::size_t steps = 0; steps < parts_.size() && next != 0; ++steps) next = blamed_by(next);
  return next == 0;
}

std::vector<wire::PeerId> MasterAttempt::unheard() const {
  std::vector<wire::PeerId> out;
  for (const auto& [named, reporters] : silent) {
    if (blamed_by(named) == 0) out.push_back(named);
  }
  return out;
}

std::string MasterAttempt::waits_for(
    const std::function<std::string(const Participant&)>& detail) const {
  std::string names;
  std::size_t count = 0;
  for (const auto& [id, part] : parts_) {
    if (!part.contributes() || part.evicted || part.done.has_value()) continue;
    if (++count > kWaitersMax) continue;
    names += base::cat(names.empty() ? "" : ", ", part.site);
    if (part.shard > 0) names += base::cat("/", part.shard);
    if (detail) names += detail(part);
  }
  return count > kWaitersMax ? base::cat(names, " and ", count - kWaitersMax, " more") : names;
}

}  // namespace jccl::protocol
