// The leaf of an audited cell: what a contributor is held to. Binds run, attempt, who, which cell,
// what it is and its bytes, so that nothing said elsewhere passes for it. Pure; any thread.
#pragma once

#include "base/merkle.h"
#include "wire/messages.h"

namespace jccl::wire {

// All of it but the bytes. Of a contributor's part; `contributor` 0: of the result.
inline Bytes cell_head(const RunId& run, const Attempt& attempt, PeerId contributor,
                       std::uint32_t cell, base::ByteView terms) {
  base::Writer head;
  head.run(run);
  head.attempt(attempt);
  head.u32(contributor);
  head.u32(cell);
  head.u32(static_cast<std::uint32_t>(terms.size()));
  head.raw(terms.data(), terms.size());
  return head.take();
}

inline Sha256 cell_leaf(const RunId& run, const Attempt& attempt, PeerId contributor,
                        std::uint32_t cell, base::ByteView terms, base::ByteView bytes) {
  return base::leaf_hash(cell_head(run, attempt, contributor, cell, terms), bytes);
}

}  // namespace jccl::wire
