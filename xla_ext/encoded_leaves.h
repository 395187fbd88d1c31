// Leaves that a program gives as the bytes of the round's codec, made by an encoder on the device,
// instead of values: which they are and what their values look like. The operand is u8[n], the
// result has the values' form. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "codec/codec.h"

namespace jccl::xla_ext {

// An operand or a result, by position. `data` may be null when count is 0.
struct View {
  codec::Dtype dtype = codec::Dtype::kF32;
  std::uint64_t count = 0;
  void* data = nullptr;
  std::vector<std::uint64_t> shape;
  std::size_t bytes() const { return count * codec::size_of(dtype); }
};

struct EncodedLeaves {
  codec::Codec codec;
  std::map<std::size_t, View> values;  // by leaf, without memory

  // Words: of each such leaf its place, the dtype's number, the rank, and the extents. nullopt:
  // malformed, or no such codec.
  static std::optional<EncodedLeaves> read(std::span<const std::int64_t> words,
                                           std::string_view codec);

  // Form of the leaf's values; null: it comes as values.
  const View* find(std::size_t leaf) const;
  // What the bytes stand for; zeros where no encoder wrote them, which rounds refuse.
  void decode(const View& bytes, const View& out) const;
};

}  // namespace jccl::xla_ext
