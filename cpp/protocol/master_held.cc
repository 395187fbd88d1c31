// Time that the others wait for a site: since when they do, and what it pays for that when it goes,
// or when deadlines end the attempt (blame.h). Pure; one event at a time.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master_state.h"

namespace jccl::protocol {

using base::cat;
using State = MasterMachine::State;

namespace {

constexpr base::Duration kHeldNoted = base::kSecond / 2;
constexpr std::size_t kEndedMax = 64;  // remembered until a commit

}  // namespace

// Where slow ones are waited for, one that is known may take its time, and go.
bool State::may_be_slow(const std::string& site) const {
  const auto& processes = processes_at(site);
  return options_.straggler == Straggler::kWait &&
         std::all_of(processes.begin(), processes.end(), [&](wire::Incarnation incarnation) {
           const ProcessRecord& process = processes_.at(incarnation);
           const bool long_served = process.served_to - process.served_since >= kKnown;
           return long_served || blame_.known(process.key);
         });
}

// Since when the others wait for its DONE, or for what an audit asked it for.
base::Time State::awaited_since(const MasterAttempt& running, const Part& part) const {
  if (!part.done.has_value()) return running.since;
  if (!running.audit.has_value() || JCCL_PLANTED("audits-hold-for-nothing")) return base::kNever;
  const auto asked = running.audit->since.find(part.id);
  const bool owes = asked != running.audit->since.end() && !owed_cells(running, part).empty();
  return owes ? now_ - took(*running.audit, part.id) : base::kNever;
}

// Since when the others wait for the site, in rounds that it takes part in.
base::Time State::waited_since(const std::string& site) const {
  base::Time since = base::kNever;
  for (const wire::Incarnation incarnation : processes_at(site)) {
    since = std::min(since, processes_.at(incarnation).waited_since);
  }
  for (const auto& [tag, round] : rounds_) {
    if (round.running.has_value()) {
      for (const auto& [id, part] : round.running->parts()) {
        const bool waited = part.site == site && part.contributes() && !part.evicted;
        if (waited) since = std::min(since, awaited_since(*round.running, part));
      }
    } else if (round.quorum_since != base::kNever && !may_be_slow(site)) {
      for (const auto& [id, member] : ledger_.members()) {
        const bool waited = member.site == site && takes_part(tag, member);
        if (waited && ready_of(tag, member) == nullptr) since = std::min(since, round.quorum_since);
      }
    }
  }
  for (const wire::Incarnation incarnation : processes_at(site)) {
    since = std::min(since, in_trouble_since(processes_.at(incarnation)));
  }
  return since;
}

// Since when attempts have failed of its links with others that are here still: it may have broken
// them.
base::Time State::in_trouble_since(const ProcessRecord& process) const {
  base::Time since = base::kNever;
  if (process.id == 0 || JCCL_PLANTED("broken-links-hold-nobody")) return since;
  for (const auto& [tag, round] : rounds_) {
    for (const auto& [link, failures] : round.memory.link_failures) {
      if (link.first != process.id && link.second != process.id) continue;
      const ProcessRecord* other =
          member_record(link.first == process.id ? link.second : link.first);
      if (other != nullptr && !is_liar_beside(*other, process))
        since = std::min(since, failures.since);
    }
  }
  return since;
}

// Before it goes. Honest ones go, too, so some time is free, and more where rounds take long.
void State::note_held(const std::string& site, base::Time since, base::Duration more_free) {
  if (since == base::kNever || ledger_.sites() < 3 || JCCL_PLANTED("holding-is-free")) return;
  for (const ProcessRecord* process : shards_of(site)) {
    charge_time({site, process->key, process->token, since, now_, false}, now_, more_free);
  }
}

base::Duration State::free_time() const {
  base::Duration free = Held::kFree;
  for (const auto& [tag, round] : rounds_) free = std::max(free, Held::kFree + 2 * round.usual);
  return free;
}

// Keys that come by it wait.
void State::hold_token(const std::string& by, base::Time since, base::Time until,
                       base::Duration free) {
  Throttle& throttle = throttles_[by];
  throttle.held_until = throttle.held.add(since, free, options_.out_max, until);
  if (throttle.held_until <= now_) return;
  throttle.open = false;
  throttle.next_at = std::max(throttle.next_at, throttle.held_until);
}

void State::charge_time(const Departed& by, base::Time until, base::Duration more_free) {
  const base::Time since = std::max(by.since, woke_at_);
  const base::Duration free = free_time() + more_free;
  blame_.held(by.key, since, free, options_.out_max, until);
  if (JCCL_PLANTED("holders-return-under-new-keys")) return;
  hold_token(by.token, since, until, free);
  const base::Time out = std::max(blame_.out_until(by.key), throttles_[by.token].held_until);
  const bool waits = out > now_;
  if (until < since + (waits ? kHeldNoted / 10 : kHeldNoted)) return;
  note("held",
       {{"site", by.site},
        {"key", base::to_hex(by.key)},
        {"text", cat("others waited for it for ", (until - since) / base::kMillisecond, " ms")}});
}

// It goes from an attempt that runs, or from one that failed, before the next one begins: the
// attempt may have failed of it.
void State::note_left(const std::string& site) {
  if (ledger_.sites() < 3 || JCCL_PLANTED("what-the-gone-ended-is-free")) return;
  const std::vector<ProcessRecord*> processes = shards_of(site);
  for (auto& [tag, round] : rounds_) {
    for (const ProcessRecord* process : processes) {
      if (process->id == 0) continue;
      const Part* part = round.running ? round.running->part_of(process->incarnation) : nullptr;
      const bool ran = part != nullptr && part->contributes() && !part->evicted;
      const bool between = !round.running.has_value() && round.memory.failed_at != base::kNever &&
                           owes(tag, process->id);
      if (!ran && !between) continue;
      if (ran) note_unshown(*process, *round.running, *part);
      base::Time since = between ? round.memory.failed_since : round.running->since;
      if (ran && !part->done.has_value()) since = now_;  // it has paid until now
      RoundMemory& memory = round.memory;
      memory.left[process->key] = {site, process->key, process->token, since, now_, false};
      if (ran && memory.ended.size() < kEndedMax)
        memory.ended[process->key] = memory.left[process->key];
    }
  }
}

// Another attempt begins: until now others have waited for those who went meanwhile, or whose doing
// it was that the last one failed. How long a new START takes is not all their doing.
void State::charge_left(const wire::Tag& tag) {
  RoundMemory& memory = rounds_.at(tag).memory;
  if (memory.left.empty() || memory.failed_at == base::kNever) return;
  const base::Time until = std::min(now_, memory.failed_at + options_.silence / 4);
  for (const auto& [key, by] : std::exchange(memory.left, {})) {
    if (by.stays && by.since != memory.failed_at) continue;
    // What fails of one that went fails soon: this went on, and fails of somebody else.
    const bool went_on = memory.failed_at > by.at + options_.silence;
    if (!went_on || JCCL_PLANTED("the-gone-pay-to-the-end")) charge_time(by, until, 0);
  }
}

// It leaves an attempt that runs, and stays: unless the others have waited too long for it.
void State::note_exit(const ProcessRecord& process, const MasterAttempt& running) {
  if (JCCL_PLANTED("exits-take-no-time")) return;
  if (process.id == 0) return note_held(process.site, running.since);
  note_absence(process.site, running.since);
  if (ledger_.sites() < 3 || JCCL_PLANTED("pauses-are-free")) return;
  RoundMemory& memory = rounds_.at(running_tag(running.attempt())).memory;
  memory.left[process.key] = {process.site, process.key, process.token, now_, now_, true};
  if (memory.ended.size() < kEndedMax) memory.ended[process.key] = memory.left.at(process.key);
}

void State::note_absence(const std::string& site, base::Time since, base::Duration more_free) {
  note_held(site, since, more_free);
  if (pays(site)) holders_.insert(site);
}

bool State::pays(const std::string& site) const {
  const auto& processes = processes_at(site);
  if (JCCL_PLANTED("the-skipped-pay-nothing")) return false;
  return std::any_of(processes.begin(), processes.end(), [&](wire::Incarnation incarnation) {
    return now_ < blame_.out_until(processes_.at(incarnation).key);
  });
}

}  // namespace jccl::protocol
