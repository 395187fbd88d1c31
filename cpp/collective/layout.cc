// All cuts feed ranges of leaves, in order, to one Packer that fills chunks. Work is
// proportional to leaves + chunks, not to elements.
#include "collective/layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/planted.h"
#include "collective/kernels/kernels.h"

namespace jccl::collective {
namespace {

__extension__ typedef unsigned __int128 Wide;

class Packer {
 public:
  Packer(const std::vector<LeafSpec>& leaves, const LayoutOptions& options)
      : leaves_(leaves),
        options_(options),
        grid_(grid_elements(options.codec, options.grid_least)) {
    JCCL_CHECK(options.chunk_bytes > 0);
  }

  // Adds elements [first, first + count) of a leaf to `owner`; cuts at first + k·grid only.
  void add(std::uint32_t owner, std::uint32_t leaf, std::uint64_t first, std::uint64_t count) {
    const std::uint64_t step_bytes = grid_ * codec::size_of(leaves_[leaf].dtype);
    while (count > 0) {
      if (!chunks_.empty() && chunks_.back().owner != owner &&
          !JCCL_PLANTED("chunks-of-two-owners"))
        room_ = 0;
      std::uint64_t taken = room_ / step_bytes * grid_;
      if (taken == 0 && fits_tail(leaf, count)) taken = count;
      if (taken == 0) {
        open(owner);
        taken = std::max<std::uint64_t>(room_ / step_bytes, 1) * grid_;
      }
      taken = std::min(taken, count);
      put({leaf, first, taken});
      first += taken;
      count -= taken;
    }
  }

  std::vector<Chunk> take() { return std::move(chunks_); }

 private:
  // The rest of a leaf may be shorter than a grid step, and fit where no whole step does.
  bool fits_tail(std::uint32_t leaf, std::uint64_t count) const {
    return count * codec::size_of(leaves_[leaf].dtype) <=
           room_ + (JCCL_PLANTED("tail-beyond-chunk") ? 64 : 0);
  }

  void open(std::uint32_t owner) {
    Chunk chunk;
    chunk.index = static_cast<std::uint32_t>(chunks_.size());
    chunk.owner = owner;
    chunks_.push_back(std::move(chunk));
    room_ = options_.chunk_bytes;
  }

  void put(const Segment& segment) {
    const codec::Dtype dtype = leaves_[segment.leaf].dtype;
    Chunk& chunk = chunks_.back();
    chunk.segments.push_back(segment);
    chunk.encoded_bytes += codec::encoded_bytes(options_.codec, dtype, segment.count);
    chunk.accumulator_bytes =
        accumulator_bytes(dtype, segment.count) +
        (JCCL_PLANTED("accumulator-of-last-segment") ? 0 : chunk.accumulator_bytes);
    chunk.elements += segment.count;
    const std::uint64_t bytes = segment.count * codec::size_of(dtype);
    room_ -= std::min<std::uint64_t>(bytes, room_);
  }

  const std::vector<LeafSpec>& leaves_;
  const LayoutOptions& options_;
  const std::uint64_t grid_;
  std::uint64_t room_ = 0;  // bytes left in the last chunk
  std::vector<Chunk> chunks_;
};

// Byte at which each owner's range ends, all leaves laid end to end.
std::vector<std::uint64_t> range_ends(const std::vector<LeafSpec>& leaves,
                                      const std::vector<std::uint32_t>& shares) {
  std::uint64_t bytes = 0;
  for (const LeafSpec& leaf : leaves) bytes += leaf.count * codec::size_of(leaf.dtype);
  const std::uint64_t all = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  JCCL_CHECK(all > 0);
  std::vector<std::uint64_t> ends;
  std::uint64_t sum = 0;
  for (const std::uint32_t share : shares) {
    sum += share;
    ends.push_back(static_cast<std::uint64_t>(Wide{bytes} * sum / all));
  }
  return ends;
}

}  // namespace

std::uint64_t grid_elements(const codec::Codec& codec, std::uint64_t least) {
  if (JCCL_PLANTED("one-grid-for-all-codecs")) return 16;
  const std::uint64_t own = std::max<std::uint64_t>(codec::block_elements(codec), 16);
  if (least <= 1 || JCCL_PLANTED("norms-cut-by-chunks")) return own;
  JCCL_CHECK(least % own == 0);
  return least;
}

std::vector<Chunk> make_layout(const std::vector<LeafSpec>& leaves, const LayoutOptions& options) {
  const std::vector<std::uint64_t> ends = range_ends(leaves, options.shares);
  const std::uint64_t grid = grid_elements(options.codec, options.grid_least);
  Packer packer(leaves, options);
  std::uint32_t owner = 0;
  std::uint64_t leaf_start = 0;  // in bytes
  for (std::uint32_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const std::uint64_t count = leaves[leaf].count;
    const std::uint64_t step_bytes = grid * codec::size_of(leaves[leaf].dtype);
    for (std::uint64_t first = 0; first < count;) {
      // A grid step belongs to the owner whose range holds its first byte.
      const std::uint64_t at = leaf_start + first / grid * step_bytes;
      while (at >= ends[owner]) ++owner;
      const std::uint64_t steps = (ends[owner] - leaf_start + step_bytes - 1) / step_bytes;
      const std::uint64_t end = std::min(count, steps * grid);
      packer.add(owner, leaf, first, end - first);
      first = end;
    }
    leaf_start += count * codec::size_of(leaves[leaf].dtype);
  }
  return packer.take();
}

std::vector<Chunk> make_gather_layout(const std::vector<LeafSpec>& leaves,
                                      const LayoutOptions& options) {
  Packer packer(leaves, options);
  for (std::uint32_t owner = 0; owner < options.shares.size(); ++owner) {
    for (std::uint32_t leaf = 0; leaf < leaves.size(); ++leaf) {
      packer.add(owner, leaf, 0, leaves[leaf].count);
    }
  }
  return packer.take();
}

std::vector<Chunk> make_scatter_layout(const std::vector<LeafSpec>& leaves,
                                       const LayoutOptions& options) {
  Packer packer(leaves, options);
  const std::uint64_t owners = options.shares.size();
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    for (std::uint32_t leaf = 0; leaf < leaves.size(); ++leaf) {
      const Wide count = leaves[leaf].count;
      const auto first = static_cast<std::uint64_t>(count * owner / owners);
      const auto end = static_cast<std::uint64_t>(
          JCCL_PLANTED("scatter-leaves-gaps") ? first + static_cast<std::uint64_t>(count / owners)
                                              : count * (owner + 1) / owners);
      packer.add(owner, leaf, first, end - first);
    }
  }
  return packer.take();
}

std::vector<Chunk> make_all_to_all_layout(const std::vector<LeafSpec>& blocks,
                                          const LayoutOptions& options) {
  Packer packer(blocks, options);
  for (std::uint32_t owner = 0; owner < options.shares.size(); ++owner) {
    for (std::uint32_t leaf = 0; leaf < blocks.size(); ++leaf) {
      const std::uint64_t count = blocks[leaf].count;
      packer.add(owner, leaf, JCCL_PLANTED("first-block-for-all") ? 0 : owner * count, count);
    }
  }
  return packer.take();
}

}  // namespace jccl::collective
