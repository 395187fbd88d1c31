// Whether the parts of a fetched state are what most of its holders hold. Digests of parts find
// accidents: a holder that wants to can make other bytes with the digest of a part. So the fetcher
// draws a key for each part *after* the part is here, and asks holders for a MAC of their own part
// under that key. Nobody who sent the part could know the key.
//
// A holder has one vote, by its key. Who sent a part stands by it; more than half of all holders
// that the master named must do so, of two both. Who can't answer doesn't lower that number. As
// many are asked as that takes, and all the others once one contradicts. A part that more than half
// contradict was forged by whoever sent it; one without a majority either way is fetched once more,
// from another holder, and is disputed if that one's has none either.
//
// Pure: the owner draws keys, moves messages, compares MACs, and tells what came.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"

namespace jccl::snapshot {

struct ProofOptions {
  std::uint32_t asks_per_holder = 16;  // under way
  // Without an answer, while something is asked: others are asked, too; it is waited for no more.
  base::Duration slow_after = 2 * base::kSecond, lost_after = 30 * base::kSecond;
};

struct ProofAsk {
  base::Incarnation holder = 0;
  std::uint64_t ask = 0;  // names it; never reused in this plan
  std::uint32_t part = 0;
  bool operator==(const ProofAsk&) const = default;
};

struct Unproved {  // a part that is to be fetched again, and not from here
  std::uint32_t part = 0;
  base::Incarnation from = 0;
  bool operator==(const Unproved&) const = default;
};

struct Outvoted {  // a holder that most others contradict, and in which part
  base::Incarnation holder = 0;
  std::uint32_t part = 0;
  bool operator==(const Outvoted&) const = default;
};

class ProofPlan {
 public:
  using Holders = std::map<base::Incarnation, base::PublicKey>;

  // For the parts [first_part, last_part).
  ProofPlan(ProofOptions options, const Holders& holders, std::uint32_t first_part,
            std::uint32_t last_part);

  // The part is here and will not change until take_unproved() names it, and its key is drawn.
  // `from` 0: nobody of these holders sent it.
  void on_part(std::uint32_t part, base::Incarnation from);
  // The part that the holder was asked for; nullopt: not asked, or nobody wants to know any more.
  std::optional<std::uint32_t> asked(base::Incarnation holder, std::uint64_t ask) const;
  // An answer: the holder's part has the same MAC or another one.
  void on_answer(base::Incarnation holder, std::uint64_t ask, bool same, base::Time now);
  // The link broke, or the holder has the revision no more. What it said stays said.
  void on_holder_lost(base::Incarnation holder, const std::string& why);
  void on_holder_back(base::Incarnation holder);
  // The master put it out: it has no vote any more, and had none.
  void on_holder_evicted(base::Incarnation holder);
  // What to send now. Call after every event and at wake().
  std::vector<ProofAsk> next_asks(base::Time now);

  std::vector<Unproved> take_unproved();  // each once
  std::vector<Outvoted> take_outvoted();  // each holder once; it is asked no more

  bool finished() const { return proved_ == last_ - first_; }
  std::size_t waiting() const { return open_.size(); }  // parts that are here and not proved
  // kDisputed: a part without a majority. kPeerLost: too few are left that could say something.
  base::Status status() const { return status_; }
  base::Time wake() const;  // when the next silence is noticed; kNever: nothing is under way
  std::string waiting_for() const;

 private:
  struct Voter {  // the holder that is asked: of several with one key the first
    base::Incarnation holder = 0;
    std::map<std::uint64_t, std::uint32_t> asks;  // and the parts they are for
    std::string gone;                             // why; empty: it can be asked
    bool outvoted = false, slow = false, evicted = false;
    base::Time heard = 0;  // or asked first
    bool may_answer() const { return gone.empty() && !outvoted && !evicted; }
  };
  struct Open {  // of voters, by number
    base::Incarnation from = 0;
    std::set<std::size_t> same, other, asked;  // `asked`: no answer yet
    bool said(std::size_t voter) const { return same.contains(voter) || other.contains(voter); }
  };

  Voter* voter_of(base::Incarnation holder);
  void drop_asks(Voter& voter);
  void look_at_all();
  void notice_silence(base::Time now);
  void count_voters();
  void close(std::map<std::uint32_t, Open>::iterator part);  // no more is to be heard of it
  bool decide(std::uint32_t part, const Open& open);         // true: so it is
  void outvote(const std::set<std::size_t>& voters, std::uint32_t part);
  // False: somebody who could be asked has too much to do.
  bool ask_for(std::uint32_t part, Open& open, base::Time now, std::vector<ProofAsk>* out);
  bool give_up(std::uint32_t part, const Open& open);

  const ProofOptions options_;
  const std::uint32_t first_, last_;
  std::vector<Voter> voters_;
  std::map<base::Incarnation, std::size_t> number_;  // of the voter that a holder is
  std::size_t count_ = 0, majority_ = 0;             // of voters that are not evicted
  std::map<std::uint32_t, Open> open_;
  std::set<std::uint32_t> look_;  // of these something happened, or an ask waits for room
  std::set<std::uint32_t> fetched_again_;
  std::vector<Unproved> unproved_;
  std::vector<Outvoted> outvoted_;
  std::uint32_t proved_ = 0;
  std::uint64_t next_ask_ = 1;
  base::Status status_;
};

}  // namespace jccl::snapshot
