#include "snapshot/manifest.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace jccl::snapshot {
namespace {

std::vector<LeafShape> leaves_of(std::initializer_list<std::uint64_t> sizes) {
  std::vector<LeafShape> leaves;
  for (const std::uint64_t size : sizes) leaves.push_back({"", 1, size / 4, size});
  return leaves;
}

base::Bytes stream_of(const Layout& layout) {
  base::Rng rng(3);
  base::Bytes bytes(layout.total_bytes());
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
  return bytes;
}

Manifest manifest_of(const Layout& layout, base::ByteView bytes, std::size_t piece) {
  ManifestBuilder builder(layout);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    builder.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  return builder.finish("model", 7);
}

TEST(LayoutTest, ranges_cover_every_byte_of_every_leaf_once_in_order) {
  for (const std::uint32_t part_bytes : {1U, 7U, 64U, 100U, 1000U}) {
    const auto leaves = leaves_of({0, 64, 0, 0, 1, 63, 128, 300, 0});
    const Layout layout(leaves, part_bytes);
    EXPECT_EQ(layout.total_bytes(), 556U);
    EXPECT_EQ(layout.data_parts(), (556 + part_bytes - 1) / part_bytes);
    std::vector<std::uint64_t> next(leaves.size());
    std::size_t leaf = 0;
    for (std::uint32_t part = 0; part < layout.data_parts(); ++part) {
      std::uint64_t size = 0;
      for (const Range& range : layout.ranges(part)) {
        ASSERT_GE(range.leaf, leaf);
        leaf = range.leaf;
        EXPECT_GT(range.bytes, 0U);
        EXPECT_EQ(range.offset, next[leaf]);
        next[leaf] += range.bytes;
        size += range.bytes;
      }
      EXPECT_EQ(size, layout.data_part_size(part));
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(next[i], leaves[i].bytes) << i;
  }
}

TEST(LayoutTest, the_manifest_of_a_huge_state_has_several_parts_and_comes_first) {
  const Layout small(leaves_of({10}));
  EXPECT_EQ(small.manifest_parts(), 1U);
  EXPECT_EQ(small.part_size(0), kManifestHeaderBytes + 16);
  EXPECT_EQ(small.part_size(1), 10U);
  EXPECT_EQ(small.all_parts(), 2U);
  const Layout empty{leaves_of({})};
  EXPECT_EQ(empty.all_parts(), 1U);
  const Layout huge(leaves_of({std::uint64_t{1} << 38}));  // 256 GiB
  EXPECT_EQ(huge.data_parts(), 1U << 18);
  EXPECT_EQ(huge.manifest_parts(), 5U);  // 4 MiB of digests and a header
  EXPECT_EQ(huge.part_size(4), kManifestHeaderBytes);
  EXPECT_EQ(huge.part_size(5), kPartBytes);
}

TEST(LayoutTest, the_descriptor_tells_dtypes_and_cuts_apart_but_not_names) {
  const auto leaves = leaves_of({8, 16});
  auto other = leaves;
  other[1].dtype = 2;
  EXPECT_NE(Layout(leaves).descriptor(), Layout(other).descriptor());
  EXPECT_NE(Layout(leaves).descriptor(), Layout(leaves_of({16, 8})).descriptor());
  auto renamed = leaves;
  renamed[0].name = "params/w";
  EXPECT_EQ(Layout(leaves).descriptor(), Layout(renamed).descriptor());
}

TEST(ManifestTest, it_is_the_same_whatever_the_pieces_and_names_the_parts) {
  const Layout layout(leaves_of({100, 0, 156}), 64);
  const base::Bytes bytes = stream_of(layout);
  const Manifest whole = manifest_of(layout, bytes, 1000);
  ASSERT_EQ(whole.parts.size(), 4U);
  EXPECT_EQ(whole.parts[1], digest_of(base::ByteView(bytes).subspan(64, 64)));
  for (const std::size_t piece : {1, 63, 64, 65, 128}) {
    EXPECT_EQ(manifest_of(layout, bytes, piece), whole) << piece;
  }
  const Layout ragged(leaves_of({100, 57}), 64);
  EXPECT_EQ(manifest_of(ragged, stream_of(ragged), 50).parts.size(), 3U);
}

TEST(ManifestTest, equal_state_has_an_equal_digest_at_any_revision) {
  const Layout layout(leaves_of({100}), 64);
  const base::Bytes bytes = stream_of(layout);
  ManifestBuilder builder(layout);
  builder.add(bytes);
  const Manifest a = builder.finish("model", 1);
  builder.add(bytes);  // a builder can be used again
  const Manifest b = builder.finish("other", 2);
  EXPECT_EQ(a.held.digest, b.held.digest);
  base::Bytes changed = bytes;
  changed[99] ^= 1;
  EXPECT_NE(manifest_of(layout, changed, 64).held.digest, a.held.digest);
  auto leaves = leaves_of({100});
  leaves[0].dtype = 9;
  EXPECT_NE(manifest_of(Layout(leaves, 64), bytes, 64).held.digest, a.held.digest);
}

TEST(ManifestTest, it_comes_back_equal_and_nothing_else_is_accepted) {
  const Layout layout(leaves_of({100, 156}), 64);
  const Manifest manifest = manifest_of(layout, stream_of(layout), 64);
  const base::Bytes bytes = encode(manifest);
  EXPECT_EQ(bytes.size(), layout.manifest_bytes());
  EXPECT_EQ(decode_manifest(bytes, manifest.held, layout).value(), manifest);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_manifest(base::ByteView(bytes).first(size), manifest.held, layout).ok());
  }
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    base::Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_EQ(decode_manifest(flipped, manifest.held, layout).status().code, base::Code::kCorrupt)
        << bit;
  }
  base::Bytes longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(decode_manifest(longer, manifest.held, layout).ok());
  wire::Held later = manifest.held;
  ++later.revision;
  EXPECT_FALSE(decode_manifest(bytes, later, layout).ok());
}

TEST(ManifestTest, other_leaves_than_the_fetchers_are_named_as_such) {
  const Layout theirs(leaves_of({100}), 64);
  const Layout mine(leaves_of({104}), 64);
  const Manifest manifest = manifest_of(theirs, stream_of(theirs), 64);
  const base::Status status = decode_manifest(encode(manifest), manifest.held, mine).status();
  EXPECT_EQ(status.code, base::Code::kMismatch);
  EXPECT_EQ(status.text,
            "manifest of model at revision 7: it has other leaves than this peer (100 bytes "
            "there, 104 here)");
}

TEST(ManifestTest, other_leaves_of_as_many_bytes_are_other_leaves) {
  const Layout one(leaves_of({256}), 64);
  const Layout two(leaves_of({128, 128}), 64);
  const Manifest of_one = manifest_of(one, stream_of(one), 64);
  EXPECT_EQ(decode_manifest(encode(of_one), of_one.held, two).status().code, base::Code::kMismatch);
  Manifest of_two = of_one;  // the same parts
  of_two.descriptor = two.descriptor();
  EXPECT_EQ(parts_in_common(of_one, of_two, one), std::set<std::uint32_t>{});
}

TEST(ManifestTest, only_changed_parts_need_fetching_again) {
  const Layout layout(leaves_of({256}), 64);
  base::Bytes bytes = stream_of(layout);
  const Manifest before = manifest_of(layout, bytes, 64);
  bytes[70] ^= 1;
  const Manifest after = manifest_of(layout, bytes, 64);
  EXPECT_EQ(parts_in_common(before, after, layout), (std::set<std::uint32_t>{1, 3, 4}));
}

}  // namespace
}  // namespace jccl::snapshot
