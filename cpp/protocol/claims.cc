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

bool differ(const Values& one, const Values& other) {
  return one.first == other.first && one.second != other.second;
}

// What comes after a dispute began is the site's word as well, unless it is another process's of
// the same shard: that one disputes with the earlier one alone.
bool inherits_dispute(const Words& words, std::uint32_t shard) {
  const bool begun_anew =
      first_of(words, shard) != words.end() && first_of(words, shard)->first.first == shard;
  return !begun_anew && std::any_of(words.begin(), words.end(),
                                    [](const auto& one) { return one.second.disputed; });
}

}  // namespace

std::size_t Claims::count() const {
  std::size_t words = 0;
  for (const auto& [site, its] : sites_) words += its.size();
  return words;
}

void Claims::move(const Said& said) {
  if (JCCL_PLANTED("a-key-says-it-everywhere")) return;
  drop_unless([&](const auto& site, const auto& key, const Word& word) {
    return site == said.site || key != said.key || word.disputed;
  });
}

Noted Claims::note(const Said& said, base::Time now) {
  if (!said.source && !has(said.site)) return Noted::kNothingNew;
  if (said.source) move(said);
  Words& words = sites_[said.site];
  for (auto at = first_of(words, said.shard); at != words.end();) {
    const auto& [place, word] = *at;
    if (place.first != said.shard) break;
    const bool stays =
        place.second == said.key || (word.disputed && !JCCL_PLANTED("claims-are-their-names"));
    at = stays ? std::next(at) : words.erase(at);
  }
  const std::pair place{said.shard, said.key};
  const auto own = words.find(place);
  if (own != words.end()) own->second.source = said.source;
  const bool takes_all = !said.source && JCCL_PLANTED("one-shard-takes-all-back");
  if (takes_all || (!said.source && !any_source(words))) {
    sites_.erase(said.site);
    return Noted::kNothingNew;
  }
  if (!said.source && JCCL_PLANTED("claims-are-of-one-shard")) return Noted::kNothingNew;
  if (own == words.end() && count() >= base::kPeersMax) {
    if (words.empty()) sites_.erase(said.site);
    return Noted::kNoRoom;
  }
  const bool inherits = own == words.end() && inherits_dispute(words, said.shard);
  Word& word = words[place];
  word.brings = said.brings, word.of = said.of, word.at = now, word.source = said.source;
  if (inherits && !JCCL_PLANTED("late-words-are-undisputed")) word.disputed = true;
  return dispute(said) ? Noted::kNewDispute : Noted::kNothingNew;
}

// All that both sites say is disputed then: in which shard it shows is chance.
bool Claims::dispute(const Said& said) {
  Words& own = sites_.at(said.site);
  bool fresh = false;
  const auto mark = [&](Words& words) {
    for (auto& [place, word] : words) {
      fresh = fresh || !word.disputed;
      word.disputed = !JCCL_PLANTED("who-gives-in-never-disputed");
    }
  };
  for (auto& [site, words] : sites_) {
    if (site == said.site && !JCCL_PLANTED("a-site-disputes-with-itself")) continue;
    for (auto at = first_of(words, said.shard); at != words.end(); ++at) {
      if (at->first.first != said.shard) break;
      const bool itself = at->first.second == said.key;
      if (itself || !differ(at->second.brings, said.brings)) continue;
      mark(words), mark(own);
      break;
    }
  }
  return fresh;
}

void Claims::left(const std::string& site, std::uint32_t shard, const wire::PublicKey& key,
                  base::Time now) {
  const auto words = sites_.find(site);
  if (words == sites_.end() || JCCL_PLANTED("gone-since-it-asked")) return;
  const auto word = words->second.find({shard, key});
  if (word != words->second.end()) word->second.at = now;
}

void Claims::drop_unless(
    const std::function<bool(const std::string&, const wire::PublicKey&, const Word&)>& stands) {
  for (auto& [site, words] : sites_) {
    std::erase_if(words, [&, &at = site](const auto& one) {
      return !stands(at, one.first.second, one.second);
    });
  }
  std::erase_if(sites_, [](const auto& site) { return !any_source(site.second); });
}

Rivals::Rivals(const Claims& claims) {
  for (const auto& [site, words] : claims.sites()) {
    for (const auto& [place, word] : words) {
      values_[{place.first, word.brings.first}].emplace(word.brings.second, site);
    }
  }
}

std::string Rivals::of(std::uint32_t shard, const Values& brings) const {
  const auto said = values_.find({shard, brings.first});
  if (said == values_.end()) return {};
  for (const auto& [digest, site] : said->second) {
    if (digest != brings.second) return site;
  }
  return {};
}

std::string Rivals::of(const Brought& brings) const {
  for (const auto& [shard, values] : brings) {
    if (std::string other = of(shard, values); !other.empty()) return other;
  }
  return {};
}

}  // namespace jccl::protocol
