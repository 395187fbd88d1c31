// Contributions that do not come. A member that has all others' data but one's says so in its
// heartbeats (wire::Moving), and a contribution waits for nobody but its sender: so whom most
// others lack keeps it back, whatever it says of itself; and where a few lack it that the others
// have, their links with it carry too little, or one of the two ends lies. Nor does it help to send
// them a frame now and then. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using State = MasterMachine::State;

namespace {

constexpr int kSlowerLink = 4;  // than those of others, where slow ones are waited for

}  // namespace

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
    const bool few = moving.lacking == 1 || 2 * std::size_t{moving.lacking} <= others ||
                     JCCL_PLANTED("who-lacks-all-names-one");
    const bool is_sum = moving.lacking == 0 && moving.left > 0 && moving.waits_on != 0 &&
                        !JCCL_PLANTED("sums-are-nobodys");
    const bool has_all = part->done.has_value() || (moving.lacking == 0 && !is_sum);
    const auto entry = running.lacks.find(part->id);
    if (entry != running.lacks.end()) {
      Lack& lack = entry->second;
      const bool got = part->done.has_value() || moving.lacking == 0 ||
                       (moving.lacking == 1 && moving.waits_on != lack.of);
      if (got && !lack.is_sum) running.got[lack.of].try_emplace(part->id, now_);
      const bool same = lack.of == moving.waits_on && lack.is_sum == is_sum && few;
      if (same && !has_all) {
        lack.left = std::min(lack.left, moving.left);
        continue;
      }
      if (JCCL_PLANTED("what-was-lacked-is-lacked")) continue;
      running.lacks.erase(entry);
    }
    if (has_all || !few) continue;
    running.lacks.emplace(part->id, Lack{moving.waits_on, now_, moving.left, moving.left, is_sum});
  }
}

// Whether it is that one's doing. A contribution waits for nobody but its sender. A sum waits for
// what it is made of: but not of one that is done, or waits for nobody, or for the one that waits
// for it, or now for this one and now for that one. Sums may be many, and take as long as it took
// to bring together what they are made of, and some times that.
bool State::owes_it(const MasterAttempt& running, wire::PeerId by, const Lack& lack) const {
  if (!lack.is_sum) return true;
  const auto found = running.parts().find(lack.of);
  if (found == running.parts().end()) return false;
  const base::Duration before = std::max(options_.straggler_after, lack.since - running.since);
  const auto moved = static_cast<double>(lack.first - lack.left);
  const double needs = static_cast<double>(now_ - lack.since) * static_cast<double>(lack.first);
  if (needs < moved * kSlowerLink * static_cast<double>(before)) return false;
  const Part& part = found->second;
  if (part.done.has_value() || JCCL_PLANTED("sums-wait-for-nobody")) return true;
  const Life* life = life_of(part.incarnation);
  const wire::Moving* its = life == nullptr ? nullptr : moving_of(*life, running.attempt());
  if (its == nullptr) return false;  // it may not know of the attempt yet
  if (its->left == 0 || its->waits_on == 0 || its->waits_on == by) return true;
  const auto own = running.lacks.find(part.id);
  const base::Duration young = std::min(options_.straggler_after, now_ - running.since) / 2;
  return (own == running.lacks.end() || now_ - own->second.since < young) &&
         !JCCL_PLANTED("who-names-many-is-excused");
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
    if (lack == running.lacks.end() || !owes_it(running, id, lack->second)) continue;
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

// Since when it lacks what others have got: each of them counts once, when it first had it.
base::Time State::alone_since(const MasterAttempt& running, const Lack& lack) const {
  base::Time since = lack.since;
  const auto got = running.got.find(lack.of);
  if (got == running.got.end() || JCCL_PLANTED("the-first-to-get-it-hurries-all")) return since;
  for (const auto& [by, at] : got->second) since = std::max(since, at);
  return since;
}

// Pairs of whom one has lacked the other's contribution for so long, since others have it; none, as
// where nobody else is there to go round that link. Where slow ones are waited for, some times as
// long as it took the others, until a deadline. If there is a last one that is not done, it has to
// be that one, which may also wait for a sum that another made and is done with.
std::vector<Pair> State::starved(const MasterAttempt& running, const Part* last,
                                 base::Duration patience) const {
  std::vector<Pair> links;
  if (ledger_.sites() < 3) return links;
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
  const bool waits = options_.straggler == Straggler::kWait && now_ < running.deadline &&
                     !JCCL_PLANTED("slow-links-are-not-waited-for");
  for (const auto& [id, lack] : running.lacks) {
    if (last != nullptr && last->id != id) continue;
    const base::Time since = alone_since(running, lack);
    const base::Duration others = waits ? kSlowerLink * (since - running.since) : 0;
    const bool late = now_ - since >= std::max(patience, others) && owes_it(running, id, lack);
    if (late && is_link(id, lack.of)) {
      links.emplace_back(id, lack.of);
    }
  }
  if (!links.empty()) return links;
  const Life* life = last == nullptr || last->evicted ? nullptr : life_of(last->incarnation);
  if (life == nullptr || now_ - running.last_done < patience) return links;
  const wire::Moving* said = moving_of(*life, running.attempt());
  const auto other = running.parts().find(said == nullptr || said->left == 0 ? 0 : said->waits_on);
  const bool is_done = other != running.parts().end() && other->second.done.has_value();
  if (is_done && is_link(last->id, other->first)) links.emplace_back(last->id, other->first);
  return links;
}

// Each end may lie about the other, and a newcomer is starved as easily as it lies: it pays when it
// is the common end of such links, and not for being new. But new keys are free, and so the next
// ones that come by its token pay.
void State::cut_starved(const wire::Tag& tag, const std::vector<Pair>& links) {
  Round& round = rounds_.at(tag);
  const base::Time since = round.running->since;
  std::set<std::string> tokens;
  for (const auto& [by, of] : links) {
    remember_link(round, round.running->attempt(), by, of, false);
    cut_link(round, by, of, now_ - since);
    const Life *one = member_life(by), *other = member_life(of);
    if (one == nullptr || other == nullptr) continue;
    if (is_junior(*one, *other)) tokens.insert(one->token);
    if (is_junior(*other, *one)) tokens.insert(other->token);
  }
  if (JCCL_PLANTED("new-keys-starve-for-nothing")) return;
  for (const std::string& token : tokens) hold_token(token, since, now_, free_time());
}

// True: the attempt ended by that.
bool State::cut_off(const wire::Tag& tag) {
  const std::vector<Pair> links =
      starved(*rounds_.at(tag).running, nullptr, options_.straggler_after);
  if (links.empty() || JCCL_PLANTED("the-starved-wait-for-ever")) return false;
  const auto [by, of] = links.front();
  const base::Time since =
      alone_since(*rounds_.at(tag).running, rounds_.at(tag).running->lacks.at(by));
  cut_starved(tag, links);
  abort(tag, Code::kPeerLost,
        cat(name(by), " has not got what ", name(of), " contributes, ",
            (now_ - since) / base::kMillisecond, " ms after others"),
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
