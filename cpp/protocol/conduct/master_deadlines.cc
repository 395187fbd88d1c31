// Calls and their deadlines at the master: whom a deadline ends, what the others lose by it, and
// who pays for that: members that leave attempts, whose calls are too short for a round, or that
// hold attempts until others' calls are over. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/durations.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

constexpr base::Duration kLeastTime = 50 * base::kMillisecond;  // to move a round's data
constexpr base::Duration kShortCall = 4 * kLeastTime;           // may end before others come at all
constexpr std::uint32_t kCutShortMax = 4;                       // attempts in a row
constexpr double kShortShare = 1.0 / 2;
constexpr double kTightShare = 15.0 / 16;  // READYs take longer at times
constexpr int kOverShare = 8;              // of a call: with so little left it is over
constexpr int kCostlyHoldsRest = 8;  // of an attempt that lacked the time which a hold had taken
constexpr int kWholeShare = 4;       // … it was for a round if it had waited no longer for START

// What a call may have to have left when a round begins, to its master: half of its time to its
// peer, or, for all to begin anew together, three quarters.
base::Duration most_of(const OpenReady& open, bool together) {
  const base::Duration early = together ? open.time - open.time / 4 : open.time / 2;
  return early - margin_of(bounded(open.ready.deadline));
}

std::vector<Participant> parts_of(const MasterAttempt& running) {
  std::vector<Participant> parts;
  for (const auto& [id, one] : running.parts()) parts.push_back(one);
  return parts;
}

}  // namespace

// It leaves an attempt that runs. When its deadline is over it may, unless it gave itself much less
// time than others do. A READY that was long on its way makes the deadline later here than there:
// who leaves so shortly before it commits no fault, but the others have lost the attempt.
void WaitCharges::charge_exit(const ProcessRecord& process, const wire::Tag& tag,
                              const Participant& part, Fault fault, const std::string& why) {
  Round& round = rounds().at(tag);
  const bool near = now() + options().silence / 4 >= part.deadline;
  const bool over = JCCL_PLANTED("short-calls-are-always-over") ? near : now() >= part.deadline;
  const bool is_hasty = hasty(part.incarnation, parts_of(*round.running));
  if (near && !is_hasty && note_hold(*round.running)) return note_cut_short(round);
  if (over && !is_hasty) {
    note_cut_short(round);
    return note_deadline(*round.running);
  }
  note_exit(process, *round.running);
  if (!JCCL_PLANTED("exits-hold-everybody-up"))
    stragglers().note_spoilt(tag, std::string(process.site));
  if (near && !JCCL_PLANTED("what-came-late-is-a-fault")) return;
  conduct().charge(process,
                   fault == Fault::kDeadline
                       ? kind_of_deadline(*connections().record_of(process.incarnation), part)
                       : fault,
                   why);
}

// No READY takes so long to get here. A clock may jump so far, and ends all of its calls by that,
// but not again and again.
Fault WaitCharges::kind_of_deadline(ProcessRecord& process, const Participant& part) {
  const bool far = part.deadline - now() > std::max(options().silence, part.time / 2);
  if (!far || JCCL_PLANTED("any-deadline-is-over")) return Fault::kDeadline;
  const bool same = process.jumped > 0 && now() < process.jumped + options().silence / 4;
  if (same && !JCCL_PLANTED("each-call-of-a-jump-counts")) return Fault::kDeadline;
  process.jumped = now();
  return Fault::kRefusal;
}

// Its call has less than that part of the time that the middle one of all has.
bool WaitCharges::hasty(wire::Incarnation incarnation, const std::vector<Participant>& parts,
                        double share) const {
  std::vector<base::Duration> times;
  base::Duration own = 0;
  for (const Participant& part : parts) {
    times.push_back(part.time);
    if (part.incarnation == incarnation) own = part.time;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  // Calls that began under the master before have as much less here as they have run.
  const bool of_before = membership().took_over_ && now() < all().started_at_ + *middle;
  if (of_before && !JCCL_PLANTED("a-restart-makes-calls-short")) return false;
  return static_cast<double>(own) < share * static_cast<double>(*middle);
}

void WaitCharges::charge_exit(const ProcessRecord& process, const MasterAttempt& running,
                              Fault fault, const std::string& text) {
  const bool free = (fault == Fault::kRefusal && JCCL_PLANTED("refusals-take-no-time")) ||
                    (fault == Fault::kResult && JCCL_PLANTED("other-results-take-no-time"));
  if (!free) note_exit(process, running);
  conduct().charge(process, fault, text);
}

// Members whose calls would end before their data can have moved: the others need not begin. How
// long that takes follows from attempts that deadlines ended, one after the other: members whose
// calls began at different times would else never have enough together. Who has more than half of
// its call left is not asked for more, until calls have ended attempts in turns for so long that
// all have to begin anew at one time. It is less each time, for what was learned of attempts that
// hung is too much, and members that compute between two calls would wait for each other in turns.
// Short calls are no fault: again and again, they are not waited for until the next commit.
bool WaitCharges::hurried(const wire::Tag& tag) {
  const base::Duration least = std::min(options().heartbeat / 10, kLeastTime);
  Round& round = rounds().at(tag);
  const base::Duration needed = round.needed;
  const bool together = round.cut_short > kCutShortMax && !JCCL_PLANTED("calls-in-turns-stay-so");
  std::map<wire::Incarnation, base::Duration> late;  // what they had to have left
  for (const auto& [id, member] : ledger().members()) {
    const OpenReady* open = forming().ready_of(tag, member);
    if (open == nullptr || !stragglers().takes_part(tag, member)) continue;
    const base::Duration most =
        JCCL_PLANTED("calls-end-before-half") ? needed : most_of(*open, together);
    const base::Duration asked = std::max(least, std::min(needed, most));
    if (open->deadline - now() < asked) late.emplace(member.incarnation, asked);
  }
  if (late.empty()) return false;
  if (!JCCL_PLANTED("what-was-learned-stays")) round.needed /= 2;
  const std::vector<Participant> parts = forming().parts_for(tag);
  std::set<std::string> short_of_time;  // sites: each counts once, however many shards it has
  for (const auto& [incarnation, asked] : late) {
    const bool waited = round.ready.at(incarnation).time >= kShortCall;
    const bool is_short = asked == least && hasty(incarnation, parts, kShortShare);
    if (is_short && (!waited || JCCL_PLANTED("who-waited-is-hurried"))) {
      short_of_time.insert(connections().record_of(incarnation)->site);
    }
    forming().reject(
        tag, incarnation, Code::kDeadline,
        cat("all are READY, but less than ", asked / base::kMillisecond,
            " ms of this call's deadline are left",
            together ? ", and deadlines have ended one attempt after the other: all begin anew"
                     : ""));
  }
  for (const std::string& site : short_of_time) {
    if (!JCCL_PLANTED("the-hurried-are-waited-for")) stragglers().note_spoilt(tag, site);
  }
  touch(tag);  // the others may be complete without them
  return true;
}

// The attempt ends by deadlines. Who held it pays for what others waited, as if it had left. Calls
// may be shorter than `straggler_after`, or too short for heartbeats to be heard.
void WaitCharges::note_deadline(const MasterAttempt& running) {
  if (running.phase() == AttemptPhase::kAgreed) return audits().note_owing(running);
  const bool waits = options().straggler == Straggler::kWait;
  const Participant* holder = stragglers().holds_in_silence(running);
  if (holder != nullptr && now() >= running.since + options().silence / 2) {
    return note_exit(*connections().record_of(holder->incarnation), running);
  }
  const Participant* last = holder == nullptr ? stragglers().silent_last(running, 0) : holder;
  if (JCCL_PLANTED("short-calls-are-held-by-nobody")) last = nullptr;
  const Participant* lacked = withholder(running);
  if (lacked != nullptr) last = lacked;
  if (note_short_calls(running, last) || note_hold(running)) return;
  // Perhaps the last one is kept from it by another: then it is their link's.
  const base::Duration patience = std::min((now() - running.since) / 2, 2 * options().heartbeat);
  const std::vector<Pair> links = withheld().starved(running, last, patience);
  if (!links.empty())
    return withheld().cut_starved(attempts().running_tag(running.attempt()), links);
  // Slow ones are waited for, but not when the others have been done for most of the time, nor at
  // one deadline after the other. Who owes sums may have a slow line.
  const bool is_long = 2 * (now() - running.last_done) >= now() - running.since;
  const bool is_own =
      std::any_of(running.lacks.begin(), running.lacks.end(), [&, who = lacked](const auto& one) {
        return who != nullptr && one.second.of == who->id && !one.second.is_sum;
      });
  const bool is_late =
      (lacked != nullptr ? is_own : is_long) && !JCCL_PLANTED("the-last-may-be-slow-for-ever");
  const bool may_be_slow =
      waits && holder == nullptr && !is_late && now() >= running.since + 2 * options().heartbeat;
  if (last != nullptr && !may_be_slow)
    return note_exit(*connections().record_of(last->incarnation), running);
  if (last != nullptr && !JCCL_PLANTED("each-deadline-is-the-first")) {
    return note_absence(last->site, running.since, now() - running.since);
  }
  std::string why;
  const std::string slow = waits ? "" : stragglers().straggling(running, 0, &why);
  if (!slow.empty() && !JCCL_PLANTED("slow-ones-hold-no-deadline")) {
    return note_absence(slow, running.since);
  }
  if (last != nullptr || note_tight_calls(running)) return;
  note_lost_time(running);
}

// Whom most others have lacked for a third of the time: before that contributions of others were on
// their way as well.
const Participant* WaitCharges::withholder(const MasterAttempt& running) const {
  const auto [lacked, since] = withheld().withholds(running);
  const int parts = JCCL_PLANTED("lacked-for-half-of-it") ? 2 : 3;
  return lacked != nullptr && parts * (now() - since) >= now() - running.since ? lacked : nullptr;
}

// START was held for a joiner, and the attempt has had no more time than the newest commits took:
// nobody in it pays, once until the next commit, or whoever holds attempts would only need a
// joiner. Nor is it the hold's fault if a member has nothing to move or keeps its data back, or if
// the call that is over was shorter than others'. Joiners have no hold then for much longer than
// all of that took. Whether it is so.
bool WaitCharges::note_hold(const MasterAttempt& running) {
  Round& round = rounds().at(running.round().tag);
  const base::Duration had = now() - running.since, took = std::max(round.took, round.took_before);
  const bool enough = round.held == 0 || had > took + took / 4;  // lines and READYs vary
  const bool again = round.spared && !JCCL_PLANTED("holds-excuse-for-ever");
  if (enough || again || JCCL_PLANTED("the-slowest-pays-for-holds")) return false;
  if (!JCCL_PLANTED("holds-excuse-holders") &&
      (stragglers().holds_in_silence(running) != nullptr || withholder(running) != nullptr)) {
    return false;
  }
  const std::vector<Participant> parts = parts_of(running);
  const bool is_tight = std::any_of(parts.begin(), parts.end(), [&](const Participant& part) {
    return now() + options().silence / 4 >= part.deadline &&
           hasty(part.incarnation, parts, kTightShare);
  });
  if (is_tight && !JCCL_PLANTED("holds-excuse-shorter-calls")) return false;
  round.spared = true;
  const base::Duration cost =
      JCCL_PLANTED("holds-cost-what-they-left") ? had : had + round.held + took;
  const int times = JCCL_PLANTED("holds-that-cost-rounds-go-on") ? 0 : kCostlyHoldsRest;
  // What a commit takes counts up to out_max, or rounds of minutes would shut joiners out for
  // hours.
  const base::Duration most = std::max(options().out_max, times * (had + round.held));
  state_sync().holds_rest_until_ =
      std::max(state_sync().holds_rest_until_, now() + std::min(times * cost, most));
  return true;
}

// Deadlines have ended attempts one after the other, so calls should have more time left when the
// next one begins: see hurried().
void WaitCharges::note_cut_short(Round& round) {
  if (++round.cut_short > 1 && !JCCL_PLANTED("deadlines-teach-nothing")) {
    round.needed = std::max(round.needed, 2 * (now() - round.running->since));
  }
}

// Nobody has held the attempt, and all of some calls was not enough for it, while most had more
// time: a round takes longer here. Whoever makes such calls gets no result by them, and ends the
// others' attempts. Whether there are any.
bool WaitCharges::note_tight_calls(const MasterAttempt& running) {
  if (JCCL_PLANTED("tight-calls-end-rounds")) return false;
  const std::vector<Participant> parts = parts_of(running);
  bool any = false;
  for (const Participant& part : parts) {
    const ProcessRecord* process =
        part.evicted ? nullptr : connections().record_of(part.incarnation);
    if (process == nullptr || now() + part.time / kOverShare < part.deadline) continue;
    const bool whole = running.since - part.called <= part.time / kWholeShare;
    if (!whole && !JCCL_PLANTED("who-waited-has-a-tight-call")) continue;
    if (!hasty(part.incarnation, parts, kTightShare)) continue;
    note_exit(*process, running);
    stragglers().note_spoilt(running.round().tag, part.site);
    any = true;
  }
  return any;
}

// Nobody has held it, but calls that it ends were in an attempt before it that somebody left, and
// have lacked the time since: as much as had passed when this one began, whatever held it later.
void WaitCharges::note_lost_time(const MasterAttempt& running) {
  if (JCCL_PLANTED("lost-time-is-free")) return;
  base::Time began = base::kNever;
  for (const auto& [id, part] : running.parts()) {
    if (now() >= part.deadline) began = std::min(began, part.called);
  }
  if (began == base::kNever) return;
  base::Time since = std::max(running.since, now() - (running.since - began));
  if (JCCL_PLANTED("lost-time-is-all-there-was")) since = running.since;
  for (const auto& [key, by] : rounds().at(running.round().tag).memory.ended) {
    if (by.at < began) continue;
    charge_time({by.site, by.key, by.token, since, now(), true}, now(), 0);
    if (pays(by.site)) conduct().holders_.insert(by.site);
  }
}

// Whose call had less than half of the time that the middle one has pays, too; if it waits for
// another, only for what it does so again and again. Not as for a fault, for who calls late may
// have as little. Where another one holds the attempt the next one does without such short calls,
// for nobody can say how long that one needs; who ends attempts like that again and again pays
// then, too. Whether anybody did: who is DONE ends an attempt as well, for the others may need what
// it still has to send.
bool WaitCharges::note_short_calls(const MasterAttempt& running, const Participant* holder) {
  const wire::Tag tag = attempts().running_tag(running.attempt());
  const std::vector<Participant> parts = parts_of(running);
  std::vector<Participant> others;  // whoever holds it may have as long a call as it likes
  bool any = false;
  for (const auto& [id, one] : running.parts()) {
    if (&one != holder) others.push_back(one);
  }
  for (const auto& [id, part] : running.parts()) {
    ProcessRecord* process = part.evicted ? nullptr : connections().record_of(part.incarnation);
    const bool over = now() + options().silence / 4 >= part.deadline;
    if (process == nullptr || !over || JCCL_PLANTED("short-calls-hold-for-nothing")) continue;
    if (part.done.has_value() && JCCL_PLANTED("the-done-may-be-hasty")) continue;
    const bool held_up = holder != nullptr && holder != &part;
    const bool waits = !held_up && !part.done.has_value() &&
                       stragglers().waits_itself(running, part) &&
                       !JCCL_PLANTED("short-calls-wait-for-nobody");
    const bool of_all = !held_up || JCCL_PLANTED("holders-make-others-hasty");
    if (!hasty(part.incarnation, of_all ? parts : others, kShortShare)) continue;
    if (waits) {  // as it says: once in a while that is free
      if (JCCL_PLANTED("who-waits-may-be-hasty")) continue;
      rounds().at(tag).without.insert(part.site);
      note_absence(part.site, running.since, now() - running.since);
      continue;
    }
    any = true;
    if (held_up && !JCCL_PLANTED("the-hasty-pay-for-holders")) {
      rounds().at(tag).without.insert(part.site);
      if (++process->spoilt[tag] < 2) continue;
    }
    note_exit(*process, running);
  }
  return any;
}

}  // namespace jccl::protocol
