#include "protocol/master/ledger.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::protocol {

namespace {

constexpr std::size_t kFormerMax = 4096;

std::map<std::uint32_t, wire::Digest> by_shard(const std::vector<wire::Digest>& digests) {
  std::map<std::uint32_t, wire::Digest> by;
  for (const wire::Digest& digest : digests)
    by.emplace(static_cast<std::uint32_t>(by.size()), digest);
  return by;
}

}  // namespace

bool Standing::was_granted(const std::function<bool(const wire::RestoreRecord&)>& is_wish) const {
  for (auto one = restores.begin(); one != restores.end(); ++one) {
    if (one->wished && is_wish(*one) && !was_undone(one)) return true;
  }
  return false;
}

bool Standing::was_undone(std::deque<wire::RestoreRecord>::const_iterator one) const {
  const auto next = std::next(one);
  return next != restores.end() && !next->wished && next->revision == one->revision + 1 &&
         !JCCL_PLANTED("lost-wish-is-over");
}

bool Standing::was_given_up(std::uint64_t revision) const {
  for (auto one = restores.begin(); one != restores.end(); ++one) {
    const bool between = one->of < revision && revision < one->revision;
    // Rounds came after it: until then who wished may be alone with it, and may be gone.
    if (one->wished && between && one->revision < committed && !was_undone(one)) return true;
  }
  return false;
}

void Ledger::apply(const wire::Record& record) {
  if (const auto* run = std::get_if<wire::RunRecord>(&record)) {
    JCCL_CHECK(!has_run_);
    has_run_ = true;
    run_ = run->run;
  } else if (const auto* epoch = std::get_if<wire::EpochRecord>(&record)) {
    apply_epoch(*epoch);
  } else if (const auto* birth = std::get_if<wire::BirthRecord>(&record)) {
    Standing& at = tags_[birth->tag];
    at.born = any_born_ = true;
    at.sources = birth->sources;
    at.site = birth->site;
    at.digests = by_shard(birth->digests);
    at.first = birth->digests;
    at.descriptors = birth->descriptors;
    at.summary = birth->summary;
  } else if (const auto* commit = std::get_if<wire::CommitRecord>(&record)) {
    apply_commit(*commit);
  } else if (const auto* state = std::get_if<wire::StateRecord>(&record)) {
    Standing& at = tags_[state->tag];
    JCCL_CHECK(state->revision == at.committed);
    at.digests = by_shard(state->digests);
    at.weak = state->weak;
    remember(at, state->digests);
  } else if (const auto* restore = std::get_if<wire::RestoreRecord>(&record)) {
    apply_restore(*restore);
  } else if (const auto* ban = std::get_if<wire::BanRecord>(&record)) {
    apply_ban(*ban);
  } else if (const auto* admit = std::get_if<wire::AdmitRecord>(&record)) {
    let_in_.insert(admit->key);
  } else if (const auto* token = std::get_if<wire::TokenRecord>(&record)) {
    apply_token(*token);
  }
}

// How often a key was banned stays known when a ban is over.
void Ledger::apply_ban(const wire::BanRecord& record) {
  Ban& ban = bans_[record.key];
  ban.until_unix_ms = record.until_unix_ms;
  ban.site = record.site;
  ban.reason = record.reason;
  ban.times += record.until_unix_ms > 0;
  if (bans_.size() <= kBansMax) return;
  const auto soonest = [](const auto& a, const auto& b) {
    return a.second.until_unix_ms < b.second.until_unix_ms;
  };
  const bool last = JCCL_PLANTED("the-longest-ban-forgotten");
  bans_.erase(last ? std::max_element(bans_.begin(), bans_.end(), soonest)
                   : std::min_element(bans_.begin(), bans_.end(), soonest));
}

void Ledger::apply_token(const wire::TokenRecord& record) {
  TokenUse& use = tokens_[record.token];
  if (record.revoked) {
    use.revoked = true;
    return;
  }
  if (!use.shards.emplace(record.key, record.shard).second) return;
  use.order.push_back(record.key);
  token_of_[record.key] = record.token;
  if (use.order.size() <= kTokenKeysMax) return;
  use.shards.erase(use.order.front());
  const auto oldest = token_of_.find(use.order.front());
  if (oldest != token_of_.end() && oldest->second == record.token) token_of_.erase(oldest);
  use.order.pop_front();
}

void Ledger::apply_epoch(const wire::EpochRecord& record) {
  JCCL_CHECK(record.epoch > epoch_);
  epoch_ = record.epoch;
  next_id_ = record.next_id;
  std::map<wire::PeerId, wire::Member> members;
  for (const wire::Member& member : record.members) {
    members[member.id] = member;
    fenced_.erase(member.incarnation);
    if (const auto token = token_of_.find(member.key); token != token_of_.end()) {
      TokenUse& use = tokens_.at(token->second);
      if (use.of == 0) use.of = member.shards;
    }
    if (!known_.insert(member.key).second) continue;
    known_order_.push_back(member.key);
    if (known_order_.size() <= kKnownKeysMax) continue;
    known_.erase(known_order_.front());
    known_order_.pop_front();
  }
  for (const auto& [id, member] : members_) {
    if (members.count(id) > 0) continue;
    if (!JCCL_PLANTED("fences-forgotten")) fence(member.incarnation);
    former_[id] = {member.incarnation, member.key};
    if (former_.size() > kFormerMax) former_.erase(former_.begin());
  }
  members_ = std::move(members);
  std::set<std::string_view> sites;
  for (const auto& [id, member] : members_) sites.insert(member.site);
  sites_ = sites.size();
}

void Ledger::fence(wire::Incarnation incarnation) {
  if (!fenced_.insert(incarnation).second) return;
  fenced_order_.push_back(incarnation);
  if (fenced_order_.size() <= kFencedMax) return;
  fenced_.erase(fenced_order_.front());
  fenced_order_.pop_front();
}

void Ledger::add_taker(Standing& at, wire::PeerId id) const {
  if (const auto member = members_.find(id); member != members_.end()) {
    at.takers.push_back({member->second.incarnation, member->second.key});
  } else if (const auto former = former_.find(id); former != former_.end()) {
    at.takers.push_back(former->second);
  }
}

void Ledger::apply_commit(const wire::CommitRecord& record) {
  Standing& at = tags_[record.round.tag];
  JCCL_CHECK(record.round.n == at.committed + 1);
  begun_ = true;
  at.committed = record.round.n;
  at.digests.clear();
  at.takers.clear();
  for (const wire::Contributor& one : record.contributors) add_taker(at, one.id);
  for (const wire::PeerId id : record.receivers) {
    if (!JCCL_PLANTED("receivers-hold-nothing")) add_taker(at, id);
  }
  commits_[record.attempt] = record.round;
  append(at, record);
}

void Ledger::append(Standing& at, const wire::CommitRecord& record) {
  at.recent.push_back(record);
  if (at.recent.size() > history_) {
    commits_.erase(at.recent.front().attempt);
    at.recent.pop_front();
  }
}

void Ledger::remember(Standing& at, const std::vector<wire::Digest>& digests) const {
  at.decided.push_back({at.committed, digests});
  const std::size_t kept = JCCL_PLANTED("few-revisions-are-known") ? 16 : history_;
  if (at.decided.size() > kept) at.decided.pop_front();
}

// It takes a number, of which there is no attempt, so that no revision is ever two states. Nobody
// took part in it.
void Ledger::apply_restore(const wire::RestoreRecord& record) {
  Standing& at = tags_[record.tag];
  JCCL_CHECK(at.born && record.revision == at.committed + 1);
  at.committed = record.revision;
  at.digests = by_shard(record.digests);
  at.takers.clear();
  wire::CommitRecord none;
  none.round = {record.tag, record.revision};
  append(at, none);
  remember(at, record.digests);
  at.restores.push_back(record);
  if (at.restores.size() > kRestoresMax) at.restores.pop_front();
}

const Standing& Ledger::standing(const wire::Tag& tag) const {
  static const Standing fresh;
  const auto found = tags_.find(tag);
  return found == tags_.end() ? fresh : found->second;
}

wire::Outcome Ledger::told(const wire::CommitRecord& record, std::uint32_t shard) {
  wire::Outcome outcome;
  outcome.attempt = record.attempt;
  outcome.round = record.round;
  outcome.verdict = wire::Verdict::kCommitted;
  outcome.contributors = record.contributors;
  outcome.world = record.world;
  outcome.result = record.result;
  if (shard > 0 && shard <= record.shard_results.size() &&
      !JCCL_PLANTED("result-of-another-shard")) {
    outcome.result = record.shard_results[shard - 1];
  }
  return outcome;
}

std::optional<wire::Outcome> Ledger::outcome(const wire::Unresolved& about,
                                             std::uint32_t shard) const {
  if (const auto found = commits_.find(about.attempt);
      found != commits_.end() && !JCCL_PLANTED("committed-told-aborted")) {
    const Standing& at = standing(found->second.tag);
    JCCL_CHECK(!at.recent.empty());
    return told(at.recent[found->second.n - at.recent.front().round.n], shard);
  }
  if (about.round.tag.empty()) return std::nullopt;
  wire::Outcome outcome;
  outcome.attempt = about.attempt;
  outcome.round = about.round;
  const Standing& at = standing(about.round.tag);
  const bool known = at.recent.empty() || about.round.n >= at.recent.front().round.n;
  if (!known && !JCCL_PLANTED("expired-told-aborted")) {
    outcome.verdict = wire::Verdict::kExpired;
    outcome.text = base::cat("round ", about.round.n, " of ", about.round.tag,
                             " is older than the journal remembers");
    return outcome;
  }
  outcome.verdict = wire::Verdict::kAborted;
  outcome.retry = true;
  outcome.code = wire::Code::kPeerLost;
  outcome.text = "the attempt ended without a commit";
  return outcome;
}

}  // namespace jccl::protocol
