// What oracles of several tests need: every op, and integers of any width as one type. Test-only.
#pragma once

#include <cstring>

#include "base/bytes.h"
#include "codec/codec.h"
#include "collective/op.h"

namespace jccl::collective {

__extension__ typedef __int128 Wide;

inline constexpr Op kOps[] = {Op::kSum, Op::kMean, Op::kMin, Op::kMax, Op::kProd};

// Element i of a leaf of integers.
inline Wide integer_at(codec::Dtype dtype, const base::Bytes& bytes, std::uint64_t i) {
  const std::size_t size = codec::size_of(dtype);
  std::uint64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * size, size);
  if (dtype >= codec::Dtype::kU8) return static_cast<Wide>(raw);
  const unsigned up = static_cast<unsigned>(64 - 8 * size);
  return static_cast<Wide>(static_cast<std::int64_t>(raw << up) >> up);
}

}  // namespace jccl::collective
