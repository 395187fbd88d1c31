// The beginning of a state: among which sites, and with whose values. Pure; one event at a time.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

// At once: a liar could begin a new one each time.
constexpr std::size_t kHalvesMax = 3;

std::map<Brought, std::size_t> votes_of(const std::vector<const Asker*>& sites) {
  std::map<Brought, std::size_t> votes;
  for (const Asker* one : sites)
    votes[one->shards] += !JCCL_PLANTED("the-first-has-the-right-values");
  return votes;
}

// More than half of all that ask; of two none is most.
bool most_have(const std::map<Brought, std::size_t>& votes, const std::vector<const Asker*>& all,
               const Asker& one) {
  return all.size() > 2 && 2 * votes.at(one.shards) > all.size();
}

}  // namespace

// The run is born once per state tag, when enough sites ask that may come in: from the source that
// the operator named; else with leaves like most sites', from the source that is named among these,
// else from a site whose values most have, the first that connected.
void StateBirth::try_birth(const wire::Tag& tag) {
  drop_claims(&rounds().at(tag));
  bool noted = false;
  for (const wire::Incarnation incarnation : rounds().at(tag).asking) {
    ProcessRecord& process = processes().at(incarnation);
    const auto asked = process.syncs.find(tag);
    if (asked == process.syncs.end() || asked->second.noted) continue;
    note_claim(process, tag);
    noted = true;
  }
  if (noted) drop_claims(&rounds().at(tag));  // who is in dispute now
  const Birth found = birth_source(tag);
  if (found.site.empty()) {
    const auto& asking = rounds().at(tag).asking;
    for (const wire::Incarnation incarnation : asking) {
      ProcessRecord& process = processes().at(incarnation);
      const auto asked = process.syncs.find(tag);
      if (asked == process.syncs.end()) continue;
      if (found.disputed && asked->second.sync.source) {
        state_sync().reply_refused(process, tag, Code::kMismatch, found.wait);
        continue;
      }
      // The text counts those that came; a crowd hears of it with the heartbeats.
      const bool now = asking.size() < kCrowd || all().ticking_ || asked->second.told.empty();
      if (!now) continue;
      state_sync().reply_wait(
          process, asked->second,
          conduct().barred(process).empty() ? found.wait : wording().outsider_text(process));
    }
    return;
  }
  rounds().at(tag).unborn_since = base::kNever;
  wire::BirthRecord birth;
  birth.tag = tag;
  birth.site = found.site;
  for (const ProcessRecord* process : connections().shards_of(found.site)) {
    const wire::Sync& sync = process->syncs.at(tag).sync;
    birth.sources.push_back(process->incarnation);
    birth.digests.push_back(sync.digest);
    birth.descriptors.push_back(sync.descriptor);
    if (process->shard == 0) birth.summary = base::to_utf8(sync.summary);
    note("birth", {{"tag", tag},
                   {"source", wording().name(*process)},
                   {"digest", base::to_hex(sync.digest)}});
  }
  rounds().at(tag).claims.clear();
  rounds().at(tag).half_since.clear();
  journal(std::move(birth));
  membership().roster_dirty_ = connections().processes_changed_ = true;
}

// The sites that are there, and are none of those.
std::string StateBirth::without(const Askers& asked) const {
  constexpr std::size_t kNamed = 8;
  std::string names;
  std::size_t count = 0;
  for (const auto& [site, processes] : connections().sites_) {
    if (asked.count(site) > 0 || !membership().complete(site) ||
        !conduct().kept_outside(site).empty())
      continue;
    if (count++ < kNamed) names += cat(names.empty() ? "" : ", ", site);
  }
  if (count == 0) return {};
  return cat("; ", names, count > kNamed ? cat(" and ", count - kNamed, " more") : "",
             " did not: call jccl.sync_state there");
}

// The sites that ask for a tag that is not born, and that may come in at all.
Askers StateBirth::askers(const wire::Tag& tag) const {
  Askers sites;
  for (const wire::Incarnation incarnation : rounds().at(tag).asking) {
    const auto found = processes().find(incarnation);
    if (found == processes().end()) continue;
    const ProcessRecord& process = found->second;
    const auto asked = process.syncs.find(tag);
    if (asked == process.syncs.end()) continue;
    if (!conduct().barred(process).empty() && !JCCL_PLANTED("outsiders-bring-states")) continue;
    const wire::Sync& sync = asked->second.sync;
    Asker& site = sites[process.site];
    site.site = process.site;
    site.order = std::min(site.order, process.order);
    site.of = process.shards;
    site.keys.insert(process.key);
    site.named = site.named || sync.source || sync.restore != wire::Wish::kNone;
    site.shards[process.shard] = {sync.descriptor, sync.digest};
  }
  return sites;
}

// Of those that are whole, one at least: the ones whose leaves are like most sites'. Of as many,
// those with a named source; then those with the first.
std::vector<const Asker*> StateBirth::most_alike(const Askers& sites) {
  std::map<std::vector<base::Digest>, std::vector<const Asker*>> groups;
  for (const auto& [site, asker] : sites) {
    if (asker.whole()) groups[asker.descriptors()].push_back(&asker);
  }
  const auto rank = [](const auto& group) {
    const auto named = [](const Asker* one) { return one->named; };
    std::uint64_t first = UINT64_MAX;
    for (const Asker* one : group) first = std::min(first, one->order);
    const std::size_t votes = JCCL_PLANTED("the-first-has-the-right-leaves") ? 0 : group.size();
    return std::tuple(votes, std::any_of(group.begin(), group.end(), named), UINT64_MAX - first);
  };
  return std::max_element(
             groups.begin(), groups.end(),
             [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); })
      ->second;
}

// The process that said so is there.
bool StateBirth::is_here(const std::string& site, const Sayer& place) const {
  if (JCCL_PLANTED("names-keep-claims")) return !connections().processes_at(site).empty();
  const auto of_key = connections().of_key_.find(place.second);
  if (of_key == connections().of_key_.end()) return false;
  const auto ids = of_key->second.find(site);
  return ids != of_key->second.end() &&
         std::any_of(ids->second.begin(), ids->second.end(), [&](wire::Incarnation one) {
           return processes().at(one).shard == place.first ||
                  JCCL_PLANTED("a-key-is-there-for-all-shards");
         });
}

// A word stands while its process is here, and for a while after that. Who is banned says nothing.
void StateBirth::drop_claims(Round* round) const {
  round->claims.drop_unless(
      [&](const auto& site, const Sayer& place, const Word& word) {
        if (conduct().ban_of(place.second) != nullptr && !JCCL_PLANTED("the-banned-claim-on"))
          return false;
        if (JCCL_PLANTED("claims-end-with-processes")) return is_here(site, place);
        return now() < word.at + kClaimTime || is_here(site, place);
      },
      now());
}

// Of a tag that nobody asks for. Not at each event: there may be many such tags, with many claims.
bool StateBirth::is_claimed(Round* round) const {
  if (JCCL_PLANTED("claims-are-asked-for")) return false;
  if (now() < round->claims_due) return !round->claims.empty();
  round->claims_due = now() + base::kSecond;
  drop_claims(round);
  return !round->claims.empty();
}

void StateBirth::take_claims_back(const std::string& site) {
  if (JCCL_PLANTED("the-kicked-claim-on")) return;
  for (auto& [tag, round] : rounds()) round.claims.drop(site, now());
}

// Once for each time that it asks. Who is not let in says nothing.
void StateBirth::note_claim(ProcessRecord& process, const wire::Tag& tag) {
  if (!conduct().barred(process).empty() && !JCCL_PLANTED("outsiders-take-claims-back")) return;
  AskedSync& asked = process.syncs.at(tag);
  const wire::Sync& sync = asked.sync;
  Round& round = rounds().at(tag);
  const bool first = sync.source && !round.claims.has(process.site);
  asked.noted = round.claims.note({process.site,
                                   process.shard,
                                   process.shards,
                                   process.key,
                                   {sync.descriptor, sync.digest},
                                   sync.source},
                                  now());
  if (!asked.noted) {  // there may be room the next time
    if (!JCCL_PLANTED("more-claims-than-room-agree")) round.unclaimed_at = now();
    return;
  }
  if (!first) return;
  for (ProcessRecord* sibling :
       connections().shards_of(process.site)) {  // what they bring counts from now on
    if (sibling != &process && sibling->syncs.count(tag) > 0) note_claim(*sibling, tag);
  }
}

// Where named sources differ: what more than half of all that ask have. Else nothing begins until
// their users agree, or the operator decides.
Birth StateBirth::named_source(const wire::Tag& tag, const std::vector<const Asker*>& alike) const {
  std::vector<const Asker*> named;
  std::copy_if(alike.begin(), alike.end(), std::back_inserter(named),
               [](const Asker* one) { return one->named; });
  std::sort(named.begin(), named.end(),
            [](const Asker* a, const Asker* b) { return a->order < b->order; });
  const auto votes = votes_of(alike);
  const auto most_have_it = [&](const Asker* one) { return most_have(votes, alike, *one); };
  const Rivals rivals(rounds().at(tag).claims, now());
  const base::Time unclaimed = rounds().at(tag).unclaimed_at;
  const bool crowd =
      unclaimed != base::kNever && now() < unclaimed + kClaimTime;  // not all are known
  for (const Asker* one : named) {
    const bool alone = (!crowd && rivals.of(one->site, one->shards).empty()) ||
                       JCCL_PLANTED("the-first-source-wins");
    if (alone || most_have_it(one)) return {one->site, {}};
  }
  // The source whose values most have may be away. Values of no source settle nothing: those of
  // one seed, which most have who loaded no checkpoint.
  const Claims& claims = rounds().at(tag).claims;
  for (const Asker* one : alike) {
    const bool said =
        claims.a_source_brings(one->shards) || JCCL_PLANTED("most-have-what-no-source-has");
    if (said && most_have_it(one)) return {one->site, {}};
  }
  const std::string& one = named.front()->site;
  std::string other = rivals.of(one, named.front()->shards);
  if (other.empty()) other = "others";
  const std::string both = one == other ? cat(one, " and an earlier process of it")
                                        : cat(std::min(one, other), " and ", std::max(one, other));
  return {{},
          cat(both, " are both named as the source of ", tag,
              ", with other values: restart one of them without source=True (two minutes later if "
              "it has no key file), or restart the master with --source SITE"),
          true};
}

// A source with such leaves, of which some processes have not asked. In words.
std::string StateBirth::half_source(const wire::Tag& tag, const Askers& sites, const Asker& like) {
  Round& round = rounds().at(tag);
  std::map<std::string, std::set<wire::PublicKey>> halves;  // and whose they are
  for (const auto& [site, asker] : sites) {
    const bool like_it =
        std::any_of(asker.shards.begin(), asker.shards.end(),
                    [&](const auto& one) { return like.has_leaves_of(one.first, one.second); });
    if (asker.named && !asker.whole() && like_it) halves[site] = asker.keys;
  }
  for (const auto& [site, words] : round.claims.sites()) {  // … or not at the same time
    std::set<std::uint32_t> shards;
    std::set<wire::PublicKey> keys;
    bool like_it = false;
    for (const auto& [place, word] : words) {
      shards.insert(place.first), keys.insert(place.second);
      like_it = like_it || like.has_leaves_of(place.first, word.brings);
    }
    const bool whole = shards.size() >= words.begin()->second.of;
    if (!whole && like_it && !JCCL_PLANTED("halves-end-with-their-calls")) halves[site].merge(keys);
  }
  // One of the keys waits for its site, once; no other one instead of it soon after.
  auto& since = round.half_since;
  std::erase_if(since, [&](const auto& one) {
    const bool waits = std::any_of(halves.begin(), halves.end(), [&](const auto& half) {
      return half.second.count(one.first) > 0;
    });
    return !waits && now() >= one.second + options().restore_after + kClaimTime;
  });
  const std::size_t most = JCCL_PLANTED("one-wait-for-all-halves") ? 1
                           : JCCL_PLANTED("halves-without-end")    ? SIZE_MAX
                                                                   : kHalvesMax;
  for (const auto& [site, keys] : halves) {
    const auto waits = [&](const auto& key) { return since.count(key) > 0; };
    auto key = std::find_if(keys.begin(), keys.end(), waits);
    if (key == keys.end() && since.size() >= most) continue;
    if (key == keys.end()) key = keys.begin();
    const base::Time begun = since.emplace(*key, now()).first->second;
    if (now() < begun + options().restore_after || JCCL_PLANTED("births-wait-for-ever")) {
      return cat("waits for all shards of the source ", site);
    }
  }
  return {};
}

// Who may still bring a named source with such leaves: one that was refused as one of several and
// has to come back; or, of a run that has begun, a member that does not ask. In words.
std::string StateBirth::source_to_come(const wire::Tag& tag, const Askers& sites,
                                       const Asker& like) const {
  const bool waits = options().straggler == Straggler::kWait;
  const Round& round = rounds().at(tag);
  const auto over = [&](base::Time since, base::Duration patience) {
    return since != base::kNever && now() >= since + patience &&
           !JCCL_PLANTED("births-wait-for-ever");
  };
  const Rivals rivals(round.claims, now());
  for (const auto& [site, words] : round.claims.sites()) {  // it was told of another, and ended
    const auto asking = sites.find(site);
    bool here = JCCL_PLANTED("the-gone-dispute-on"), comes = false;
    std::string other;
    base::Time last = round.unborn_since;
    for (const auto& [place, word] : words) {
      if (!like.has_leaves_of(place.first, word.brings)) continue;
      if (other.empty()) other = rivals.of(site, place.first, word.brings);
      if (!word.source) continue;
      here = here || is_here(site, place);
      const bool asks = asking != sites.end() && asking->second.keys.count(place.second) > 0;
      comes = comes || (!asks && now() < word.at + kClaimTime);
      if (!JCCL_PLANTED("old-patience-with-new-disputes")) last = std::max(last, word.at);
    }
    if (here && !other.empty() && !JCCL_PLANTED("disputes-end-in-silence")) {
      return cat("waits for ", site, " and ", other, " to agree. Both were named as the source of ",
                 tag,
                 " with other values. Kick one of them, or start the master with --source SITE");
    }
    // Not again and again, of ever other ones that say so and go.
    const base::Time latest =
        round.unborn_since == base::kNever || JCCL_PLANTED("births-wait-for-all")
            ? base::kNever
            : round.unborn_since + 2 * options().restore_after;
    if (comes && !over(std::min(last, latest), options().restore_after)) {
      return cat("waits for ", site, ", which is named as the source, to synchronise ", tag);
    }
  }
  if (!membership().begun_ && !ledger().any_born()) return {};
  for (const std::string& site : membership().member_sites()) {
    const auto asked = sites.find(site);
    if (asked != sites.end() && asked->second.whole()) continue;
    if (waits || !over(round.unborn_since, options().straggler_after)) {
      return cat("waits for ", site, " to synchronise ", tag, ", or for a named source");
    }
  }
  return {};
}

Birth StateBirth::birth_source(const wire::Tag& tag) {
  const Askers sites = askers(tag);
  const auto ready = static_cast<std::uint32_t>(std::count_if(
      sites.begin(), sites.end(), [](const auto& site) { return site.second.whole(); }));
  base::Time& since = rounds().at(tag).unborn_since;
  if (ready < std::max(1U, membership().start_peers())) {
    return {{},
            cat("waits for the first ", membership().start_peers(), " sites to synchronise ", tag,
                ", ", ready, " did", without(sites), membership().gone_text())};
  }
  if (!options().source.empty() && !JCCL_PLANTED("the-operators-source-is-one-of-many")) {
    const auto its = sites.find(options().source);
    if (its != sites.end() && its->second.whole()) return {its->first, {}};
    return {{},
            cat("waits for ", options().source,
                ", the source that the operator named, to synchronise ", tag)};
  }
  const std::vector<const Asker*> alike = most_alike(sites);
  const bool any_named =
      std::any_of(alike.begin(), alike.end(), [](const Asker* one) { return one->named; });
  since = std::min(since, now());
  const auto votes = votes_of(alike);
  const bool most = std::any_of(alike.begin(), alike.end(), [&](const Asker* one) {
    return one->named && most_have(votes, alike, *one);
  });
  std::string wait = half_source(tag, sites, *alike.front());
  if (any_named && (wait.empty() || most || JCCL_PLANTED("half-a-source-is-none"))) {
    since = base::kNever;
    return named_source(tag, alike);
  }
  if (wait.empty()) wait = source_to_come(tag, sites, *alike.front());
  if (!wait.empty()) return {{}, std::move(wait)};
  const auto rank = [&](const Asker* one) {
    return std::tuple(votes.at(one->shards), UINT64_MAX - one->order);
  };
  const auto best =
      std::max_element(alike.begin(), alike.end(),
                       [&](const Asker* a, const Asker* b) { return rank(a) < rank(b); });
  return {(*best)->site, {}};
}

}  // namespace jccl::protocol
