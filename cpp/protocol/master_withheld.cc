// Contributions that do not come. A member that has all others' data but one's says so in its
// heartbeats (wire::Moving), and a contribution waits for nobody but its sender: so whom most
// others lack keeps it back, whatever it says of itself, and whom one alone lacks is cut off from
// that one, or one of the two lies. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using State = MasterMachine::State;

// As its heartbeat says of each attempt, or does not, when it has all. On a line that is slow for
// all many are lacked at once.
void State::note_lacks(const Life& life) {
  for (auto& [tag, round] : rounds_) {
    const Part* part = round.running ? round.running->part_of(life.incarnation) : nullptr;
    if (part == nullptr) continue;
    MasterAttempt& running = *round.running;
    const wire::Moving* said = moving_of(life, running.attempt());
    const wire::Moving moving = said == nullptr ? wire::Moving{} : *said;
    const std::size_t others = running.world() - (part->contributes() ? 1 : 0);
    const bool few = moving.lacking == 1 || 2 * std::size_t{moving.lacking} <= others;
    const bool has_all = (moving.lacking == 0 && !JCCL_PLANTED("what-was-lacked-is-lacked")) ||
                         part->done.has_value();
    if (has_all || !(few || JCCL_PLANTED("who-lacks-all-names-one"))) {
      running.lacks.erase(part->id);
      continue;
    }
    if (moving.lacking == 0) continue;
    const auto [entry, fresh] =
        running.lacks.try_emplace(part->id, Lack{moving.waits_on, now_, now_, moving.left});
    Lack& lack = entry->second;
    if (lack.of != moving.waits_on) lack = {moving.waits_on, now_, now_, moving.left};
    if (moving.left < lack.left) lack.still_since = now_;
    lack.left = std::min(lack.left, moving.left);
  }
}

// The contributor that more than half of the other sites lack, and since when they do.
std::pair<const Part*, base::Time> State::withholds(const MasterAttempt& running) const {
  if (running.lacks.empty()) return {nullptr, base::kNever};
  std::map<wire::PeerId, std::map<std::string, base::Time>> lacked;  // by sites
  std::set<std::string> contributing, all;
  for (const auto& [id, part] : running.parts()) {
    if (part.evicted) continue;
    all.insert(part.site);
    if (part.contributes()) contributing.insert(part.site);
    const auto lack = running.lacks.find(id);
    if (lack == running.lacks.end()) continue;
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
    const Part& part = found->second;
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
    const Life* life = life_of(part.incarnation);
    const bool knows =
        part.done.has_value() || life == nullptr || moving_of(*life, running.attempt()) != nullptr;
    const bool waits = !knows && !JCCL_PLANTED("starts-are-always-heard");
    const base::Time heard = std::max(running.since, part.told_again) + options_.silence;
    return {&part, waits ? std::max(since[most - 1], heard) : since[most - 1]};
  }
  return {nullptr, base::kNever};
}

// Two of whom one lacks the other's contribution for so long, and gets nothing else; none: {0, 0},
// as where nobody else is there to go round that link. If there is a last one that is not done, it
// has to be that one, which may also wait for a sum that another made and is done with.
std::pair<wire::PeerId, wire::PeerId> State::starved(const MasterAttempt& running, const Part* last,
                                                     base::Duration patience) const {
  if (ledger_.sites() < 3) return {0, 0};
  if (last != nullptr && JCCL_PLANTED("the-last-of-all-is-guilty")) return {0, 0};
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
  for (const auto& [id, lack] : running.lacks) {
    if (last != nullptr && last->id != id) continue;
    if (now_ - lack.still_since >= patience && is_link(id, lack.of)) return {id, lack.of};
  }
  const Life* life = last == nullptr || last->evicted ? nullptr : life_of(last->incarnation);
  if (life == nullptr || now_ - running.last_done < patience) return {0, 0};
  const wire::Moving* said = moving_of(*life, running.attempt());
  const auto other = running.parts().find(said == nullptr || said->left == 0 ? 0 : said->waits_on);
  const bool is_done = other != running.parts().end() && other->second.done.has_value();
  if (!is_done || !is_link(last->id, other->first)) return {0, 0};
  return {last->id, other->first};
}

// Each end may lie about the other, and a newcomer is starved as easily as it lies: it pays when it
// is the common end of such links, and not for being new.
void State::cut_starved(const wire::Tag& tag, wire::PeerId by, wire::PeerId of) {
  Round& round = rounds_.at(tag);
  remember_link(round, round.running->attempt(), by, of, false);
  cut_link(round, by, of);
}

// True: the attempt ended by that.
bool State::cut_off(const wire::Tag& tag) {
  const auto [by, of] = starved(*rounds_.at(tag).running, nullptr, options_.straggler_after);
  if (by == 0 || JCCL_PLANTED("the-starved-wait-for-ever")) return false;
  cut_starved(tag, by, of);
  abort(tag, Code::kPeerLost,
        cat(name(by), " got nothing of what ", name(of), " contributes, for ",
            options_.straggler_after / base::kMillisecond, " ms"),
        true);
  return true;
}

// The last one says that it waits for one that is done and has nothing left for it: one of the two
// is wrong, and nobody can say which. So their link is cut, as where one is silent for another; who
// says so over a link that no plan uses is late. True: the attempt ended by that.
bool State::starves_by_a_link(const wire::Tag& tag, const Part& last, const wire::Moving& its) {
  Round& round = rounds_.at(tag);
  const MasterAttempt& running = *round.running;
  const auto other = running.parts().find(its.left == 0 ? 0 : its.waits_on);
  if (other == running.parts().end() || other->first == last.id) return false;
  const auto link = std::minmax(last.id, other->first);
  if (running.avoided.count({link.first, link.second}) > 0) return false;
  if (JCCL_PLANTED("the-starved-are-late")) return false;
  const std::string why = cat(name(last.id), " waits for ", name(other->first),
                              ", which says that it has nothing left for it");
  remember_link(round, running.attempt(), last.id, other->first);
  cut_link(round, last.id, other->first);
  abort(tag, Code::kPeerLost, why, true);
  return true;
}

}  // namespace jccl::protocol
