// Who is let into the links of a peer: connections that others opened, from their hello to the link
// that they belong to. See link_table.h.
#include <algorithm>
#include <vector>

#include "base/failpoint.h"
#include "base/planted.h"
#include "peer/links/link_entry.h"

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
  pending->stream = std::make_unique<net::FramedStream>(loop_, std::move(accepted.stream), options);
  net::FramedStream* stream = pending->stream.get();
  pending_[id] = std::move(pending);
  stream->start([this, id](base::ByteView frame) { hello(id, frame); },
                [this, id](Status) { pending_.erase(id); });
}

// A connection that is not exactly from whom it says, to whom it means, closes without an answer.
void LinkTable::hello(std::uint64_t id, base::ByteView frame) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  std::unique_ptr<Pending> pending = std::move(found->second);
  pending_.erase(found);
  const auto hello = wire::decode_link_hello(frame);
  if (!hello.ok()) return;
  const wire::LinkHello& h = hello.value();
  if (h.version != wire::kVersion || (h.run != run_ && !JCCL_PLANTED("link-of-another-run")) ||
      h.to != self_ || h.from == self_ || h.from == 0)
    return;
  pending->stream->authenticated();
  if (auto stream = pending->stream->take()) adopt(h.from, std::move(stream));
}

// By its number, and by the key that the master named with it.
bool LinkTable::is_member(Incarnation from, const base::PublicKey& key) const {
  const auto known = members_.find(from);
  return known != members_.end() && (known->second == key || JCCL_PLANTED("any-key-is-a-member"));
}

bool LinkTable::admits(Incarnation from, const net::ByteStream& stream) {
  if (left_.count(from) > 0 && !JCCL_PLANTED("left-peer-let-in")) return false;
  const auto known = entries_.find(from);
  const net::Introduced& who = stream.remote();
  if (is_member(from, who.key)) {
    return known == entries_.end() || dialling(*known->second).takes(known->second->redial);
  }
  // Who left has the secret of the time before; who names a member, or the stranger of a link that
  // stands, has its key.
  if ((secrets_.empty() || who.secret != secrets_.front().name) &&
      !JCCL_PLANTED("old-secret-for-strangers"))
    return false;
  if (members_.count(from) > 0) return false;
  if (known != entries_.end() && known->second->member.key != who.key) return false;
  std::vector<StrangerLink> strangers;
  for (const auto& [peer, e] : entries_) {
    if (members_.count(peer) > 0) continue;
    const base::Time used = std::max({e->used, e->moved_at, e->link->last_received()});
    const bool sends = !e->queue.empty() || e->link->sending();
    // Who asks and does not read is not at work.
    const bool busy = owner_->wanted(peer) || (sends && loop_.now() - used < kStuckAfter);
    strangers.push_back({peer, e->network, e->link->connections(), used, busy});
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
  stranger.key = stream->remote().key;
  Entry& e = entry(stranger);
  e.network = net::network_of(stream->remote_text());
  e.used = loop_.now();
  add_stripe(e, std::move(stream));
  base::failpoint(base::Failpoint::kPeerLinkAccepted);
}

}  // namespace jccl::peer
