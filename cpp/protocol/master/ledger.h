// What the journal says, as values: membership, births, state digests and the commits that are
// remembered. apply() is the only way in, at recovery and while running alike, so a restarted
// master can't know anything the journal doesn't. Refuses nothing: records were checked by whoever
// made them. Pure; any one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "wire/messages.h"

namespace jccl::protocol {

// Lives that left and are remembered as such. One that comes back after so many others have left
// is a stranger: it enters like one, and is told what became of its attempts, which are never
// reused.
inline constexpr std::size_t kFencedMax = 65536;

struct Taker {  // a life, and whose it was
  wire::Incarnation incarnation = 0;
  wire::PublicKey key{};
};

struct Ban {
  std::uint64_t until_unix_ms = 0;
  std::uint32_t times = 0;  // that the key was banned
  std::string site, reason;
};

struct TokenUse {  // who joined by a token
  bool revoked = false;
  std::map<wire::PublicKey, std::uint32_t> shards;  // by key, the newest kTokenKeysMax
  std::uint32_t of = 0;  // so many shards had the first site that entered by it
  std::deque<wire::PublicKey> order;
};
inline constexpr std::size_t kTokenKeysMax = 4096;
inline constexpr std::size_t kBansMax = 65536;
inline constexpr std::size_t kKnownKeysMax = 65536;

struct Revision {
  std::uint64_t number = 0;
  std::vector<wire::Digest> digests;  // by shard
};
inline constexpr std::size_t kRestoresMax = 64;  // remembered, of a tag

// Where one tag stands.
struct Standing {
  bool born = false;                       // a state tag with a first snapshot
  std::string site;                        // whose state revision 0 is …
  std::vector<wire::Digest> first;         // … what, by shard …
  std::vector<wire::Incarnation> sources;  // … of which life, by shard
  std::vector<wire::Digest> descriptors;   // of its leaves, by shard …
  std::string summary;                     // … in words
  std::uint64_t committed = 0;
  std::map<std::uint32_t, wire::Digest> digests;  // by shard, of revision `committed`, once known
  bool weak = false;                              // … but not by most of those who made it
  std::deque<wire::CommitRecord> recent;          // ascending n, at most `history`
  std::vector<Taker> takers;                      // that took part in the last commit
  // Decided revisions but 0, ascending, at most `history`: whoever has one of them, say in a
  // checkpoint, can prove it by its digest.
  std::deque<Revision> decided;
  std::deque<wire::RestoreRecord> restores;  // at most kRestoresMax
  bool is_restored() const {                 // the newest revision is of no round
    return !restores.empty() && restores.back().revision == committed;
  }
  bool is_as_wished() const { return is_restored() && restores.back().wished; }
  std::uint64_t restored() const { return restores.empty() ? 0 : restores.back().revision; }
  // An operator went back from it: it is of no use, whoever still has it in a checkpoint.
  bool was_given_up(std::uint64_t revision) const;
  bool was_undone(std::deque<wire::RestoreRecord>::const_iterator one) const;
  // Somebody wished these digests back, and got them: unless the run went back from them at once,
  // since they were lost before anybody else had them.
  bool was_granted(const std::function<bool(const wire::RestoreRecord&)>& is_wish) const;
};

class Ledger {
 public:
  explicit Ledger(std::size_t history) : history_(history) {}
  void apply(const wire::Record& record);

  bool has_run() const { return has_run_; }
  const wire::RunId& run() const { return run_; }
  std::uint64_t epoch() const { return epoch_; }
  wire::PeerId next_id() const { return next_id_; }
  const std::map<wire::PeerId, wire::Member>& members() const { return members_; }
  std::size_t sites() const { return sites_; }  // of the members
  const std::map<wire::Tag, Standing>& tags() const { return tags_; }
  const Standing& standing(const wire::Tag& tag) const;  // a fresh one for an unknown tag
  bool fenced(wire::Incarnation incarnation) const { return fenced_.count(incarnation) > 0; }
  void fence(wire::Incarnation incarnation);  // not journaled
  const std::set<wire::Incarnation>& fenced() const { return fenced_; }
  bool begun() const { return begun_; }  // any commit: start_peers was reached once
  bool any_born() const { return any_born_; }

  const std::map<wire::PublicKey, Ban>& bans() const { return bans_; }
  const std::map<std::string, TokenUse>& tokens() const { return tokens_; }
  bool let_in(const wire::PublicKey& key) const { return let_in_.count(key) > 0; }
  bool was_member(const wire::PublicKey& key) const { return known_.count(key) > 0; }

  // The outcome of an attempt that isn't running now. `round.tag` may be empty when only the
  // attempt is known; then nothing is said of attempts that are not remembered.
  std::optional<wire::Outcome> outcome(const wire::Unresolved& about, std::uint32_t shard) const;
  static wire::Outcome told(const wire::CommitRecord& record, std::uint32_t shard);

 private:
  friend struct Archived;
  void apply_epoch(const wire::EpochRecord& record);
  void apply_commit(const wire::CommitRecord& record);
  void apply_restore(const wire::RestoreRecord& record);
  void append(Standing& at, const wire::CommitRecord& record);
  void remember(Standing& at, const std::vector<wire::Digest>& digests) const;
  void apply_ban(const wire::BanRecord& record);
  void apply_token(const wire::TokenRecord& record);
  void add_taker(Standing& at, wire::PeerId id) const;

  std::size_t history_;
  bool has_run_ = false, begun_ = false, any_born_ = false;
  wire::RunId run_{};
  std::uint64_t epoch_ = 0;
  wire::PeerId next_id_ = 1;
  std::map<wire::PeerId, wire::Member> members_;
  std::size_t sites_ = 0;
  std::map<wire::PeerId, Taker> former_;  // the last evicted members
  std::set<wire::Incarnation> fenced_;
  std::deque<wire::Incarnation> fenced_order_;  // may name some that are in again
  std::map<wire::PublicKey, Ban> bans_;
  std::map<std::string, TokenUse> tokens_;           // by name
  std::map<wire::PublicKey, std::string> token_of_;  // by which a key of `shards` came last
  std::set<wire::PublicKey> let_in_;                 // by an operator
  std::set<wire::PublicKey> known_;                  // of members, now or before
  std::deque<wire::PublicKey> known_order_;
  std::map<wire::Tag, Standing> tags_;
  std::map<wire::Attempt, wire::RoundName> commits_;  // of all that is `recent`
};

}  // namespace jccl::protocol
