// Contributions that do not come. A member that has all others' data but one's says so in its
// heartbeats (wire::Moving), and a contribution waits for nobody but its sender: so whom most
// others lack keeps it back, whatever it says of itself; and where a few lack it that the others
// have, their links with it carry too little, or one of the two ends lies. Nor does it help to send
// them a frame now and then. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

constexpr int kSlowerLink = 4;  // than those of others, where slow ones are waited for

}  // namespace

// A sum waits for what it is made of, and in a ring for another sum; but not one of who is done.
static bool lacks_sum(const MasterAttempt& running, const wire::Moving& moving) {
  if (moving.lacking > 0 || moving.left == 0 || JCCL_PLANTED("sums-are-nobodys")) return false;
  const auto of = running.parts().find(moving.waits_on);
  return of != running.parts().end() &&
         (of->second.done.has_value() || JCCL_PLANTED("sums-wait-for-nobody"));
}

// As its heartbeat says of each attempt, or does not, when it has all. On a line that is slow for
// all many are lacked at once. Who names none of the others names nobody.
void Withheld::note_lacks(const ProcessRecord& process) {
  for (auto& [tag, round] : rounds()) {
    const Participant* part = round.running ? round.running->part_of(process.incarnation) : nullptr;
    if (part == nullptr) continue;
    MasterAttempt& running = *round.running;
    const wire::Moving* said = moving_of(process, running.attempt());
    const wire::Moving moving = said == nullptr ? wire::Moving{} : *said;
    const std::size_t others = running.world() - (part->contributes() ? 1 : 0);
    const bool is_sum = lacks_sum(running, moving);
    const bool few = is_sum || moving.lacking == 1 ||
                     (moving.lacking > 0 && 2 * std::size_t{moving.lacking} <= others) ||
                     (moving.lacking > 0 && JCCL_PLANTED("who-lacks-all-names-one"));
    const auto of = running.parts().find(moving.waits_on);
    const bool is_other = (of != running.parts().end() && of->second.site != part->site) ||
                          JCCL_PLANTED("anybody-may-be-lacked");
    const bool lacks = few && is_other && !part->done.has_value();
    const auto entry = running.lacks.find(part->id);
    if (entry != running.lacks.end()) {
      Lack& lack = entry->second;
      const bool same = lacks && lack.of == moving.waits_on;
      const bool got = part->done.has_value() || moving.lacking == 0 ||
                       (moving.lacking == 1 && lack.of != moving.waits_on);
      if (got && !lack.is_sum) running.got[lack.of].try_emplace(part->id, now());
      if (same) {  // what the same one owes next, if it is done, it owes since then
        lack.left = std::min(lack.left, moving.left);
        lack.is_sum = is_sum;
        continue;
      }
      if (JCCL_PLANTED("what-was-lacked-is-lacked")) continue;
      running.lacks.erase(entry);
    }
    if (!lacks) continue;
    running.lacks.emplace(part->id, Lack{moving.waits_on, now(), moving.left, moving.left, is_sum});
    running.starves.try_emplace(part->id, now());
  }
}

// Whether it is late. Sums may be many, and take as long as it took to bring together what they are
// made of, and some times that, at the pace that they come.
bool Withheld::owes_it(const MasterAttempt& running, const Lack& lack) const {
  if (!lack.is_sum) return true;
  const base::Duration before = std::max(options().straggler_after, lack.since - running.since);
  const auto moved = static_cast<double>(lack.first - lack.left);
  const double needs = static_cast<double>(now() - lack.since) * static_cast<double>(lack.first);
  return needs >= moved * kSlowerLink * static_cast<double>(before) ||
         JCCL_PLANTED("sums-come-at-once");
}

// It is not slow: what comes from another one does not come to it. But for so long only as it takes
// to cut their link, whomever it names meanwhile.
bool Withheld::starves(const MasterAttempt& running, wire::PeerId id) const {
  const auto lack = running.lacks.find(id);
  if (lack == running.lacks.end() || JCCL_PLANTED("the-starved-are-slow")) return false;
  const base::Time first = running.starves.at(id);
  const base::Duration patience = 2 * std::max(options().straggler_after, first - running.since);
  const bool early = now() - first < patience || JCCL_PLANTED("who-names-many-is-excused");
  return early && owes_it(running, lack->second);
}

// The contributor that more than half of the other sites lack, and since when they do.
std::pair<const Participant*, base::Time> Withheld::withholds(const MasterAttempt& running) const {
  if (running.lacks.empty()) return {nullptr, base::kNever};
  std::map<wire::PeerId, std::map<std::string, base::Time>> lacked;  // by sites
  std::set<std::string> contributing, all;
  for (const auto& [id, part] : running.parts()) {
    if (part.evicted) continue;
    all.insert(part.site);
    if (part.contributes()) contributing.insert(part.site);
    const auto lack = running.lacks.find(id);
    if (lack == running.lacks.end() || !owes_it(running, lack->second)) continue;
    auto& sites = lacked[lack->second.of];
    const auto entry = sites.try_emplace(part.site, lack->second.since).first;
    entry->second = std::min(entry->second, lack->second.since);
  }
  if (all.size() < 3 || JCCL_PLANTED("withheld-data-is-nobodys")) return {nullptr, base::kNever};
  // Where few contribute, as a root does, receivers have a voice.
  const std::set<std::string>& voices = contributing.size() >= 3 ? contributing : all;
  for (auto& [id, sites] : lacked) {
    const auto found = running.parts().find(id);
    if (found == running.parts().end()) continue;
    const Participant& part = found->second;
    if (part.evicted || !part.contributes()) continue;
    sites.erase(part.site);
    std::vector<base::Time> since;
    for (const auto& [site, time] : sites) {
      if (voices.count(site) > 0) since.push_back(time);
    }
    const std::size_t others = voices.size() - voices.count(part.site);
    const std::size_t most = JCCL_PLANTED("one-that-lacks-is-enough") ? 1 : others / 2 + 1;
    if (since.size() < most) continue;
    std::sort(since.begin(), since.end());
    // It may not know of the attempt yet, on a connection that only carries its own words.
    const ProcessRecord* process = connections().record_of(part.incarnation);
    const bool knows = part.done.has_value() || process == nullptr ||
                       moving_of(*process, running.attempt()) != nullptr;
    const bool waits = !knows && !JCCL_PLANTED("starts-are-always-heard");
    const base::Time heard = std::max(running.since, part.told_again) + options().silence;
    return {&part, waits ? std::max(since[most - 1], heard) : since[most - 1]};
  }
  return {nullptr, base::kNever};
}

// Since when it lacks what others have got: each of them counts once, when it first had it.
base::Time Withheld::alone_since(const MasterAttempt& running, const Lack& lack) const {
  base::Time since = lack.since;
  const auto got = running.got.find(lack.of);
  if (got == running.got.end() || JCCL_PLANTED("the-first-to-get-it-hurries-all")) return since;
  for (const auto& [by, at] : got->second) since = std::max(since, at);
  return since;
}

// Pairs of whom one has lacked the other's contribution for so long, since others have it; none, as
// where nobody else is there to go round that link. If there is a last one that is not done, it has
// to be that one, which may also wait for a sum that another made and is done with.
std::vector<Pair> Withheld::starved(const MasterAttempt& running, const Participant* last,
                                    base::Duration patience) const {
  std::vector<Pair> links;
  if (ledger().sites() < 3) return links;
  if (last != nullptr && JCCL_PLANTED("the-last-of-all-is-guilty")) return links;
  const auto is_link = [&](wire::PeerId by, wire::PeerId of) {
    const auto one = running.parts().find(by);
    const auto other = running.parts().find(of);
    if (one == running.parts().end() || other == running.parts().end()) return false;
    if (one->second.evicted || other->second.evicted || !other->second.contributes()) return false;
    // A receiver that gets nothing holds nobody.
    if (!one->second.contributes() && !JCCL_PLANTED("starved-receivers-end-attempts")) return false;
    return one->second.site != other->second.site &&
           running.avoided.count(std::minmax(by, of)) == 0;
  };
  // As long again as it took the others, or some times as long where slow ones are waited for.
  int times = options().straggler == Straggler::kWait ? kSlowerLink : 1;
  if (now() >= running.deadline || JCCL_PLANTED("slow-links-are-not-waited-for")) times = 0;
  const base::Duration took = times * (running.last_done - running.since);
  if (now() - running.last_done >= std::max(patience, took)) {
    const auto [by, of] = slow_pair(running);
    if ((last == nullptr || last->id == by) && is_link(by, of)) return {{by, of}};
  }
  for (const auto& [id, lack] : running.lacks) {
    if (last != nullptr && last->id != id) continue;
    const base::Time since = alone_since(running, lack);
    const base::Duration others = times * (since - running.since);
    const bool late = now() - since >= std::max(patience, others) && owes_it(running, lack);
    if (late && is_link(id, lack.of)) links.emplace_back(id, lack.of);
  }
  if (!links.empty()) return links;
  const ProcessRecord* process =
      last == nullptr || last->evicted ? nullptr : connections().record_of(last->incarnation);
  if (process == nullptr || now() - running.last_done < patience) return links;
  const wire::Moving* said = moving_of(*process, running.attempt());
  const auto other = running.parts().find(said == nullptr || said->left == 0 ? 0 : said->waits_on);
  const bool is_done = other != running.parts().end() && other->second.done.has_value();
  if (is_done && is_link(last->id, other->first)) links.emplace_back(last->id, other->first);
  return links;
}

// The last one that is not done, and the only other one that has something left: it is their link,
// whomever the last one names. {0, 0}: there is no such pair.
Pair Withheld::slow_pair(const MasterAttempt& running) const {
  Pair pair{0, 0};
  if (JCCL_PLANTED("pairs-are-what-they-say")) return pair;
  for (const auto& [id, part] : running.parts()) {
    if (part.evicted) continue;
    const bool is_last = part.contributes() && !part.done.has_value();
    const ProcessRecord* process = connections().record_of(part.incarnation);
    if (process == nullptr || process->beat < running.last_done) return {0, 0};
    const wire::Moving* its = moving_of(*process, running.attempt());
    const bool has_left = its != nullptr && its->left > 0;
    if (!is_last && !has_left) continue;
    wire::PeerId& end = is_last ? pair.first : pair.second;
    if (end != 0) return {0, 0};
    end = id;
  }
  return pair.second == 0 ? Pair{0, 0} : pair;
}

// Each end may lie about the other, and a newcomer is starved as easily as it lies: it pays when it
// is the common end of such links, and not for being new. But new keys are free, and so the next
// ones that come by its token pay.
void Withheld::cut_starved(const wire::Tag& tag, const std::vector<Pair>& links) {
  Round& round = rounds().at(tag);
  const base::Time since = round.running->since;
  std::set<std::string> tokens;
  for (const auto& [by, of] : links) {
    link_faults().remember_link(round, round.running->attempt(), by, of, false);
    link_faults().cut_link(round, by, of, now() - since);
    const ProcessRecord *one = link_faults().member_record(by),
                        *other = link_faults().member_record(of);
    if (one == nullptr || other == nullptr) continue;
    if (link_faults().is_junior(*one, *other)) tokens.insert(one->token);
    if (link_faults().is_junior(*other, *one)) tokens.insert(other->token);
  }
  if (JCCL_PLANTED("new-keys-starve-for-nothing")) return;
  for (const std::string& token : tokens)
    wait_charges().hold_token(token, since, now(), wait_charges().free_time());
}

// True: the attempt ended by that.
bool Withheld::cut_off(const wire::Tag& tag) {
  const std::vector<Pair> links =
      starved(*rounds().at(tag).running, nullptr, options().straggler_after);
  if (links.empty() || JCCL_PLANTED("the-starved-wait-for-ever")) return false;
  const auto [by, of] = links.front();
  const MasterAttempt& running = *rounds().at(tag).running;
  const auto lack = running.lacks.find(by);
  const bool is_named = lack != running.lacks.end() && lack->second.of == of;
  const base::Time since = is_named ? alone_since(running, lack->second) : running.last_done;
  cut_starved(tag, links);
  attempts().abort(tag, Code::kPeerLost,
                   cat(wording().name(by), " has not got what ", wording().name(of),
                       " contributes, ", (now() - since) / base::kMillisecond, " ms after others"),
                   true);
  return true;
}

// The last one says that it waits for one that is done and has nothing left for it: one of the two
// is wrong, and nobody can say which. So their link is cut, as where one is silent for another; who
// says so over a link that no plan uses is late. True: the attempt ended by that.
bool Withheld::starves_by_a_link(const wire::Tag& tag, const Participant& last,
                                 const wire::Moving& its) {
  Round& round = rounds().at(tag);
  const MasterAttempt& running = *round.running;
  const auto other = running.parts().find(its.left == 0 ? 0 : its.waits_on);
  if (other == running.parts().end() || other->first == last.id) return false;
  const auto link = std::minmax(last.id, other->first);
  if (running.avoided.count({link.first, link.second}) > 0) return false;
  if (JCCL_PLANTED("the-starved-are-late")) return false;
  const std::string why = cat(wording().name(last.id), " waits for ", wording().name(other->first),
                              ", which says that it has nothing left for it");
  link_faults().remember_link(round, running.attempt(), last.id, other->first);
  link_faults().cut_link(round, last.id, other->first);
  attempts().abort(tag, Code::kPeerLost, why, true);
  return true;
}

}  // namespace jccl::protocol
