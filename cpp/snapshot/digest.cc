// XXH3-128 by Boost.Hash2, kept out of the header: it is large, and every user would compile it.
#include "snapshot/digest.h"

#include <boost/hash2/xxh3.hpp>

namespace jccl::snapshot {
namespace {

std::uint64_t big_endian(const unsigned char* at) {
  std::uint64_t v = 0;
  for (int i = 0; i < 8; ++i) v = v << 8 | at[i];
  return v;
}

Digest finished(boost::hash2::xxh3_128& hash) {
  const auto bytes = hash.result();  // canonical form: high half first, big-endian
  return {.low = big_endian(bytes.data() + 8), .high = big_endian(bytes.data())};
}

}  // namespace

struct Hasher::State {
  boost::hash2::xxh3_128 hash;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(ByteView bytes) {
  if (!bytes.empty()) state_->hash.update(bytes.data(), bytes.size());
}

Digest Hasher::finish() {
  const Digest digest = finished(state_->hash);
  state_->hash = {};
  return digest;
}

Digest digest_of(ByteView bytes) {
  boost::hash2::xxh3_128 hash;
  if (!bytes.empty()) hash.update(bytes.data(), bytes.size());
  return finished(hash);
}

Digest combine(std::span<const Digest> digests) {
  base::Writer w;
  for (const Digest& digest : digests) w.digest(digest);
  return digest_of(w.bytes());
}

}  // namespace jccl::snapshot
