// Who is let into the links of a peer: connections that others opened, from their hello to the link
// that they belong to. See link_table.h.
#include <algorithm>
#include <vector>

#include "base/failpoint.h"
#include "base/planted.h"
#include "peer/link_entry.h"

namespace jccl::peer {

using base::Incarnation;
using base::Status;

namespace {

constexpr base::Duration kStuckAfter = 10 * base::kSecond;

}  // namespace

void LinkTable::accepted(net::Accepted accepted) {
  const std::uint64_t id = next_pending_++;
  net::FramedOptions options;
  options.hello_by = accepted.adopt_by;
  options.pending = accepted.pending;
  auto pending = std::make_unique<Pending>();
  pending->hello_by = accepted.adopt_by;
  pending->slot = std::move(accepted.pending);
  pending->stream = std::make_unique<net::FramedStream>(loop_, std::move(accepted.stream), options);
  net::FramedStream* stream = pending->stream.get();
  pending_[id] = std::move(pending);
  stream->start([this, id](base::ByteView frame) { hello(id, frame); },
                [this, id](Status) { pending_.erase(id); });
}

// A connection that is not exactly from whom the master named to us closes without an answer. One
// that comes before the master's word to us waits for it, unread: closing it would cost the other
// side what it has sent, and another connection.
void LinkTable::hello(std::uint64_t id, base::ByteView frame) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  std::unique_ptr<Pending> pending = std::move(found->second);
  pending_.erase(found);
  const auto hello = wire::decode_link_hello(frame);
  if (!hello.ok()) return;
  pending->hello = hello.value();
  const wire::LinkHello& h = pending->hello;
  if (h.version != wire::kVersion || (h.run != run_ && !JCCL_PLANTED("link-of-another-run")) ||
      h.to != self_ || h.from == self_)
    return;
  if (ticket_ != 0 && !JCCL_PLANTED("ticket-not-compared") && h.ticket != ticket_) return;
  if (ticket_ != 0) pending->stream->authenticated();
  std::unique_ptr<net::ByteStream> stream = pending->stream->take();
  if (!stream) return;
  if (ticket_ != 0) return adopt(h.from, std::move(stream));
  pending->early = std::move(stream);
  pending_[id] = std::move(pending);
}

// Nothing that stands has come by this link lately, though something should have.
bool LinkTable::unheard(const Entry& e) const {
  const base::Time now = loop_.now();
  if (e.link->stripe_count() == 0) {
    return e.redial.failing() || now - e.down_since > options_.repair_max / 4;
  }
  const base::Time heard = std::max(e.link->last_received(), e.used);
  return owner_->wanted(e.member.incarnation) && now - heard > options_.repair_max;
}

bool LinkTable::admits(Incarnation from, const net::ByteStream& stream) {
  if (left_.count(from) > 0 && !JCCL_PLANTED("left-peer-let-in")) return false;
  const auto known = entries_.find(from);
  if (members_.count(from) > 0) {
    if (known == entries_.end()) return true;
    // We dial: a stripe that comes the other way round is somebody else's, or help in need.
    if (appointed(*known->second) && !unheard(*known->second)) return false;
    return known->second->link->stripe_count() < base::kStripesMax;
  }
  std::vector<StrangerLink> strangers;
  for (const auto& [peer, e] : entries_) {
    if (members_.count(peer) > 0) continue;
    const base::Time used = std::max({e->used, e->moved_at, e->link->last_received()});
    const bool sends = !e->queue.empty() || e->link->sending();
    // Who asks and does not read is not at work.
    const bool busy = owner_->wanted(peer) || (sends && loop_.now() - used < kStuckAfter);
    strangers.push_back({peer, e->network, e->link->stripe_count(), used, busy});
  }
  const StrangerRoom room =
      room_for(strangers, from, net::network_of(stream.remote_text()), options_.strangers);
  if (room.instead_of != 0) close(room.instead_of);
  return room.granted;
}

void LinkTable::adopt(Incarnation from, std::unique_ptr<net::ByteStream> stream) {
  if (!admits(from, *stream)) {
    ++refused_;
    return;
  }
  wire::Member stranger;  // a joiner that fetches, if it is no member yet
  stranger.incarnation = from;
  Entry& e = entry(stranger);
  e.network = net::network_of(stream->remote_text());
  e.used = loop_.now();
  add_stripe(e, std::move(stream));
  base::failpoint(base::Failpoint::kPeerLinkAccepted);
}

void LinkTable::adopt_early() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const std::unique_ptr<Pending>& pending = it->second;
    if (!pending->early) {
      ++it;
      continue;
    }
    if (pending->hello.ticket == ticket_) adopt(pending->hello.from, std::move(pending->early));
    it = pending_.erase(it);
  }
}

}  // namespace jccl::peer
