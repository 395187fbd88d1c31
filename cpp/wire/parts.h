// What several messages and records are made of, as plain values (messages.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/codes.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "base/time.h"

namespace jccl::wire {

using base::Attempt;
using base::Bytes;
using base::Code;
using base::Digest;
using base::Duration;
using base::Incarnation;
using base::PeerId;
using base::PublicKey;
using base::RunId;
using base::Sha256;
using base::Tag;
using base::Wish;

// A round by name: n = committed rounds of the tag + 1.
struct RoundName {
  Tag tag;
  std::uint64_t n = 0;
  auto operator<=>(const RoundName&) const = default;
};

struct Member {
  PeerId id = 0;
  Incarnation incarnation = 0;
  std::string site;
  std::uint32_t shard = 0, shards = 1;
  std::vector<std::string> addresses;  // empty: can only dial out
  PublicKey key{};                     // its own; whoever has it not is somebody else
  bool operator==(const Member&) const = default;
};

// What peers of a run show each other before a link is one: whoever has it was told by the master.
// A new one for every eviction, so that who left has none.
struct LinkSecret {
  std::uint64_t generation = 0;  // 0: none
  std::array<std::uint8_t, 16> secret{};
  bool operator==(const LinkSecret&) const = default;
};

struct Contributor {
  PeerId id = 0;
  double weight = 1.0;
  bool operator==(const Contributor&) const = default;
};

// What is known of one tag: the last commit, and for state tags the snapshot of that revision.
struct TagInfo {
  Tag tag;
  std::uint64_t committed = 0;
  bool is_state = false;
  bool operator==(const TagInfo&) const = default;
};

struct Held {  // a snapshot a peer can serve, or the state it stands at
  Tag tag;
  std::uint64_t revision = 0;
  Digest digest;
  bool operator==(const Held&) const = default;
};

struct Unresolved {
  Attempt attempt;
  RoundName round;
  bool operator==(const Unresolved&) const = default;
};

}  // namespace jccl::wire
