// Who sends which part to a fetcher. Spreads the missing parts over the holders, a few asks in
// flight with each; gives the parts of a lost, lying or slow holder to another. Never asks a
// holder again that sent a part with a wrong digest. Pure: the owner moves the bytes, checks the
// digests, and tells what came; whoever drives it, one call at a time.
//
// Used twice for one snapshot: for the parts of the manifest, from one holder at a time (they can
// only be judged together), then for those of the data, from all.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"

namespace jccl::snapshot {

struct FetchOptions {
  std::uint32_t parts_per_ask = 4;
  std::uint32_t asks_per_holder = 2;              // in flight: one being sent, one queued behind
  base::Duration slow_after = 5 * base::kSecond;  // without a part, while something is asked
};

struct FetchAsk {
  base::Incarnation holder = 0;
  std::uint64_t ask = 0;  // names it; never reused in this plan
  std::uint32_t first_part = 0, last_part = 0;
  bool operator==(const FetchAsk&) const = default;
};

enum class PartUse : std::uint8_t {
  kKeep = 1,  // first good copy
  kHave = 2,  // came twice
  kDrop = 3,  // bad, or nobody asked for it
};

class FetchPlan {
 public:
  // The parts [first_part, last_part), without those that the fetcher has already.
  FetchPlan(FetchOptions options, std::uint32_t first_part, std::uint32_t last_part,
            const std::set<std::uint32_t>& have = {});

  void add_holder(base::Incarnation holder, base::Time now);
  // The link broke, or the holder has the revision no more. It may be added again later.
  void on_holder_lost(base::Incarnation holder, const std::string& why);
  // It holds a newer revision now, as the others soon will: slow ones are not waited for any more.
  void on_outdated(base::Incarnation holder);
  // A part arrived; `good`: its bytes have the digest that they should. Ask before using it.
  PartUse on_part(base::Incarnation holder, std::uint64_t ask, std::uint32_t part, bool good,
                  base::Time now);
  // It sent what is not the part, whatever the digest says: it is asked no more.
  void distrust(base::Incarnation holder, const std::string& why);
  void fetch_again(std::uint32_t part);  // one that is here
  // What to send now. Call after every event and at wake().
  std::vector<FetchAsk> next_asks(base::Time now);

  bool finished() const { return missing_ == 0; }
  std::uint32_t missing() const { return missing_; }
  bool wants(std::uint32_t part) const;
  // Not ok when something is missing and no holder is left, or none but slow ones of an outdated
  // revision: kPeerLost, with what became of each.
  base::Status status() const;
  base::Time wake() const;  // when the next silence is noticed; kNever: nothing is under way
  std::string waiting_for() const;

 private:
  struct Ask {
    std::uint32_t first = 0, last = 0;
    std::set<std::uint32_t> left;  // not yet arrived from this holder
  };
  struct Holder {
    std::map<std::uint64_t, Ask> asks;
    bool slow = false;            // its parts are open to others, and it is asked only now and then
    base::Time due = 0;           // when its silence is noticed: first slow, then tried again
    base::Duration patience = 0;  // of a slow one; doubles, so that a slow way isn't flooded
  };
  enum class Part : std::uint8_t { kMissing, kAsked, kHere };

  Part& at(std::uint32_t part) { return parts_[part - first_]; }
  void hand_back(const Holder& holder);
  void take_back(const Holder& holder);
  bool notice_silence(Holder& holder, base::Time now);
  bool take_run(std::uint32_t* first, std::uint32_t* last);
  bool fill(base::Incarnation id, Holder& holder, base::Time now, std::vector<FetchAsk>* out);

  const FetchOptions options_;
  const std::uint32_t first_, last_;
  std::vector<Part> parts_;
  std::uint32_t missing_ = 0;  // not here, asked for or not
  std::uint32_t cursor_ = 0;   // no part before it is kMissing
  std::uint64_t next_ask_ = 1;
  std::map<base::Incarnation, Holder> holders_;
  std::map<base::Incarnation, std::string> gone_;  // and why
  std::set<base::Incarnation> banned_;             // sent bad bytes
  bool outdated_ = false;
};

}  // namespace jccl::snapshot
