// The links of one peer: who dials whom, hellos, stripes, repair, and one queue of frames-to-make
// per link, so that a frame is encoded only when its link has room. How many stripes a link gets
// is learned from what it carries (StripeTuner); what a late or lost stripe held is made and sent
// again. Knows incarnations and keys, not attempts. Confined to the data thread.
//
// Who dials: exchange/dialling.h. An address is dialled where net::DialPolicy allows it.
//
// Who is let in: whoever has the run's link secret. A member by the key that the master named, and
// from the side that dials; within StrangerBounds others with the newest secret, which the owner
// gives snapshots and nothing else. Before the master has named a secret nobody is read.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exchange/dialling.h"
#include "net/link/link.h"
#include "net/socket/dial.h"
#include "net/socket/listener.h"
#include "net/socket/reach.h"
#include "peer/links/strangers.h"
#include "wire/messages.h"
#include "wire/serialize.h"

namespace jccl::peer {

class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual exchange::Placement place(base::Incarnation from, base::ByteView header) = 0;
  virtual base::Status arrived(base::Incarnation from, base::ByteView header,
                               std::uint64_t token) = 0;
  virtual void lost(base::Incarnation from, base::ByteView header, std::uint64_t token) = 0;
  // Makes the frame named by `key`; nullopt: no longer wanted.
  virtual std::optional<exchange::OutFrame> produce(base::Incarnation to, std::uint64_t key) = 0;
  // Its frames are sent again where a key still names them; what the other side sent may be lost.
  virtual void stripe_lost(base::Incarnation peer) = 0;
  // No stripe is left and repair did not succeed. Queued keys stay queued.
  virtual void link_failed(base::Incarnation peer, const base::Status& why) = 0;
  virtual bool wanted(base::Incarnation peer) const = 0;  // an attempt or fetch uses the link
  // A member left, and its link is closed.
  virtual void peer_left(base::Incarnation peer) = 0;
  // The link is no more, nor are the keys that waited in it.
  virtual void link_gone(base::Incarnation peer) = 0;
  // It said that more frames arrived than were sent; its stripe is lost.
  virtual void acknowledged_too_much(base::Incarnation peer) = 0;
};

struct LinkTableOptions {
  net::Credentials credentials;
  net::IoThreads* io = nullptr;
  std::uint32_t stripes = 0;  // 0: by round-trip time and what pays
  double max_rate = 0;        // bytes a second that leave by all links together; 0: no bound
  double day_bytes = 0;       // … and in any day
  base::Duration repair_max = base::kSecond;
  base::Duration alive_every = 500 * base::kMillisecond;  // something leaves over a link in use
  std::size_t frames_remembered = 65536;  // under way per stripe, to be sent again if it is lost
  StrangerBounds strangers;
  std::size_t copies_max = base::kCopiesBytesMax;
};

// What one link is known to carry, from its own traffic alone.
struct LinkMeasure {
  base::Incarnation peer = 0;
  base::Duration rtt_ns = 0;    // 0: no stripe stands
  double bytes_per_second = 0;  // towards the peer while frames waited; 0: that never lasted
  std::uint32_t stripes = 0;
};

class LinkTable {
 public:
  LinkTable(net::Loop& loop, LinkTableOptions options, LinkOwner* owner);
  ~LinkTable();

  base::Status listen(const net::Address& bind);
  std::uint16_t port() const;

  void set_self(const base::RunId& run, base::Incarnation incarnation, bool can_be_dialled);
  // The membership, and what its links show. Links of members that left close at once, and none of
  // theirs is taken any more; those of joiners stay until unused.
  void set_members(const std::vector<wire::Member>& members, const wire::LinkSecret& links);
  void set_secret(const wire::LinkSecret& links);  // for a joiner: its holders' and its own
  void set_policy(net::DialPolicy policy) { policy_ = std::move(policy); }
  // Its connections carry nothing: new ones may.
  void renew(base::Incarnation peer, const base::Status& why);
  void set_times(base::Duration repair_max, base::Duration alive_every);
  // Of all links together; 0: no bound.
  void set_max_rate(double bytes_per_second) { throttle_.set(bytes_per_second); }
  // For good: nobody is let in any more, and who has a link hears that it ended.
  void hang_up();
  void use(const wire::Member& member);  // e.g. a holder, before this peer is a member

  // `ahead`: before what waits already, e.g. because its bytes are in the cache now.
  void enqueue(base::Incarnation to, std::uint64_t key, bool ahead = false, bool of_attempt = true);
  // Of attempts; links with none, as those of strangers, are not looked at, whatever waits there.
  // Nothing of the keys (frames) for which the predicate holds is sent or received any more, and
  // nothing points at the owner's memory on return.
  void abandon(const std::function<bool(std::uint64_t)>& key,
               const std::function<bool(base::ByteView)>& header);
  // What is left of frames under way for which the predicate holds is copied, and still sent; but
  // where there are too many copies by now, whoever reads least loses its connections with them.
  void own(const std::function<bool(std::uint64_t)>& key);
  // Frames under way from that peer for which the predicate holds are drained.
  void abandon_receiving(base::Incarnation from, const std::function<bool(base::ByteView)>& header);
  void forget(const std::function<bool(std::uint64_t)>& key);
  bool has_queued(const std::function<bool(std::uint64_t)>& key) const;
  void resume();  // asks again about paused stripes
  void tick(base::Time now);
  base::Time last_received(base::Incarnation peer) const;  // 0: no link
  std::vector<LinkMeasure> measures() const;
  std::size_t links() const { return entries_.size(); }
  std::uint64_t copied_bytes() const;  // of own() and abandon(), for peers that have not read them
  std::size_t refused() const { return refused_; }  // connections of whoever had no right to one
  std::string describe(base::Incarnation peer) const;

 private:
  bool hands_over() const { return options_.io != nullptr && options_.io->used; }
  void bound_copies();
  struct Entry;
  class Sink;
  struct Pending;

  Entry& entry(const wire::Member& member);
  exchange::Ends ends(const Entry& entry) const;
  exchange::Dialling dialling(const Entry& entry) const;  // as it stands now
  bool admits(base::Incarnation from, const net::ByteStream& stream);
  bool is_member(base::Incarnation from, const base::PublicKey& key) const;
  net::Credentials link_credentials() const;
  void close(base::Incarnation peer);
  void close_all();
  void part(base::Incarnation peer);
  void dial_if_needed(Entry& entry);
  void dial(Entry& entry);
  void dialled(base::Incarnation peer, std::uint64_t dial,
               base::Result<std::unique_ptr<net::ByteStream>> stream);
  void dial_failed(Entry& entry, const base::Status& why);
  void accepted(net::Accepted accepted);
  void hello(std::uint64_t pending, base::ByteView frame);
  void adopt(base::Incarnation from, std::unique_ptr<net::ByteStream> stream);
  void add_stripe(Entry& entry, std::unique_ptr<net::ByteStream> stream);
  void stripe_lost(base::Incarnation peer, const net::StripeLoss& loss);
  void link_dead(base::Incarnation peer, base::Status why);
  void send_again(Entry& entry, const std::vector<std::uint64_t>& keys);
  void refill(Entry& entry);
  void measure(Entry& entry);
  void probe(Entry& entry);
  std::uint32_t stripes_wanted(const Entry& entry) const;
  base::Status no_connection(const Entry& entry) const;

  net::Loop& loop_;
  LinkTableOptions options_;
  LinkOwner* owner_;
  net::Throttle throttle_{options_.max_rate, options_.day_bytes};
  base::RunId run_{};
  base::Incarnation self_ = 0;
  base::PeerId self_id_ = 0;
  // The newest first: another member may not have heard of the last evictions yet.
  std::deque<net::SharedKey> secrets_;
  std::uint64_t generation_ = 0;
  bool can_be_dialled_ = false;
  std::unique_ptr<net::Listener> listener_;
  std::map<base::Incarnation, std::unique_ptr<Entry>> entries_;
  std::map<base::Incarnation, base::PublicKey> members_;
  std::set<base::Incarnation> left_;             // were members
  std::deque<base::Incarnation> left_in_order_;  // the same, the longest gone first
  net::DialPolicy policy_;
  std::size_t refused_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Pending>> pending_;
  std::uint64_t next_pending_ = 1;
  std::uint64_t next_dial_ = 1;
};

}  // namespace jccl::peer
