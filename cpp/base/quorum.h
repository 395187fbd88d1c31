// With how many sites a round may begin, if the others are not READY in time. Pure; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace jccl::base {

// More than half, so that two groups can't ask for two things; of all sites nobody is left out.
inline constexpr std::uint32_t kShareAbove = 500, kShareBelow = 1000;
inline constexpr Duration kGraceMax = 86'400 * kSecond;

struct Quorum {
  std::uint32_t share = 0;  // of the sites, in thousandths; 0: as the run has it
  Duration grace = 0;       // for the others, from when so many are READY
  auto operator<=>(const Quorum&) const = default;

  bool asked() const { return share != 0; }
  // So many of `sites` are enough.
  bool enough(std::size_t ready, std::size_t sites) const {
    return asked() && 1000 * ready >= share * sites && 2 * ready > sites;
  }
  // … and somebody is missing.
  bool met(std::size_t ready, std::size_t sites) const {
    return ready < sites && enough(ready, sites);
  }
};

constexpr bool is_usable(const Quorum& quorum) {
  if (quorum.share == 0) return quorum.grace == 0;
  return quorum.share > kShareAbove && quorum.share < kShareBelow && quorum.grace >= 0 &&
         quorum.grace <= kGraceMax;
}

// nullopt: not a share above 0.5 and below 1, or not a grace of 0 s to a day. Three decimals count.
std::optional<Quorum> quorum_of(double share, double grace_s);

// "0.9:2": a share, and seconds; "": none. nullopt: neither.
std::optional<Quorum> quorum_from_text(std::string_view text);
std::string to_text(const Quorum& quorum);

}  // namespace jccl::base
