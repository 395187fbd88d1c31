#include "exchange/dialling.h"

#include <algorithm>

#include "base/planted.h"

namespace jccl::exchange {

bool Dialling::is_appointed(const Ends& ends) {
  if (!ends.there_listens || !ends.has_secret) return false;
  return !ends.here_listens || ends.here < ends.there || JCCL_PLANTED("both-ends-dial");
}

bool Dialling::may_dial() const {
  if (!ends_.there_listens || !ends_.has_secret) return false;
  if (is_appointed(ends_)) return true;
  // The appointed side has had its time.
  return link_.stripes == 0 && link_.in_use && now_ - link_.down_since > repair_max_ / 2 &&
         !JCCL_PLANTED("nobody-helps-to-dial");
}

std::size_t Dialling::due(const Redial& redial) const {
  const std::size_t have = link_.stripes + link_.dials;
  if (have >= link_.wanted || !redial.due(now_) || !may_dial()) return 0;
  // The other side bounds them all, those that retire too.
  const std::size_t retiring = std::min<std::size_t>(
      base::kStripesMax, JCCL_PLANTED("retiring-ones-take-no-room") ? 0 : link_.retiring);
  const std::size_t most = std::min(link_.wanted, base::kStripesMax - retiring);
  return most - std::min(most, have);
}

// Nothing that stands has come by this link lately, though something should have.
bool Dialling::unheard(const Redial& redial) const {
  if (link_.stripes == 0) return redial.failing() || now_ - link_.down_since > repair_max_ / 4;
  return link_.in_use && now_ - link_.heard > repair_max_;
}

bool Dialling::takes(const Redial& redial, std::size_t most) const {
  // This side dials: what comes the other way round is somebody else's, or help in need.
  const bool dials = is_appointed(ends_) && !JCCL_PLANTED("stripes-from-both-sides");
  if (dials && (!unheard(redial) || JCCL_PLANTED("help-is-refused"))) return false;
  return link_.stripes + link_.retiring < most;
}

}  // namespace jccl::exchange
