// Audits: how long the master waits for what it asked for, and what follows for whoever is late.
// Slow lines are no lie: late is who takes longer than the others, as with data. See
// master_audit.cc. Pure; one event at a time.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

// An answer takes the peer's data thread, and a slow line; silence itself is judged elsewhere. In
// an attempt so many silences, and for each piece the time on a line of 1 Mbit/s. Where stragglers
// are not waited for, as long as for one of them, and a round trip for each of its questions.
constexpr int kPatience = 2;
constexpr base::Duration kPieceTime = 150 * base::kMillisecond;
constexpr base::Duration kAskTime = 500 * base::kMillisecond;
constexpr double kLong = 1e15;  // ns: no call takes so long
constexpr int kSlower = 2;      // who takes so many times as long as the middle one of the others

}  // namespace

// It has shown all that it was asked for.
void Audits::note_shown(MasterAttempt& running, const Participant& part) const {
  const auto since = running.audit->since.find(part.id);
  if (since == running.audit->since.end()) return;
  const base::Time from = std::max(since->second, all().woke_at_);
  if (!JCCL_PLANTED("each-batch-buys-time")) running.audit->took[part.id] += now() - from;
  running.audit->since.erase(since);
}

// Since when a contributor that is connected owes something of what it was asked for; kNever: it
// has shown all.
base::Time Audits::owes_since(const MasterAttempt& running, const Participant& part) const {
  const auto since = running.audit->since.find(part.id);
  const ProcessRecord* process = part.evicted ? nullptr : connections().record_of(part.incarnation);
  const bool asked = since != running.audit->since.end() && process != nullptr && process->resumed;
  if (!asked || owed_cells(running, part).empty()) return base::kNever;
  return std::max(since->second, all().woke_at_);
}

// In all questions of the attempt so far, for what it was asked.
base::Duration Audits::took(const Audit& audit, wire::PeerId id) const {
  const auto before = audit.took.find(id);
  const auto since = audit.since.find(id);
  return (before == audit.took.end() ? 0 : before->second) +
         (since == audit.since.end() ? 0 : now() - std::max(since->second, all().woke_at_));
}

// What the middle one of the others takes for as many pieces: owners show the results as well, and
// often one owns all cells of a question. Of two others the quicker one counts, as one may lie.
base::Duration Audits::others_take(const MasterAttempt& running, const Participant& part) const {
  const Audit& audit = *running.audit;
  const auto pieces = static_cast<double>(audit.pieces.at(part.id));
  std::vector<double> times;
  for (const auto& [id, other] : running.parts()) {
    const bool compares = id != part.id && other.contributes() && other.shard == part.shard;
    if (!compares || other.evicted || audit.pieces.count(id) == 0) continue;
    // By what it has shown: of what it still owes nobody knows how long it takes.
    const auto shown = audit.shown.find(id);
    const bool none = shown == audit.shown.end() || JCCL_PLANTED("what-is-owed-is-quick");
    const double of = static_cast<double>(none ? audit.pieces.at(id) : shown->second);
    const double time = static_cast<double>(took(audit, id)) * pieces / of;
    times.push_back(none && !JCCL_PLANTED("what-is-owed-is-quick") ? kLong : time);
  }
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<base::Duration>(*middle);
}

// What it may take, in all: longer where others do, if it has shown something.
base::Duration Audits::patience_with(const MasterAttempt& running, const Participant& part) const {
  const Audit& audit = *running.audit;
  const auto pieces = static_cast<base::Duration>(audit.pieces.at(part.id));
  const auto asks = static_cast<base::Duration>(audit.batches);
  const base::Duration ways = JCCL_PLANTED("questions-take-no-time") ? 0 : asks * kAskTime;
  const base::Duration whole = kPatience * options().silence + pieces * kPieceTime + ways;
  base::Duration patience = whole;
  if (options().straggler != Straggler::kWait && !JCCL_PLANTED("audits-of-stragglers")) {
    patience = std::min(patience,
                        std::max(options().straggler_after, options().silence) + asks * kAskTime);
  }
  if (JCCL_PLANTED("slow-lines-are-late")) return patience;
  const base::Duration others = kSlower * others_take(running, part);
  const bool shows = audit.shown.count(part.id) > 0;
  return std::max(patience, shows ? others : std::min(whole, others));
}

// It is heard, and owes cells: on nobody else's word, for there is only its connection between.
bool Audits::ends_by_withholding(const wire::Tag& tag) {
  MasterAttempt& running = *rounds().at(tag).running;
  for (const auto& [id, part] : running.parts()) {
    const base::Duration held = took(*running.audit, id);
    if (owes_since(running, part) == base::kNever || held < patience_with(running, part)) continue;
    const ProcessRecord* process = connections().record_of(part.incarnation);
    const std::string site = part.site;
    const std::string why =
        cat(wording().name(id), " owes ", owed_cells(running, part).size(), " of ",
            running.audit->batch, " cells that an audit asks for, after ",
            held / base::kMillisecond, " ms, in round ", running.round().n, " of ", tag);
    const bool none = running.audit->shown.count(id) == 0 || JCCL_PLANTED("slow-answers-withhold");
    if (none && !JCCL_PLANTED("withholding-is-free")) hold_against(*process, Fault::kWithheld, why);
    wait_charges().note_held(site,
                             wait_charges().waited_since(site));  // while the attempt is there
    attempts().abort(tag, Code::kPeerLost, why, true);
    conduct().put_out(site, held);
    connections().depart(site, why, "evict");
    return true;
  }
  return false;
}

// The attempt ends by a deadline. Who held it is no better off than whoever is not DONE then; who
// gave it too short a time for the others has held it alone.
void Audits::note_owing(const MasterAttempt& running) {
  if (!JCCL_PLANTED("audits-may-be-hasty") && wait_charges().note_short_calls(running, nullptr))
    return;
  for (const auto& [id, part] : running.parts()) note_owing(running, part);
}

// Who is slow among slow ones holds nobody. It is no fault before its patience is over: a slow line
// shows nothing for a while, too.
void Audits::note_owing(const MasterAttempt& running, const Participant& part) {
  if (owes_since(running, part) == base::kNever) return;
  const base::Duration held = took(*running.audit, part.id);
  const bool any_time = JCCL_PLANTED("audits-of-short-calls-hold-nobody");
  if (held < std::min(options().silence / 2, any_time ? options().silence : part.time / 8)) return;
  const ProcessRecord& process = *connections().record_of(part.incarnation);
  if (JCCL_PLANTED("a-short-deadline-is-withheld-from")) {
    hold_against(process, Fault::kWithheld, "shows an audit nothing until the deadline");
  }
  const bool slower = held >= kSlower * others_take(running, part);
  if (slower || JCCL_PLANTED("slow-lines-hold-deadlines"))
    wait_charges().note_exit(process, running);
}

// Its call ended between DONE and the audit, so it has nothing to show any more: as if it had left
// the attempt while that ran.
void Audits::leave_audit(const ProcessRecord& process, const wire::Tag& tag,
                         const Participant& part, const wire::Fail& fail) {
  const std::string text = cat(wording().name(process), ": ", fail.text);
  note_unshown(process, *rounds().at(tag).running, part);
  wait_charges().charge_exit(process, tag, part, Fault::kWithdrawal, text);
  attempts().abort(tag, Code::kAborted, text, true);
}

// Where the time of others that goes on is what counts, what they show brings the next event.
base::Time Audits::audit_due(const MasterAttempt& running) const {
  base::Time due = base::kNever;
  if (!running.audit.has_value() || running.audit->open.empty()) return due;
  for (const auto& [id, part] : running.parts()) {
    if (owes_since(running, part) == base::kNever) continue;
    due = std::min(due, now() + std::max<base::Duration>(
                                    0, patience_with(running, part) - took(*running.audit, id)));
  }
  return due;
}

}  // namespace jccl::protocol
