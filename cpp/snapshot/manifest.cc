// Layout arithmetic, and the manifest's bytes and digest.
#include "snapshot/manifest.h"

#include <algorithm>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::snapshot {
namespace {

using base::Code;
using base::Status;

constexpr std::uint32_t kMagic = 0x314D434A;  // "JCM1"

std::uint64_t pieces(std::uint64_t bytes, std::uint64_t piece_bytes) {
  return (bytes + piece_bytes - 1) / piece_bytes;
}

std::uint64_t piece_size(std::uint64_t bytes, std::uint64_t piece_bytes, std::uint64_t index) {
  JCCL_CHECK(index < pieces(bytes, piece_bytes));
  return std::min(piece_bytes, bytes - index * piece_bytes);
}

Digest descriptor_of(const std::vector<LeafShape>& leaves) {
  base::Writer w;
  for (const LeafShape& leaf : leaves) {
    w.u8(JCCL_PLANTED("dtype-not-in-descriptor") ? std::uint8_t{0} : leaf.dtype);
    w.u64(leaf.count);
    w.u64(leaf.bytes);
  }
  return digest_of(w.bytes());
}

void write_content(base::Writer& w, const Manifest& manifest) {
  w.digest(manifest.descriptor);
  w.u64(manifest.total_bytes);
  w.u32(manifest.part_bytes);
  w.u32(static_cast<std::uint32_t>(manifest.parts.size()));
  for (const Digest& part : manifest.parts) w.digest(part);
}

}  // namespace

Layout::Layout(const std::vector<LeafShape>& leaves, std::uint32_t part_bytes)
    : part_bytes_(part_bytes), descriptor_(descriptor_of(leaves)) {
  JCCL_CHECK(part_bytes >= 1);
  JCCL_CHECK(part_bytes <= kPartBytes);
  starts_.reserve(leaves.size() + 1);
  for (const LeafShape& leaf : leaves) {
    JCCL_CHECK(leaf.bytes <= base::kRoundBytesMax - starts_.back());
    starts_.push_back(starts_.back() + leaf.bytes);
  }
  JCCL_CHECK(pieces(total_bytes(), part_bytes) < (std::uint64_t{1} << 31));
}

std::uint32_t Layout::data_parts() const {
  return static_cast<std::uint32_t>(pieces(total_bytes(), part_bytes_));
}

std::uint64_t Layout::data_part_size(std::uint32_t part) const {
  return piece_size(total_bytes(), part_bytes_, part);
}

std::vector<Range> Layout::ranges(std::uint32_t part) const {
  std::uint64_t at = std::uint64_t{part} * part_bytes_;
  const std::uint64_t end = at + data_part_size(part);
  // The last leaf that starts at or before `at`; empty leaves before it have nothing to give.
  auto leaf = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) -
                                       starts_.begin()) -
              1;
  std::vector<Range> ranges;
  for (; at < end; ++leaf) {
    const std::uint64_t bytes =
        (JCCL_PLANTED("part-before-leaf-boundary") ? end : std::min(end, starts_[leaf + 1])) - at;
    if (bytes > 0 || JCCL_PLANTED("empty-leaf-range"))
      ranges.push_back({leaf, at - starts_[leaf], bytes});
    at += bytes;
  }
  return ranges;
}

std::uint64_t Layout::manifest_bytes() const {
  return kManifestHeaderBytes + std::uint64_t{data_parts()} * sizeof(Digest);
}

std::uint32_t Layout::manifest_parts() const {
  return static_cast<std::uint32_t>(pieces(manifest_bytes(), base::kManifestBytesMax));
}

std::uint64_t Layout::part_size(std::uint32_t number) const {
  const std::uint32_t before = manifest_parts();
  if (number < before) return piece_size(manifest_bytes(), base::kManifestBytesMax, number);
  return data_part_size(number - before);
}

Digest snapshot_digest(const Manifest& manifest) {
  base::Writer w;
  write_content(w, manifest);
  return digest_of(w.bytes());
}

base::Bytes encode(const Manifest& manifest) {
  base::Writer w;
  w.u32(kMagic);
  w.u16(wire::kVersion);
  w.u16(0);
  w.u64(manifest.held.revision);
  w.u64(0);  // kept for later
  write_content(w, manifest);
  JCCL_CHECK(w.size() == kManifestHeaderBytes + manifest.parts.size() * sizeof(Digest));
  return w.take();
}

base::Result<Manifest> decode_manifest(base::ByteView bytes, const wire::Held& want,
                                       const Layout& layout) {
  const std::string name = base::cat("manifest of ", want.tag, " at revision ", want.revision);
  const Status corrupt{Code::kCorrupt, name + ": the bytes do not match its digest"};
  base::Reader r(bytes);
  const bool ours = r.u32() == kMagic && r.u16() == wire::kVersion && r.u16() == 0;
  const std::uint64_t revision = r.u64();
  if (!ours || (revision != want.revision && !JCCL_PLANTED("manifest-revision-not-compared")) ||
      r.u64() != 0)
    return corrupt;
  Manifest manifest;
  manifest.held = want;
  manifest.descriptor = r.digest();
  manifest.total_bytes = r.u64();
  manifest.part_bytes = r.u32();
  const std::size_t count = r.count(layout.data_parts(), sizeof(Digest));
  manifest.parts.reserve(count);
  for (std::size_t i = 0; i < count; ++i) manifest.parts.push_back(r.digest());
  // The digest first: whatever else differs is then the holder's honest word.
  if (!r.finished() ||
      (snapshot_digest(manifest) != want.digest && !JCCL_PLANTED("manifest-digest-not-compared")))
    return corrupt;
  if ((manifest.descriptor != layout.descriptor() &&
       !JCCL_PLANTED("manifest-layout-not-compared")) ||
      manifest.total_bytes != layout.total_bytes() || manifest.part_bytes != layout.part_bytes() ||
      count != layout.data_parts()) {
    return Status{Code::kMismatch,
                  base::cat(name, ": it has other leaves than this peer (", manifest.total_bytes,
                            " bytes there, ", layout.total_bytes(), " here)")};
  }
  return manifest;
}

std::set<std::uint32_t> parts_in_common(const Manifest& a, const Manifest& b,
                                        const Layout& layout) {
  std::set<std::uint32_t> common;
  if ((a.descriptor != b.descriptor && !JCCL_PLANTED("common-part-of-other-layout")) ||
      a.parts.size() != b.parts.size())
    return common;
  for (std::uint32_t i = 0; i < a.parts.size(); ++i) {
    if (a.parts[i] == b.parts[i]) common.insert(common.end(), layout.manifest_parts() + i);
  }
  return common;
}

ManifestBuilder::ManifestBuilder(const Layout& layout)
    : layout_(layout), part_left_(layout.part_bytes()) {
  parts_.reserve(layout.data_parts());
}

void ManifestBuilder::add(base::ByteView bytes) {
  JCCL_CHECK(bytes.size() <= layout_.total_bytes() - added_);
  added_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t take = std::min<std::uint64_t>(part_left_, bytes.size());
    hasher_.update(bytes.first(take));
    bytes = bytes.subspan(take);
    part_left_ -= take;
    if (part_left_ > 0) continue;
    parts_.push_back(hasher_.finish());
    part_left_ = layout_.part_bytes();
  }
}

Manifest ManifestBuilder::finish(const wire::Tag& tag, std::uint64_t revision) {
  JCCL_CHECK(added_ == layout_.total_bytes());
  if (part_left_ < layout_.part_bytes())
    parts_.push_back(JCCL_PLANTED("last-part-left-out") ? Digest{} : hasher_.finish());
  part_left_ = layout_.part_bytes();
  added_ = 0;
  Manifest manifest;
  manifest.held.tag = tag;
  manifest.held.revision = revision;
  manifest.descriptor = layout_.descriptor();
  manifest.total_bytes = layout_.total_bytes();
  manifest.part_bytes = layout_.part_bytes();
  manifest.parts = std::move(parts_);
  manifest.held.digest = snapshot_digest(manifest);
  parts_.clear();
  return manifest;
}

}  // namespace jccl::snapshot
