// Snapshots of the shared state: the host copies a peer serves (store), and their way between
// peers (traffic). A snapshot is a flat byte string over the leaves, cut into parts; the digest of
// its manifest names it, so every part can be verified by itself, whoever sent it.
// The store is used by user threads and the data thread; the traffic is confined to the latter.
//
// A part is made when a stripe has room for it, never ahead, and an answer that waits holds no
// snapshot: whoever asks and does not read costs a few bytes for each of kAsksMax questions, and
// further ones are passed over.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "net/frames.h"
#include "net/link.h"
#include "peer/buffers.h"
#include "peer/communicator.h"
#include "protocol/peer_machine.h"
#include "snapshot/fetch_plan.h"
#include "snapshot/manifest.h"
#include "wire/codec.h"

namespace jccl::peer {

struct StoredSnapshot {
  wire::Held held;
  snapshot::Layout layout;
  base::Bytes manifest;  // encoded
  BufferRef data;
  StateMarks marks;  // of the leaves; none of one that was fetched
};
using SnapshotRef = std::shared_ptr<const StoredSnapshot>;

class SnapshotStore {
 public:
  // Copies, digests and marks the leaves in one pass: the cost is one read and one write of the
  // state.
  SnapshotRef make(const wire::Tag& tag, std::uint64_t revision, const std::vector<Leaf>& leaves);
  void put(SnapshotRef snapshot);  // keeps the two newest revisions of a tag
  SnapshotRef newest(const wire::Tag& tag) const;
  SnapshotRef find(const wire::Tag& tag, std::uint64_t revision) const;

 private:
  mutable std::mutex mutex_;
  std::map<wire::Tag, std::deque<SnapshotRef>> by_tag_;
  BufferPool pool_;
};

// The leaves with the snapshot's memory as `in`; nullopt if its layout is not theirs.
std::optional<std::vector<Leaf>> leaves_in(const StoredSnapshot& snapshot,
                                           const std::vector<Leaf>& leaves);

// False if the snapshot's size is not that of the leaves.
bool copy_out(const StoredSnapshot& snapshot, const std::vector<Leaf>& leaves);

class SnapshotLinks {
 public:
  virtual ~SnapshotLinks() = default;
  virtual void enqueue_snapshot(base::Incarnation to, std::uint32_t item) = 0;
  // What is left of snapshot frames being written is copied: nothing refers to a snapshot then.
  virtual void own_snapshot_frames() = 0;
  virtual void use_link(const wire::Member& holder) = 0;
  virtual void fetch_ended(const wire::Tag& tag, const base::Status& status,
                           const wire::Held& held) = 0;
};

class SnapshotTraffic {
 public:
  SnapshotTraffic(SnapshotStore* store, BufferPool* pool, SnapshotLinks* links);
  ~SnapshotTraffic();

  // `layout` is that of the fetcher's own leaves. What was fetched is put into the store.
  void fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout, base::Time now);
  void stop(const wire::Tag& tag);
  // Members that are none any more serve nothing, however long their connections stand.
  void set_members(const std::vector<wire::Member>& members);
  bool uses(base::Incarnation peer) const;

  exchange::Placement place(base::Incarnation from, const wire::FrameHeader& header);
  base::Status arrived(base::Incarnation from, const wire::FrameHeader& header,
                       std::uint64_t token);
  void lost(std::uint64_t token) { arriving_.erase(token); }
  std::optional<exchange::OutFrame> produce(base::Incarnation to, std::uint32_t item);
  // Parts and asks under way may be lost: the next tick() asks that holder anew.
  void stripe_lost(base::Incarnation peer);
  void link_failed(base::Incarnation peer);
  // Its link is no more: nothing waits for it.
  void forget(base::Incarnation peer);
  void tick(base::Time now);

  std::size_t open_items() const { return outgoing_.size(); }  // asks, and answers not yet made
  std::uint64_t ignored() const { return ignored_; }           // asks of whoever had too many open
  std::size_t retired() const;  // snapshots the store has let go and that frames still refer to

 private:
  struct Fetch;
  struct Outgoing;  // frames to be sent, one at a time: an ask, the parts of an answer, or "gone"

  void send(base::Incarnation to, Outgoing outgoing);
  void serve(base::Incarnation to, const wire::SnapshotAsk& ask);
  std::optional<exchange::OutFrame> next_part(Outgoing outgoing);
  void release_retired();
  void drive(Fetch& fetch);
  bool verify(Fetch& fetch, std::uint32_t part, base::ByteView bytes);
  void manifest_complete(Fetch& fetch);
  bool without_liars(Fetch& fetch);
  void lose_holder(base::Incarnation holder, const std::string& why);
  void end(wire::Tag tag, const base::Status& status);
  Fetch* find(const wire::Tag& tag);
  Fetch* by_frame(const wire::FrameHeader& header);

  SnapshotStore* store_;
  BufferPool* pool_;
  SnapshotLinks* links_;
  std::map<wire::Tag, std::unique_ptr<Fetch>> fetches_;
  std::map<std::uint32_t, std::unique_ptr<Outgoing>> outgoing_;
  std::map<std::uint64_t, BufferRef> arriving_;  // by token of the placement
  std::uint64_t next_token_ = 1;
  std::set<base::Incarnation> ask_anew_;
  std::uint64_t next_fetch_ = 1;  // upper half of ask ids, so that old answers match nothing
  std::uint32_t next_item_ = 1;
  std::map<base::Incarnation, std::size_t> open_;  // answers that wait, by who asked
  std::uint64_t ignored_ = 0;
  std::vector<std::weak_ptr<const StoredSnapshot>> served_;  // frames may refer to these
  base::Time now_ = 0;
};

}  // namespace jccl::peer
