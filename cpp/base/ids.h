// Names of things. All are values; none is ever reused for something else.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace jccl::base {

// Position in admission order; lower ids were admitted earlier. 0 = not admitted (observer).
using PeerId = std::uint32_t;

// Random id of one life of a peer; 0 = none.
using Incarnation = std::uint64_t;

using RunId = std::array<std::uint8_t, 16>;

// Of an Ed25519 pair: names a process, for as long as it keeps its key. All zero: none.
using PublicKey = std::array<std::uint8_t, 32>;

// Names a round's stream of numbers; chosen by the user, equal on all peers.
using Tag = std::string;
// Whether the run shall go on from the state that an operator hands in, whatever is newer; each
// includes those before it.
enum class Wish : std::uint8_t {
  kNone = 0,
  kKnown = 1,  // if it is an earlier revision that the journal knows; once
  kAny = 2,    // whatever state it is
  kAgain = 3,  // although it was granted before
};

struct Attempt {
  std::uint64_t epoch = 0;
  std::uint64_t counter = 0;
  auto operator<=>(const Attempt&) const = default;
  bool none() const { return epoch == 0; }
};

struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  auto operator<=>(const Digest&) const = default;
};

std::string to_hex(const RunId& run);
std::string to_hex(std::uint64_t value);
std::string to_hex(const Digest& digest);
std::string to_text(const Attempt& attempt);  // "3.7"
bool from_hex(const std::string& text, RunId* run);
std::string to_hex(std::span<const std::uint8_t> bytes);
bool from_hex(std::string_view text, std::span<std::uint8_t> out);  // exactly so many

// How a process numbers its lives: the upper 48 bits of an incarnation are random and of the
// process (of one communicator), the lower 16 count. So a later life is known to have what an
// earlier one held.
inline constexpr int kLifeBits = 16;

inline std::uint64_t process_of(Incarnation life) { return life >> kLifeBits; }
inline Incarnation first_life(std::uint64_t random) { return (random << kLifeBits) | 1; }
// With the last life of the count a process forgets that it is one.
inline Incarnation next_life(Incarnation life, std::uint64_t random) {
  return process_of(life + 1) == process_of(life) ? life + 1 : first_life(random);
}

}  // namespace jccl::base
