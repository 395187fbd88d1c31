// P7 joining disturbs nobody, where it can be seen: in runs where nothing happens but that joiners
// come and fall behind, no attempt is aborted, no member is lost and every call ends well.
#include "sim/history.h"

namespace jccl::sim {

using base::cat;

void p7_nothing_aborts(History& history, const wire::Outcome& outcome) {
  if (!history.joins_only || outcome.verdict != wire::Verdict::kAborted) return;
  if (outcome.code == base::Code::kDeadline) return;  // began when little time was left
  history.fail(
      "P7", cat("attempt ", to_text(outcome.attempt), " of ", outcome.round.tag, " ",
                outcome.round.n, " was aborted though only joiners come and go: ", outcome.text));
}

void p7_members_stay(History& history, const wire::EpochRecord& record) {
  if (!history.joins_only) return;
  for (const auto& [id, member] : history.members) {
    bool stays = false;
    for (const wire::Member& other : record.members) stays = stays || other.id == id;
    if (stays) continue;
    history.fail("P7", cat("member ", id, " is out in epoch ", record.epoch,
                           " though only joiners come and go: ", record.reason));
  }
}

void p7_calls_end_well(History& history, const CallRecord& call) {
  using base::Code;
  if (!history.joins_only || call.success || call.code == Code::kEmpty) return;
  // Of an observer's call; and of calls whose time is short.
  if (call.code == Code::kResync || call.code == Code::kDeadline) return;
  if (call.code == Code::kWrongRun) return;  // the user's mistake
  history.fail("P7", cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " ended ",
                         name_of(call.code), " though only joiners come and go"));
}

}  // namespace jccl::sim
