// Where the operands of each local device lie in the leaves that cross the wide area: leaves know
// nothing of devices, so sites with different numbers of them speak of the same leaves. A mesh
// axis cuts a leaf (each device holds a box of it), scatters an operand (each device holds its
// range of a local reduce-scatter), or replicates it. Pure arithmetic; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace jccl::xla_ext {

// Equal neighbours in an operand's buffer and in one part of a leaf; in elements.
struct Run {
  std::size_t leaf = 0;
  std::uint32_t part = 0;
  std::uint64_t part_at = 0;
  std::uint64_t operand_at = 0;
  std::uint64_t count = 0;
};

class Geometry {
 public:
  // Words: axes, their sizes; leaves, each rank, (extent, cutting axes…) by dimension, dimension
  // along which parts are cut or -1; operands, each scattering axes…, groups, members, (leaf,
  // elements per group)…. A list is its length and its items. nullopt: malformed.
  static std::optional<Geometry> read(std::span<const std::int64_t> words, std::uint32_t parts);

  std::size_t leaves() const { return leaves_.size(); }
  std::size_t operands() const { return operands_.size(); }
  std::uint32_t devices() const;
  std::vector<std::size_t> leaves_of(std::size_t operand) const;
  std::uint64_t elements(std::size_t operand) const;  // of a device's buffer

  // Part `part` of the `parts` that a leaf is cut into for the wide area; one part is all of it.
  std::vector<std::uint64_t> part_shape(std::size_t leaf, std::uint32_t part) const;
  std::uint64_t part_count(std::size_t leaf, std::uint32_t part) const;

  // What the device's buffer holds, or its own share of that where other devices hold the same.
  enum class Span { kAll, kShare };
  void each_run(std::size_t operand, std::uint32_t device, Span span,
                const std::function<void(const Run&)>& visit) const;

 private:
  using Axes = std::vector<std::uint32_t>;
  struct Leaf {
    std::vector<std::uint64_t> extents;
    std::vector<Axes> cuts;  // by dimension, the first axis varies slowest
    std::int64_t part_dimension = -1;
    std::uint64_t count = 1;
    std::uint64_t period = 1, slab = 1;  // element e is in part (e % period) / slab
  };
  struct Member {
    std::size_t leaf = 0;
    std::uint64_t group_elements = 0;
  };
  struct Operand {
    Axes scatter;
    std::uint64_t groups = 1;
    std::vector<Member> members;
  };
  struct Window {
    std::uint64_t begin = 0, end = 0;  // of the operand's elements over all its devices
  };

  bool check() const;
  std::uint64_t ways(const Axes& axes) const;
  std::uint64_t place(const Axes& axes, std::uint32_t device) const;
  std::uint64_t block_count(const Leaf& leaf) const;
  std::uint64_t group_stride(const Operand& operand) const;
  Window window(const Operand& operand, std::uint32_t device, Span span) const;
  void block_runs(std::size_t leaf, std::uint32_t device, Window block, std::uint64_t operand_at,
                  const std::function<void(const Run&)>& visit) const;
  void part_runs(std::size_t leaf, std::uint64_t at, Run run,
                 const std::function<void(const Run&)>& visit) const;

  std::uint32_t parts_ = 1;
  std::vector<std::uint64_t> sizes_;  // of the mesh axes; the last one varies fastest
  std::vector<Leaf> leaves_;
  std::vector<Operand> operands_;
};

}  // namespace jccl::xla_ext
