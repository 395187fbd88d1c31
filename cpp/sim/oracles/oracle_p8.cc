// P8 strangers get nothing: who does not end its greeting, who was fenced, and who has not the
// key of the life or seat that it names, is told to go and nothing else, and is never a member.
#include "sim/history.h"
#include "wire/serialize.h"

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
  const char* who = stranger == Stranger::kFenced     ? "a fenced life"
                    : stranger == Stranger::kImpostor ? "who has another key"
                                                      : "a stranger";
  history.fail("P8", cat(who, " is answered with ", name_of(message)));
}

void p8_observer(History& history, wire::Incarnation self, const wire::Message& message) {
  const auto* roster = std::get_if<wire::Roster>(&message);
  if (roster == nullptr || roster->base != 0 || roster->members.empty()) return;
  for (const wire::Member& member : roster->members) {
    if (member.incarnation == self) return;
  }
  history.fail("P8", "who is no member hears who the members are");
}

void p8_no_member(History& history, const wire::EpochRecord& record) {
  for (const wire::Member& member : record.members) {
    if (!member.site.starts_with(kStrangerSite)) continue;
    history.fail("P8", cat("the stranger ", member.site, " is a member in epoch ", record.epoch));
  }
}

}  // namespace jccl::sim
