// Sites that the others wait for: those that are not READY when half of the run is, and those that
// move data so slowly that a running attempt stands still for them. What becomes of them is the
// run's setting: wait, skip, evict. Pure; one event at a time.
#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

// Half of the sites, and enough for a commit.
bool is_quorum(std::size_t ready, std::size_t sites, std::uint32_t min_peers) {
  return ready < sites && 2 * ready >= sites && ready >= std::max(1U, min_peers);
}

const wire::Moving* find(const std::vector<wire::Moving>& moving, const wire::Attempt& attempt) {
  const auto found = std::find_if(moving.begin(), moving.end(),
                                  [&](const auto& one) { return one.attempt == attempt; });
  return found == moving.end() ? nullptr : &*found;
}

constexpr double kNearly = 1.25;  // heartbeats are not of one moment

double share_left(const wire::Moving& moving) {
  if (moving.all == 0) return 0;
  return static_cast<double>(moving.left) / static_cast<double>(moving.all);
}

}  // namespace

const wire::Moving* moving_of(const ProcessRecord& process, const wire::Attempt& attempt) {
  return find(process.moving, attempt);
}

// What it said at that time at the latest.
static const wire::Moving* moving_by(const ProcessRecord& process, const wire::Attempt& attempt,
                                     base::Time by) {
  if (process.beat <= by) return moving_of(process, attempt);
  return process.beat_before <= by ? find(process.moving_before, attempt) : nullptr;
}

// A site that was skipped is not waited for until it is READY with all its shards, or current; and
// one that ends attempts again and again is in no round until the others have committed one, if
// they are enough for that.
bool Stragglers::left_out(const wire::Tag& tag, const wire::Member& member) const {
  const Round& round = rounds().at(tag);
  if (round.skipped.count(member.site) > 0) return true;
  if (round.without.count(member.site) == 0) return false;
  std::set<std::string> others;
  for (const auto& [id, other] : ledger().members()) {
    const bool out = round.without.count(other.site) + round.skipped.count(other.site) > 0;
    if (membership().owes(tag, id) && !out) others.insert(other.site);
  }
  return others.size() >= std::max(1U, options().min_peers);
}

// In the round of the tag that begins next.
bool Stragglers::takes_part(const wire::Tag& tag, const wire::Member& member) const {
  return membership().owes(tag, member.id) && !left_out(tag, member);
}

// No round of a state starts without it: it is a member, in all of them, and skipped nowhere.
bool Stragglers::waited_for(const std::string& site) const {
  const auto& ids = connections().processes_at(site);
  if (ids.empty()) return false;
  const wire::PeerId id = processes().at(*ids.begin()).id;
  if (id == 0) return false;
  return std::none_of(rounds().begin(), rounds().end(), [&](const auto& entry) {
    const bool skipped =
        entry.second.skipped.count(site) > 0 && !JCCL_PLANTED("no-hold-for-the-skipped");
    return skipped || (ledger().standing(entry.first).born && !membership().owes(entry.first, id));
  });
}

void Stragglers::take_back(const std::string& site, const wire::Tag& tag) {
  const auto found = rounds().find(tag);
  if (wait_charges().pays(site) || JCCL_PLANTED("skipped-for-ever")) return;
  if (found != rounds().end() && found->second.skipped.erase(site) > 0) touch(tag);
}

// Starts the clock of stragglers when half of the sites are READY, and acts when it is over.
void Stragglers::note_quorum(const wire::Tag& tag) {
  const bool waits = options().straggler == Straggler::kWait;
  if (waits && JCCL_PLANTED("who-waits-counts-no-time")) return;
  Round& round = rounds().at(tag);
  if (2 * round.ready.size() < membership().owing(tag)) {
    round.quorum_since = base::kNever;
    return;
  }
  std::size_t count = 0, sites = ledger().sites();
  const std::size_t members = ledger().members().size();
  const bool strangers = connections().observers() > 0 && !JCCL_PLANTED("observers-make-quorums");
  // Mostly each site is one member that owes the round, and nobody else is here: then nothing is
  // looked up, at each READY of a thousand.
  if (!strangers && round.skipped.empty() && sites == members &&
      membership().owing(tag) == members) {
    count = round.ready.size();
  } else {
    std::map<std::string, bool> ready;  // with all shards
    for (const auto& [id, member] : ledger().members()) {
      if (!membership().owes(tag, id)) continue;
      const bool here = forming().ready_of(tag, member) != nullptr;
      const auto [entry, fresh] = ready.try_emplace(member.site, here);
      entry->second = entry->second && here;
    }
    for (const auto& [site, here] : ready) {
      count += here;
      const bool back = here && round.skipped.count(site) > 0 && !wait_charges().pays(site);
      if (back && !JCCL_PLANTED("skipped-for-ever")) round.skipped.erase(site);
    }
    sites = ready.size();
  }
  if (count == sites) note_ready_late(tag);
  note_asked_quorum(tag);
  wait_without_quorum(tag, count, sites);
  if (!round.quorum.met(count, sites) || count < options().min_peers) {
    round.met_since = base::kNever;
  } else {
    round.met_since = std::min(round.met_since, now());
  }
  if (!is_quorum(count, sites, options().min_peers)) {
    round.quorum_since = base::kNever;
  } else if (round.quorum_since == base::kNever) {
    round.quorum_since = now();
  }
  const bool met = round.met_since != base::kNever;
  if (met && now() >= round.met_since + round.quorum.grace) leave_out(tag);
  if (round.quorum_since == base::kNever || waits) return;
  if (now() >= leaves_behind_at(round)) leave_behind(tag);
}

// All are READY. Who was so last has kept the others, and perhaps to the end of their calls.
void Stragglers::note_ready_late(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  if (options().straggler == Straggler::kWait || round.quorum_since == base::kNever) return;
  if (JCCL_PLANTED("ready-at-last-is-in-time")) return;
  std::map<std::string, base::Time> last;
  for (const auto& [id, member] : ledger().members()) {
    const OpenReady* open = membership().owes(tag, id) ? forming().ready_of(tag, member) : nullptr;
    if (open != nullptr) last[member.site] = std::max(last[member.site], open->since);
  }
  for (const auto& [site, since] : last) {
    if (since > round.quorum_since) round.late[site] += since - round.quorum_since;
  }
}

// At the earliest: for whom calls that have ended waited longest may be READY by now.
base::Time Stragglers::leaves_behind_at(const Round& round) const {
  base::Duration waited = 0;
  for (const auto& [site, time] : round.late) {
    const auto& processes = connections().processes_at(site);
    const bool ready = std::all_of(
        processes.begin(), processes.end(),
        [&](wire::Incarnation incarnation) { return round.ready.count(incarnation) > 0; });
    if (!ready) waited = std::max(waited, time);
  }
  return round.quorum_since + std::max<base::Duration>(0, options().straggler_after - waited);
}

// Who is not READY while half of the sites are. Who is not back since the master's restart has a
// grace of its own: it may know of none yet.
std::set<std::string> Stragglers::late_sites(const wire::Tag& tag) const {
  std::set<std::string> late;
  for (const auto& [id, member] : ledger().members()) {
    const bool back = processes().at(member.incarnation).seen || JCCL_PLANTED("not-back-is-late");
    if (forming().ready_of(tag, member) == nullptr && takes_part(tag, member) && back) {
      late.insert(member.site);
    }
  }
  return late;
}

// Calls end that are shorter than `straggler_after`. The next ones go on waiting where they did.
void Stragglers::note_late(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  if (options().straggler == Straggler::kWait || round.quorum_since == base::kNever) return;
  if (JCCL_PLANTED("calls-end-before-stragglers")) return;
  for (const std::string& site : late_sites(tag)) round.late[site] += now() - round.quorum_since;
  round.quorum_since = base::kNever;  // from now on, if they are still enough
}

// A member is back after the master's restart. It has all of `straggler_after` from now on; those
// that were late before it came stay so.
void Stragglers::note_back() {
  if (JCCL_PLANTED("late-before-it-is-back")) return;
  for (auto& [tag, round] : rounds()) {
    if (round.met_since != base::kNever) round.met_since = now();
    if (round.quorum_since == base::kNever) continue;
    note_late(tag);
    round.quorum_since = now();
  }
}

void Stragglers::leave_behind(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  const base::Time since = std::exchange(round.quorum_since, base::kNever);
  const std::uint64_t n = ledger().standing(tag).committed + 1;
  for (const std::string& site : late_sites(tag)) {
    const base::Duration waited = round.late[site] += now() - since;
    if (waited < options().straggler_after) continue;
    round.late.erase(site);
    const std::string why =
        cat(site, " was not READY for round ", n, " of ", tag, " ",
            options().straggler_after / base::kMillisecond, " ms after half of the sites");
    const base::Time from = JCCL_PLANTED("only-the-last-call-counts") ? since : now() - waited;
    if (options().straggler == Straggler::kEvict) {
      conduct().put_out(site, waited);
      wait_charges().note_held(site, from);
      connections().depart(site, why, "evict");
      continue;
    }
    skip(tag, site, from, options().straggler_after, why);
  }
}

// In the round of the tag that begins next. It pays for the time since then, of which twice what it
// was waited for is free.
void Stragglers::skip(const wire::Tag& tag, const std::string& site, base::Time since,
                      base::Duration waited, const std::string& why) {
  wait_charges().note_held(site, since, 2 * waited);
  rounds().at(tag).skipped.insert(site);
  const std::uint64_t n = ledger().standing(tag).committed + 1;
  note("skip", {{"site", site}, {"tag", tag}, {"n", cat(n)}, {"reason", why}});
}

bool Stragglers::waits_for_evicted(const MasterAttempt& running, const wire::Moving& moving) const {
  const auto awaited = running.parts().find(moving.waits_on);
  return awaited != running.parts().end() && awaited->second.evicted &&
         !JCCL_PLANTED("waits-for-evicted-is-slow");
}

// For whom it waits, by its own word and by those of whom it waits for: the last one, who had the
// time to say so and waits for nobody, perhaps itself. Null: nobody can say; in a circle each
// waits.
const Participant* Stragglers::waits_for(const MasterAttempt& running,
                                         const Participant& part) const {
  std::set<wire::PeerId> seen;
  const bool is_young = now() < running.since + 2 * options().heartbeat;  // one beat has to do
  const base::Time said_by = running.since + (is_young ? 0 : options().heartbeat);
  for (const Participant* at = &part; seen.insert(at->id).second;) {
    const ProcessRecord* process =
        at->evicted || at->done.has_value() ? nullptr : connections().record_of(at->incarnation);
    if (process == nullptr) return nullptr;
    const wire::Moving* moving = moving_of(*process, running.attempt());
    const auto awaited =
        running.parts().find(moving == nullptr || moving->left == 0 ? 0 : moving->waits_on);
    // Whom it names may be no part, or have done its own.
    const bool waits = awaited != running.parts().end() && &awaited->second != at &&
                       !awaited->second.done.has_value();
    if (!waits) return process->beat < said_by ? nullptr : at;
    at = &awaited->second;
  }
  return nullptr;
}

bool Stragglers::waits_itself(const MasterAttempt& running, const Participant& part) const {
  const Participant* last = waits_for(running, part);
  return last != nullptr && last != &part;
}

// Whom several wait for may wait itself, and be about to say so: its clock began a moment later. So
// may one whom one waits for, if its heartbeats say so.
bool Stragglers::is_to_be_heard(const MasterAttempt& running) const {
  for (const wire::PeerId id : running.unheard()) {
    const Participant& part = running.parts().at(id);
    const ProcessRecord* process =
        part.evicted || part.done.has_value() ? nullptr : connections().record_of(part.incarnation);
    if (process == nullptr || now() - process->heard >= options().silence / 2) continue;
    if (running.silent.at(id).size() > 1) return true;
    if (waits_itself(running, part) && !JCCL_PLANTED("one-word-is-enough")) return true;
  }
  return false;
}

// Who has nothing to move, as it says, and is not done, while all others are or wait for it.
const Participant* Stragglers::holds_in_silence(const MasterAttempt& running) const {
  const Participant* holder = nullptr;
  for (const auto& [id, part] : running.parts()) {
    if (!part.contributes() || part.evicted || part.done.has_value()) continue;
    const Participant* last = waits_for(running, part);
    if (last == nullptr || (holder != nullptr && holder != last)) return nullptr;
    holder = last;
  }
  const ProcessRecord* process =
      holder == nullptr ? nullptr : connections().record_of(holder->incarnation);
  if (process == nullptr || JCCL_PLANTED("silent-holders-are-free")) return nullptr;
  const wire::Moving* moving = moving_of(*process, running.attempt());
  return moving == nullptr || moving->left == 0 ? holder : nullptr;
}

// The contributor for which a running attempt stands still: of what it has to send and to receive
// at least twice as much is left as of any other's, in bytes and as a share, and nearly as large a
// share as of all others' together; and it would need `patience` more at the pace it has shown.
// What is left between two is left at both ends, those of receivers too, so who only waits, for one
// or for several, has no more left than those; of two it can't be told which is slow. Who is done
// is never the one: it has most of its way behind it. The others are taken by what they had said
// when it said its last: what is left only falls, so that says too much of them at worst. Who
// waits for a contributor that was put out is not the one either: what is left at that end is not
// heard of. Empty: nobody.
std::string Stragglers::straggling(const MasterAttempt& running, base::Duration patience,
                                   std::string* why) const {
  const Participant* slowest = nullptr;
  const wire::Moving* its = nullptr;
  base::Time said = 0;
  double most = 0, next = 0, sum = 0;
  for (const auto& [id, part] : running.parts()) {
    if (!part.contributes() || part.evicted || part.done.has_value()) continue;
    const ProcessRecord* process = connections().record_of(part.incarnation);
    const wire::Moving* moving =
        process == nullptr ? nullptr : moving_of(*process, running.attempt());
    if (moving == nullptr) return {};  // not heard of: who knows
    if (withheld().starves(running, id) || share_left(*moving) <= most) continue;
    most = share_left(*moving);
    slowest = &part;
    its = moving;
    said = process->beat;
  }
  if (slowest == nullptr) return {};
  if (waits_for_evicted(running, *its)) return {};
  std::uint64_t bytes_next = 0;
  std::set<std::string> sites;
  for (const auto& [id, part] : running.parts()) {
    if (part.evicted) continue;
    if (part.contributes()) sites.insert(part.site);
    if (&part == slowest) continue;
    const ProcessRecord* process = connections().record_of(part.incarnation);
    const wire::Moving* moving =
        process == nullptr ? nullptr : moving_by(*process, running.attempt(), said);
    if (moving == nullptr) {
      const bool has_none = process == nullptr || moving_of(*process, running.attempt()) == nullptr;
      if (has_none && (part.done.has_value() || !part.contributes())) continue;
      return {};  // not heard of then: who knows
    }
    next = std::max(next, share_left(*moving));
    sum += share_left(*moving);
    bytes_next = std::max(bytes_next, moving->left);
  }
  if (sites.size() < 3 || its->left / 2 < bytes_next || most < 2 * next) return {};
  if (kNearly * most < sum) return {};
  const auto moved = static_cast<double>(its->all - std::min(its->all, its->left));
  const double needs = static_cast<double>(now() - running.since) * static_cast<double>(its->left);
  if (moved > 0 && needs < moved * static_cast<double>(patience)) return {};
  for (const auto& [id, part] : running.parts()) {
    if (JCCL_PLANTED("fast-one-is-slow") && part.contributes() && !part.evicted) slowest = &part;
  }
  *why = cat(wording().name(slowest->id), " is slow: ", base::bytes_text(its->left), " of ",
             base::bytes_text(its->all), " left in round ", running.round().n, " of ",
             running.round().tag, ", the others have at most ", base::bytes_text(bytes_next));
  return slowest->site;
}

// The one contributor that is not done though everybody else has been for `patience`, and has
// nothing left to send to it: whatever it says of itself, the others wait for its word alone.
// Null: there is none.
const Participant* Stragglers::silent_last(const MasterAttempt& running,
                                           base::Duration patience) const {
  const Participant* last = nullptr;
  std::size_t done = 0;
  for (const auto& [id, part] : running.parts()) {
    if (!part.contributes() || part.evicted) continue;
    done += part.done.has_value();
    if (!part.done.has_value()) {
      if (last != nullptr) return nullptr;
      last = &part;
      continue;
    }
    const ProcessRecord* process = connections().record_of(part.incarnation);
    const wire::Moving* moving =
        process == nullptr ? nullptr : moving_of(*process, running.attempt());
    const bool said_since = process != nullptr && process->beat >= running.last_done;
    if (moving != nullptr && moving->left > 0 && said_since) return nullptr;
  }
  return done == 0 || now() < running.last_done + patience ? nullptr : last;
}

// True: the attempt ended for a straggler.
bool Stragglers::slow_down(const wire::Tag& tag) {
  const MasterAttempt& running = *rounds().at(tag).running;
  const bool waits = options().straggler == Straggler::kWait;
  if (!all().ticking_ || (waits && JCCL_PLANTED("waiting-runs-wait-for-links"))) return false;
  for (const auto& [id, part] : running.parts()) {  // what was said before that says too little
    const ProcessRecord* process =
        part.contributes() && !part.evicted ? connections().record_of(part.incarnation) : nullptr;
    if (process != nullptr && process->beat < running.since + options().straggler_after)
      return false;
  }
  const auto [lacked, lacked_since] = withheld().withholds(running);
  if (lacked == nullptr && withheld().cut_off(tag)) return true;
  if (waits) return false;
  std::string site, why;
  if (lacked != nullptr && now() - lacked_since >= options().straggler_after) {
    site = lacked->site;
    why = cat(wording().name(lacked->id),
              " is slow: most others have lacked its contribution to round ", running.round().n,
              " of ", running.round().tag, " for ", (now() - lacked_since) / base::kMillisecond,
              " ms");
  } else {
    site = straggling(running, options().straggler_after, &why);
  }
  if (site.empty()) {
    const Participant* last = silent_last(running, options().straggler_after);
    const ProcessRecord* process =
        last == nullptr ? nullptr : connections().record_of(last->incarnation);
    const wire::Moving* its = process == nullptr ? nullptr : moving_of(*process, running.attempt());
    if (its != nullptr && waits_for_evicted(running, *its)) {  // whom nothing hurries now
      const std::string& out = running.parts().at(its->waits_on).site;
      for (auto& [key, left] : rounds().at(tag).memory.left) {
        if (left.site == out) left.at = now();  // it fails of that one, if late
      }
      attempts().abort(tag, Code::kPeerLost,
                       cat(wording().name(last->id), " waits for ", out, ", which was put out"),
                       true);
      return true;
    }
    if (its != nullptr && withheld().starves_by_a_link(tag, *last, *its)) return true;
    if (last != nullptr) {
      site = last->site;
      why = cat(wording().name(last->id), " is not done with round ", running.round().n, " of ",
                running.round().tag, ", ", (now() - running.last_done) / base::kMillisecond,
                " ms after all others, who have nothing left for it");
    }
  }
  std::set<std::string> others;
  for (const auto& [id, part] : running.parts()) {
    if (part.evicted || part.site == site) continue;
    if (part.contributes()) others.insert(part.site);
    // One that is not heard of, a receiver too, may be whom the site waits for.
    const ProcessRecord* process = connections().record_of(part.incarnation);
    if (process != nullptr && process->beat + 2 * options().heartbeat < now()) return false;
  }
  if (site.empty() || others.size() < std::max(1U, options().min_peers)) return false;
  if (options().straggler == Straggler::kEvict) {
    conduct().put_out(site, now() - running.since);
    connections().depart(site, why, "evict");
    return true;
  }
  wait_charges().note_held(site, running.since, 2 * options().straggler_after);
  if (wait_charges().pays(site)) rounds().at(tag).skipped.insert(site);
  note("skip", {{"site", site}, {"tag", tag}, {"n", cat(running.round().n)}, {"reason", why}});
  attempts().abort(tag, Code::kSkipped, why, true, site);
  return true;
}

// " (12.0 MB of 33.6 MB left, from eu)", or nothing when nothing is known.
std::string Stragglers::left_text(const MasterAttempt& running, const Participant& part) const {
  const ProcessRecord* process = connections().record_of(part.incarnation);
  if (process == nullptr) return {};
  const wire::Moving* moving = moving_of(*process, running.attempt());
  std::string text = wording().silence_of(*process);
  if (moving != nullptr && moving->left > 0) {
    text +=
        cat(" (", base::bytes_text(moving->left), " of ", base::bytes_text(moving->all), " left",
            moving->waits_on == 0 ? "" : cat(", from ", wording().name(moving->waits_on)), ")");
  }
  return text;
}

// For people: what the master sees that is not as it should be.
std::string Stragglers::trouble_of(const ProcessRecord& process, base::Time now) const {
  std::string text;
  const auto add = [&text](const std::string& what) {
    if (!what.empty()) text += cat(text.empty() ? "" : "; ", what);
  };
  const auto ms = [](base::Duration duration) { return duration / base::kMillisecond; };
  if (!process.seen) {
    add("not back since the master's restart");
  } else if (!process.connected()) {
    add(cat("lost its connection ", ms(now - process.gone), " ms ago"));
  } else if (now - process.heard >= options().silence / 2) {
    add(cat("silent for ", ms(now - process.heard), " ms"));
  }
  for (const auto& [one, two] : link_faults().avoided_links(now)) {
    if (one != process.id && two != process.id) continue;
    add(cat("its link to ", wording().name(one == process.id ? two : one), " carries nothing"));
  }
  for (const auto& [tag, round] : rounds()) {
    if (process.id != 0 && round.skipped.count(process.site) > 0) add(cat("skipped in ", tag));
    if (!round.running.has_value()) continue;
    std::string why;
    const bool slow = straggling(*round.running, options().silence, &why) == process.site;
    if (slow && !why.empty()) add(why);
  }
  return text;
}

}  // namespace jccl::protocol
