// The source of all variants; an xxh3_*.cc defines JCCL_XXH3 and includes it. XXH_INLINE_ALL makes
// every function of the library local to the unit, so no two variants are merged by the linker.
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "snapshot/xxh3.h"

namespace jccl::snapshot {
namespace {

static_assert(sizeof(XXH3_state_t) <= kXxh3StateBytes);

Xxh3Result plain(XXH128_hash_t hash) { return {hash.low64, hash.high64}; }

Xxh3Result digest(const void* data, std::size_t size) { return plain(XXH3_128bits(data, size)); }

void reset(void* state) { (void)XXH3_128bits_reset(static_cast<XXH3_state_t*>(state)); }

void update(void* state, const void* data, std::size_t size) {
  (void)XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

Xxh3Result finish(const void* state) {
  return plain(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state)));
}

}  // namespace

extern const Xxh3 JCCL_XXH3;
constinit const Xxh3 JCCL_XXH3 = {digest, reset, update, finish};

}  // namespace jccl::snapshot
