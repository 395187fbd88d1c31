// Time that the others wait for a site: since when they do, and what it pays for that when it goes,
// or when deadlines end the attempt (blame.h). Pure; one event at a time.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;

namespace {

constexpr base::Duration kHeldNoted = base::kSecond / 2;
constexpr std::size_t kEndedMax = 64;  // remembered until a commit

}  // namespace

// Where slow ones are waited for, one that is known may take its time, and go.
bool WaitCharges::may_be_slow(const std::string& site) const {
  const auto& ids = connections().processes_at(site);
  return options().straggler == Straggler::kWait &&
         std::all_of(ids.begin(), ids.end(), [&](wire::Incarnation incarnation) {
           const ProcessRecord& process = processes().at(incarnation);
           const bool long_served = process.served_to - process.served_since >= kKnown;
           return long_served || conduct().blame_.known(process.key);
         });
}

// Since when the others wait for its DONE, or for what an audit asked it for.
base::Time WaitCharges::awaited_since(const MasterAttempt& running, const Participant& part) const {
  if (!part.done.has_value()) return running.since;
  if (!running.audit.has_value() || JCCL_PLANTED("audits-hold-for-nothing")) return base::kNever;
  const auto asked = running.audit->since.find(part.id);
  const bool owes =
      asked != running.audit->since.end() && !audits().owed_cells(running, part).empty();
  return owes ? now() - audits().took(*running.audit, part.id) : base::kNever;
}

// Since when the others wait for the site, in rounds that it takes part in.
base::Time WaitCharges::waited_since(const std::string& site) const {
  base::Time since = base::kNever;
  for (const wire::Incarnation incarnation : connections().processes_at(site)) {
    since = std::min(since, processes().at(incarnation).waited_since);
  }
  for (const auto& [tag, round] : rounds()) {
    if (round.running.has_value()) {
      for (const auto& [id, part] : round.running->parts()) {
        const bool waited = part.site == site && part.contributes() && !part.evicted;
        if (waited) since = std::min(since, awaited_since(*round.running, part));
      }
    } else if (round.quorum_since != base::kNever && !may_be_slow(site)) {
      for (const auto& [id, member] : ledger().members()) {
        const bool waited = member.site == site && stragglers().takes_part(tag, member);
        if (waited && forming().ready_of(tag, member) == nullptr)
          since = std::min(since, round.quorum_since);
      }
    }
  }
  for (const wire::Incarnation incarnation : connections().processes_at(site)) {
    since = std::min(since, in_trouble_since(processes().at(incarnation)));
  }
  return since;
}

// Since when attempts have failed of its links with others that are here still: it may have broken
// them.
base::Time WaitCharges::in_trouble_since(const ProcessRecord& process) const {
  base::Time since = base::kNever;
  if (process.id == 0 || JCCL_PLANTED("broken-links-hold-nobody")) return since;
  for (const auto& [tag, round] : rounds()) {
    for (const auto& [link, failures] : round.memory.link_failures) {
      if (link.first != process.id && link.second != process.id) continue;
      const ProcessRecord* other =
          link_faults().member_record(link.first == process.id ? link.second : link.first);
      if (other != nullptr && !link_faults().is_liar_beside(*other, process))
        since = std::min(since, failures.since);
    }
  }
  return since;
}

// Before it goes. Honest ones go, too, so some time is free, and more where rounds take long.
void WaitCharges::note_held(const std::string& site, base::Time since, base::Duration more_free) {
  if (since == base::kNever || ledger().sites() < 3 || JCCL_PLANTED("holding-is-free")) return;
  for (const ProcessRecord* process : connections().shards_of(site)) {
    charge_time({site, process->key, process->token, since, now(), false}, now(), more_free);
  }
}

base::Duration WaitCharges::free_time() const {
  base::Duration free = Held::kFree;
  for (const auto& [tag, round] : rounds()) free = std::max(free, Held::kFree + 2 * round.usual);
  return free;
}

// Keys that come by it wait.
void WaitCharges::hold_token(const std::string& by, base::Time since, base::Time until,
                             base::Duration free) {
  Throttle& throttle = conduct().throttles_[by];
  throttle.held_until = throttle.held.add(since, free, options().out_max, until);
  if (throttle.held_until <= now()) return;
  throttle.open = false;
  throttle.next_at = std::max(throttle.next_at, throttle.held_until);
}

void WaitCharges::charge_time(const Departed& by, base::Time until, base::Duration more_free) {
  const base::Time since = std::max(by.since, all().woke_at_);
  const base::Duration free = free_time() + more_free;
  conduct().blame_.held(by.key, since, free, options().out_max, until);
  if (JCCL_PLANTED("holders-return-under-new-keys")) return;
  hold_token(by.token, since, until, free);
  const base::Time out =
      std::max(conduct().blame_.out_until(by.key), conduct().throttles_[by.token].held_until);
  const bool waits = out > now();
  if (until < since + (waits ? kHeldNoted / 10 : kHeldNoted)) return;
  note("held",
       {{"site", by.site},
        {"key", base::to_hex(by.key)},
        {"text", cat("others waited for it for ", (until - since) / base::kMillisecond, " ms")}});
}

// It goes from an attempt that runs, or from one that failed, before the next one begins: the
// attempt may have failed of it.
void WaitCharges::note_left(const std::string& site) {
  if (ledger().sites() < 3 || JCCL_PLANTED("what-the-gone-ended-is-free")) return;
  const std::vector<ProcessRecord*> processes = connections().shards_of(site);
  for (auto& [tag, round] : rounds()) {
    for (const ProcessRecord* process : processes) {
      if (process->id == 0) continue;
      const Participant* part =
          round.running ? round.running->part_of(process->incarnation) : nullptr;
      const bool ran = part != nullptr && part->contributes() && !part->evicted;
      const bool between = !round.running.has_value() && round.memory.failed_at != base::kNever &&
                           membership().owes(tag, process->id);
      if (!ran && !between) continue;
      if (ran) audits().note_unshown(*process, *round.running, *part);
      base::Time since = between ? round.memory.failed_since : round.running->since;
      if (ran && !part->done.has_value()) since = now();  // it has paid until now
      RoundMemory& memory = round.memory;
      memory.left[process->key] = {site, process->key, process->token, since, now(), false};
      if (ran && memory.ended.size() < kEndedMax)
        memory.ended[process->key] = memory.left[process->key];
    }
  }
}

// Another attempt begins: until now others have waited for those who went meanwhile, or whose doing
// it was that the last one failed. How long a new START takes is not all their doing.
void WaitCharges::charge_left(const wire::Tag& tag) {
  RoundMemory& memory = rounds().at(tag).memory;
  if (memory.left.empty() || memory.failed_at == base::kNever) return;
  const base::Time until = std::min(now(), memory.failed_at + options().silence / 4);
  for (const auto& [key, by] : std::exchange(memory.left, {})) {
    if (by.stays && by.since != memory.failed_at) continue;
    // What fails of one that went fails soon: this went on, and fails of somebody else.
    const bool went_on = memory.failed_at > by.at + options().silence;
    if (!went_on || JCCL_PLANTED("the-gone-pay-to-the-end")) charge_time(by, until, 0);
  }
}

// It leaves an attempt that runs, and stays: unless the others have waited too long for it.
void WaitCharges::note_exit(const ProcessRecord& process, const MasterAttempt& running) {
  if (JCCL_PLANTED("exits-take-no-time")) return;
  if (process.id == 0) return note_held(process.site, running.since);
  note_absence(process.site, running.since);
  if (ledger().sites() < 3 || JCCL_PLANTED("pauses-are-free")) return;
  RoundMemory& memory = rounds().at(attempts().running_tag(running.attempt())).memory;
  memory.left[process.key] = {process.site, process.key, process.token, now(), now(), true};
  if (memory.ended.size() < kEndedMax) memory.ended[process.key] = memory.left.at(process.key);
}

void WaitCharges::note_absence(const std::string& site, base::Time since,
                               base::Duration more_free) {
  note_held(site, since, more_free);
  if (pays(site)) conduct().holders_.insert(site);
}

bool WaitCharges::pays(const std::string& site) const {
  const auto& ids = connections().processes_at(site);
  if (JCCL_PLANTED("the-skipped-pay-nothing")) return false;
  return std::any_of(ids.begin(), ids.end(), [&](wire::Incarnation incarnation) {
    return now() < conduct().blame_.out_until(processes().at(incarnation).key);
  });
}

}  // namespace jccl::protocol
