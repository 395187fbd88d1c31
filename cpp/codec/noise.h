// The seed of the chance that one encoding of one leaf uses. Everything that may differ between two
// encodings is mixed in, so that their errors are independent; nothing that differs between peers,
// cuts or retries of one round is, so that all get the same bytes. Not for secrets. Pure.
#pragma once

#include <cstdint>

#include "codec/codec.h"

namespace jccl::codec {

constexpr std::uint64_t mixed(std::uint64_t x) {  // splitmix64's finaliser (S. Vigna)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

struct NoiseName {
  std::uint64_t round = 0;
  std::uint32_t peer = 0;  // whose contribution; 0: the result, whoever encodes it
  std::uint32_t leaf = 0;
};

constexpr std::uint64_t noise_seed(const Codec& codec, const NoiseName& name) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;
  std::uint64_t seed = mixed(codec.seed + kStep);
  seed = mixed(seed + name.round + kStep);
  seed = mixed(seed + name.peer + kStep);
  return mixed(seed + name.leaf + kStep);
}

}  // namespace jccl::codec
