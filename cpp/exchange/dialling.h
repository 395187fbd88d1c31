// Who of two peers dials, how many connections at once, and which side takes what the other one
// opened. The lower id dials, if the other can be dialled; a peer that cannot be dialled always
// dials itself. If the appointed side does not manage, the other tries too. Pure: given the time,
// asks nothing else.
#pragma once

#include <cstddef>

#include "base/ids.h"
#include "base/limits.h"
#include "base/time.h"
#include "exchange/redial.h"

namespace jccl::exchange {

struct Ends {  // of a link, as one of them knows both
  base::PeerId here = 0, there = 0;
  bool here_listens = false, there_listens = false;  // can be dialled
  bool has_secret = true;                            // that links show: else nobody is let in
};

struct LinkNow {
  std::size_t wanted = 1;    // stripes
  std::size_t stripes = 0;   // that stand, and do not retire
  std::size_t retiring = 0;  // connections besides
  std::size_t dials = 0;     // under way
  bool in_use = false;       // an attempt or a fetch needs it
  base::Time down_since = 0;
  base::Time heard = 0;  // something came by it, or one of its connections was taken in
};

class Dialling {
 public:
  Dialling(const Ends& ends, const LinkNow& link, base::Time now, base::Duration repair_max)
      : ends_(ends), link_(link), now_(now), repair_max_(repair_max) {}

  // The side of the link that dials, and says how many connections it has. After a restart the
  // master names members before it knows where they are again.
  static bool is_appointed(const Ends& ends);
  // So many more now: all that are missing, for one after another would cost a round trip each.
  std::size_t due(const Redial& redial) const;
  // Whether a connection that the other side opened is taken, of `most` in all.
  bool takes(const Redial& redial, std::size_t most = base::kStripesMax) const;

 private:
  bool may_dial() const;
  bool unheard(const Redial& redial) const;

  Ends ends_;
  LinkNow link_;
  base::Time now_;
  base::Duration repair_max_;
};

}  // namespace jccl::exchange
