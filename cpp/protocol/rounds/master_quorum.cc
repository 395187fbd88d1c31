// Rounds whose calls ask for a quorum: what is asked, and who is left out for it. Pure; one event
// at a time.
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;

// What the calls ask for: see base::Quorum. More than half of all that owe the round have to say
// the same, so no minority of liars has others left out, or keeps the rest from it. It is looked up
// once, not at each READY of a thousand, and again before somebody is left out: who was most of the
// members may be one of many by then.
void Stragglers::note_asked_quorum(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  const std::size_t owing = membership().owing(tag);
  if (!round.asks_quorum || round.quorum.asked()) return;
  // Of the first round everybody is waited for: some have not compiled their step yet.
  if (ledger().standing(tag).committed == 0 && !JCCL_PLANTED("first-rounds-have-quorums")) return;
  if (2 * round.ready.size() <= owing && !JCCL_PLANTED("a-minority-asks")) return;
  std::map<base::Quorum, std::size_t> said;
  for (const auto& [id, member] : ledger().members()) {
    const OpenReady* open = membership().owes(tag, id) ? forming().ready_of(tag, member) : nullptr;
    if (open == nullptr || !open->ready.quorum.asked()) continue;
    const std::size_t count = ++said[open->ready.quorum];
    if (2 * count > owing || JCCL_PLANTED("a-minority-asks")) round.quorum = open->ready.quorum;
  }
}

// Who was left out of an earlier round for a quorum is out of the next ones until it calls; but
// only of those that have a quorum of their own. Else all are waited for again: sites may have gone
// since, or the calls ask for none.
void Stragglers::wait_without_quorum(const wire::Tag& tag, std::size_t ready, std::size_t sites) {
  Round& round = rounds().at(tag);
  if (round.skipped.empty() || options().straggler == Straggler::kSkip) return;
  if (round.quorum.enough(ready, sites) || !late_sites(tag).empty()) return;
  if (JCCL_PLANTED("the-left-out-are-out-of-all")) return;
  round.skipped.clear();
}

void Stragglers::forget_quorum(Round& round) {
  if (JCCL_PLANTED("quorums-outlive-rounds")) return;
  round.asks_quorum = false;
  round.quorum = {};
  round.met_since = base::kNever;
}

// Who is not READY though the calls' quorum has been for as long as they allow. They pay for that
// time as who is skipped by the run's rule does.
void Stragglers::leave_out(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  const base::Time since = std::exchange(round.met_since, base::kNever);
  if (!JCCL_PLANTED("what-few-asked-stands")) {
    const base::Quorum asked = std::exchange(round.quorum, {});
    note_asked_quorum(tag);
    if (round.quorum != asked) return;
  }
  const std::uint64_t n = ledger().standing(tag).committed + 1;
  for (const std::string& site : late_sites(tag)) {
    round.late.erase(site);
    skip(tag, site, since, round.quorum.grace,
         cat(site, " was not READY for round ", n, " of ", tag, " ",
             (now() - since) / base::kMillisecond, " ms after a quorum of ",
             round.quorum.share / 1000.0, " of the sites, for which the calls ask"));
  }
}

}  // namespace jccl::protocol
