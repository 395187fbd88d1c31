#include "net/link/link.h"

#include <algorithm>
#include <utility>

#include "net/link/link_impl.h"

namespace jccl::net {
namespace {

// What a stripe sends above its part. With the same factor as threshold of being faster than the
// others, those that are fast grow whenever they cannot fill the line together.
constexpr double kPaceRoom = 1.3;
constexpr double kMovedKept = 0.8;

}  // namespace

Link::Link(Loop& loop, LinkOptions options, DataSink* sink, LinkEvents events)
    : impl_(std::make_shared<Impl>(loop, std::move(options), sink, std::move(events))) {
  JCCL_CHECK(loop.confined());
}

Link::~Link() { close(); }

StripeId Link::add_stripe(std::unique_ptr<ByteStream> stream) {
  JCCL_CHECK(!impl_->closed);
  const StripeId id = ++impl_->last_id;
  const auto stripe = std::make_shared<Stripe>(id, std::move(stream), impl_->options.header_bytes,
                                               std::make_unique<Impl::StripeSink>(impl_.get(), id));
  stripe->since = impl_->loop.now();
  impl_->stripes.emplace(id, stripe);
  impl_->flight.add_stripe(id, impl_->loop.now());
  impl_->choose();
  const Duration rtt = stripe->stream->stats().rtt_ns;
  if (rtt > 0 && (impl_->rtt == 0 || rtt < impl_->rtt)) impl_->rtt = rtt;
  impl_->loop.post(impl_->later<&Impl::read>(stripe));
  // An empty batch: sends what the stream's earlier owner left, then waits for frames.
  impl_->loop.post(
      [weak = std::weak_ptr<Impl>(impl_), weak_stripe = std::weak_ptr<Stripe>(stripe)] {
        const auto self = weak.lock();
        const auto locked = weak_stripe.lock();
        if (!self || !locked || locked->gone) return;
        (void)locked->stream->flush_ahead();  // the rest leaves before the first frame
        self->write(locked);
      });
  return id;
}

void Link::use(std::size_t stripes) {
  if (std::exchange(impl_->used, stripes) != stripes) impl_->choose();
}

void Link::retire(std::size_t stripes) {
  JCCL_CHECK(impl_->options.acks.make);
  const std::vector<StripePtr> all = impl_->standing();
  for (std::size_t i = 0; i < std::min(stripes, all.size()); ++i) {
    const StripePtr& stripe = all[all.size() - 1 - i];
    stripe->retirement.begin(impl_->loop.now());
    impl_->loop.post(impl_->later<&Impl::say_last>(stripe));
  }
}

void Link::drop_stripe(StripeId stripe, Status status) {
  const auto found = impl_->stripes.find(stripe);
  if (found == impl_->stripes.end()) return;
  JCCL_CHECK(!status.ok());
  const StripePtr ptr = found->second;
  if (std::exchange(ptr->gone, true)) return;
  std::erase(impl_->idle, ptr);
  impl_->stop_reading(ptr.get());
  ptr->reader.cancel();
  impl_->loop.post([weak = std::weak_ptr<Impl>(impl_), ptr, status] {
    const auto self = weak.lock();
    if (self && !self->closed) self->lose(ptr, status);
  });
}

void Link::send(OutFrame frame) {
  JCCL_CHECK(!impl_->closed);
  JCCL_CHECK(frame.header.size() == impl_->options.header_bytes);
  impl_->bytes_queued += bytes_of(frame);
  (frame.urgent ? impl_->urgent : impl_->normal).push_back(std::move(frame));
  impl_->ask_pump();
}

void Link::wake() { impl_->ask_pump(); }

void Link::tick(Duration alive_every) { impl_->tick(alive_every); }

void Link::resume() {
  for (const auto& [id, stripe] : impl_->stripes) {
    if (stripe->reader.paused() && !stripe->gone) {
      impl_->loop.post(impl_->later<&Impl::read>(stripe));
    }
  }
}

std::size_t Link::drop_queued(const std::function<bool(std::uint64_t key)>& which) {
  std::size_t dropped = 0;
  for (std::deque<OutFrame>* queue : {&impl_->urgent, &impl_->normal}) {
    dropped += std::erase_if(*queue, [&](const OutFrame& frame) {
      const bool go = which(frame.key);
      if (go) impl_->bytes_queued -= bytes_of(frame);
      return go;
    });
  }
  return dropped;
}

void Link::abandon_sending(const std::function<bool(std::uint64_t key)>& which) {
  (void)drop_queued(which);
  impl_->own(which);
}

void Link::own(const std::function<bool(std::uint64_t key)>& which) {
  for (std::deque<OutFrame>* queue : {&impl_->urgent, &impl_->normal}) {
    for (OutFrame& frame : *queue) {
      if (which(frame.key)) exchange::own_payload(&frame);
    }
  }
  impl_->own(which);
}

std::uint64_t Link::copied_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, stripe] : impl_->stripes) {
    if (!stripe->gone) bytes += stripe->batch.copied();
  }
  return bytes;
}

void Link::drop_copied(const Status& status) {
  std::vector<StripeId> all;
  for (const auto& [id, stripe] : impl_->stripes) {
    if (stripe->batch.copied() > 0) all.push_back(id);
  }
  for (const StripeId id : all) drop_stripe(id, status);
}

void Link::abandon_receiving(const std::function<bool(ByteView header)>& which) {
  for (const auto& [id, stripe] : impl_->stripes) impl_->abandon(stripe, which);
}

void Link::forget(const std::function<bool(std::uint64_t key)>& which) {
  impl_->flight.forget(which);
}

std::size_t Link::stripe_count() const { return impl_->standing().size(); }

std::size_t Link::connections() const { return impl_->stripes.size(); }

std::size_t Link::room() const {
  const StripePtr next = impl_->next_idle();
  return next ? impl_->room_of(*next) : Impl::kBatchBytes;
}

bool Link::sending() const {
  return impl_->has_queued() ||
         std::any_of(impl_->stripes.begin(), impl_->stripes.end(),
                     [](const auto& entry) { return !entry.second->batch.empty(); });
}

Duration Link::rtt() const { return impl_->rtt; }

std::uint64_t Link::bytes_delivered() const {
  std::uint64_t out = impl_->delivered_before;
  for (const auto& [id, stripe] : impl_->stripes) out += stripe->stream->stats().bytes_delivered;
  return out;
}

void Link::pace(double bytes_per_second) {
  const auto all = impl_->standing();
  const auto used = std::count_if(
      all.begin(), all.end(), [this](const StripePtr& stripe) { return impl_->takes(*stripe); });
  const double equal = 1 / std::max(1.0, static_cast<double>(used));
  double sum = 0;
  for (auto& [id, stripe] : impl_->stripes) {
    const std::uint64_t delivered = stripe->stream->stats().bytes_delivered;
    stripe->moved *= kMovedKept;
    stripe->moved += static_cast<double>(delivered - std::exchange(stripe->paced_at, delivered));
    sum += stripe->moved;
  }
  for (auto& [id, stripe] : impl_->stripes) {
    const double own = sum > 0 ? stripe->moved / sum : 0;
    const double share = own > equal * kPaceRoom ? own : equal;
    stripe->stream->pace(static_cast<std::uint64_t>(kPaceRoom * bytes_per_second * share));
  }
}

void Link::probe() {
  for (const StripePtr& stripe : impl_->standing()) {
    if (impl_->takes(*stripe)) stripe->stream->probe();
  }
}

Time Link::last_received() const {
  Time latest = 0;
  for (const auto& [id, stripe] : impl_->stripes) {
    latest = std::max(latest, stripe->stream->last_received());
  }
  return latest;
}

LinkStats Link::stats() const {
  LinkStats out;
  out.sent_again = impl_->flight.sent_again();
  out.frames_queued = impl_->urgent.size() + impl_->normal.size();
  out.bytes_queued = impl_->bytes_queued;
  for (const auto& [id, stripe] : impl_->stripes) {
    StripeStats& one = out.stripes.emplace_back();
    one.stripe = id;
    one.stream = stripe->stream->stats();
    one.frames_sent = stripe->frames_sent;
    one.frames_received = stripe->reader.frames_received();
    one.sending = !stripe->batch.empty();
    one.paused = stripe->reader.paused();
    one.late = impl_->flight.late(id);
    one.remote = stripe->stream->remote_text();
  }
  return out;
}

void Link::close() {
  if (impl_->closed) return;
  impl_->closed = true;
  impl_->give_way();
  impl_->idle.clear();
  while (!impl_->stripes.empty()) {
    const StripePtr stripe = impl_->stripes.begin()->second;  // outlives its removal
    impl_->detach(stripe);
  }
  impl_->urgent.clear();
  impl_->normal.clear();
  impl_->bytes_queued = 0;
}

}  // namespace jccl::net
