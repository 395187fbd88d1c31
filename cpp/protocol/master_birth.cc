// The beginning of a state: among which sites, and with whose values. Pure; one event at a time.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using State = MasterMachine::State;

namespace {

constexpr base::Duration kClaimTime = 120 * base::kSecond;  // after its process has gone

std::map<Brought, std::size_t> votes_of(const std::vector<const Asker*>& sites) {
  std::map<Brought, std::size_t> votes;
  for (const Asker* one : sites)
    votes[one->shards] += !JCCL_PLANTED("the-first-has-the-right-values");
  return votes;
}

// What the others of its site said is the site's word, of which it brings a part. Of its own shard
// another process said it, which began anew without its key. Where sources differ anybody might be
// that process: there the word stays as it was.
void add_to_siblings(const Life& life, const wire::Sync& sync,
                     std::map<wire::PublicKey, Claim>* claims) {
  for (auto& [key, claim] : *claims) {
    if (claim.site != life.site || key == life.key) continue;
    const bool stays = claim.disputed && !JCCL_PLANTED("claims-are-their-names");
    const std::pair brings{sync.descriptor, sync.digest};
    if (JCCL_PLANTED("one-shard-takes-all-back") && !stays && !sync.source) claim.own.clear();
    if (claim.own.count(life.shard) > 0) {
      if (stays) continue;
      claim.own.erase(life.shard), claim.shards.erase(life.shard);
    } else if (JCCL_PLANTED("claims-are-of-one-shard")) {
      continue;
    } else if (stays) {
      claim.shards.try_emplace(life.shard, brings);
    } else {
      claim.shards[life.shard] = brings;
    }
  }
  std::erase_if(*claims, [](const KeysClaim& one) { return one.second.own.empty(); });
}

// Of the same leaves one has other values.
bool differ(const Brought& one, const Brought& other) {
  return std::any_of(one.begin(), one.end(), [&](const auto& shard) {
    const auto its = other.find(shard.first);
    return its != other.end() && its->second.first == shard.second.first &&
           its->second.second != shard.second.second;
  });
}

}  // namespace

// The run is born once per state tag, when enough sites ask that may come in: from the source that
// the operator named; else with leaves like most sites', from the source that is named among these,
// else from a site whose values most have, the first that connected.
void State::try_birth(const wire::Tag& tag) {
  std::erase_if(rounds_.at(tag).claims, [&](const auto& one) { return !stands(one); });
  for (const wire::Incarnation incarnation : rounds_.at(tag).asking) {
    Life& life = lives_.at(incarnation);
    const auto asked = life.syncs.find(tag);
    if (asked != life.syncs.end()) note_claim(life, &asked->second);
  }
  const Birth found = birth_source(tag);
  if (found.site.empty()) {
    const auto& asking = rounds_.at(tag).asking;
    for (const wire::Incarnation incarnation : asking) {
      Life& life = lives_.at(incarnation);
      const auto asked = life.syncs.find(tag);
      if (asked == life.syncs.end()) continue;
      if (found.disputed && asked->second.sync.source) {
        reply_refused(life, tag, Code::kMismatch, found.wait);
        continue;
      }
      // The text counts those that came; a crowd hears of it with the heartbeats.
      const bool now = asking.size() < kCrowd || ticking_ || asked->second.told.empty();
      if (!now) continue;
      reply_wait(life, asked->second, barred(life).empty() ? found.wait : outsider_text(life));
    }
    return;
  }
  rounds_.at(tag).unborn_since = base::kNever;
  wire::BirthRecord birth;
  birth.tag = tag;
  birth.site = found.site;
  for (const Life* life : shards_of(found.site)) {
    const wire::Sync& sync = life->syncs.at(tag).sync;
    birth.sources.push_back(life->incarnation);
    birth.digests.push_back(sync.digest);
    birth.descriptors.push_back(sync.descriptor);
    if (life->shard == 0) birth.summary = base::to_utf8(sync.summary);
    note("birth", {{"tag", tag}, {"source", name(*life)}, {"digest", base::to_hex(sync.digest)}});
  }
  rounds_.at(tag).claims.clear();
  journal(std::move(birth));
  roster_dirty_ = lives_changed_ = true;
}

// The sites that are there, and are none of those.
std::string State::without(const std::map<std::string, Asker>& asked) const {
  constexpr std::size_t kNamed = 8;
  std::string names;
  std::size_t count = 0;
  for (const auto& [site, lives] : sites_) {
    if (asked.count(site) > 0 || !complete(site) || !kept_outside(site).empty()) continue;
    if (count++ < kNamed) names += cat(names.empty() ? "" : ", ", site);
  }
  if (count == 0) return {};
  return cat("; ", names, count > kNamed ? cat(" and ", count - kNamed, " more") : "",
             " did not: call jccl.sync_state there");
}

// The sites that ask for a tag that is not born, and that may come in at all.
std::map<std::string, Asker> State::askers(const wire::Tag& tag) const {
  std::map<std::string, Asker> sites;
  for (const auto& [incarnation, life] : lives_) {
    const auto asked = life.syncs.find(tag);
    if (asked == life.syncs.end()) continue;
    if (!barred(life).empty() && !JCCL_PLANTED("outsiders-bring-states")) continue;
    const wire::Sync& sync = asked->second.sync;
    Asker& site = sites[life.site];
    site.site = life.site;
    site.order = std::min(site.order, life.order);
    site.of = life.shards;
    site.keys.insert(life.key);
    site.named = site.named || sync.source || sync.restore != wire::Wish::kNone;
    site.shards[life.shard] = {sync.descriptor, sync.digest};
  }
  return sites;
}

// Of those that are whole, one at least: the ones whose leaves are like most sites'. Of as many,
// those with a named source; then those with the first.
std::vector<const Asker*> State::most_alike(const std::map<std::string, Asker>& sites) {
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

// A process that said so is there.
bool State::is_here(const KeysClaim& one) const {
  const auto& [key, claim] = one;
  if (JCCL_PLANTED("names-keep-claims")) return !lives_at(claim.site).empty();
  const auto lives = of_key_.find(key);
  return lives != of_key_.end() && std::any_of(lives->second.begin(), lives->second.end(),
                                               [&, &at = claim.site](wire::Incarnation life) {
                                                 return lives_.at(life).site == at;
                                               });
}

// … or has not been gone for long. Who is banned says nothing.
bool State::stands(const KeysClaim& one) const {
  if (ban_of(one.first) != nullptr && !JCCL_PLANTED("the-banned-claim-on")) return false;
  return now_ < one.second.at + kClaimTime || is_here(one);
}

// Of a tag that nobody asks for. Not at each event: there may be many such tags, with many claims.
bool State::is_claimed(Round* round) const {
  if (JCCL_PLANTED("claims-are-asked-for")) return false;
  if (now_ < round->claims_due) return !round->claims.empty();
  round->claims_due = now_ + base::kSecond;
  std::erase_if(round->claims, [&](const auto& one) { return !stands(one); });
  return !round->claims.empty();
}

void State::take_claims_back(const std::string& site) {
  if (JCCL_PLANTED("the-kicked-claim-on")) return;
  for (auto& [tag, round] : rounds_) {
    std::erase_if(round.claims, [&](const KeysClaim& one) { return one.second.site == site; });
  }
}

// Whether its site is the source, once for each time that it asks. Who does not say so is none any
// more; what another process of its site said stands. Who is not let in says nothing.
void State::note_claim(const Life& life, AskedSync* asked) {
  if (asked->noted) return;
  if (!barred(life).empty() && !JCCL_PLANTED("outsiders-take-claims-back")) return;
  const wire::Sync& sync = asked->sync;
  Round& round = rounds_.at(sync.tag);
  add_to_siblings(life, sync, &round.claims);
  auto its = round.claims.find(life.key);
  asked->noted = true;
  if (!sync.source) {
    const bool elsewhere = its != round.claims.end() && its->second.site != life.site;
    if (its == round.claims.end()) return;
    if (elsewhere && !JCCL_PLANTED("keys-speak-for-other-sites")) return;
    its->second.own.erase(life.shard);
    const bool none = its->second.own.empty() || JCCL_PLANTED("one-key-takes-all-back");
    if (none) round.claims.erase(its);
    return;
  }
  if (its == round.claims.end() && round.claims.size() >= base::kPeersMax) {
    if (!JCCL_PLANTED("more-claims-than-room-agree")) round.unclaimed_at = now_;
    asked->noted = false;  // there may be room the next time
    return;
  }
  Claim& claim = round.claims[life.key];
  if (claim.site != life.site) claim = {life.site, {}, {}, now_, false};
  claim.own.insert(life.shard);
  claim.shards[life.shard] = {sync.descriptor, sync.digest}, claim.at = now_;
  for (const wire::Incarnation incarnation : lives_at(life.site)) {
    const Life& sibling = lives_.at(incarnation);
    const auto brings = sibling.syncs.find(sync.tag);
    if (brings == sibling.syncs.end() || !barred(sibling).empty()) continue;
    claim.shards.try_emplace(sibling.shard, brings->second.sync.descriptor,
                             brings->second.sync.digest);
  }
  for (auto& one : round.claims) {
    Claim& other = one.second;
    const bool its_own = other.site == claim.site && !JCCL_PLANTED("a-site-disputes-with-itself");
    if (its_own || !differ(other.shards, claim.shards) || !stands(one)) continue;
    if (claim.disputed && other.disputed) continue;
    claim.disputed = other.disputed = !JCCL_PLANTED("who-gives-in-never-disputed");
    // Who of them ends by that has this long to come back.
    if (!JCCL_PLANTED("old-patience-with-new-disputes")) round.unborn_since = base::kNever;
  }
}

// A site whose word it is that it is the source, with other values than these; or empty.
std::string State::rival_source(const wire::Tag& tag, const Brought& brings) const {
  for (const auto& one : rounds_.at(tag).claims) {
    const Claim& claim = one.second;
    if (JCCL_PLANTED("claims-end-with-processes") && lives_at(claim.site).empty()) continue;
    if (differ(claim.shards, brings) && stands(one)) return claim.site;
  }
  return {};
}

// Where named sources differ: what more than half of all that ask have. Else nothing begins until
// their users agree, or the operator decides.
Birth State::named_source(const wire::Tag& tag, const std::vector<const Asker*>& alike) const {
  std::vector<const Asker*> named;
  std::copy_if(alike.begin(), alike.end(), std::back_inserter(named),
               [](const Asker* one) { return one->named; });
  std::sort(named.begin(), named.end(),
            [](const Asker* a, const Asker* b) { return a->order < b->order; });
  const auto votes = votes_of(alike);
  const auto most_have_it = [&](const Asker* one) {
    return alike.size() > 2 && 2 * votes.at(one->shards) > alike.size();
  };
  const base::Time unclaimed = rounds_.at(tag).unclaimed_at;
  const bool crowd =
      unclaimed != base::kNever && now_ < unclaimed + kClaimTime;  // not all are known
  for (const Asker* one : named) {
    const bool alone =
        (!crowd && rival_source(tag, one->shards).empty()) || JCCL_PLANTED("the-first-source-wins");
    if (alone || most_have_it(one)) return {one->site, {}};
  }
  for (const Asker* one : alike) {  // the source that they have is not back yet
    if (most_have_it(one)) return {one->site, {}};
  }
  const std::string& one = named.front()->site;
  std::string other = rival_source(tag, named.front()->shards);
  if (other.empty()) other = "others";
  const std::string both = one == other ? cat(one, " and an earlier process of it")
                                        : cat(std::min(one, other), " and ", std::max(one, other));
  return {{},
          cat(both, " are both named as the source of ", tag,
              ", with other values: begin one of them anew without source=True, two minutes later "
              "if it has no key file, or start the master with --source SITE"),
          true};
}

// Who may still bring a named source: a site that is not whole, or was refused as one of several
// and has to come back; or, of a run that has begun, a member that does not ask. In words.
std::string State::source_to_come(const wire::Tag& tag,
                                  const std::map<std::string, Asker>& sites) const {
  const bool waits = options_.straggler == Straggler::kWait;
  const base::Time since = rounds_.at(tag).unborn_since;
  const auto over = [&](base::Duration patience) {
    return since != base::kNever && now_ >= since + patience &&
           !JCCL_PLANTED("births-wait-for-ever");
  };
  for (const auto& [site, asker] : sites) {
    if (asker.named && !asker.whole() && !over(options_.restore_after)) {
      return cat("waits for all shards of the source ", site);
    }
  }
  for (const auto& one : rounds_.at(tag).claims) {  // it was told of another, and ended
    const Claim& claim = one.second;
    const bool here = is_here(one) || JCCL_PLANTED("the-gone-dispute-on");
    const std::string other = here ? rival_source(tag, claim.shards) : "";
    if (!other.empty() && !JCCL_PLANTED("disputes-end-in-silence")) {
      return cat("waits for ", claim.site, " and ", other,
                 " to agree, which are named as the source of ", tag, " with other values");
    }
    const auto its = sites.find(claim.site);
    const bool asks = its != sites.end() && its->second.keys.count(one.first) > 0;
    if (!asks && now_ < claim.at + kClaimTime && !over(options_.restore_after)) {
      return cat("waits for ", claim.site, ", which is named as the source, to synchronise ", tag);
    }
  }
  if (!begun_ && !ledger_.any_born()) return {};
  for (const std::string& site : member_sites()) {
    const auto asked = sites.find(site);
    if (asked != sites.end() && asked->second.whole()) continue;
    if (waits || !over(options_.straggler_after)) {
      return cat("waits for ", site, " to synchronise ", tag, ", or for a named source");
    }
  }
  return {};
}

Birth State::birth_source(const wire::Tag& tag) {
  const std::map<std::string, Asker> sites = askers(tag);
  const auto ready = static_cast<std::uint32_t>(std::count_if(
      sites.begin(), sites.end(), [](const auto& site) { return site.second.whole(); }));
  base::Time& since = rounds_.at(tag).unborn_since;
  if (ready < std::max(1U, start_peers())) {
    return {{},
            cat("waits for the first ", start_peers(), " sites to synchronise ", tag, ", ", ready,
                " did", without(sites), gone_text())};
  }
  if (!options_.source.empty() && !JCCL_PLANTED("the-operators-source-is-one-of-many")) {
    const auto its = sites.find(options_.source);
    if (its != sites.end() && its->second.whole()) return {its->first, {}};
    return {{},
            cat("waits for ", options_.source,
                ", the source that the operator named, to synchronise ", tag)};
  }
  const std::vector<const Asker*> alike = most_alike(sites);
  const bool any_named =
      std::any_of(alike.begin(), alike.end(), [](const Asker* one) { return one->named; });
  if (any_named) return named_source(tag, alike);
  since = std::min(since, now_);
  if (std::string wait = source_to_come(tag, sites); !wait.empty()) return {{}, std::move(wait)};
  const auto votes = votes_of(alike);
  const auto rank = [&](const Asker* one) {
    return std::tuple(votes.at(one->shards), UINT64_MAX - one->order);
  };
  const auto best =
      std::max_element(alike.begin(), alike.end(),
                       [&](const Asker* a, const Asker* b) { return rank(a) < rank(b); });
  return {(*best)->site, {}};
}

}  // namespace jccl::protocol
