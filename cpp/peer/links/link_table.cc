// See link_table.h.
#include "peer/links/link_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/planted.h"
#include "base/text.h"
#include "peer/links/link_entry.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Incarnation;
using base::Status;

// A link that was idle looks for its rate anew, but not for each of many small calls.
constexpr base::Duration kProbeEvery = base::kSecond;
constexpr std::size_t kSecretsKept = 8;
constexpr std::size_t kLeftMax = 4096;  // former members that are remembered

// A stripe's acks are frames of a kind of their own.
net::Acks acks() {
  net::Acks acks;
  acks.make = [](const net::Ack& ack) {
    wire::FrameHeader header;
    header.kind = wire::FrameKind::kArrived;
    header.attempt.counter = ack.frames;
    header.chunk = ack.last ? 1 : 0;
    base::Bytes out(wire::kFrameHeaderBytes);
    wire::encode(header, out.data());
    return out;
  };
  acks.read = [](base::ByteView header) -> std::optional<net::Ack> {
    if (header[4] != static_cast<std::uint8_t>(wire::FrameKind::kArrived)) return std::nullopt;
    const auto ack = wire::decode_frame_header(header);
    if (!ack.ok()) return std::nullopt;  // the owner refuses it
    return net::Ack{ack.value().attempt.counter, ack.value().chunk == 1};
  };
  return acks;
}

}  // namespace

LinkTable::LinkTable(net::Loop& loop, LinkTableOptions options, LinkOwner* owner)
    : loop_(loop), options_(std::move(options)), owner_(owner) {}

LinkTable::~LinkTable() = default;

Status LinkTable::listen(const net::Address& bind) {
  net::ListenerOptions options;
  options.purpose = net::Purpose::kLink;
  auto listener = net::Listener::open(loop_, bind, options_.credentials, options,
                                      [this](net::Accepted a) { accepted(std::move(a)); });
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener.value());
  if (!JCCL_PLANTED("who-dials-early-is-closed")) listener_->hold();
  return {};
}

std::uint16_t LinkTable::port() const { return listener_ ? listener_->port() : 0; }

void LinkTable::set_self(const base::RunId& run, Incarnation incarnation, bool can_be_dialled) {
  run_ = run;
  can_be_dialled_ = can_be_dialled;
  if (incarnation == self_) return;
  self_ = incarnation;  // a new life: the old one's links and secret are worth nothing
  self_id_ = 0;
  generation_ = 0;
  secrets_.clear();
  if (listener_ && !JCCL_PLANTED("who-dials-early-is-closed")) listener_->hold();
  close_all();
  members_.clear();
}

void LinkTable::close_all() {
  while (!entries_.empty()) close(entries_.begin()->first);
}

void LinkTable::hang_up() {
  if (JCCL_PLANTED("closed-peer-stays-linked")) return;
  listener_.reset();
  pending_.clear();
  close_all();
}

net::Credentials LinkTable::link_credentials() const {
  net::Credentials out = options_.credentials;
  out.run = run_;
  out.shared = secrets_.empty() ? net::SharedKey{} : secrets_.front();
  out.known = [all = secrets_](std::string_view name) -> std::optional<net::SharedKey> {
    for (const net::SharedKey& one : all) {
      if (one.name == name) return one;
    }
    return std::nullopt;
  };
  return out;
}

void LinkTable::set_secret(const wire::LinkSecret& links) {
  if (links.generation == generation_ || links.generation == 0) return;
  generation_ = links.generation;
  secrets_.push_front(net::link_key(run_, links.generation, links.secret));
  if (secrets_.size() > kSecretsKept) secrets_.pop_back();
  if (listener_) listener_->renew(link_credentials());
}

void LinkTable::set_members(const std::vector<wire::Member>& members,
                            const wire::LinkSecret& links) {
  const auto before = std::exchange(members_, {});
  for (const wire::Member& member : members) {
    members_[member.incarnation] = member.key;
    left_.erase(member.incarnation);
    if (member.incarnation == self_) self_id_ = member.id;
  }
  for (const auto& [peer, key] : before) {
    if (members_.count(peer) == 0) part(peer);
  }
  set_secret(links);
  if (self_id_ == 0) return;  // an observer has links to holders only
  for (const wire::Member& member : members) {
    if (member.incarnation == self_) continue;
    // Somebody else was a stranger under this number before the master named whose it is.
    const auto known = entries_.find(member.incarnation);
    const bool another = known != entries_.end() && known->second->member.key != member.key;
    if (another && !JCCL_PLANTED("link-of-another-key-stays")) close(member.incarnation);
    use(member);
  }
  tick(loop_.now());
}

void LinkTable::set_times(base::Duration repair_max, base::Duration alive_every) {
  options_.repair_max = repair_max;
  options_.alive_every = alive_every;
}

void LinkTable::renew(Incarnation peer, const Status& why) {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return;
  for (const net::StripeStats& stripe : found->second->link->stats().stripes) {
    found->second->link->drop_stripe(stripe.stripe, why);
  }
}

void LinkTable::use(const wire::Member& member) {
  if (member.incarnation != self_ && member.incarnation != 0) dial_if_needed(entry(member));
}

void LinkTable::close(Incarnation peer) {
  if (entries_.erase(peer) > 0) owner_->link_gone(peer);
}

void LinkTable::part(Incarnation peer) {
  if (peer == self_) return;
  if (left_.insert(peer).second) left_in_order_.push_back(peer);
  while (left_in_order_.size() > kLeftMax) {
    left_.erase(left_in_order_.front());
    left_in_order_.pop_front();
  }
  close(peer);
  owner_->peer_left(peer);
}

LinkTable::Entry& LinkTable::entry(const wire::Member& member) {
  auto& slot = entries_[member.incarnation];
  if (!slot) {
    slot = std::make_unique<Entry>();
    slot->member = member;
    slot->tuner = exchange::StripeTuner(options_.stripes);
    slot->down_since = loop_.now();
    slot->sink = std::make_unique<Sink>(owner_, member.incarnation);
    const Incarnation peer = member.incarnation;
    net::LinkEvents events;
    events.on_room = [this, peer] {
      const auto found = entries_.find(peer);
      if (found != entries_.end()) refill(*found->second);
    };
    events.on_late = [this, peer](const std::vector<std::uint64_t>& keys) {
      const auto found = entries_.find(peer);
      if (found != entries_.end()) send_again(*found->second, keys);
    };
    events.on_stripe_lost = [this, peer](const net::StripeLoss& loss) { stripe_lost(peer, loss); };
    events.on_dead = [this, peer](Status why) { link_dead(peer, std::move(why)); };
    net::LinkOptions options;
    options.header_bytes = wire::kFrameHeaderBytes;
    options.sent_keys_max = options_.frames_remembered;
    options.acks = acks();
    options.io = options_.io, options.throttle = &throttle_;
    slot->link = std::make_unique<net::Link>(loop_, options, slot->sink.get(), std::move(events));
  } else if (member.id != 0) {
    slot->member = member;
  }
  return *slot;
}

exchange::Ends LinkTable::ends(const Entry& entry) const {
  return {self_id_, entry.member.id, can_be_dialled_, !entry.member.addresses.empty(),
          generation_ != 0};
}

exchange::Dialling LinkTable::dialling(const Entry& e) const {
  exchange::LinkNow link;
  link.wanted = e.tuner.wanted();
  link.stripes = e.link->stripe_count();
  link.retiring = e.link->connections() - link.stripes;
  link.dials = e.dials.size();
  link.in_use = owner_->wanted(e.member.incarnation);
  link.down_since = e.down_since;
  link.heard = std::max(e.link->last_received(), e.used);
  return {ends(e), link, loop_.now(), options_.repair_max};
}

void LinkTable::dial_if_needed(Entry& entry) {
  // Asked at each frame.
  if (entry.link->stripe_count() + entry.dials.size() >= entry.tuner.wanted()) return;
  for (std::size_t due = dialling(entry).due(entry.redial); due > 0; --due) dial(entry);
}

void LinkTable::dial(Entry& entry) {
  std::vector<net::Address> addresses;
  for (const std::string& text : entry.member.addresses) {
    auto address = net::parse_address(text);
    if (address.ok()) addresses.push_back(address.value());
  }
  const Incarnation peer = entry.member.incarnation;
  const std::uint64_t id = next_dial_++;
  net::DialOptions options;
  options.purpose = net::Purpose::kLink;
  options.expected = entry.member.key;
  options.allow = [policy = policy_](const net::Endpoint& at) { return policy.check(at); };
  entry.dials[id] =
      net::dial(loop_, std::move(addresses), link_credentials(), std::move(options),
                [this, peer, id](auto stream) { dialled(peer, id, std::move(stream)); });
}

void LinkTable::dial_failed(Entry& e, const Status& why) {
  e.last_error = why;
  e.redial.failed(loop_.now());
  if (e.link->stripe_count() == 0 && e.dials.empty() && owner_->wanted(e.member.incarnation) &&
      e.redial.failing()) {
    owner_->link_failed(e.member.incarnation, e.last_error);
  }
}

void LinkTable::dialled(Incarnation peer, std::uint64_t dial,
                        base::Result<std::unique_ptr<net::ByteStream>> stream) {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return;
  Entry& e = *found->second;
  const auto ended = e.dials.extract(dial);
  if (!stream.ok()) return dial_failed(e, stream.status());
  // Meanwhile the other side may have dialled too, e.g. as the joiner that it was a moment ago.
  const std::uint32_t wanted = e.tuner.wanted();
  if (e.link->stripe_count() >= wanted) return;
  wire::LinkHello hello;
  hello.run = run_;
  hello.from = self_;
  hello.to = peer;
  hello.stripe = static_cast<std::uint16_t>(e.link->stripe_count());
  hello.stripes = static_cast<std::uint16_t>(wanted);
  net::FramedStream framed(loop_, std::move(stream.value()));
  if (!framed.send(wire::encode(hello)).ok()) return;
  if (auto taken = framed.take()) add_stripe(e, std::move(taken));
  base::failpoint(base::Failpoint::kPeerLinkDialled);
  dial_if_needed(e);
}

void LinkTable::add_stripe(Entry& e, std::unique_ptr<net::ByteStream> stream) {
  // Frames have no check of their own there.
  JCCL_CHECK(!options_.credentials.tls || stream->is_tls());
  e.tuner.connected(stream->remote_is_loopback(), stream->stats().rtt_ns, hands_over());
  e.link->add_stripe(std::move(stream));
  e.link->wake();
}

void LinkTable::stripe_lost(Incarnation peer, const net::StripeLoss& loss) {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return;
  Entry& e = *found->second;
  e.last_error = loss.status;
  send_again(e, loss.keys);
  // Who does not know us closes without an answer, each time: that was no link.
  if (loss.heard || loss.stood > options_.repair_max) {
    e.down_since = loop_.now();
    e.redial.broke(loop_.now(), e.link->stripe_count() == 0);
  } else {
    e.redial.closed_unheard(loop_.now());
  }
  owner_->stripe_lost(peer);
  if (loss.overcounted) owner_->acknowledged_too_much(peer);
  if (!loss.complete) {  // what is not named can't be sent again
    owner_->link_failed(peer, {Code::kLinkLost,
                               cat("a connection broke with more than ", options_.frames_remembered,
                                   " frames in flight: ", loss.status.text)});
  }
  dial_if_needed(e);
}

void LinkTable::link_dead(Incarnation peer, Status why) {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return;
  found->second->last_error = std::move(why);
  dial_if_needed(*found->second);
}

// Whatever may not have arrived, or not soon; receivers drop what they have.
void LinkTable::send_again(Entry& e, const std::vector<std::uint64_t>& keys) {
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) e.queue.push_front(*key);
  e.link->wake();
}

void LinkTable::enqueue(Incarnation to, std::uint64_t key, bool ahead, bool of_attempt) {
  const auto found = entries_.find(to);
  if (found == entries_.end()) return;  // gone: the attempt is failed by whoever waits for it
  found->second->of_attempts |= of_attempt || JCCL_PLANTED("all-links-looked-through");
  auto& queue = found->second->queue;
  if (ahead) {
    queue.push_front(key);
  } else {
    queue.push_back(key);
  }
  dial_if_needed(*found->second);
  found->second->link->wake();
}

// One stripe's worth of frames, made when it has room: what was just read to make them is still in
// the cache when the kernel copies it.
void LinkTable::refill(Entry& e) {
  const std::size_t most = e.link->room();
  for (std::size_t bytes = 0; bytes < most && !e.queue.empty();) {
    const std::uint64_t key = e.queue.front();
    e.queue.pop_front();
    auto frame = owner_->produce(e.member.incarnation, key);
    if (!frame) continue;
    frame->key = key;
    bytes += exchange::bytes_of(*frame);
    e.link->send(std::move(*frame));
  }
  measure(e);
}

void LinkTable::measure(Entry& e) {
  const base::Time now = loop_.now();
  const bool busy = !e.queue.empty();
  const base::Duration rtt = e.link->rtt();
  if (busy == e.meter.busy() && !(busy && e.meter.due(now, rtt))) return;
  const std::uint64_t delivered = busy && e.meter.busy() ? e.link->bytes_delivered() : 0;
  const bool begins = busy && !e.meter.busy();
  const auto window = e.meter.sample(now, delivered, busy, rtt);
  if (e.pacing.sample(now, delivered, busy, rtt)) e.link->pace(e.pacing.bytes_per_second());
  if (begins && e.pacing.bytes_per_second() > 0 && now - e.probed_at > kProbeEvery) probe(e);
  if (!window) return;
  const std::uint32_t used = e.tuner.used();
  const std::size_t standing = e.link->stripe_count();
  e.tuner.measured(window->bytes, window->busy_ns, static_cast<std::uint32_t>(standing), rtt);
  e.link->use(e.tuner.used());
  if (e.tuner.used() != used) {
    e.link->pace(e.pacing.bytes_per_second());
    probe(e);
  }
  // Who dials says how many there are, and the other side does with them what it likes.
  if (const std::size_t wanted = e.tuner.wanted();
      exchange::Dialling::is_appointed(ends(e)) && standing > wanted) {
    e.link->retire(standing - wanted);
  }
  dial_if_needed(e);
}

void LinkTable::probe(Entry& e) {
  e.probed_at = loop_.now();
  e.link->probe();
}

void LinkTable::abandon(const std::function<bool(std::uint64_t)>& key,
                        const std::function<bool(base::ByteView)>& header) {
  for (auto& [incarnation, e] : entries_) {
    if (e->of_attempts) {
      std::erase_if(e->queue, key);
      e->link->abandon_sending(key);
      e->link->forget(key);
    }
    e->link->abandon_receiving(header);
    e->link->wake();
  }
  bound_copies();
}

void LinkTable::own(const std::function<bool(std::uint64_t)>& key) {
  for (auto& [incarnation, e] : entries_) e->link->own(key);
  bound_copies();
}

std::uint64_t LinkTable::copied_bytes() const {
  std::uint64_t all = 0;
  for (const auto& [incarnation, e] : entries_) all += e->link->copied_bytes();
  return all;
}

// Who reads has none a moment later.
void LinkTable::bound_copies() {
  std::uint64_t all = copied_bytes();
  while (all > options_.copies_max && !JCCL_PLANTED("copies-without-end")) {
    const auto most =
        std::max_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second->link->copied_bytes() < b.second->link->copied_bytes();
        });
    net::Link& link = *most->second->link;
    all -= link.copied_bytes();
    link.drop_copied({base::Code::kLimit, "does not read, and too much data waits for such peers"});
  }
}

void LinkTable::abandon_receiving(Incarnation from,
                                  const std::function<bool(base::ByteView)>& header) {
  const auto found = entries_.find(from);
  if (found != entries_.end()) found->second->link->abandon_receiving(header);
}

void LinkTable::forget(const std::function<bool(std::uint64_t)>& key) {
  for (auto& [incarnation, e] : entries_) {
    if (e->of_attempts) e->link->forget(key);
  }
}

bool LinkTable::has_queued(const std::function<bool(std::uint64_t)>& key) const {
  for (const auto& [incarnation, e] : entries_) {
    if (e->link->sending() || std::any_of(e->queue.begin(), e->queue.end(), key)) return true;
  }
  return false;
}

void LinkTable::resume() {
  for (auto& [incarnation, e] : entries_) e->link->resume();
}

void LinkTable::tick(base::Time now) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& e = *it->second;
    const bool wanted = owner_->wanted(it->first);
    const bool member = members_.count(it->first) > 0;
    const bool cut = e.link->stripe_count() == 0 && e.dials.empty();
    if (!member && !wanted && (cut || (e.member.id != 0 && e.queue.empty()))) {
      const Incarnation gone = it->first;
      ++it;
      close(gone);
      continue;
    }
    if (const std::uint64_t moved = e.link->bytes_delivered(); moved != e.moved) {
      e.moved = moved;
      e.moved_at = now;
    }
    dial_if_needed(e);
    e.link->tick(wanted ? options_.alive_every : 0);
    measure(e);
    if (wanted && e.link->stripe_count() == 0 && now - e.down_since > options_.repair_max) {
      e.down_since = now;
      owner_->link_failed(it->first, e.last_error.ok() ? no_connection(e) : e.last_error);
    }
    ++it;
  }
}

Status LinkTable::no_connection(const Entry& e) const {
  if (e.member.addresses.empty() && !can_be_dialled_) {
    return {Code::kLinkLost,
            "both ends can only dial out: let one of them listen (bind, advertise)"};
  }
  return {Code::kLinkLost, "no connection could be made"};
}

base::Time LinkTable::last_received(Incarnation peer) const {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return 0;
  return found->second->link->last_received();
}

std::vector<LinkMeasure> LinkTable::measures() const {
  std::vector<LinkMeasure> out;
  for (const auto& [incarnation, e] : entries_) {
    const std::size_t stripes = e->link->stripe_count();
    out.push_back({incarnation, stripes > 0 ? e->link->rtt() : 0, e->meter.bytes_per_second(),
                   static_cast<std::uint32_t>(stripes)});
  }
  return out;
}

std::string LinkTable::describe(Incarnation peer) const {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return "no link";
  const Entry& e = *found->second;
  return cat(e.link->stripe_count(), " stripes, ", e.queue.size(), " frames to send",
             e.last_error.ok() ? "" : cat(", last error: ", e.last_error.text));
}

}  // namespace jccl::peer
