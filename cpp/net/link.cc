#include "net/link.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/text.h"

namespace jccl::net {
namespace {

constexpr std::size_t kTurnBytes = 1024 * 1024;  // per stripe or queue and turn of the loop
constexpr std::size_t kBatchBytes = 64 * 1024;   // small frames up to this leave in one write
constexpr std::size_t kBatchFramesMax = 16;
constexpr std::size_t kPartsMax = 64;

std::uint64_t bytes_of(const OutFrame& frame) {
  std::uint64_t out = frame.header.size();
  for (const ByteView& part : frame.payload) out += part.size();
  return out;
}

// A frame that a stripe has taken.
struct Taken {
  OutFrame frame;
  std::uint64_t bytes = 0;    // of the whole frame
  std::uint64_t written = 0;  // so many of them
  bool abandoned = false;     // no on_sent
};

// The unwritten rest of a frame, as views; up to `room` of them.
std::size_t rest_of(const Taken& taken, ByteView* out, std::size_t room) {
  std::uint64_t skip = taken.written;
  std::size_t count = 0;
  const auto add = [&](ByteView part) {
    if (skip >= part.size()) {
      skip -= part.size();
    } else if (count < room) {
      out[count++] = part.subspan(static_cast<std::size_t>(std::exchange(skip, 0)));
    }
  };
  add(taken.frame.header);
  for (const ByteView& part : taken.frame.payload) add(part);
  return count;
}

// Moves what is left into memory of our own, so that the owner's is free.
void own_rest(Taken* taken) {
  std::vector<ByteView> rest(taken->frame.payload.size() + 1);
  rest.resize(rest_of(*taken, rest.data(), rest.size()));
  auto copy = std::make_shared<Bytes>();
  copy->reserve(static_cast<std::size_t>(taken->bytes - taken->written));
  for (const ByteView& part : rest) copy->insert(copy->end(), part.begin(), part.end());
  taken->frame.header.clear();
  taken->frame.payload = {ByteView(*copy)};
  taken->frame.keep_alive = copy;
  taken->bytes = copy->size();
  taken->written = 0;
  taken->abandoned = true;
}

struct Stripe {
  Stripe(StripeId i, std::unique_ptr<ByteStream> s, std::size_t header_bytes, DataSink* sink)
      : id(i), stream(std::move(s)), reader(header_bytes, sink) {}

  StripeId id;
  std::unique_ptr<ByteStream> stream;
  DataReader reader;
  std::deque<Taken> batch;
  std::deque<std::uint64_t> sent_keys;
  bool complete = true;
  bool gone = false;          // handlers still queued do nothing
  bool write_broken = false;  // reads to the end, then reports its loss
  std::size_t frames_sent = 0;
};

using StripePtr = std::shared_ptr<Stripe>;

}  // namespace

struct Link::Impl : std::enable_shared_from_this<Impl> {
  Impl(Loop& l, LinkOptions o, DataSink* s, LinkEvents e)
      : loop(l), options(o), sink(s), events(std::move(e)) {}

  // Handlers hold link and stripe weakly.
  template <void (Impl::*step)(const StripePtr&)>
  auto later(const StripePtr& stripe) {
    return [weak = weak_from_this(), weak_stripe = std::weak_ptr<Stripe>(stripe)] {
      const auto self = weak.lock();
      const auto stripe = weak_stripe.lock();
      if (self && stripe && !stripe->gone) (*self.*step)(stripe);
    };
  }

  // ---- sending ----

  void ask_pump() {
    if (std::exchange(pump_asked, true)) return;
    loop.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->pump();
    });
  }

  bool has_queued() const { return !urgent.empty() || !normal.empty(); }

  // Gives one batch at a time to the stripe that has waited longest, so that a burst spreads over
  // all of them and one that is full drops out until it has room.
  void pump() {
    pump_asked = false;
    std::uint64_t budget = kTurnBytes;
    while (has_queued() && !idle.empty()) {
      if (budget == 0) return ask_pump();
      const StripePtr stripe = idle.front();
      idle.pop_front();
      budget -= std::min(budget, take_batch(stripe.get()));
      write(stripe);
      if (closed) return;
    }
  }

  std::uint64_t take_batch(Stripe* stripe) {
    std::uint64_t total = 0;
    while (has_queued() && stripe->batch.size() < kBatchFramesMax) {
      std::deque<OutFrame>& queue = urgent.empty() ? normal : urgent;
      const std::uint64_t bytes = bytes_of(queue.front());
      if (total > 0 && total + bytes > kBatchBytes) break;
      total += bytes;
      bytes_queued -= bytes;
      remember(stripe, queue.front().key);
      stripe->batch.push_back({std::move(queue.front()), bytes});
      queue.pop_front();
    }
    return total;
  }

  void remember(Stripe* stripe, std::uint64_t key) {
    if (stripe->sent_keys.size() >= options.sent_keys_max) {
      stripe->sent_keys.pop_front();
      stripe->complete = false;
    }
    stripe->sent_keys.push_back(key);
  }

  void write(const StripePtr& stripe) {
    while (!stripe->batch.empty()) {
      std::array<ByteView, kPartsMax> parts;
      std::size_t count = 0;
      for (const Taken& taken : stripe->batch) {
        count += rest_of(taken, parts.data() + count, parts.size() - count);
      }
      const std::size_t n = stripe->stream->write_now({parts.data(), count});
      if (n == 0) return write_blocked(stripe);
      if (!advance(stripe, n)) return;
    }
    idle.push_back(stripe);
    if (has_queued()) ask_pump();
  }

  void write_blocked(const StripePtr& stripe) {
    if (stripe->stream->failure().ok()) {
      stripe->stream->when_writable(later<&Impl::write>(stripe));
      return;
    }
    // What the other side sent before its end is worth having.
    stripe->write_broken = true;
    stripe->stream->when_writable(nullptr);
    if (!stripe->reader.paused()) loop.post(later<&Impl::read>(stripe));
  }

  // False if a callback ended the stripe or the link.
  bool advance(const StripePtr& stripe, std::uint64_t n) {
    while (n > 0) {
      Taken& first = stripe->batch.front();
      const std::uint64_t step = std::min(n, first.bytes - first.written);
      first.written += step;
      n -= step;
      if (first.written < first.bytes) break;
      const std::uint64_t key = first.frame.key;
      const bool tell = !first.abandoned && events.on_sent;
      ++stripe->frames_sent;
      stripe->batch.pop_front();
      if (tell) events.on_sent(key);
      if (closed || stripe->gone) return false;
    }
    return true;
  }

  // ---- receiving ----

  void read(const StripePtr& stripe) {
    switch (stripe->reader.pump(*stripe->stream, kTurnBytes)) {
      case DataReader::Outcome::kBlocked:
        if (stripe->gone) return;
        stripe->stream->when_readable(later<&Impl::read>(stripe));
        return;
      case DataReader::Outcome::kMore:
        loop.post(later<&Impl::read>(stripe));
        return;
      case DataReader::Outcome::kPaused:
        return;  // until resume()
      case DataReader::Outcome::kFailed:
        if (!stripe->gone) lose(stripe, stripe->reader.status());
        return;
    }
  }

  // ---- the end of stripes ----

  // Without callbacks to the owner but DataSink::lost().
  void detach(const StripePtr& stripe) {
    stripe->gone = true;
    stripes.erase(stripe->id);
    std::erase(idle, stripe);
    stripe->reader.cancel();
    stripe->stream->when_readable(nullptr);
    stripe->stream->when_writable(nullptr);
    stripe->batch.clear();
  }

  void lose(const StripePtr& stripe, const Status& why) {
    const Status status = why;
    detach(stripe);
    StripeLoss loss{
        stripe->id, status, {stripe->sent_keys.begin(), stripe->sent_keys.end()}, stripe->complete};
    if (events.on_stripe_lost) events.on_stripe_lost(loss);
    if (!closed && stripes.empty() && events.on_dead) events.on_dead(status);
  }

  Loop& loop;
  LinkOptions options;
  DataSink* sink;
  LinkEvents events;
  std::deque<OutFrame> urgent;
  std::deque<OutFrame> normal;
  std::uint64_t bytes_queued = 0;
  bool pump_asked = false;
  bool closed = false;
  StripeId last_id = 0;
  std::map<StripeId, StripePtr> stripes;
  std::deque<StripePtr> idle;  // ready to take a frame; longest waiting first
};

Link::Link(Loop& loop, LinkOptions options, DataSink* sink, LinkEvents events)
    : impl_(std::make_shared<Impl>(loop, options, sink, std::move(events))) {
  JCCL_CHECK(loop.confined());
}

Link::~Link() { close(); }

StripeId Link::add_stripe(std::unique_ptr<ByteStream> stream) {
  JCCL_CHECK(!impl_->closed);
  const StripeId id = ++impl_->last_id;
  const auto stripe =
      std::make_shared<Stripe>(id, std::move(stream), impl_->options.header_bytes, impl_->sink);
  impl_->stripes.emplace(id, stripe);
  impl_->loop.post(impl_->later<&Impl::read>(stripe));
  // An empty batch: sends what the stream's earlier owner left, then waits for frames.
  impl_->loop.post(
      [weak = std::weak_ptr<Impl>(impl_), weak_stripe = std::weak_ptr<Stripe>(stripe)] {
        const auto self = weak.lock();
        const auto stripe = weak_stripe.lock();
        if (!self || !stripe || stripe->gone) return;
        (void)stripe->stream->flush_ahead();  // the rest leaves before the first frame
        self->write(stripe);
      });
  return id;
}

void Link::drop_stripe(StripeId stripe, Status status) {
  const auto found = impl_->stripes.find(stripe);
  if (found == impl_->stripes.end()) return;
  JCCL_CHECK(!status.ok());
  const StripePtr ptr = found->second;
  if (std::exchange(ptr->gone, true)) return;
  std::erase(impl_->idle, ptr);
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
  for (const auto& [id, stripe] : impl_->stripes) {
    for (Taken& taken : stripe->batch) {
      if (!taken.abandoned && which(taken.frame.key)) own_rest(&taken);
    }
  }
}

void Link::abandon_receiving(const std::function<bool(ByteView header)>& which) {
  for (const auto& [id, stripe] : impl_->stripes) stripe->reader.abandon(which);
}

void Link::forget(const std::function<bool(std::uint64_t key)>& which) {
  for (const auto& [id, stripe] : impl_->stripes) {
    std::erase_if(stripe->sent_keys, which);
    if (stripe->sent_keys.empty()) stripe->complete = true;  // all older ones are decided too
  }
}

std::size_t Link::stripe_count() const { return impl_->stripes.size(); }

LinkStats Link::stats() const {
  LinkStats out;
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
    one.remote = stripe->stream->remote_text();
  }
  return out;
}

void Link::close() {
  if (impl_->closed) return;
  impl_->closed = true;
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
