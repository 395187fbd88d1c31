#include "base/merkle.h"

#include <gtest/gtest.h>

#include "base/ids.h"

namespace jccl::base {
namespace {

ByteView view(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::vector<Sha256> leaves_of(std::size_t count) {
  std::vector<Sha256> leaves;
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes bytes(i + 1, static_cast<std::uint8_t>(i));
    leaves.push_back(leaf_hash(view("head"), bytes));
  }
  return leaves;
}

TEST(MerkleTest, sha256_is_the_standard_s) {
  EXPECT_EQ(to_hex(sha256(view("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(MerkleTest, each_leaf_is_proved_at_its_place_and_at_no_other) {
  for (std::size_t count = 1; count <= 33; ++count) {
    const std::vector<Sha256> leaves = leaves_of(count);
    const MerkleTree tree(leaves);
    for (std::size_t i = 0; i < count; ++i) {
      const auto path = tree.path(i);
      EXPECT_TRUE(proves(path, leaves[i], i, count, tree.root())) << count << " " << i;
      for (std::size_t other = 0; other < count; ++other) {
        if (other == i) continue;
        EXPECT_FALSE(proves(path, leaves[i], other, count, tree.root())) << count << " " << i;
        EXPECT_FALSE(proves(path, leaves[other], i, count, tree.root())) << count << " " << i;
      }
    }
  }
}

TEST(MerkleTest, a_path_has_no_tail_and_lacks_nothing) {
  const std::vector<Sha256> leaves = leaves_of(5);
  const MerkleTree tree(leaves);
  auto path = tree.path(4);
  path.push_back(leaves[0]);
  EXPECT_FALSE(proves(path, leaves[4], 4, 5, tree.root()));
  path.resize(path.size() - 2);
  EXPECT_FALSE(proves(path, leaves[4], 4, 5, tree.root()));
  EXPECT_FALSE(proves(tree.path(4), leaves[4], 5, 5, tree.root()));
}

// Two leaves hashed as a node would pass for one leaf of a smaller tree.
TEST(MerkleTest, a_node_is_no_leaf) {
  const Bytes head(32, 3), bytes{1, 2, 3};
  const Sha256 leaf = leaf_hash(head, bytes);
  Bytes as_node{1};
  as_node.insert(as_node.end(), head.begin(), head.end());
  const Sha256 held = sha256(bytes);
  as_node.insert(as_node.end(), held.begin(), held.end());
  EXPECT_NE(leaf, sha256(as_node));
}

TEST(MerkleTest, a_leaf_binds_its_head_and_its_bytes) {
  EXPECT_NE(leaf_hash(view("a"), view("x")), leaf_hash(view("b"), view("x")));
  EXPECT_NE(leaf_hash(view("a"), view("x")), leaf_hash(view("a"), view("y")));
}

TEST(MerkleTest, no_leaves_have_a_root_of_zeros) { EXPECT_EQ(MerkleTree().root(), Sha256{}); }

}  // namespace
}  // namespace jccl::base
