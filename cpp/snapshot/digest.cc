// XXH3-128 by Boost.Hash2, kept out of the header: it is large, and every user would compile it.
#include "snapshot/digest.h"

#include <array>
#include <boost/hash2/xxh3.hpp>
#include <cstring>

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

// Boost.Hash2 1.90 buffers up to 256 bytes between updates and forgets, when it takes them in at
// the end, that a block of 1024 bytes may end among them: the digest is then not XXH3's. An update
// of more than 512 bytes leaves at most 64 in its buffer, and that is safe. So bytes are kept here
// until there are enough, and never fewer than kKept are handed over last.
constexpr std::size_t kKept = 1024;

struct Hasher::State {
  boost::hash2::xxh3_128 hash;
  std::array<std::uint8_t, 2 * kKept> held{};
  std::size_t count = 0;  // of `held`; at least kKept once anything was handed over

  void hold(ByteView bytes) {
    if (!bytes.empty()) std::memcpy(held.data() + count, bytes.data(), bytes.size());
    count += bytes.size();
  }
  void hand_over(std::size_t size) {
    hash.update(held.data(), size);
    std::memmove(held.data(), held.data() + size, count - size);
    count -= size;
  }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(ByteView bytes) {
  State& s = *state_;
  while (s.count + bytes.size() > s.held.size()) {
    if (s.count == 0) {  // the bulk goes straight through
      const std::size_t size = bytes.size() - kKept;
      s.hash.update(bytes.data(), size);
      bytes = bytes.subspan(size);
      break;
    }
    const std::size_t fill = s.held.size() - s.count;
    s.hold(bytes.first(fill));
    bytes = bytes.subspan(fill);
    if (bytes.size() <= kKept) {
      s.hand_over(kKept);
    } else {
      s.hand_over(s.count);
    }
  }
  s.hold(bytes);
}

Digest Hasher::finish() {
  state_->hash.update(state_->held.data(), state_->count);
  const Digest digest = finished(state_->hash);
  state_->hash = {};
  state_->count = 0;
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
