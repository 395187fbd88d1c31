// The source of all variants; a mark_*.cc defines JCCL_MARK and includes it. Plain loops, for the
// compiler to vectorise: sums of integers may be taken in any order.
#include <cstring>

#include "snapshot/mark_kernels.h"

namespace jccl::snapshot {
namespace {

template <typename Word>
Mark words(const void* from, std::size_t count, std::uint32_t at) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  std::uint32_t first = 0, second = 0;
  std::uint32_t place = at * 0x9E3779B9U + 0x7F4A7C15U;
  for (std::size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes + i * sizeof(Word), sizeof(Word));
    std::uint32_t x = word ^ place;
    place += 0x9E3779B9U;
    x = (x ^ (x >> 16)) * 0x85EBCA6BU;
    x = (x ^ (x >> 13)) * 0xC2B2AE35U;
    x ^= x >> 16;
    first += x;
    second += x ^ (x << 11) ^ (x >> 15);
  }
  return {first, second};
}

}  // namespace

extern const MarkKernels JCCL_MARK;
constinit const MarkKernels JCCL_MARK = {words<std::uint8_t>, words<std::uint16_t>,
                                         words<std::uint32_t>};

}  // namespace jccl::snapshot
