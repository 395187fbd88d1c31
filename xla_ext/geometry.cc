#include "geometry.h"

#include <algorithm>

#include "base/planted.h"

namespace jccl::xla_ext {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // elements, devices: far above any limit

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

class Words {
 public:
  explicit Words(std::span<const std::int64_t> words) : words_(words) {}
  std::int64_t any() {
    if (at_ >= words_.size()) fine_ = false;
    return fine_ ? words_[at_++] : 0;
  }
  std::uint64_t number(std::uint64_t below = kMost) {
    const std::int64_t word = any();
    if (word < 0 || static_cast<std::uint64_t>(word) >= below) fine_ = false;
    return fine_ ? static_cast<std::uint64_t>(word) : 0;
  }
  std::uint64_t length() { return number(words_.size() + 1); }
  bool finished() const {
    return fine_ && (JCCL_PLANTED("geometry-words-left-over") || at_ == words_.size());
  }
  bool fine() const { return fine_; }

 private:
  std::span<const std::int64_t> words_;
  std::size_t at_ = 0;
  bool fine_ = true;
};

std::vector<std::uint32_t> axes_from(Words& words, std::size_t count) {
  std::vector<std::uint32_t> axes(words.length());
  for (auto& axis : axes) axis = static_cast<std::uint32_t>(words.number(count));
  return axes;
}

}  // namespace

std::optional<Geometry> Geometry::read(std::span<const std::int64_t> from, std::uint32_t parts) {
  Words words(from);
  Geometry made;
  made.parts_ = parts;
  made.sizes_.resize(words.length());
  for (auto& size : made.sizes_) size = words.number(1 << 20);
  made.leaves_.resize(words.length());
  for (Leaf& leaf : made.leaves_) {
    const std::uint64_t rank = words.length();
    for (std::uint64_t d = 0; d < rank && words.fine(); ++d) {
      leaf.extents.push_back(words.number());
      leaf.cuts.push_back(axes_from(words, made.sizes_.size()));
      leaf.count *= leaf.extents.back();
      if (leaf.count >= kMost) return std::nullopt;
    }
    leaf.part_dimension = words.any();
  }
  made.operands_.resize(words.length());
  for (Operand& operand : made.operands_) {
    operand.scatter = axes_from(words, made.sizes_.size());
    operand.groups = words.number();
    operand.members.resize(words.length());
    for (Member& member : operand.members) {
      member.leaf = words.number(made.leaves_.size());
      member.group_elements = words.number();
    }
  }
  if (!words.finished() || parts == 0 || !made.check()) return std::nullopt;
  for (Leaf& leaf : made.leaves_) {
    if (leaf.part_dimension < 0) {
      leaf.period = std::max<std::uint64_t>(leaf.count, 1);
      leaf.slab = std::max<std::uint64_t>(ceil_div(leaf.count, parts), 1);
      continue;
    }
    const auto dimension = static_cast<std::size_t>(leaf.part_dimension);
    leaf.period = 1;
    for (std::size_t d = dimension; d < leaf.extents.size(); ++d) leaf.period *= leaf.extents[d];
    leaf.period = std::max<std::uint64_t>(leaf.period, 1);
    leaf.slab = std::max<std::uint64_t>(leaf.period / parts, 1);
  }
  return made;
}

bool Geometry::check() const {
  for (const std::uint64_t size : sizes_) {
    if (size == 0) return false;
  }
  for (const Leaf& leaf : leaves_) {
    for (std::size_t d = 0; d < leaf.extents.size(); ++d) {
      if (leaf.extents[d] % ways(leaf.cuts[d]) != 0 && !JCCL_PLANTED("geometry-uneven-cut"))
        return false;
    }
    if (leaf.part_dimension >= static_cast<std::int64_t>(leaf.extents.size())) return false;
    if (leaf.part_dimension >= 0 &&
        leaf.extents[static_cast<std::size_t>(leaf.part_dimension)] % parts_ != 0) {
      return false;
    }
  }
  for (const Operand& operand : operands_) {
    if (operand.members.empty() || operand.groups == 0) return false;
    if (ways(operand.scatter) % operand.groups != 0) return false;
    for (const Member& member : operand.members) {
      const std::uint64_t block = block_count(leaves_[member.leaf]);
      if (member.group_elements * operand.groups < block &&
          !JCCL_PLANTED("geometry-group-too-short"))
        return false;
    }
  }
  return true;
}

std::uint32_t Geometry::devices() const {
  std::uint64_t all = 1;
  for (const std::uint64_t size : sizes_) all *= size;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, UINT32_MAX));
}

std::uint64_t Geometry::ways(const Axes& axes) const {
  std::uint64_t all = 1;
  for (const std::uint32_t axis : axes) all *= sizes_[axis];
  return all;
}

std::uint64_t Geometry::place(const Axes& axes, std::uint32_t device) const {
  std::uint64_t at = 0;
  for (const std::uint32_t axis : axes) {
    std::uint64_t stride = 1;
    for (std::size_t later = axis + 1; later < sizes_.size(); ++later) stride *= sizes_[later];
    at = at * sizes_[axis] + device / stride % sizes_[axis];
  }
  return at;
}

std::uint64_t Geometry::block_count(const Leaf& leaf) const {
  std::uint64_t count = leaf.count;
  for (const Axes& cut : leaf.cuts) count /= ways(cut);
  return count;
}

// Elements of one group, padded so that the devices of a group share them equally.
std::uint64_t Geometry::group_stride(const Operand& operand) const {
  std::uint64_t elements = 0;
  for (const Member& member : operand.members) elements += member.group_elements;
  const std::uint64_t devices = ways(operand.scatter) / operand.groups;
  return ceil_div(elements, devices) * devices;
}

std::uint64_t Geometry::elements(std::size_t operand) const {
  const Operand& one = operands_[operand];
  return group_stride(one) * one.groups / ways(one.scatter);
}

std::vector<std::size_t> Geometry::leaves_of(std::size_t operand) const {
  std::vector<std::size_t> all;
  for (const Member& member : operands_[operand].members) all.push_back(member.leaf);
  return all;
}

std::vector<std::uint64_t> Geometry::part_shape(std::size_t leaf, std::uint32_t part) const {
  const Leaf& one = leaves_[leaf];
  if (parts_ == 1) return one.extents;
  if (one.part_dimension < 0) {
    const std::uint64_t begin = std::min(one.slab * part, one.count);
    return {std::min(one.slab, one.count - begin)};
  }
  std::vector<std::uint64_t> shape = one.extents;
  shape[static_cast<std::size_t>(one.part_dimension)] /= parts_;
  return shape;
}

std::uint64_t Geometry::part_count(std::size_t leaf, std::uint32_t part) const {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : part_shape(leaf, part)) count *= extent;
  return count;
}

Geometry::Window Geometry::window(const Operand& operand, std::uint32_t device, Span span) const {
  const std::uint64_t chunk = group_stride(operand) * operand.groups / ways(operand.scatter);
  Window all{place(operand.scatter, device) * chunk, 0};
  all.end = all.begin + chunk;
  if (span == Span::kAll) return all;
  Axes alike;  // over these axes other devices hold the same
  for (std::uint32_t axis = 0; axis < sizes_.size(); ++axis) {
    bool differs =
        std::find(operand.scatter.begin(), operand.scatter.end(), axis) != operand.scatter.end();
    for (const Axes& cut : leaves_[operand.members[0].leaf].cuts) {
      differs = differs || std::find(cut.begin(), cut.end(), axis) != cut.end();
    }
    if (!differs) alike.push_back(axis);
  }
  const std::uint64_t holders = ways(alike);
  const std::uint64_t at = place(alike, device);
  return {all.begin + chunk * at / holders, all.begin + chunk * (at + 1) / holders};
}

void Geometry::each_run(std::size_t operand, std::uint32_t device, Span span,
                        const std::function<void(const Run&)>& visit) const {
  const Operand& one = operands_[operand];
  const std::uint64_t start = window(one, device, Span::kAll).begin;
  const Window wanted = window(one, device, span);
  const std::uint64_t stride = group_stride(one);
  for (std::uint64_t group = 0; group < one.groups; ++group) {
    std::uint64_t at = group * stride;
    for (const Member& member : one.members) {
      const std::uint64_t begin = std::max(at, wanted.begin);
      const std::uint64_t first = group * member.group_elements;
      const std::uint64_t real = block_count(leaves_[member.leaf]);
      const std::uint64_t held = std::min(member.group_elements, real - std::min(first, real));
      const std::uint64_t end = std::min(at + held, wanted.end);
      if (begin < end) {
        block_runs(member.leaf, device, {first + begin - at, first + end - at}, begin - start,
                   visit);
      }
      at += member.group_elements;
    }
  }
}

// The device's block of a leaf, in the block's own order, is rows of the leaf.
void Geometry::block_runs(std::size_t leaf, std::uint32_t device, Window block,
                          std::uint64_t operand_at,
                          const std::function<void(const Run&)>& visit) const {
  const Leaf& one = leaves_[leaf];
  const std::size_t rank = one.extents.size();
  std::size_t rows = 0;  // dimensions before the last cut one
  std::uint64_t row = 1, row_stride = 1;
  for (std::size_t d = rank; d-- > 0;) {
    if (ways(one.cuts[d]) == 1) continue;
    rows = d;
    break;
  }
  for (std::size_t d = rows; d < rank; ++d) {
    row *= one.extents[d] / ways(one.cuts[d]);
    row_stride *= one.extents[d];
  }
  const std::uint64_t shift = rank == 0 ? 0 : place(one.cuts[rows], device) * row;
  while (block.begin < block.end) {
    std::uint64_t index = block.begin / row, line = 0, stride = 1;
    for (std::size_t d = rows; d-- > 0;) {
      const std::uint64_t width = one.extents[d] / ways(one.cuts[d]);
      line += (place(one.cuts[d], device) * width + index % width) * stride;
      index /= width;
      stride *= one.extents[d];
    }
    const std::uint64_t within = block.begin % row;
    Run run{leaf, 0, 0, operand_at, std::min(row - within, block.end - block.begin)};
    part_runs(leaf, line * row_stride + shift + within, run, visit);
    block.begin += run.count;
    operand_at += run.count;
  }
}

void Geometry::part_runs(std::size_t leaf, std::uint64_t at, Run run,
                         const std::function<void(const Run&)>& visit) const {
  const Leaf& one = leaves_[leaf];
  for (std::uint64_t left = run.count; left > 0;) {
    const std::uint64_t within = at % one.period;
    run.part = static_cast<std::uint32_t>(within / one.slab);
    run.part_at = at / one.period * one.slab + within % one.slab;
    run.count = std::min(left, std::min(one.slab - within % one.slab, one.period - within));
    visit(run);
    at += run.count;
    run.operand_at += run.count;
    left -= run.count;
  }
}

}  // namespace jccl::xla_ext
