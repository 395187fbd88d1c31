// A Merkle tree (RFC 6962's form): one hash that binds a list, and short proofs that something is
// in it at a place. Leaves and nodes are hashed with different prefixes, so that none passes for
// the other. Whoever compares two roots compares the numbers of leaves, too. Pure; any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/sha256.h"

namespace jccl::base {

inline constexpr std::size_t kMerklePathMax = 32;  // of 2^32 leaves

// Of what is told apart by its head and holds the bytes.
Sha256 leaf_hash(ByteView head, ByteView bytes);

class MerkleTree {
 public:
  MerkleTree() = default;
  explicit MerkleTree(std::vector<Sha256> leaves);
  std::size_t size() const { return levels_.empty() ? 0 : levels_.front().size(); }
  Sha256 root() const;  // zeros without leaves
  std::vector<Sha256> path(std::size_t index) const;

 private:
  std::vector<std::vector<Sha256>> levels_;  // the leaves first; of one more than none
};

// Whether a tree of `count` leaves with this root has the leaf at `index`.
bool proves(const std::vector<Sha256>& path, const Sha256& leaf, std::size_t index,
            std::size_t count, const Sha256& root);

}  // namespace jccl::base
