// Digests of state and results: XXH3-128. They tell equal bytes from different ones; they are no
// defence against somebody who makes collisions on purpose (proof_plan.h is, for fetched states).
// Equal on every machine and whatever the sizes of the pieces. Pure; runs on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"

namespace jccl::snapshot {

using base::ByteView;
using base::Digest;

Digest digest_of(ByteView bytes);

// 32 bits of a digest: what a frame says of its payload, so that one hash serves both.
std::uint32_t check_in(const Digest& digest);
std::uint32_t check_of(ByteView bytes);  // 0: there are none

// The digest of a list of digests, in order: digest_of over their 16-byte forms.
Digest combine(std::span<const Digest> digests);

// The digest of a stream that arrives in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void update(ByteView bytes);
  Digest finish();  // and begins anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jccl::snapshot
