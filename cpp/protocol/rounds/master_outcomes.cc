// What a peer is told of an attempt of which it lacks the outcome: that of a commit, out of the
// journal, and of an abort as long as it is remembered. Pure; one event at a time.
#include <optional>
#include <tuple>

#include "base/planted.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::Code;

void RunningAttempts::on_query(ProcessRecord& process, const wire::Query& query) {
  const wire::Tag tag = running_tag(query.about.attempt);
  answer(process, query.about);
  if (!tag.empty()) send(process, wire::Waiting{query.about.round, wording().waiting_text(tag)});
}

// Tells the outcome, now or, of an attempt that still runs, when it is decided.
void RunningAttempts::answer(ProcessRecord& process, const wire::Unresolved& about) {
  const wire::Tag tag = running_tag(about.attempt);
  if (!tag.empty() && !JCCL_PLANTED("running-told-aborted")) {
    MasterAttempt& running = *rounds().at(tag).running;
    if (running.part_of(process.incarnation) == nullptr) running.askers.insert(process.conn);
    return;
  }
  if (JCCL_PLANTED("unknown-attempt-dropped")) return;
  // Another master follows this one, and may have committed it; or it is made up.
  if (about.attempt.epoch > ledger().epoch() && !JCCL_PLANTED("later-epochs-are-aborted")) return;
  const bool to_come =
      about.attempt.epoch == ledger().epoch() && about.attempt.counter > forming().counter_;
  if (to_come && !JCCL_PLANTED("attempts-to-come-are-aborted")) return;
  if (const auto outcome = outcome_of(about, process)) tell_late(process, *outcome);
}

void RunningAttempts::tell_late(ProcessRecord& process, const wire::Outcome& outcome) {
  const bool of_state = ledger().standing(outcome.round.tag).born;
  if (outcome.verdict == wire::Verdict::kCommitted && of_state) {
    process.may_hold[outcome.round.tag] = outcome.round.n;
  }
  send(process, outcome);
}

wire::Outcome AbortedAttempt::told(wire::Incarnation incarnation) const {
  wire::Outcome told = outcome;
  const auto own = otherwise.find(incarnation);
  if (own != otherwise.end()) std::tie(told.code, told.retry) = own->second;
  return told;
}

std::optional<wire::Outcome> RunningAttempts::outcome_of(const wire::Unresolved& about,
                                                         const ProcessRecord& process) const {
  for (const auto& [tag, round] : rounds()) {
    const auto found = round.memory.aborted.find(about.attempt);
    if (found == round.memory.aborted.end()) continue;
    wire::Outcome told = found->second.told(process.incarnation);
    if (JCCL_PLANTED("late-askers-end-by-deadline") && told.code == Code::kDeadline)
      told.retry = false;
    return told;
  }
  return ledger().outcome(about, process.shard);
}

}  // namespace jccl::protocol
