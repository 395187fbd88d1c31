// See claims.h.
#include "protocol/states/claims.h"

#include <algorithm>

#include "base/limits.h"
#include "base/planted.h"

namespace jccl::protocol {

namespace {

bool any_source(const Words& words) {
  return std::any_of(words.begin(), words.end(), [](const auto& one) { return one.second.source; });
}

Words::const_iterator first_of(const Words& words, std::uint32_t shard) {
  return words.lower_bound({shard, wire::PublicKey{}});
}

bool of_shard(const Words& words, Words::const_iterator at, std::uint32_t shard) {
  return at != words.end() && at->first.first == shard;
}

}  // namespace

// The sites with a word that differs from one of another site. A key disputes with itself about
// nothing. By counts, since a thousand processes may say a thousand values: of all words of other
// values those of the own site and those of the own key are none that differ.
std::set<std::string> Claims::differing() const {
  struct Counts {
    std::map<std::string, std::ptrdiff_t> of_site;
    std::map<wire::PublicKey, std::ptrdiff_t> of_key;
    std::map<std::pair<std::string, wire::PublicKey>, std::ptrdiff_t> of_both;
    std::ptrdiff_t all = 0;
    void add(const std::string& site, const wire::PublicKey& key) {
      ++all, ++of_site[site], ++of_key[key], ++of_both[{site, key}];
    }
    std::ptrdiff_t others(const std::string& site, const wire::PublicKey& key) const {
      const auto get = [](const auto& map, const auto& at) {
        const auto found = map.find(at);
        return found == map.end() ? 0 : found->second;
      };
      if (JCCL_PLANTED("a-site-disputes-with-itself")) return all - get(of_key, key);
      return all - get(of_site, site) - get(of_key, key) + get(of_both, std::pair(site, key));
    }
  };
  std::map<std::pair<std::uint32_t, base::Digest>, Counts> said;
  std::map<std::tuple<std::uint32_t, base::Digest, base::Digest>, Counts> so;  // with that value
  for (const auto& [site, words] : sites_) {
    for (const auto& [place, word] : words) {
      const auto& [leaves, values] = word.brings;
      said[{place.first, leaves}].add(site, place.second);
      so[{place.first, leaves, values}].add(site, place.second);
    }
  }
  std::set<std::string> sites;
  for (const auto& [site, words] : sites_) {
    const bool differs = std::any_of(words.begin(), words.end(), [&, &at = site](const auto& one) {
      const auto& [place, word] = one;
      const auto& [leaves, values] = word.brings;
      return said.at({place.first, leaves}).others(at, place.second) >
             so.at({place.first, leaves, values}).others(at, place.second);
    });
    if (differs) sites.insert(site);
  }
  return sites;
}

// Before any word goes: its site and the others were in dispute until now.
void Claims::watch(base::Time now) {
  std::erase_if(differed_, [&](const auto& one) { return now >= one.second + kClaimTime; });
  if (JCCL_PLANTED("disputes-end-with-words")) return;
  for (const std::string& site : differing()) differed_[site] = now;
}

bool Claims::in_dispute(const std::string& site, base::Time now) const {
  const auto last = differed_.find(site);
  return last != differed_.end() && now < last->second + kClaimTime;
}

bool Claims::has_room(const Said& said, base::Time now) const {
  std::size_t all = 0;
  for (const auto& [site, words] : sites_) all += words.size();
  if (all < base::kPeersMax) return true;
  const auto own = sites_.find(said.site);
  if (own == sites_.end()) return false;
  const auto at = first_of(own->second, said.shard);
  return of_shard(own->second, at, said.shard) &&
         (own->second.count({said.shard, said.key}) > 0 || !in_dispute(said.site, now));
}

std::ptrdiff_t Claims::of_key(const wire::PublicKey& key) const {
  std::ptrdiff_t count = 0;
  for (const auto& [site, words] : sites_) {
    count += std::count_if(words.begin(), words.end(),
                           [&](const auto& one) { return one.first.second == key; });
  }
  return count;
}

bool Claims::note(const Said& said, base::Time now) {
  if (!said.source && !has(said.site)) return true;
  if (!has_room(said, now)) return false;
  std::ptrdiff_t its = of_key(said.key);
  const auto before = sites_.find(said.site);
  const bool spoke = before != sites_.end() &&
                     of_shard(before->second, first_of(before->second, said.shard), said.shard);
  if (spoke || its > 0) watch(now);  // something may go
  if (said.source && its > 0 && !JCCL_PLANTED("a-key-says-it-everywhere")) {
    erase_unless([&](const auto& site, const Sayer& place, const Word&) {
      return site == said.site || place.second != said.key || in_dispute(site, now);
    });
  }
  Words& words = sites_[said.site];
  if (!in_dispute(said.site, now) || JCCL_PLANTED("claims-are-their-names")) {
    std::erase_if(words, [&](const auto& one) {
      return one.first.first == said.shard && one.first.second != said.key;
    });
  }
  if (!JCCL_PLANTED("words-that-went-take-room")) its = of_key(said.key);
  const std::pair place{said.shard, said.key};
  const auto own = words.find(place);
  if (own != words.end()) own->second.source = said.source;
  const bool takes_all = !said.source && JCCL_PLANTED("one-shard-takes-all-back");
  if (takes_all || (!said.source && !any_source(words))) {
    sites_.erase(said.site);
    return true;
  }
  if (!said.source && JCCL_PLANTED("claims-are-of-one-shard")) return true;
  if (own == words.end() && its >= base::kLivesOfKeyMax &&
      !JCCL_PLANTED("one-key-says-it-for-all-shards")) {
    if (words.empty()) sites_.erase(said.site);
    return true;
  }
  words[place] = {said.brings, said.of, now, said.source};
  return true;
}

bool Claims::a_source_brings(const Brought& brings) const {
  return std::any_of(sites_.begin(), sites_.end(), [&](const auto& site) {
    const auto& words = site.second;
    return any_source(words) && std::all_of(words.begin(), words.end(), [&](const auto& one) {
             const auto same = brings.find(one.first.first);
             return same != brings.end() && same->second == one.second.brings;
           });
  });
}

void Claims::left(const std::string& site, std::uint32_t shard, const wire::PublicKey& key,
                  base::Time now) {
  const auto words = sites_.find(site);
  if (words == sites_.end() || JCCL_PLANTED("gone-since-it-asked")) return;
  const auto word = words->second.find({shard, key});
  if (word != words->second.end()) word->second.at = now;
}

void Claims::drop(const std::string& site, base::Time now) {
  watch(now);
  sites_.erase(site);
}

void Claims::drop_unless(const Stands& stands, base::Time now) {
  watch(now);
  erase_unless(stands);
}

void Claims::erase_unless(const Stands& stands) {
  bool fell = false;
  for (auto& [site, words] : sites_) {
    fell = std::erase_if(words,
                         [&, &at = site](const auto& one) {
                           return !stands(at, one.first, one.second);
                         }) > 0 ||
           fell;
  }
  if (fell) std::erase_if(sites_, [](const auto& site) { return !any_source(site.second); });
}

Rivals::Rivals(const Claims& claims, base::Time now) {
  for (const auto& [site, words] : claims.sites()) {
    if (claims.in_dispute(site, now)) in_dispute_.insert(site);
    for (const auto& [place, word] : words) {
      values_[{place.first, word.brings.first}][word.brings.second].insert(site);
    }
  }
}

std::string Rivals::of(const std::string& site, std::uint32_t shard, const Values& brings) const {
  const auto said = values_.find({shard, brings.first});
  if (said == values_.end()) return {};
  for (const auto& [digest, sites] : said->second) {
    if (digest == brings.second) continue;
    for (const std::string& other : sites) {
      if (other != site || in_dispute_.count(site) > 0) return other;
    }
  }
  return {};
}

std::string Rivals::of(const std::string& site, const Brought& brings) const {
  for (const auto& [shard, values] : brings) {
    if (std::string other = of(site, shard, values); !other.empty()) return other;
  }
  return {};
}

}  // namespace jccl::protocol
