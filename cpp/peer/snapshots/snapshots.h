// Snapshots of the shared state: the host copies a peer serves (store), and their way between
// peers (traffic). A snapshot is a flat byte string over the leaves, cut into parts; the digest of
// its manifest names it, so accidents are found part by part. What is kept is also compared with
// the parts of the other holders, under keys drawn after it came (snapshot/proof_plan.h).
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

#include "net/link/frames.h"
#include "net/link/link.h"
#include "net/security/mac.h"
#include "net/socket/allowance.h"
#include "peer/buffers.h"
#include "peer/communicator.h"
#include "protocol/peer/peer_machine.h"
#include "snapshot/fetch_plan.h"
#include "snapshot/manifest.h"
#include "snapshot/proof_plan.h"
#include "wire/serialize.h"

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
  // Both. The third newest goes first, so that there are never three copies of a state.
  SnapshotRef add(const wire::Tag& tag, std::uint64_t revision, const std::vector<Leaf>& leaves);
  // The same bytes under the number that the run has for them; put into the store.
  SnapshotRef renumber(const SnapshotRef& snapshot, std::uint64_t revision);
  SnapshotRef newest(const wire::Tag& tag) const;
  SnapshotRef find(const wire::Tag& tag, std::uint64_t revision) const;
  SnapshotRef find(const wire::Tag& tag, const wire::Digest& digest) const;
  // Bytes of the tag's parts that have come from others so far, those that were of no use too.
  void count(const wire::Tag& tag, std::uint64_t bytes);
  std::uint64_t received(const wire::Tag& tag) const;

 private:
  template <typename Is>
  SnapshotRef find_if(const wire::Tag& tag, const Is& is) const;

  mutable std::mutex mutex_;
  std::map<wire::Tag, std::deque<SnapshotRef>> by_tag_;
  std::map<wire::Tag, std::uint64_t> received_;
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
  // `first`: a few bytes that somebody waits for.
  virtual void enqueue_snapshot(base::Incarnation to, std::uint32_t item, bool first) = 0;
  // What is left of snapshot frames being written is copied: nothing refers to a snapshot then.
  virtual void own_snapshot_frames() = 0;
  virtual void use_link(const wire::Member& holder) = 0;
  // Not where the links are sealed: what arrives there is what was sent.
  virtual bool checks_frames() const { return true; }
  virtual base::Result<net::MacKey> draw_key() = 0;  // that nobody can foretell
  virtual void holder_outvoted(const wire::Held& want, base::Incarnation holder,
                               std::uint32_t part) = 0;
  // kDisputed: what the state is has no majority. kPeerLost: those that are left can't say.
  virtual void fetch_ended(const wire::Tag& tag, const base::Status& status,
                           const wire::Held& held) = 0;
};

class SnapshotTraffic {
 public:
  SnapshotTraffic(SnapshotStore* store, BufferPool* pool, SnapshotLinks* links);
  ~SnapshotTraffic();

  // `layout` is that of the fetcher's own leaves. What was fetched is put into the store. An order
  // for what is being fetched already says whom of the holders the master has not put out.
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
  // Its link is no more: nothing waits for it, nor is anything to come from it.
  void forget(base::Incarnation peer);
  void tick(base::Time now);

  std::size_t open_items() const;                     // asks, and answers not yet made
  std::uint64_t ignored() const { return ignored_; }  // asks of whoever had too many open
  std::size_t retired() const;  // snapshots the store has let go and that frames still refer to

 private:
  struct Fetch;
  struct Outgoing {  // a frame to be sent, or several, one at a time
    base::Incarnation to = 0;
    wire::FrameHeader header;
    base::Bytes own;  // an ask
    // An answer: parts [next, last) of a snapshot that may be gone when their turn comes, or the
    // MAC of `next`.
    wire::Tag tag;
    std::uint32_t next = 0, last = 0;
    net::MacKey key{};
  };

  // snapshot_serving.cc
  void send(base::Incarnation to, Outgoing outgoing);
  bool takes_ask(base::Incarnation from);
  void serve(base::Incarnation to, const wire::SnapshotAsk& ask);
  void serve(base::Incarnation to, const wire::ProofAsk& ask);
  void release_proofs();
  net::OutFrame next_part(Outgoing outgoing, const SnapshotRef& held);
  net::OutFrame proof(const Outgoing& outgoing, const StoredSnapshot& held) const;
  void release_retired();

  // snapshots.cc
  void plan_for(Fetch& fetch, std::uint32_t first_part, std::uint32_t last_part,
                const std::set<std::uint32_t>& here = {});
  void drive(Fetch& fetch);
  void ask_for_parts(Fetch& fetch);
  void ask_for_proofs(Fetch& fetch);
  std::set<std::uint32_t> take_what_is_here(Fetch& fetch);
  void complete(Fetch& fetch);
  bool verify(Fetch& fetch, std::uint32_t part, base::ByteView bytes);
  void on_proof(Fetch& fetch, base::Incarnation from, const wire::FrameHeader& header,
                base::ByteView mac);
  base::Status on_part(Fetch& fetch, base::Incarnation from, const wire::FrameHeader& header,
                       base::ByteView bytes);
  base::Status prove(Fetch& fetch, std::uint32_t part, base::Incarnation from);
  base::Status manifest_here(Fetch& fetch);
  void drop_holders(const std::set<base::Incarnation>& gone);
  enum class Lost : std::uint8_t { kForNow, kForGood };
  void lose_holder(base::Incarnation holder, const std::string& why, Lost lost);
  void end(wire::Tag tag, const base::Status& status);
  Fetch* find(const wire::Tag& tag);
  Fetch* by_frame(const wire::FrameHeader& header);

  SnapshotStore* store_;
  BufferPool* pool_;
  SnapshotLinks* links_;
  std::map<wire::Tag, std::unique_ptr<Fetch>> fetches_;
  // What is here of fetches that ended since too few holders could answer: for the next order.
  std::map<wire::Tag, std::unique_ptr<Fetch>> halted_;
  std::map<std::uint32_t, std::unique_ptr<Outgoing>> outgoing_;
  std::map<std::uint64_t, BufferRef> arriving_;  // by token of the placement
  std::uint64_t next_token_ = 1;
  std::set<base::Incarnation> ask_anew_;
  std::uint64_t next_fetch_ = 1;  // upper half of ask ids, so that old answers match nothing
  std::uint32_t next_item_ = 1;
  std::map<base::Incarnation, std::size_t> open_;             // answers that wait, by who asked
  std::map<base::Incarnation, std::deque<Outgoing>> proofs_;  // … for the allowance
  net::Allowance proof_allowance_;
  base::Incarnation proved_to_ = 0;  // whose turn was last
  std::uint64_t ignored_ = 0;
  std::vector<std::weak_ptr<const StoredSnapshot>> served_;  // frames may refer to these
  base::Time now_ = 0;
};

}  // namespace jccl::peer
