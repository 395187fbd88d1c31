// See claims.h.
#include "protocol/claims.h"

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
// nothing.
std::set<std::string> Claims::differing() const {
  using Sayers = std::vector<std::pair<std::string, wire::PublicKey>>;
  std::map<std::pair<std::uint32_t, base::Digest>, std::map<base::Digest, Sayers>> said;
  for (const auto& [site, words] : sites_) {
    for (const auto& [place, word] : words) {
      said[{place.first, word.brings.first}][word.brings.second].emplace_back(site, place.second);
    }
  }
  std::set<std::string> sites;
  for (const auto& [of, values] : said) {
    for (const auto& [value, sayers] : values) {
      for (const auto& [site, key] : sayers) {
        const bool differs = std::any_of(values.begin(), values.end(), [&](const auto& other) {
          return other.first != value &&
                 std::any_of(other.second.begin(), other.second.end(), [&](const auto& one) {
                   return (one.first != site || JCCL_PLANTED("a-site-disputes-with-itself")) &&
                          one.second != key;
                 });
        });
        if (differs) sites.insert(site);
      }
    }
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
  const std::ptrdiff_t its = of_key(said.key);
  const auto before = sites_.find(said.site);
  const bool spoke = before != sites_.end() &&
                     of_shard(before->second, first_of(before->second, said.shard), said.shard);
  if (spoke || its > 0) watch(now);  // something may go
  if (said.source && its > 0 && !JCCL_PLANTED("a-key-says-it-everywhere")) {
    erase_unless([&](const auto& site, const auto& key, const Word&) {
      return site == said.site || key != said.key || in_dispute(site, now);
    });
  }
  Words& words = sites_[said.site];
  if (!in_dispute(said.site, now) || JCCL_PLANTED("claims-are-their-names")) {
    std::erase_if(words, [&](const auto& one) {
      return one.first.first == said.shard && one.first.second != said.key;
    });
  }
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
                           return !stands(at, one.first.second, one.second);
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
