// What a snapshot is made of: its leaves laid end to end as one stream of bytes, cut into parts of
// equal size (the last may be shorter), and the digest of each part, so that parts from different
// holders can be checked one by one. The snapshot's digest covers the descriptor of its leaves and
// the digests of its parts; it says nothing of tag and revision: equal state, equal digest.
//
// Parts by number, as a SnapshotAsk names them: first those of the encoded manifest, then those of
// the data. Both sides know all counts from the leaves alone, before a byte has moved. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/status.h"
#include "snapshot/digest.h"
#include "wire/messages.h"

namespace jccl::snapshot {

inline constexpr std::uint32_t kPartBytes = base::kChunkBytesMax;
inline constexpr std::size_t kManifestHeaderBytes = 56;  // before the digests of the parts

struct LeafShape {
  std::string name;        // for messages only, may be empty
  std::uint8_t dtype = 0;  // as in codec/dtype.h
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

struct Range {  // of one leaf
  std::size_t leaf = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Range&) const = default;
};

// The cut of a list of leaves.
class Layout {
 public:
  Layout() = default;
  // At most kRoundBytesMax bytes in all; part_bytes in [1, kPartBytes].
  explicit Layout(const std::vector<LeafShape>& leaves, std::uint32_t part_bytes = kPartBytes);

  std::uint64_t total_bytes() const { return starts_.back(); }
  std::uint32_t part_bytes() const { return part_bytes_; }
  const Digest& descriptor() const { return descriptor_; }  // dtype, count, bytes of every leaf

  std::uint32_t data_parts() const;  // of the data alone
  std::uint64_t data_part_size(std::uint32_t part) const;
  std::vector<Range> ranges(std::uint32_t part) const;  // where a part of the data lies, in order

  std::uint64_t manifest_bytes() const;
  std::uint32_t manifest_parts() const;  // numbers [0, manifest_parts()) …
  std::uint32_t all_parts() const { return manifest_parts() + data_parts(); }  // … then the data
  std::uint64_t part_size(std::uint32_t number) const;                         // of either kind

 private:
  std::vector<std::uint64_t> starts_{0};  // of each leaf in the stream, and the end
  std::uint32_t part_bytes_ = kPartBytes;
  Digest descriptor_;
};

struct Manifest {
  wire::Held held;  // held.digest is the snapshot's
  Digest descriptor;
  std::uint64_t total_bytes = 0;
  std::uint32_t part_bytes = kPartBytes;
  std::vector<Digest> parts;
  bool operator==(const Manifest&) const = default;
};

Digest snapshot_digest(const Manifest& manifest);

base::Bytes encode(const Manifest& manifest);  // everything but the tag
// Accepts only the manifest of `want`, made of leaves like `layout`'s. Codes: kMismatch (other
// leaves), kCorrupt (other bytes than the digest says).
base::Result<Manifest> decode_manifest(base::ByteView bytes, const wire::Held& want,
                                       const Layout& layout);

// Numbers of the data's parts that are equal in both: what a fetcher of `b` that holds `a` need not
// fetch again. Empty unless both have the same leaves.
std::set<std::uint32_t> parts_in_common(const Manifest& a, const Manifest& b, const Layout& layout);

// Makes the manifest in one pass over the bytes: hand in every leaf in order, in any pieces, e.g.
// while copying them.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(const Layout& layout);
  void add(base::ByteView bytes);
  Manifest finish(const wire::Tag& tag, std::uint64_t revision);  // all bytes must have been added

 private:
  const Layout layout_;
  Hasher hasher_;
  std::uint64_t part_left_ = 0;  // bytes the current part still takes
  std::uint64_t added_ = 0;
  std::vector<Digest> parts_;
};

}  // namespace jccl::snapshot
