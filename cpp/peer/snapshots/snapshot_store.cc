// The revisions of a state that a peer holds: copied, digested and marked in one pass. See
// snapshots.h.
#include <algorithm>
#include <cstring>

#include "base/planted.h"
#include "peer/snapshots/snapshots.h"

namespace jccl::peer {
namespace {

constexpr std::size_t kRevisionsKept = 2;

snapshot::Layout layout_of(const std::vector<Leaf>& leaves) {
  std::vector<snapshot::LeafShape> shapes;
  for (const Leaf& leaf : leaves) {
    shapes.push_back({leaf.path, static_cast<std::uint8_t>(leaf.dtype), leaf.count,
                      leaf.count * codec::size_of(leaf.dtype)});
  }
  return snapshot::Layout(shapes);
}

}  // namespace

SnapshotRef SnapshotStore::make(const wire::Tag& tag, std::uint64_t revision,
                                const std::vector<Leaf>& leaves) {
  auto made = std::make_shared<StoredSnapshot>();
  made->layout = layout_of(leaves);
  made->data = pool_.take(made->layout.total_bytes());
  snapshot::ManifestBuilder builder(made->layout);
  constexpr std::size_t kPiece = 256 * 1024;  // copied and digested while it is in cache
  std::uint8_t* to = made->data->data();
  for (const Leaf& leaf : leaves) {
    const auto* from = static_cast<const std::uint8_t*>(leaf.in);
    const std::size_t element = codec::size_of(leaf.dtype);
    std::size_t left = leaf.count * element;
    std::uint64_t at = 0;
    snapshot::Mark mark;
    while (left > 0) {
      const std::size_t size = std::min(left, kPiece);
      std::memcpy(to, from, size);
      builder.add({to, size});
      mark += snapshot::mark_of({to, size}, element, at);
      at += JCCL_PLANTED("second-piece-marked-at-start") ? 0 : size / element;
      to += size;
      from += size;
      left -= size;
    }
    made->marks.push_back(mark);
  }
  const snapshot::Manifest manifest = builder.finish(tag, revision);
  made->held = manifest.held;
  made->manifest = snapshot::encode(manifest);
  return made;
}

SnapshotRef SnapshotStore::add(const wire::Tag& tag, std::uint64_t revision,
                               const std::vector<Leaf>& leaves) {
  SnapshotRef oldest;  // its memory is the new one's, unless somebody is being sent from it
  {
    std::lock_guard lock(mutex_);
    auto& kept = by_tag_[tag];
    if (kept.size() >= kRevisionsKept && !JCCL_PLANTED("oldest-let-go-late")) {
      oldest = std::move(kept.front());
      kept.pop_front();
    }
  }
  oldest.reset();
  SnapshotRef made = make(tag, revision, leaves);
  put(made);
  return made;
}

void SnapshotStore::put(SnapshotRef snapshot) {
  std::lock_guard lock(mutex_);
  auto& kept = by_tag_[snapshot->held.tag];
  std::erase_if(kept, [&](const SnapshotRef& s) {
    return JCCL_PLANTED("later-revision-kept") ? s->held.revision == snapshot->held.revision
                                               : s->held.revision >= snapshot->held.revision;
  });
  kept.push_back(std::move(snapshot));
  while (kept.size() > kRevisionsKept && !JCCL_PLANTED("revisions-kept")) kept.pop_front();
}

SnapshotRef SnapshotStore::renumber(const SnapshotRef& snapshot, std::uint64_t revision) {
  auto manifest =
      snapshot::decode_manifest(snapshot->manifest, snapshot->held, snapshot->layout).value();
  auto made = std::make_shared<StoredSnapshot>(*snapshot);
  made->held.revision = manifest.held.revision = revision;
  made->manifest = snapshot::encode(manifest);
  put(made);
  return made;
}

void SnapshotStore::count(const wire::Tag& tag, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  received_[tag] += bytes;
}

std::uint64_t SnapshotStore::received(const wire::Tag& tag) const {
  std::lock_guard lock(mutex_);
  const auto found = received_.find(tag);
  return found == received_.end() ? 0 : found->second;
}

SnapshotRef SnapshotStore::newest(const wire::Tag& tag) const {
  std::lock_guard lock(mutex_);
  const auto found = by_tag_.find(tag);
  return found == by_tag_.end() || found->second.empty() ? nullptr : found->second.back();
}

template <typename Is>
SnapshotRef SnapshotStore::find_if(const wire::Tag& tag, const Is& is) const {
  std::lock_guard lock(mutex_);
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return nullptr;
  const auto& kept = found->second;
  const auto at = std::find_if(kept.begin(), kept.end(), is);
  return at == kept.end() ? nullptr : *at;
}

SnapshotRef SnapshotStore::find(const wire::Tag& tag, std::uint64_t revision) const {
  return find_if(tag, [&](const SnapshotRef& s) { return s->held.revision == revision; });
}

SnapshotRef SnapshotStore::find(const wire::Tag& tag, const wire::Digest& digest) const {
  return find_if(tag, [&](const SnapshotRef& s) { return s->held.digest == digest; });
}

std::optional<std::vector<Leaf>> leaves_in(const StoredSnapshot& snapshot,
                                           const std::vector<Leaf>& leaves) {
  if (layout_of(leaves).descriptor() != snapshot.layout.descriptor()) return std::nullopt;
  std::vector<Leaf> held;
  const std::uint8_t* from = snapshot.data->data();
  for (const Leaf& leaf : leaves) {
    held.push_back(leaf);
    held.back().in = from;
    from += leaf.count * codec::size_of(leaf.dtype);
  }
  return held;
}

bool copy_out(const StoredSnapshot& snapshot, const std::vector<Leaf>& leaves) {
  if (layout_of(leaves).descriptor() != snapshot.layout.descriptor() &&
      !(JCCL_PLANTED("copy-out-of-other-leaves") &&
        layout_of(leaves).total_bytes() == snapshot.layout.total_bytes()))
    return false;
  const std::uint8_t* from = snapshot.data->data();
  for (const Leaf& leaf : leaves) {
    const std::size_t size = leaf.count * codec::size_of(leaf.dtype);
    if (size > 0 && leaf.out != nullptr) std::memcpy(leaf.out, from, size);
    from += size;
  }
  return true;
}

}  // namespace jccl::peer
