// Forming a round at the master: READY by READY, until all members agree and an attempt starts.
// Refuses, with words, whatever does not fit. Pure; one event at a time.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/durations.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;
using base::Time;

void Forming::on_ready(ProcessRecord& process, const wire::Ready& ready) {
  const wire::Tag& tag = ready.round.tag;
  const auto refused = [&](Code code, std::string text) {
    send(process, wire::Reject{ready.round, code, std::move(text), ready.call});
  };
  if (!base::is_usable_weight(ready.weight)) {
    conduct().charge(process, Fault::kBadCall, "a weight that is none");
    return refused(Code::kInvalid, cat("a weight is 0 or between ", base::kWeightMin, " and ",
                                       base::kWeightMax, ", not ", ready.weight));
  }
  if (!base::is_usable(ready.quorum) && !JCCL_PLANTED("any-quorum-taken")) {
    conduct().charge(process, Fault::kBadCall, "a quorum that is none");
    return refused(Code::kInvalid, cat("a quorum is 501 to 999 thousandths of the sites, not ",
                                       ready.quorum.share, ", and its grace at most a day"));
  }
  if (const auto no = state_sync().open_tag(process, tag)) return refused(no->code, no->text);
  Round& round = rounds().at(tag);
  if (answer_ready_out_of_turn(process, ready) || !state_fits(process, ready)) return;
  process.edit_noted.erase(tag);
  OpenReady open;
  open.ready = ready;
  open.since = now();
  const base::Duration left = bounded(ready.deadline);
  open.deadline = now() + left - margin_of(left);
  auto& [call, first] = process.asked[tag];
  if (std::exchange(call, ready.call) != ready.call || first == 0) first = now();
  open.called = first;
  open.time = now() + left - first;
  const Time due = round.ready.empty() ? base::kNever : round.ready_due;
  round.ready_due = std::min(due, open.deadline);
  if (!ready.before.empty()) round.before = ready.before;
  for (const auto& [other, one] : rounds()) {
    if (one.before == tag) touch(other);
  }
  round.asks_quorum = round.asks_quorum || open.ready.quorum.asked();
  round.ready[process.incarnation] = std::move(open);
  if (process.id == 0)
    connections().processes_changed_ = true;
  else
    membership().enter(tag, process.site);
  touch(tag);
}

bool Forming::answer_ready_out_of_turn(ProcessRecord& process, const wire::Ready& ready) {
  const wire::RoundName& name = ready.round;
  const Standing& at = ledger().standing(name.tag);
  const auto resync = [&](std::string text) {
    send(process, wire::Reject{name, Code::kResync, text, ready.call});
    note("reject", {{"site", process.site}, {"tag", name.tag}, {"text", std::move(text)}});
    return true;
  };
  auto& running = rounds()[name.tag].running;
  if (running.has_value() && running->round() == name) {
    Participant* part = running->part_of(process.incarnation);
    if (JCCL_PLANTED("new-call-in-old-attempt") && part != nullptr) part->call = ready.call;
    if (part != nullptr && part->call == ready.call) {  // it can't have heard of the start
      attempts().start_late(process, *part, *running);
      return true;
    }
    if (part != nullptr) {
      attempts().drop_part(process, name.tag, *part, Fault::kWithdrawal,
                           cat(wording().name(process), " called anew"));
    }
  }
  if (name.n <= at.committed && !JCCL_PLANTED("old-number-accepted")) {
    if (at.born) {
      if (at.is_restored()) return resync(state_restore().restored_text(name.tag));
      return resync(cat("round ", name.n, " of ", name.tag, " was committed without this peer; ",
                        "the newest revision is ", at.committed));
    }
    stragglers().take_back(process.site, name.tag);
    if (!JCCL_PLANTED("old-ready-dropped")) send(process, wire::Moved{name, at.committed});
    return true;
  }
  if (name.n > at.committed + 1) {
    const std::string ahead =
        cat("round ", name.n, " of ", name.tag, " is ahead of the run, which committed ");
    conduct().charge_invented(process, ahead);
    return resync(cat(ahead, at.committed));
  }
  if (process.id == 0 && at.born && process.syncs.count(name.tag) == 0) {
    return resync(cat(process.site, " is no member: synchronise the state first"));
  }
  return false;
}

bool Forming::state_fits(ProcessRecord& process, const wire::Ready& ready) {
  const wire::Tag& tag = ready.round.tag;
  const Standing& at = ledger().standing(tag);
  const auto no = [&](Code code, std::string text) {
    send(process, wire::Reject{ready.round, code, text, ready.call});
    note("reject", {{"site", process.site}, {"tag", tag}, {"text", std::move(text)}});
    return false;
  };
  if (!at.born) {
    if (ready.has_state) {
      return no(at.committed > 0 ? Code::kMismatch : Code::kResync,
                cat(tag, " has no snapshot yet: synchronise it first"));
    }
    if (state_sync().is_state(tag))
      return no(Code::kMismatch, cat(tag, " is about to be a state tag"));
    return true;
  }
  if (!ready.has_state) {
    conduct().charge_invented(process, cat("a call without state on ", tag));
    return no(Code::kMismatch, cat(tag, " is a state tag; the call has none"));
  }
  if (ready.revision > at.committed) {
    conduct().charge_invented(process,
                              cat("revision ", ready.revision, " of ", tag, ", which is none"));
  }
  if (ready.revision != at.committed) {
    if (at.is_restored()) return no(Code::kResync, state_restore().restored_text(tag));
    return no(Code::kResync, cat("own state of ", tag, " is at revision ", ready.revision,
                                 ", the run at ", at.committed));
  }
  state_votes().report(process, {tag, ready.revision, ready.state});
  const auto known = at.digests.find(process.shard);
  if (known != at.digests.end() && known->second != ready.state) {
    conduct().charge(process, Fault::kBadCall,
                     cat("another state of revision ", at.committed, " of ", tag));
    return no(Code::kResync,
              cat("revision ", at.committed, " of ", tag, " has digest ",
                  base::to_hex(known->second), ", this peer has ", base::to_hex(ready.state)));
  }
  return true;
}

void Forming::on_withdraw(ProcessRecord& process, const wire::Withdraw& withdraw) {
  const auto found = rounds().find(withdraw.round.tag);
  if (found == rounds().end()) return;
  Round& round = found->second;
  touch(withdraw.round.tag);
  if (round.ready.erase(process.incarnation) > 0) return;
  if (!round.running.has_value() || round.running->round() != withdraw.round) return;
  Participant* part = round.running->part_of(process.incarnation);  // the START crossed it
  if (part == nullptr) return;
  const bool crossed = !JCCL_PLANTED("crossed-is-left");
  attempts().drop_part(process, withdraw.round.tag, *part,
                       crossed ? Fault::kCrossed : Fault::kWithdrawal,
                       cat(wording().name(process), " withdrew"));
}

void Forming::send_start(const ProcessRecord& process, const Participant& part,
                         const MasterAttempt& running) {
  wire::Start start = running.starts[part.shard];
  start.call = part.call;
  send(process, std::move(start));
}

const OpenReady* Forming::ready_of(const wire::Tag& tag, const wire::Member& member) const {
  const Round& round = rounds().at(tag);
  const auto found = round.ready.find(member.incarnation);
  return found == round.ready.end() ? nullptr : &found->second;
}

// Who says READY once more calls anew, whatever number it gives.
void Forming::forget_call(wire::Incarnation incarnation, const wire::Tag& tag) {
  if (ProcessRecord* process = connections().record_of(incarnation)) process->asked.erase(tag);
}

void Forming::reject(const wire::Tag& tag, wire::Incarnation incarnation, Code code,
                     const std::string& text) {
  Round& round = rounds().at(tag);
  const auto found = round.ready.find(incarnation);
  JCCL_CHECK(found != round.ready.end());
  const wire::RoundName name = found->second.ready.round;
  const std::uint64_t call = found->second.ready.call;
  round.ready.erase(found);
  forget_call(incarnation, tag);
  if (const ProcessRecord* process = connections().record_of(incarnation)) {
    send(*process, wire::Reject{name, code, text, call});
    note("reject", {{"site", process->site},
                    {"tag", tag},
                    {"n", cat(name.n)},
                    {"code", std::string(base::name_of(code))},
                    {"text", text}});
  }
}

void Forming::reject_all(const wire::Tag& tag, Code code, const std::string& text, bool outsiders) {
  std::vector<wire::Incarnation> open;
  for (const auto& [incarnation, one] : rounds().at(tag).ready) {
    if (outsiders || processes().at(incarnation).id != 0) open.push_back(incarnation);
  }
  for (const wire::Incarnation incarnation : open) reject(tag, incarnation, code, text);
  rounds().at(tag).memory = {};
}

Time Forming::round_deadline(const wire::Tag& tag) const {
  Time deadline = base::kNever;
  for (const auto& [id, member] : ledger().members()) {
    const OpenReady* open = ready_of(tag, member);
    if (open == nullptr || !stragglers().takes_part(tag, member)) continue;
    deadline = std::min(deadline, open->deadline);
  }
  return deadline;
}

// A deadline ends the wait of whoever named it, and nobody else's.
void Forming::expire_round(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  if (round.running.has_value() || now() < round.ready_due) return;
  const std::string crossed = wording().cross_wait();
  const std::string why = crossed.empty() || JCCL_PLANTED("deadline-hides-a-cross-wait")
                              ? wording().waiting_text(tag)
                              : crossed;
  const bool few = forming_wait(tag).cause == WaitCause::kTooFew;
  const std::string passed =
      cat("round ", ledger().standing(tag).committed + 1, " of ", tag, ": deadline passed; ", why);
  round.ready_due = base::kNever;
  stragglers().note_late(tag);
  std::vector<wire::Incarnation> due;
  for (const auto& [incarnation, open] : round.ready) {
    if (now() >= open.deadline)
      due.push_back(incarnation);
    else
      round.ready_due = std::min(round.ready_due, open.deadline);
  }
  for (const wire::Incarnation incarnation : due) {
    const ProcessRecord* process = connections().record_of(incarnation);
    if (process != nullptr && process->id != 0) {
      reject(tag, incarnation, few ? Code::kTooFew : Code::kDeadline, passed);
    } else {
      const bool kept = process != nullptr && !(conduct().kept_outside(process->site) +
                                                wording().missing_shards(*process, tag))
                                                   .empty();
      reject(tag, incarnation, Code::kDeadline,
             cat("deadline passed before admission; ",
                 kept ? wording().outsider_text(*process, tag) : why));
    }
  }
  if (round.ready.empty()) round.memory = {};
}

void Forming::form(const wire::Tag& tag) {
  const auto found = rounds().find(tag);
  if (found == rounds().end()) return;
  if (found->second.ready.empty()) {
    found->second.quorum_since = found->second.held_since = base::kNever;
    stragglers().forget_quorum(found->second);
    return;
  }
  expire_round(tag);
  Round& round = found->second;
  if (round.running.has_value() || round.ready.empty()) return;
  state_sync().end_holds();
  stragglers().note_quorum(tag);
  const bool missing = round.ready.size() < membership().owing(tag);
  if (round.ready.empty()) return;
  if (!missing || round.does_without()) state_votes().decide(tag);
  if (const std::string why = state_votes().dispute(tag); !why.empty()) {
    return reject_all(tag, Code::kDisputed, why);
  }
  if (missing) send_on(tag);
  // The first is the cheap half of forming_wait.
  const WaitCause cause =
      missing && !round.does_without() ? WaitCause::kPeers : forming_wait(tag).cause;
  if (cause == WaitCause::kJoiner) {
    round.held_since = std::min(round.held_since, now());
  } else if (cause != WaitCause::kNothing && !JCCL_PLANTED("holds-are-of-calls-that-went")) {
    round.held_since = base::kNever;
  }
  if (missing && JCCL_PLANTED("the-skipped-undo-holds")) round.held_since = base::kNever;
  if (cause != WaitCause::kNothing || !agree(tag) || wait_charges().hurried(tag)) return;
  round.held = now() - std::min(now(), std::exchange(round.held_since, base::kNever));
  launch(tag);
}

// min_peers sites are there; so many have to contribute, if the call lets that many: of a broadcast
// one does.
std::uint32_t Forming::contributors_needed(const wire::Tag& tag,
                                           const std::vector<Participant>& parts) const {
  std::uint32_t needed = std::max(1U, options().min_peers);
  if (needed == 1) return needed;
  for (const Participant& part : parts) {
    const std::uint32_t most = rounds().at(tag).ready.at(part.incarnation).ready.contributors_max;
    if (most > 0 && !JCCL_PLANTED("a-root-needs-company")) needed = std::min(needed, most);
  }
  return needed;
}

// Fewer sites than a commit needs is the more telling reason, so it comes first.
Wait Forming::forming_wait(const wire::Tag& tag) const {
  const std::size_t sites = membership().sites_in(tag);
  if (sites < membership().start_peers()) {
    return {WaitCause::kTooFew,
            cat("waits for the first ", membership().start_peers(), " sites, ", sites,
                sites == 1 ? " is" : " are", " there",
                membership().start_peers() > options().start_peers
                    ? cat("; ", wording().name(*membership().patient()), " asks for this many")
                    : "",
                membership().gone_text())};
  }
  if (sites < std::max(1U, options().min_peers)) {
    return {WaitCause::kTooFew, cat("waits for min_peers = ", options().min_peers, " sites, ",
                                    sites, sites == 1 ? " is" : " are", " there")};
  }
  const std::string missing = wording().missing_members(tag);
  if (!missing.empty()) {
    const std::string& refusal = rounds().at(tag).memory.refusal;
    return {WaitCause::kPeers,
            cat("waits for READY of ", missing, refusal.empty() ? "" : "; ", refusal)};
  }
  if (const std::string why = state_votes().dispute(tag); !why.empty())
    return {WaitCause::kPeers, why};
  if (state_votes().undecided(tag)) return {WaitCause::kPeers, state_votes().votes_text(tag)};
  std::set<std::string> contributing;
  const std::vector<Participant> parts = parts_for(tag);
  for (const Participant& part : parts) {
    if (part.contributes()) contributing.insert(part.site);
  }
  if (!contributing.empty() && contributing.size() < contributors_needed(tag, parts)) {
    return {WaitCause::kTooFew, cat("waits for min_peers = ", options().min_peers, " sites, ",
                                    contributing.size(), " contribute")};
  }
  if (const RoundMemory& memory = rounds().at(tag).memory; now() < memory.paused_until) {
    return {WaitCause::kPeers, cat("pauses after ", memory.tries, " attempts that failed")};
  }
  if (!state_sync().holds_.empty() && ledger().standing(tag).born) {
    if (JCCL_PLANTED("held-round-says-nothing")) return {WaitCause::kJoiner, ""};
    return {WaitCause::kJoiner,
            cat("is held for ", state_sync().holds_.begin()->first, ", which fetches the state")};
  }
  return {};
}

// A site contributes with all its shards or not at all.
std::vector<Participant> Forming::parts_for(const wire::Tag& tag) const {
  std::set<std::string> silent;
  for (const auto& [id, member] : ledger().members()) {
    if (!membership().owes(tag, id)) continue;
    const OpenReady* open = ready_of(tag, member);
    if (open == nullptr || open->ready.weight <= 0) silent.insert(member.site);
  }
  std::vector<Participant> parts;
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    Participant part;
    part.id = id;
    part.incarnation = member.incarnation;
    part.site = member.site;
    part.shard = member.shard;
    if (const OpenReady* open = ready_of(tag, member)) {
      part.call = open->ready.call;
      part.deadline = open->deadline;
      part.called = open->called;
      part.time = open->time;
    }
    if (silent.count(member.site) == 0) part.weight = ready_of(tag, member)->ready.weight;
    parts.push_back(std::move(part));
  }
  return parts;
}

// Those that failed in this round, and where a plan can do without, those that did lately.
LinkSet Forming::bad_links(const wire::Tag& tag, bool avoid_cuts) const {
  LinkSet bad = rounds().at(tag).memory.cut;
  if (avoid_cuts) bad.merge(link_faults().avoided_links(now()));
  return bad;
}

base::Result<std::vector<base::Bytes>> Forming::plans_for(const wire::Tag& tag,
                                                          const std::vector<Participant>& parts,
                                                          const LinkSet& bad) const {
  const Round& round = rounds().at(tag);
  std::map<std::uint32_t, PlanRequest> groups;
  for (const Participant& part : parts) {
    PlanRequest& group = groups[part.shard];
    // Which sums are audited is the run's choice, and not that of who says which links fail.
    group.may_ring = options().audit <= 0 || JCCL_PLANTED("rings-escape-audits");
    (part.contributes() ? group.contributors : group.receivers).push_back(part.id);
    const ProcessRecord* process = connections().record_of(part.incarnation);
    if (process != nullptr && process->addresses.empty()) group.dial_only.push_back(part.id);
    if (part.contributes()) group.hint = round.ready.at(part.incarnation).ready.hint;
  }
  std::vector<base::Bytes> plans;
  for (auto& [shard, group] : groups) {
    const auto has = [&group = group](wire::PeerId id) {  // clang 14 needs the name again
      return std::count(group.contributors.begin(), group.contributors.end(), id) +
                 std::count(group.receivers.begin(), group.receivers.end(), id) >
             0;
    };
    for (const auto& link : bad) {
      if (has(link.first) && has(link.second)) group.bad_links.push_back(link);
    }
    auto plan = all().planner_(group);
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(plan.value()));
  }
  return plans;
}

void Forming::launch(const wire::Tag& tag) {
  std::vector<Participant> parts = parts_for(tag);
  LinkSet avoided = bad_links(tag, true);
  auto plans = plans_for(tag, parts, avoided);
  if (!plans.ok()) {
    avoided = bad_links(tag, false);  // only this round's evidence may evict
    plans = plans_for(tag, parts, avoided);
  }
  if (!plans.ok() && stragglers().take_back_left_out(tag)) return;
  if (!plans.ok()) return link_faults().evict_worst_link(tag, plans.status());
  const bool audited = audits().may_audit(tag, parts, plans.value());
  const bool limited = std::any_of(parts.begin(), parts.end(), [&](const Participant& part) {
    return part.contributes() &&
           rounds().at(tag).ready.at(part.incarnation).ready.contributors_max > 0;
  });
  // Who the parts are must be known before they are named.
  if (!JCCL_PLANTED("start-before-roster")) membership().flush_roster();
  Round& round = rounds().at(tag);
  if (!std::exchange(membership().begun_, true))
    touch_all();  // nothing waits for start_peers any more
  round.quorum_since = base::kNever;
  stragglers().forget_quorum(round);
  if (!JCCL_PLANTED("lateness-outlives-rounds")) round.late.clear();
  wait_charges().charge_left(tag);
  const wire::Attempt attempt{ledger().epoch(), ++counter_};
  const wire::RoundName name{tag, ledger().standing(tag).committed + 1};
  const std::uint32_t needed = contributors_needed(tag, parts);
  round.running.emplace(attempt, name, std::move(parts), needed);
  round.running_told.clear();
  MasterAttempt& running = *round.running;
  attempts().running_[attempt] = tag;
  running.limited = limited;
  running.since = running.last_done = now();
  running.avoided = std::move(avoided);
  running.deadline = round_deadline(tag);
  const Standing& at = ledger().standing(tag);
  for (const base::Bytes& plan : plans.value()) {
    wire::Start start{attempt, name, {}, {}, plan};
    const auto shard = static_cast<std::uint32_t>(running.starts.size());
    if (at.born) {
      start.has_state = true;
      start.revision = at.committed;
      start.state = at.digests.at(shard);
    }
    if (audited) running.audit.emplace(), start.audit = ledger().run();
    running.starts.push_back(std::move(start));
  }
  std::string contributors, receivers;
  for (const auto& [id, part] : running.parts()) {
    wire::Start& start = running.starts[part.shard];
    if (part.contributes())
      start.contributors.push_back({id, part.weight});
    else
      start.receivers.push_back(id);
    std::string& names = part.contributes() ? contributors : receivers;
    names += cat(names.empty() ? "" : " ", wording().name(id));
  }
  for (const auto& [id, part] : running.parts()) {
    if (!JCCL_PLANTED("ready-kept-over-abort")) round.ready.erase(part.incarnation);
    send_start(*connections().record_of(part.incarnation), part, running);
  }
  note("start", {{"tag", tag},
                 {"n", cat(name.n)},
                 {"attempt", base::to_text(attempt)},
                 {"contributors", contributors},
                 {"receivers", receivers}});
}

}  // namespace jccl::protocol
