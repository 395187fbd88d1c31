// One running attempt at the master: its participants, which of them are done, and the consequence.
// Decides commit or abort and gives the reason; sends nothing, journals nothing. Pure; any one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/planted.h"
#include "base/time.h"
#include "protocol/rounds/audit.h"
#include "wire/messages.h"

namespace jccl::protocol {

using Pair = std::pair<wire::PeerId, wire::PeerId>;
using LinkSet = std::set<Pair>;  // the lower id first

struct Misled {  // `by` sent `whom` something else than the others; or one of the two claims that
  wire::PeerId whom = 0, by = 0;
  auto operator<=>(const Misled&) const = default;
};

struct Origin {  // of a share: the link where it became another one
  Misled link;
  wire::PeerId maker = 0;  // the peer that claims to have made just that; 0: none
};

struct Partings {
  std::set<Misled> links;         // whose sender passed on something else than it had
  std::set<wire::PeerId> makers;  // that sent most others something else than they claim to make
};

struct Participant {
  wire::PeerId id = 0;
  wire::Incarnation incarnation = 0;
  std::string site;
  std::uint32_t shard = 0;
  double weight = 0;                   // 0: a receiver
  std::uint64_t call = 0;              // of its READY
  base::Time deadline = base::kNever;  // likewise; ends this part's wait and no other's
  base::Time called = 0;               // its call's first READY
  base::Duration time = 0;             // … and all that the call has, to its peer
  bool evicted = false;
  bool failed = false;        // a receiver that gave up; never holds the others
  base::Time told_again = 0;  // its START was lost, and sent once more
  std::optional<wire::Digest> done;
  std::vector<wire::Share> shares;  // of that
  wire::AuditRoots audit;           // likewise; empty unless the attempt is audited
  bool contributes() const { return weight > 0 || JCCL_PLANTED("zero-weight-contributes"); }
};

// What the contributors of one shard have to agree on.
struct Told {
  wire::Digest result;
  wire::Sha256 root{};  // of an audited one: XXH3 is no hash that binds
  // Likewise, by owner: how many cells it owns. All know that by the plan; no link carries it.
  std::vector<std::uint32_t> cells = {};
  auto operator<=>(const Told&) const = default;
};

// What may happen to an attempt, and where it then stands. A row per (phase, input); the table is
// checked for completeness when it is compiled.
enum class AttemptPhase : std::uint8_t { kMoving, kAgreed, kUnequal, kLost, kCount };
enum class AttemptInput : std::uint8_t {
  kDone,
  kUnequalDone,  // a digest that differs from another contributor's of the same shard
  kDoneGone,     // a contributing site was evicted after all its shards were done
  kUndoneGone,   // … before
  kCount
};

struct Lack {  // of the data of one peer, as another reports
  wire::PeerId of = 0;
  base::Time since = 0;
  std::uint64_t first = 0, left = 0;  // that it had to send and to receive; then, and now
  bool is_sum = false;                // and not that one's own contribution
};

class MasterAttempt {
 public:
  MasterAttempt(wire::Attempt attempt, wire::RoundName round, std::vector<Participant> parts,
                std::uint32_t min_peers);

  const wire::Attempt& attempt() const { return attempt_; }
  const wire::RoundName& round() const { return round_; }
  const std::map<wire::PeerId, Participant>& parts() const { return parts_; }
  Participant* part_of(wire::Incarnation incarnation);  // null when it takes no part
  std::set<wire::PeerId> of_site(const std::string& site) const;
  AttemptPhase phase() const { return phase_; }
  // The rows of the table that were used: bit phase · inputs + input.
  std::uint32_t edges() const { return edges_; }

  void done(Participant& part, const wire::Digest& result);  // the first report of a part counts
  void gone(const std::string& site);                        // evicted, with all its shards

  // kLost: why the attempt can't commit any more.
  const std::string& reason() const { return reason_; }
  std::uint32_t world() const { return world_; }  // sites that contribute
  std::vector<wire::Contributor> contributors() const;
  std::vector<wire::Digest> results() const;  // by shard; only when agreed
  // The parts whose result differs from the one that more than half of the contributors of their
  // shard report. None while no result has so many. `open`: some have not reported.
  std::vector<const Participant*> outvoted() const;
  // The links whose sender passed on something else than it reports: to `part`, which is outvoted,
  // or to the others, if `part` has the original. Nobody can tell which end of such a link is
  // wrong. Empty: no link explains the difference, so the part computes wrong, or lies.
  std::set<Misled> misled(const Participant& part) const;
  // The same for all that have reported, if no result has a majority.
  Partings partings() const;
  // If a peer reports other senders than the plan has, its report about its shares is dropped.
  void forget_untrue_shares(const Senders& senders);
  bool open() const { return open_ > 0; }
  const Participant* lost() const;  // a contributor that was evicted; null: none
  std::uint32_t sites_left() const { return sites_left_; }
  // Names those that are not done, with what `detail` says of each.
  std::string waits_for(
      const std::function<std::string(const Participant&)>& detail = nullptr) const;
  // `named` waits for a third peer itself, and either no other peer blames it, or the chain ends at
  // a peer that waits for nobody.
  bool excused(wire::PeerId named, wire::PeerId reporter) const;
  // Peers that several name, and that have named nobody yet.
  std::vector<wire::PeerId> unheard() const;

  // For canonical.cc, which has to know of every field: all that decides something, `put` by one.
  template <typename Canon>
  void each_field(Canon& canon) const {
    const auto& [starts_, since_, deadline_, last_done_, avoided_, refusals_, silent_, judged,
                 heard, asking, audit_, limited_, lacks_, got_, starves_, attempt, round, parts,
                 ids, sites_min, world, sites_left, open, agreed, phase, edges, reason] = *this;
    canon.put(attempt), canon.put(round), canon.put(parts), canon.put(phase), canon.put(sites_min);
    canon.put(avoided_), canon.put(since_), canon.put(deadline_), canon.put(last_done_),
        canon.put(asking), canon.put(judged), canon.put(heard);
    canon.put(starts_.size()), canon.put(world), canon.put(sites_left), canon.put(open);
    canon.put(audit_), canon.put(limited_), canon.put(lacks_), canon.put(got_), canon.put(starves_),
        canon.put(agreed), canon.put(ids), canon.put(silent_.size());
    for (const auto& [named, reporters] : silent_) {
      canon.put(named), canon.put(reporters.size());
      for (const auto& [reporter, what] : reporters) canon.put(reporter), canon.words(what);
    }
    canon.counted(edges), canon.words(reason), canon.put(refusals_.size());
    for (const auto& [id, why] : refusals_) canon.put(id), canon.put(why.first);
  }

  std::vector<wire::Start> starts;  // by shard; sent again to a peer that lost its connection
  base::Time since = 0, deadline = base::kNever;
  base::Time last_done = 0;  // when somebody was done last; `since` at first
  LinkSet avoided;           // links that the plan does without
  // Contributors that say their call can't be done, or refuse it, and why. Judged as `silent` is.
  std::map<wire::PeerId, std::pair<wire::Code, std::string>> refusals;
  // Which peers were silent for too long, in words. Judged a little later, when all have reported.
  std::map<wire::PeerId, std::map<wire::PeerId, std::string>> silent;  // whom, by which reporter
  base::Time judged_at = base::kNever;
  bool heard_out = false;              // it was put off once, for somebody whom several name
  std::set<std::uint64_t> askers;      // connections that asked for the outcome without a part
  std::optional<Audit> audit;          // nullopt: it has none
  bool limited = false;                // its calls say how many may contribute
  std::map<wire::PeerId, Lack> lacks;  // by whom; those that lack few
  std::map<wire::PeerId, std::map<wire::PeerId, base::Time>> got;  // of whom: when they did, first
  std::map<wire::PeerId, base::Time> starves;  // since when some have lacked few, first

 private:
  friend struct Archived;
  void settle(AttemptInput input);
  void recount();
  static bool decides(const Participant& part);
  static Told told(const Participant& part);  // of one that is done
  std::optional<Origin> origin_of(const Participant& part, const wire::Share& share) const;
  bool sent_otherwise(const Participant& maker, const wire::Share& share) const;
  bool sent_most(wire::PeerId maker, const wire::Share& share) const;
  std::optional<Misled> parting_of(const Participant& part, const wire::Share& own,
                                   const Participant& other, const wire::Share& its) const;
  std::set<Misled> misled_against(const Participant& part, const Participant& other) const;
  wire::PeerId blamed_by(wire::PeerId reporter) const;  // as silent; 0: nobody
  bool agree() const;                                   // all that are done, and not evicted
  bool enough() const;                                  // sites left for a commit

  wire::Attempt attempt_;
  wire::RoundName round_;
  std::map<wire::PeerId, Participant> parts_;
  std::map<wire::Incarnation, wire::PeerId> ids_;
  std::uint32_t sites_min_;
  // Counted, so that a report costs the same whatever the number of peers.
  std::uint32_t world_ = 0;               // sites that contribute
  std::uint32_t sites_left_ = 0;          // … and are not evicted
  std::size_t open_ = 0;                  // contributors neither done nor evicted
  std::map<std::uint32_t, Told> agreed_;  // by shard, of those done and not evicted
  AttemptPhase phase_ = AttemptPhase::kMoving;
  std::uint32_t edges_ = 0;
  std::string reason_;
};

}  // namespace jccl::protocol
