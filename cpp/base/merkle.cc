#include "base/merkle.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::base {
namespace {

constexpr std::uint8_t kLeaf = 0, kNode = 1;

Sha256 node_hash(const Sha256& left, const Sha256& right) {
  std::array<std::uint8_t, 65> all{};
  all[0] = kNode;
  std::copy(left.begin(), left.end(), all.begin() + 1);
  std::copy(right.begin(), right.end(), all.begin() + 33);
  return sha256(all);
}

}  // namespace

Sha256 leaf_hash(ByteView head, ByteView bytes) {
  const Sha256 held = sha256(JCCL_PLANTED("leaves-bind-no-bytes") ? ByteView() : bytes);
  Bytes all{JCCL_PLANTED("leaves-hash-as-nodes") ? kNode : kLeaf};
  all.insert(all.end(), head.begin(), head.end());
  all.insert(all.end(), held.begin(), held.end());
  return sha256(all);
}

// A node without a neighbour goes up as it is.
MerkleTree::MerkleTree(std::vector<Sha256> leaves) {
  if (leaves.empty()) return;
  levels_.push_back(std::move(leaves));
  while (levels_.back().size() > 1) {
    const std::vector<Sha256>& below = levels_.back();
    std::vector<Sha256> level;
    level.reserve((below.size() + 1) / 2);
    for (std::size_t i = 0; i + 1 < below.size(); i += 2) {
      level.push_back(node_hash(below[i], below[i + 1]));
    }
    if (below.size() % 2 == 1) level.push_back(below.back());
    levels_.push_back(std::move(level));
  }
}

Sha256 MerkleTree::root() const { return levels_.empty() ? Sha256{} : levels_.back().front(); }

std::vector<Sha256> MerkleTree::path(std::size_t index) const {
  JCCL_CHECK(index < size());
  std::vector<Sha256> path;
  for (const std::vector<Sha256>& level : levels_) {
    const std::size_t other = index ^ 1;
    if (other < level.size()) path.push_back(level[other]);
    index /= 2;
  }
  return path;
}

bool proves(const std::vector<Sha256>& path, const Sha256& leaf, std::size_t index,
            std::size_t count, const Sha256& root) {
  if (index >= count) return false;
  Sha256 hash = leaf;
  std::size_t used = 0;
  for (; count > 1; count = (count + 1) / 2, index /= 2) {
    if ((index ^ 1) >= count) continue;
    if (used == path.size()) return false;
    const Sha256& other = path[used++];
    hash = index % 2 == 0 ? node_hash(hash, other) : node_hash(other, hash);
  }
  return (used == path.size() || JCCL_PLANTED("paths-with-a-tail")) && hash == root;
}

}  // namespace jccl::base
