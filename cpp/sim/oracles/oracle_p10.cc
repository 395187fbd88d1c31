// P10 named: whatever waits can say for what.
#include "protocol/master/master_state.h"
#include "sim/world.h"

namespace jccl::sim {

void p10_says_why(History& history, const std::string& who, const wire::Tag& tag,
                  const std::string& words) {
  if (!words.empty()) return;
  history.fail("P10", base::cat(who, " waits on ", tag, " and can't say for what"));
}

// Of the master that serves: every round that stands still.
void World::check_words() {
  const SimMaster* master = active();
  if (master == nullptr || !master->running()) return;
  const protocol::MasterMachine::State& at = master->machine->state();
  for (const auto& [tag, round] : at.rounds_) {
    if (!round.running.has_value() && round.ready.empty()) continue;
    p10_says_why(history, base::cat("master ", master->index), tag, at.waiting_text(tag));
  }
}

}  // namespace jccl::sim
