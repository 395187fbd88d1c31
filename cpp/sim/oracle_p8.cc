// P8 strangers get nothing: who does not end its greeting, and who was fenced, is told to go and
// nothing else, and is never a member.
#include "sim/history.h"
#include "wire/codec.h"

namespace jccl::sim {

using base::cat;

void p8_told(History& history, Stranger stranger, const wire::Message& message) {
  using namespace wire;
  const bool told_to_go =
      std::holds_alternative<Refuse>(message) || std::holds_alternative<Evicted>(message);
  const bool greeted = std::holds_alternative<Welcome>(message) ||
                       std::holds_alternative<HeartbeatAck>(message) ||
                       std::holds_alternative<Roster>(message);
  const bool may =
      stranger == Stranger::kObserver || told_to_go || (stranger == Stranger::kBabbler && greeted);
  if (may) return;
  history.fail("P8", cat(stranger == Stranger::kFenced ? "a fenced life" : "a stranger",
                         " is answered with ", name_of(message)));
}

void p8_no_member(History& history, const wire::EpochRecord& record) {
  for (const wire::Member& member : record.members) {
    if (!member.site.starts_with(kStrangerSite)) continue;
    history.fail("P8", cat("the stranger ", member.site, " is a member in epoch ", record.epoch));
  }
}

}  // namespace jccl::sim
