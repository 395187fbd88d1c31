// XXH3-128 by the xxHash library, in the widest form that this processor runs.
#include "snapshot/digest.h"

#include <array>

#include "base/planted.h"
#include "snapshot/xxh3.h"

namespace jccl::snapshot {
namespace {

const Xxh3& choose() {
#if defined(__x86_64__)
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) return kXxh3V4;
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  if (v3) return kXxh3V3;
#endif
  return kXxh3Baseline;
}

const Xxh3& xxh3() {
  static const Xxh3& chosen = choose();
  return chosen;
}

Digest plain(Xxh3Result result) { return {.low = result.low, .high = result.high}; }

}  // namespace

struct Hasher::State {
  alignas(64) std::array<std::uint8_t, kXxh3StateBytes> xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { xxh3().reset(state_->xxh3.data()); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(ByteView bytes) {
  if (!bytes.empty()) xxh3().update(state_->xxh3.data(), bytes.data(), bytes.size());
}

Digest Hasher::finish() {
  const Digest digest = plain(xxh3().finish(state_->xxh3.data()));
  xxh3().reset(state_->xxh3.data());
  return digest;
}

Digest digest_of(ByteView bytes) { return plain(xxh3().digest(bytes.data(), bytes.size())); }

std::uint32_t check_in(const Digest& digest) { return static_cast<std::uint32_t>(digest.low); }

std::uint32_t check_of(ByteView bytes) { return bytes.empty() ? 0 : check_in(digest_of(bytes)); }

Digest combine(std::span<const Digest> digests) {
  base::Writer w;
  for (const Digest& digest : digests) {
    if (JCCL_PLANTED("empty-combine") && &digest == &digests.back() && digests.size() > 1) break;
    w.digest(digest);
  }
  return digest_of(w.bytes());
}

}  // namespace jccl::snapshot
