// P4 bounded: no call outlives its deadline while its process runs.
#include "sim/history.h"

namespace jccl::sim {

inline constexpr base::Duration kSlack = 20 * base::kMillisecond;

void p4_in_time(History& history, const CallRecord& call, base::Time slack_from) {
  const base::Time due = std::max(call.deadline, slack_from) + kSlack;
  if (!call.open || history.now <= due) return;
  history.fail("P4", base::cat("slot ", call.slot, ": call ", call.id, " on ", call.tag,
                               " is open ", (history.now - call.deadline) / base::kMillisecond,
                               " ms after its deadline"));
}

}  // namespace jccl::sim
