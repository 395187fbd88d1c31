#include "attack/liar.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "wire/serialize.h"

namespace jccl::attack {

using base::Bytes;
using base::Code;

namespace {

constexpr std::size_t kRemembered = 64;
constexpr base::Duration kSyncsEvery = base::kSecond;
constexpr int kSyncs = 200;

base::Time clock_now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

wire::Digest bent(const wire::Digest& digest) { return {digest.low ^ 1, digest.high}; }

// A weight that no encoder writes. Behind it: has_state, revision, two digests, deadline, call,
// before, the quorum's share and grace.
Bytes with_weight(const wire::Ready& ready, double weight) {
  Bytes bytes = wire::encode(ready);
  base::Writer before;
  before.text(ready.before, base::kTagBytesMax);
  const std::size_t behind = 1 + 8 + 16 + 16 + 8 + 8 + before.size() + 4 + 8;
  std::memcpy(bytes.data() + bytes.size() - behind - sizeof weight, &weight, sizeof weight);
  return bytes;
}

std::optional<Code> failure_of(Row row) {
  switch (row) {
    case Row::kFailInvalid:
      return Code::kInvalid;
    case Row::kFailLimit:
      return Code::kLimit;
    case Row::kFailGuard:
      return Code::kGuard;
    case Row::kFailLink:
    case Row::kFailLinkOnce:
      return Code::kLinkLost;
    case Row::kFailPeer:
      return Code::kPeerLost;
    case Row::kFailAborted:
      return Code::kAborted;
    case Row::kFailResync:
      return Code::kResync;
    case Row::kFailCorrupt:
    case Row::kFailCorruptNamed:
      return Code::kCorrupt;
    case Row::kFailDeadline:
      return Code::kDeadline;
    default:
      return std::nullopt;
  }
}

template <typename Set>
void remember(Set& set, const typename Set::value_type& one) {
  if (set.size() >= kRemembered) set.erase(set.begin());
  set.insert(one);
}

}  // namespace

Liar::Liar(std::vector<Row> rows, std::uint64_t seed) : rows_(std::move(rows)), rng_(seed) {}

std::vector<Bytes> Liar::one(const wire::Message& message) { return {wire::encode(message)}; }

Row Liar::now(const wire::Tag& tag) const {
  const auto found = now_.find(tag);
  return found == now_.end() ? Row::kNone : found->second;
}

std::vector<Bytes> Liar::says(const wire::Message& message) {
  std::lock_guard lock(mutex_);
  if (!armed_) return one(message);
  if (const auto* ask = std::get_if<wire::Ready>(&message)) return ready(*ask);
  if (const auto* report = std::get_if<wire::Done>(&message)) return done(*report);
  if (const auto* fail = std::get_if<wire::Fail>(&message)) {
    return left_behind_.count(fail->attempt) > 0 ? std::vector<Bytes>{} : one(*fail);
  }
  if (const auto* word = std::get_if<wire::Published>(&message)) return published(*word);
  if (const auto* part = std::get_if<wire::AuditPart>(&message)) return audited(*part);
  if (const auto* resume = std::get_if<wire::Resume>(&message)) {
    wire::Resume said = *resume;
    for (wire::Held& held : said.held) {
      if (now(held.tag) == Row::kResume) held.digest = bent(held.digest), ++told_;
    }
    return one(said);
  }
  return one(message);
}

std::vector<Bytes> Liar::published(wire::Published said) {
  const Row row = now(said.held.tag);
  if (row == Row::kPublished) said.held.digest = bent(said.held.digest), ++told_;
  std::vector<Bytes> out = one(said);
  if (row != Row::kSync) return out;
  wire::Sync sync;
  sync.tag = said.held.tag, sync.revision = said.held.revision + rng_.below(3);
  sync.digest = bent(said.held.digest), sync.deadline = base::kSecond;
  out.push_back(wire::encode(sync)), ++told_;
  return out;
}

std::vector<Bytes> Liar::ready(wire::Ready ready) {
  const Row row = now_[ready.round.tag] = rows_[rng_.below(rows_.size())];
  const std::uint64_t before = told_++;
  switch (row) {
    case Row::kDescriptor:
    case Row::kFreshKeys:
    case Row::kFreshKeysEarly:
      ready.descriptor = bent(ready.descriptor);
      return one(ready);
    case Row::kHint:
      if (ready.hint.empty()) ready.hint = {0};
      ready.hint.back() ^= 1;
      return one(ready);
    case Row::kFingerprint:
      ready.fingerprint = {rng_.below(1000) + 1, 1};
      return one(ready);
    case Row::kState:
      ready.state = bent(ready.state);
      return one(ready);
    case Row::kWeightless:
      ready.weight = 0;
      return one(ready);
    case Row::kWeightHuge:
      return {with_weight(ready, 1e300)};
    case Row::kWeightNegative:
      return {with_weight(ready, -1)};
    case Row::kWeightNan:
      return {with_weight(ready, std::nan(""))};
    case Row::kDeadline:
      ready.deadline = base::kMillisecond;
      return one(ready);
    default:
      told_ = before;
      return one(ready);
  }
}

std::vector<Bytes> Liar::done(wire::Done done) {
  if (left_behind_.count(done.attempt) > 0) return {};
  const auto found = running_.find(done.attempt);
  const Row row = found == running_.end() ? Row::kNone : found->second;
  if (row == Row::kDoneNever) return ++told_, std::vector<Bytes>{};
  if (row == Row::kDoneWrong) done.result = bent(done.result), ++told_;
  if (row == Row::kAuditRoots && !done.audit.none()) done.audit.result[0] ^= 1, ++told_;
  std::vector<Bytes> out = one(done);
  // Its connection is closed for the second word; what it holds is said anew on the next one.
  if (row == Row::kResume && ++turns_ % 10 == 0) {
    wire::Ready nonsense;
    nonsense.round = {"x", 1};
    out.push_back(with_weight(nonsense, -1));
  }
  if (row == Row::kSyncs && clock_now() >= syncs_at_) {
    syncs_at_ = clock_now() + kSyncsEvery;
    for (int i = 0; i < kSyncs; ++i) {
      wire::Sync sync;
      sync.tag = base::cat("t", i), sync.deadline = base::kSecond;
      out.push_back(wire::encode(sync)), ++told_;
    }
  }
  return out;
}

std::vector<Bytes> Liar::audited(wire::AuditPart part) {
  const auto found = running_.find(part.attempt);
  const Row row = found == running_.end() ? Row::kNone : found->second;
  if (row == Row::kAuditSilent) return ++told_, std::vector<Bytes>{};
  if (row == Row::kAuditParts && !part.bytes.empty()) part.bytes[0] ^= 1, ++told_;
  return one(part);
}

std::vector<Bytes> Liar::hears(const wire::Message& message) {
  std::lock_guard lock(mutex_);
  if (const auto* roster = std::get_if<wire::Roster>(&message)) meets(*roster);
  known_.hears(message);
  if (!armed_) return {};
  if (const auto* start = std::get_if<wire::Start>(&message)) return started(*start);
  if (const auto* outcome = std::get_if<wire::Outcome>(&message)) return committed(*outcome);
  if (const auto* reject = std::get_if<wire::Reject>(&message)) {
    caught_ += reject->code == Code::kMismatch;
  }
  return {};
}

void Liar::meets(const wire::Roster& roster) {
  for (const wire::Member& member : roster.members) {
    if (member.site == site_) own_ = member.id;
  }
}

// Its word about the new revision is there before anybody has made it.
std::vector<Bytes> Liar::committed(const wire::Outcome& outcome) {
  const bool of_state = known_.starts[outcome.round.tag].has_state;
  if (now(outcome.round.tag) != Row::kWeightless || !of_state ||
      outcome.verdict != wire::Verdict::kCommitted) {
    return {};
  }
  return ++told_, one(wire::Published{{outcome.round.tag, outcome.round.n, bent(outcome.result)}});
}

wire::PeerId Liar::victim(const wire::Start& start, Row row) {
  std::vector<wire::PeerId> others;
  for (const auto& contributor : start.contributors) {
    if (contributor.id != own_) others.push_back(contributor.id);
  }
  if (others.empty()) return 0;
  return others[row == Row::kFailPeer ? turns_++ % others.size() : 0];
}

std::vector<Bytes> Liar::started(const wire::Start& start) {
  const Row row = now(start.round.tag);
  remember(running_, {start.attempt, row});
  if (row == Row::kWithdraw) {
    remember(left_behind_, start.attempt);
    return ++told_, one(wire::Withdraw{start.round});
  }
  const auto cause = failure_of(row);
  if (!cause) return {};
  if (row == Row::kFailLinkOnce) {
    std::uint64_t& last = once_[start.round.tag];
    if (last == start.round.n) return {};
    last = start.round.n;
  }
  const bool names =
      cause == Code::kLinkLost || cause == Code::kPeerLost || row == Row::kFailCorruptNamed;
  remember(left_behind_, start.attempt);
  return ++told_, one(wire::Fail{start.attempt, *cause, names ? victim(start, row) : 0, "made up"});
}

}  // namespace jccl::attack
