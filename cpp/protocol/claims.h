// Who says before the birth of a state that its site is the source, and what that site brings.
//
// A word outlives its call and its process: who differs would else only have to wait until an
// honest one ends by that. It is its key's, or anybody might take it back under the site's name
// meanwhile. What the others of its site bring is the site's word as well. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  std::uint32_t of = 1;   // shards that its site has
  base::Time at = 0;      // when it was said, or its process went
  bool source = false;    // it said that its site is the source
  bool disputed = false;  // another site said something else, be that taken back since or not
};

// By shard and key. An earlier process of the same shard may have said something else.
using Words = std::map<std::pair<std::uint32_t, wire::PublicKey>, Word>;

struct Said {
  std::string site;
  std::uint32_t shard = 0, of = 1;
  wire::PublicKey key{};
  Values brings;
  bool source = false;
};

enum class Noted : std::uint8_t { kNothingNew, kNewDispute, kNoRoom };

class Claims {
 public:
  // The sites that say so.
  const std::map<std::string, Words>& sites() const { return sites_; }
  bool has(const std::string& site) const { return sites_.count(site) > 0; }
  bool empty() const { return sites_.empty(); }
  void clear() { sites_.clear(); }

  // Who asks without saying so is no source any more. Another process of its shard, which began
  // anew without its key, said what this one takes back; where sites differ anybody might be that
  // process, so there the earlier word stays. What a key said elsewhere moves with it, unless it
  // is disputed; with itself it disputes nothing. Cost: O(words).
  Noted note(const Said& said, base::Time now);
  void left(const std::string& site, std::uint32_t shard, const wire::PublicKey& key,
            base::Time now);
  void drop(const std::string& site) { sites_.erase(site); }
  void drop_unless(
      const std::function<bool(const std::string&, const wire::PublicKey&, const Word&)>& stands);

 private:
  friend struct Archived;
  bool dispute(const Said& said);
  void move(const Said& said);
  std::size_t count() const;

  std::map<std::string, Words> sites_;
};

// What is said, looked up by values. Built once for many questions: O(words).
class Rivals {
 public:
  explicit Rivals(const Claims& claims);
  // A site whose word it is, with other values than these of the same leaves; or empty.
  std::string of(const Brought& brings) const;
  std::string of(std::uint32_t shard, const Values& brings) const;

 private:
  std::map<std::pair<std::uint32_t, base::Digest>, std::map<base::Digest, std::string>> values_;
};

}  // namespace jccl::protocol
