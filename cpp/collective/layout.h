// Cuts the leaves of a round into chunks and gives each chunk an owner. Every peer computes the
// same cut from the same descriptor and plan. Segments start on the codec's grid of their leaf, so
// a layout never changes the bits of a result. Refuses nothing: callers bound leaves and bytes
// first (base/limits.h). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/codec.h"

namespace jccl::collective {

struct LeafSpec {
  codec::Dtype dtype = codec::Dtype::kF32;
  std::uint64_t count = 0;
};

struct Segment {
  std::uint32_t leaf = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;  // never 0
  bool operator==(const Segment&) const = default;
};

// The encoded form of a chunk is that of its segments one after another; so is its accumulator.
struct Chunk {
  std::uint32_t index = 0;
  std::uint32_t owner = 0;  // position among contributors
  std::vector<Segment> segments;
  std::size_t encoded_bytes = 0;
  std::size_t accumulator_bytes = 0;
  std::uint64_t elements = 0;
  bool operator==(const Chunk&) const = default;
};

struct LayoutOptions {
  codec::Codec codec;
  std::size_t chunk_bytes = 256 * 1024;  // of leaf data, at most, but at least one grid step
  std::vector<std::uint32_t> shares;     // relative, one per owner; not all 0
  std::uint64_t grid_least = 1;          // cuts are at its multiples too; see grid_elements()
};

// Elements between allowed cuts: the codec's block; 16 where the codec has none, for alignment. Or
// `least`, of which the codec's block is a divisor (JCCL_CHECK).
std::uint64_t grid_elements(const codec::Codec& codec, std::uint64_t least = 1);

// Owners get contiguous ranges in position order, each within one grid step of its share of the
// bytes. Chunks are numbered in leaf order; leaves without elements appear nowhere.
std::vector<Chunk> make_layout(const std::vector<LeafSpec>& leaves, const LayoutOptions& options);

// all_gather: every owner has all leaves, its own values. Shares are only counted.
std::vector<Chunk> make_gather_layout(const std::vector<LeafSpec>& leaves,
                                      const LayoutOptions& options);

// reduce_scatter: owner k of n gets elements [count·k/n, count·(k+1)/n) of each leaf, whatever the
// grid, which starts anew at each such part. Shares are only counted.
std::vector<Chunk> make_scatter_layout(const std::vector<LeafSpec>& leaves,
                                       const LayoutOptions& options);

// all_to_all: owner k gets block k of each leaf of the inputs. `blocks` says what one of them is;
// the grid starts anew in each. Shares are only counted.
std::vector<Chunk> make_all_to_all_layout(const std::vector<LeafSpec>& blocks,
                                          const LayoutOptions& options);

}  // namespace jccl::collective
