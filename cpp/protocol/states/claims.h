// Which processes claim, before the birth of a state, that their site is the source, and the values
// that each site brings. A claim is a Word here.
//
// A word outlives its call and its process: otherwise a rival would only have to wait until the
// error ends an honest program. In a dispute it belongs to its key: otherwise any process could
// take it back under the site's name. It covers all that the site brings. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/time.h"
#include "wire/messages.h"

namespace jccl::protocol {

// What a site brings to the birth of a state: leaves and values, by shard.
using Values = std::pair<base::Digest, base::Digest>;
using Brought = std::map<std::uint32_t, Values>;

struct Word {  // of a process, for its shard
  Values brings;
  std::uint32_t of = 1;  // shards that its site has
  base::Time at = 0;     // when it was said, or its process went
  bool source = false;   // it said that its site is the source
};

// By shard and key. An earlier process of the same shard may have said something else.
using Sayer = std::pair<std::uint32_t, wire::PublicKey>;
using Words = std::map<Sayer, Word>;

struct Said {
  std::string site;
  std::uint32_t shard = 0, of = 1;
  wire::PublicKey key{};
  Values brings;
  bool source = false;
};

// A word stands for so long after its process has gone. A site is in dispute while one of its words
// differs from a word of another site, and for as long after that.
inline constexpr base::Duration kClaimTime = 120 * base::kSecond;

class Claims {
 public:
  // The sites that say so.
  const std::map<std::string, Words>& sites() const { return sites_; }
  bool has(const std::string& site) const { return sites_.count(site) > 0; }
  const std::map<std::string, base::Time>& differed() const { return differed_; }
  bool empty() const { return sites_.empty(); }
  void clear() { *this = {}; }

  // A process that asks without claiming is no source any more. It may take back the word of an
  // earlier process of its shard, which had another key. In a dispute any process could pose as
  // that one, so there the earlier word stays. A key's word at another site moves with it, unless
  // that one is in dispute. A key has at most as many words as it may have processes. False: there
  // is no room. Cost: O(words), or O(sites) if there is none.
  bool note(const Said& said, base::Time now);
  void left(const std::string& site, std::uint32_t shard, const wire::PublicKey& key,
            base::Time now);
  void drop(const std::string& site, base::Time now);
  using Stands = std::function<bool(const std::string&, const Sayer&, const Word&)>;
  void drop_unless(const Stands& stands, base::Time now);
  // Whether a source said that it brings these values, as far as it has spoken.
  bool a_source_brings(const Brought& brings) const;
  // As it was when drop_unless() looked last.
  bool in_dispute(const std::string& site, base::Time now) const;

 private:
  friend struct Archived;
  std::set<std::string> differing() const;
  void watch(base::Time now);
  void erase_unless(const Stands& stands);
  bool has_room(const Said& said, base::Time now) const;
  std::ptrdiff_t of_key(const wire::PublicKey& key) const;

  std::map<std::string, Words> sites_;
  std::map<std::string, base::Time> differed_;  // … from another one: when it was seen last
};

// What is said, looked up by values. Built once for many questions: O(words).
class Rivals {
 public:
  Rivals(const Claims& claims, base::Time now);
  // A site with a word for other values of the same leaves; or empty. It may be `site` itself, if
  // that is in dispute: one of two processes with its name may be a stranger.
  std::string of(const std::string& site, const Brought& brings) const;
  std::string of(const std::string& site, std::uint32_t shard, const Values& brings) const;

 private:
  std::map<std::pair<std::uint32_t, base::Digest>, std::map<base::Digest, std::set<std::string>>>
      values_;
  std::set<std::string> in_dispute_;
};

}  // namespace jccl::protocol
