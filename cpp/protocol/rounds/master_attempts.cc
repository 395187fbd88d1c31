// Running attempts at the master: DONE, FAIL, the decision, and the outcome whoever asks for it.
// The only place that journals a commit. Pure; one event at a time.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

// One fault costs an attempt or two. Who ends each by a made-up report is not followed at full
// speed.
constexpr std::uint32_t kTriesAtOnce = 4;
constexpr base::Duration kPauseMin = 10 * base::kMillisecond;
constexpr base::Duration kPauseMax = base::kSecond;
constexpr std::size_t kAbortedMax = 64;  // remembered per round, with code and text

}  // namespace

// To one whose START was lost. A contributor may be done by its own word and out by now: this peer
// was never told of it, and does not get its data any more.
void RunningAttempts::start_late(const ProcessRecord& process, Participant& part,
                                 MasterAttempt& running) {
  const Participant* gone = running.lost();
  if (gone == nullptr || JCCL_PLANTED("late-start-names-the-evicted")) {
    part.told_again = now();
    return forming().send_start(process, part, running);
  }
  if (!part.contributes()) {
    part.failed = true;
    return;
  }
  const wire::Tag tag = running.round().tag;  // the attempt's own is gone with it
  abort(tag, Code::kPeerLost,
        cat(gone->site, " is out, and ", wording().name(process), " had not begun"), true);
}

wire::Tag RunningAttempts::running_tag(const wire::Attempt& attempt) const {
  const auto found = running_.find(attempt);
  if (JCCL_PLANTED("any-attempt-fits") && found == running_.end() && !running_.empty()) {
    return running_.rbegin()->second;
  }
  return found == running_.end() ? wire::Tag{} : found->second;
}

void RunningAttempts::on_done(ProcessRecord& process, const wire::Done& done) {
  const wire::Tag tag = running_tag(done.attempt);
  if (tag.empty()) return answer(process, {done.attempt, {}});
  MasterAttempt& running = *rounds().at(tag).running;
  Participant* part = running.part_of(process.incarnation);
  if (part == nullptr) {
    running.askers.insert(process.conn);
    return;
  }
  if (!part->done.has_value()) {
    running.last_done = now(), part->shares = done.shares;
    audits().keep_roots(running, *part, done.audit);
  }
  running.done(*part, done.result);
  // At once: what the decision rests on may be lost by the end of this event.
  if (!JCCL_PLANTED("decision-left-for-later")) conclude(tag);
  touch(tag);
}

void RunningAttempts::on_fail(ProcessRecord& process, const wire::Fail& fail) {
  const wire::Tag tag = running_tag(fail.attempt);
  if (tag.empty()) {
    const bool link = fail.cause == Code::kLinkLost || fail.cause == Code::kPeerLost ||
                      fail.cause == Code::kCorrupt;
    for (auto& [other, round] : rounds()) {  // the second report about one broken link
      if (round.memory.aborted.count(fail.attempt) == 0 || !link || process.id == 0) continue;
      link_faults().remember_link(round, fail.attempt, process.id, fail.peer);
    }
    return answer(process, {fail.attempt, {}});
  }
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  Participant* part = running.part_of(process.incarnation);
  const bool audited = running.audit.has_value() && running.audit->drawn;
  if (audited && part != nullptr && part->contributes())
    return audits().leave_audit(process, tag, *part, fail);
  if (part == nullptr || part->done.has_value() || part->failed) return;
  touch(tag);
  if (!part->contributes() &&
      !JCCL_PLANTED("receiver-holds-up")) {  // a receiver's failure is its own
    part->failed = true;
    return;
  }
  const std::string text = cat(wording().name(process), ": ", fail.text);
  const auto link = std::pair(std::min(part->id, fail.peer), std::max(part->id, fail.peer));
  const bool of_link = fail.cause == Code::kLinkLost || fail.cause == Code::kPeerLost ||
                       link_faults().says_what_another_sent(running, *part, fail);
  if (of_link && running.avoided.count(link) > 0) {
    wait_charges().charge_exit(process, running, Fault::kRefusal,
                               text);  // the plan has nothing go over it
    return abort(tag, fail.cause, text, true);
  }
  switch (fail.cause) {
    case Code::kGuard:
      wait_charges().charge_exit(process, running, Fault::kGuard, fail.text);
      round.memory.guarded += cat(round.memory.guarded.empty() ? "" : "; ", text);
      return abort(tag, Code::kGuard, text, true, process.site);
    case Code::kResync:
      wait_charges().charge_exit(
          process, running,
          JCCL_PLANTED("edits-are-withdrawals") ? Fault::kWithdrawal : Fault::kEdited, text);
      stragglers().note_edit(tag, process.site);
      return abort(tag, Code::kResync, text, true, {},
                   running.of_site(JCCL_PLANTED("other-shards-retry") ? "" : process.site));
    case Code::kCorrupt:
      if (of_link) break;
      if (running.sites_left() >= 3 && !JCCL_PLANTED("corrupt-ends-all")) {
        return refused_by(tag, *part, {fail.cause, text});
      }
      ++round.memory.corrupt;
      return abort(tag, Code::kCorrupt, text, round.memory.corrupt < 2);
    case Code::kPeerLost:
      if (fail.peer == part->id || running.parts().count(fail.peer) == 0) {
        wait_charges().charge_exit(process, running, Fault::kWithdrawal, text);
        break;
      }
      part->failed = true;
      running.silent[fail.peer][part->id] = text;
      if (running.heard_out && stragglers().is_to_be_heard(running)) return;
      running.judged_at = std::min(running.judged_at, now() + options().silence / 16);
      return;
    case Code::kLinkLost:
      if (link_faults().names_another(running, *part, fail)) break;
      if (running.sites_left() < 3) break;
      return refused_by(tag, *part, {fail.cause, text});
    case Code::kInvalid:  // what the calls ask for together can't be done: no attempt cures that
    case Code::kLimit:
    case Code::kEmpty:
      return refused_by(tag, *part, {fail.cause, text});
    default:
      // A machine whose clock jumps is past its deadlines, too.
      wait_charges().charge_exit(
          process, tag, *part,
          fail.cause == Code::kDeadline ? Fault::kDeadline : Fault::kWithdrawal, text);
  }
  const bool named = of_link && fail.cause != Code::kPeerLost;  // which is judged
  if (named) link_faults().remember_link(round, fail.attempt, process.id, fail.peer);
  abort(tag, told_to_others(fail.cause), text, true);
}

// Codes that say what becomes of a call's own input are said to that call alone.
Code RunningAttempts::told_to_others(Code cause) {
  const bool plain = cause == Code::kLinkLost || cause == Code::kPeerLost ||
                     cause == Code::kCorrupt || cause == Code::kDeadline;
  return plain || JCCL_PLANTED("any-cause-is-passed-on") ? cause : Code::kAborted;
}

// The call that a part ran for has ended.
void RunningAttempts::drop_part(const ProcessRecord& process, const wire::Tag& tag,
                                Participant& part, Fault fault, const std::string& why) {
  if (part.done.has_value()) return;
  if (!part.contributes()) {
    part.failed = true;
    return;
  }
  wait_charges().charge_exit(process, tag, part, fault, why);
  abort(tag, Code::kAborted, why, true);
}

// Calls are equal, so what can't be done here can't be done elsewhere, and the others say so, too:
// within a moment. A refusal that nobody shares is of who says it alone.
void RunningAttempts::refused_by(const wire::Tag& tag, Participant& part, const Status& why) {
  MasterAttempt& running = *rounds().at(tag).running;
  part.failed = true;
  running.refusals[part.id] = {why.code, why.text};
  std::set<std::string> sites;
  for (const auto& [id, one] : running.refusals) sites.insert(running.parts().at(id).site);
  const bool shared = 2 * sites.size() >= running.sites_left();
  if (running.sites_left() < 3 || shared || JCCL_PLANTED("one-refusal-ends-all")) {
    return abort(tag, why.code, why.text, false);
  }
  running.judged_at = std::min(running.judged_at, now() + options().silence / 16);
}

void RunningAttempts::judge_refusals(const wire::Tag& tag) {
  MasterAttempt& running = *rounds().at(tag).running;
  std::string text;
  std::set<wire::PeerId> ended;
  for (const auto& [id, why] : running.refusals) {
    const Participant& part = running.parts().at(id);
    text += cat(text.empty() ? "" : "; ", why.second);
    ended.insert(id);
    const ProcessRecord* process =
        part.evicted ? nullptr : connections().record_of(part.incarnation);
    if (process == nullptr) continue;
    wait_charges().charge_exit(*process, running, Fault::kRefusal, why.second);
  }
  const Code code = running.refusals.begin()->second.first;
  abort(tag, code, text, true, {}, ended);
}

// It or the others were sent something else on than was made, as they say: then it is that link's,
// as values that no encoder writes are. Once plans do without the link, nobody can say so any more.
bool RunningAttempts::is_misled(Round& round, const Participant& part) {
  MasterAttempt& running = *round.running;
  const std::set<Misled> links = running.misled(part);
  for (const Misled& link : links)
    link_faults().remember_link(round, running.attempt(), link.whom, link.by);
  return !links.empty();
}

// Results differ. Who is wrong can be said when more than half report the same; that may take until
// all have reported. Then the rest is heard for a moment more: over which link a result became
// another is in what each says. The first time all go again: bits flip.
bool RunningAttempts::unequal(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  const std::vector<const Participant*> wrong = running.outvoted();
  const base::Duration moment =
      JCCL_PLANTED("judged-before-all-have-said-it") ? 0 : options().silence / 16;
  const base::Time then = now() + (wrong.empty() ? options().silence / 2 : moment);
  running.judged_at = std::min({running.judged_at, running.deadline, then});
  const bool waits = now() < running.judged_at;
  if (running.open() && running.sites_left() >= 3 && waits) return false;
  std::string names;
  std::set<wire::PeerId> ended;
  // Bits flip; and what one sends that then goes says nothing of those that are left.
  const bool spared = running.lost() != nullptr && !JCCL_PLANTED("the-gone-end-calls");
  const bool again = spared || round.memory.corrupt++ == 0;
  bool misled = false;  // somebody was: the next attempt may do without the link
  running.forget_untrue_shares(options().auditor.senders);
  for (const Participant* part : wrong) {
    const ProcessRecord* process = connections().record_of(part->incarnation);
    if (running.sites_left() < 3 || process == nullptr) continue;
    if (is_misled(round, *part)) {
      names += cat(names.empty() ? ": misled " : ", misled ", wording().name(*process));
      misled = true;
      continue;
    }
    wait_charges().charge_exit(*process, running, Fault::kResult,
                               cat("another result of round ", running.round().n, " of ", tag));
    names += cat(names.empty() ? ": outvoted " : ", ", wording().name(*process));
    if (!again) ended.insert(part->id);
  }
  if (wrong.empty() && running.sites_left() >= 3) {
    const Partings parted = running.partings();
    for (const Misled& link : parted.links) {
      link_faults().remember_link(round, running.attempt(), link.whom, link.by);
    }
    for (const wire::PeerId id : parted.makers) {
      names += cat(names.empty() ? ": " : ", ", wording().name(id),
                   " sent most another one than it made");
      const ProcessRecord* process = connections().record_of(running.parts().at(id).incarnation);
      const char* what = "sent others another result than its own";
      if (process != nullptr) wait_charges().charge_exit(*process, running, Fault::kResult, what);
      if (!again) ended.insert(id);
    }
    misled = !parted.links.empty();
  }
  const bool retry = again || misled || !ended.empty();
  const char* cause = "an input was changed before its call had returned, or bytes were damaged";
  abort(tag, Code::kCorrupt, cat("the result differs between peers (", cause, ")", names), retry,
        {}, ended);
  return true;
}

bool RunningAttempts::conclude(const wire::Tag& tag) {
  const auto found = rounds().find(tag);
  if (found == rounds().end() || !found->second.running.has_value()) return false;
  Round& round = found->second;
  switch (round.running->phase()) {
    case AttemptPhase::kAgreed: {
      const Audits::Step step = audits().audit(tag);
      if (step == Audits::Step::kPassed) commit(tag);
      return step != Audits::Step::kWaits || ends_by_deadline(tag);
    }
    case AttemptPhase::kUnequal:
      return unequal(tag);
    case AttemptPhase::kLost: {
      abort(tag, Code::kPeerLost, std::string(round.running->reason()), true);
      return true;
    }
    default:
      break;
  }
  if (now() >= round.running->judged_at && link_faults().hears_out(*round.running)) return false;
  if (now() >= round.running->judged_at) {
    if (round.running->refusals.empty())
      link_faults().judge(tag);
    else
      judge_refusals(tag);
    return true;
  }
  return membership().open_the_door(tag) || stragglers().slow_down(tag) || ends_by_deadline(tag);
}

bool RunningAttempts::ends_by_deadline(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  if (now() < round.running->deadline) return false;
  wait_charges().note_cut_short(round);
  const bool audited = round.running->phase() == AttemptPhase::kAgreed;
  wait_charges().note_deadline(*round.running);
  abort(tag, Code::kDeadline,
        cat("round ", round.running->round().n, " of ", tag, ": deadline passed; ",
            audited ? audits().audit_text(*round.running)
                    : cat("waited for ", wording().running_waits(*round.running))),
        false);
  return true;
}

void RunningAttempts::commit(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  const Standing& at = ledger().standing(tag);
  wire::CommitRecord record;
  record.attempt = running.attempt();
  record.round = running.round();
  record.contributors = running.contributors();
  record.world = running.world();
  const std::vector<wire::Digest> results = running.results();
  record.result = results.front();
  record.shard_results.assign(results.begin() + 1, results.end());
  record.is_state = at.born;
  if (const auto state = at.digests.find(0); state != at.digests.end()) {
    record.state = state->second;
  }
  record.plan = running.starts.front().plan;
  for (const auto& [id, part] : running.parts()) {
    if (!part.contributes()) record.receivers.push_back(id);
  }
  const bool first = !ledger().begun();
  round.contributed.clear();
  for (const auto& [id, part] : running.parts()) {
    if (running.limited && part.contributes() && !part.evicted) round.contributed.insert(id);
  }
  journal(record);
  if (first) touch_all();  // from now on newcomers are waited for nowhere (`owes`)
  round.poll.reset();      // of the revision before
  round.unheld_since = base::kNever;
  for (const auto& [id, part] : running.parts()) {
    if (!part.evicted) membership().settle_in(id);
  }
  for (const wire::Incarnation incarnation : round.asking) {
    ProcessRecord* process = connections().record_of(incarnation);
    if (process == nullptr || process->syncs.count(tag) == 0) continue;
    // What matched is the newest no more.
    process->syncs.at(tag).matches =
        JCCL_PLANTED("match-outlives-commit") && process->syncs.at(tag).matches;
  }
  for (const auto& [id, part] : running.parts()) {
    ProcessRecord* process = part.evicted ? nullptr : connections().record_of(part.incarnation);
    if (process == nullptr) continue;
    process->asked.erase(tag);
    if (!std::exchange(process->in_commit, true)) {
      conduct().blame_.visited(process->key, false, now());
      process->served_since = now();
    }
    process->served_to = now();
    process->waited_since = base::kNever;
    conduct().charge_accused(*process);
    if (process->resumed) send(*process, Ledger::told(record, part.shard));
  }
  for (const ConnId conn : running.askers) {
    const auto asker = connections().conns_.find(conn);
    ProcessRecord* process =
        asker == connections().conns_.end() ? nullptr : connections().record_of(asker->second);
    if (process != nullptr && process->conn == conn)
      tell_late(*process, Ledger::told(record, process->shard));
  }
  note("commit", {{"tag", tag},
                  {"n", cat(record.round.n)},
                  {"attempt", base::to_text(record.attempt)},
                  {"world", cat(record.world)},
                  {"result", base::to_hex(record.result)}});
  running_.erase(record.attempt);
  edges_seen_ |= running.edges();
  stragglers().forget_spoilt(tag, running);
  forming().note_weights(tag, running);
  round.took_before = std::exchange(round.took, now() - running.since);
  round.usual += (round.took - round.usual) / 4;
  round.spared = false;
  round.cut_short = std::min(round.cut_short, 1U);
  round.needed = std::min(round.needed / 2, 2 * round.took);
  round.running.reset();
  round.memory = {};
  ++round.commits;
  membership().begun_ = true;
  std::vector<std::pair<wire::Incarnation, wire::Ready>> late;  // READY for what is now committed
  for (const auto& [incarnation, open] : round.ready) late.emplace_back(incarnation, open.ready);
  for (const auto& [incarnation, ready] : late) {
    round.ready.erase(incarnation);
    if (ProcessRecord* process = connections().record_of(incarnation))
      forming().answer_ready_out_of_turn(*process, ready);
  }
  touch(tag);
}

// With `retry` everybody goes again. Who gave up has ended its call already, and a new call of the
// same peer has nothing to do with it. `left_out_site` goes again without its contribution; the
// calls of those in `ended` end with the code.
void RunningAttempts::abort(const wire::Tag& tag, Code code, const std::string& text, bool retry,
                            const std::string& left_out_site, const std::set<wire::PeerId>& ended) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  AbortedAttempt aborted;
  wire::Outcome& outcome = aborted.outcome;
  const bool lost = running.phase() == AttemptPhase::kLost;
  outcome.attempt = running.attempt();
  outcome.round = running.round();
  outcome.verdict = wire::Verdict::kAborted;
  outcome.retry = retry || code == Code::kDeadline;  // that of some is over, and not of all
  outcome.code = code;
  outcome.text = text;
  if (!left_out_site.empty() || !ended.empty()) {
    outcome.code = Code::kPeerLost;  // for everybody else
  }
  if (!retry) round.memory.forget();
  round.memory.failed_since = running.since, round.memory.failed_at = now();
  const bool of_one_that_went = lost && !JCCL_PLANTED("the-gone-slow-attempts-down");
  if (retry && !of_one_that_went && ++round.memory.tries > kTriesAtOnce) {
    const std::uint32_t doublings = std::min(round.memory.tries - kTriesAtOnce - 1, 10U);
    round.memory.paused_until = now() + std::min(kPauseMax, kPauseMin << doublings);
    pauses_due_ = std::min(pauses_due_, round.memory.paused_until);
  }
  if (round.memory.aborted.size() >= kAbortedMax) {
    round.memory.aborted.erase(round.memory.aborted.begin());
  }
  for (const auto& [id, part] : running.parts()) {
    const bool over = code == Code::kDeadline && now() >= part.deadline;
    const bool ends = over || ended.count(id) > 0;
    if (ends) forming().forget_call(part.incarnation, tag);
    if (ends || part.site == left_out_site) {
      aborted.otherwise[part.incarnation] = {code, retry && !ends};
    }
  }
  round.memory.aborted[outcome.attempt] = aborted;
  note("abort", {{"tag", tag},
                 {"n", cat(outcome.round.n)},
                 {"attempt", base::to_text(outcome.attempt)},
                 {"code", std::string(base::name_of(code))},
                 {"text", text}});
  edges_seen_ |= running.edges();
  const MasterAttempt over = std::move(running);
  running_.erase(over.attempt());
  round.running.reset();
  ++round.aborts;
  touch(tag);
  for (const auto& [id, part] : over.parts()) {
    const ProcessRecord* process =
        part.evicted ? nullptr : connections().record_of(part.incarnation);
    if (process == nullptr || !process->resumed) continue;
    send(*process, aborted.told(part.incarnation));
  }
  for (const ConnId conn : over.askers) send(conn, outcome);
}

}  // namespace jccl::protocol
