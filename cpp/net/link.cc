#include "net/link.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/text.h"

namespace jccl::net {
namespace {

// What a stripe sends above its part. With the same factor as threshold of being faster than the
// others, those that are fast grow whenever they cannot fill the line together.
constexpr double kPaceRoom = 1.3;
constexpr double kMovedKept = 0.8;
constexpr std::size_t kTurnBytes = 1024 * 1024;  // per stripe or queue and turn of the loop
constexpr std::size_t kBatchBytes = 64 * 1024;   // small frames up to this leave in one write
constexpr std::size_t kBatchFramesMax = 16;
constexpr std::size_t kPartsMax = 64;
// On long paths notes of arrival come more often than tick(), so that late is known early.
constexpr Duration kNoteRttMin = 2 * base::kMillisecond;
constexpr Duration kNoteDelayMin = 20 * base::kMillisecond;

struct Stripe {
  Stripe(StripeId i, std::unique_ptr<ByteStream> s, std::size_t header_bytes,
         std::unique_ptr<DataSink> sink)
      : id(i),
        stream(std::move(s)),
        sink(std::move(sink)),
        reader(header_bytes, this->sink.get()) {}

  // Frames of the owner that have arrived, for good or not; notes do not count.
  std::uint64_t arrived() const { return reader.frames_received() + reader.frames_drained(); }

  StripeId id;
  std::unique_ptr<ByteStream> stream;
  std::unique_ptr<DataSink> sink;
  DataReader reader;
  Batch batch;
  bool gone = false;          // handlers still queued do nothing
  bool write_broken = false;  // reads to the end, then reports its loss
  bool note_due = false;      // leaves after the frames being written
  bool heard = false;         // a header came
  Time since = 0;
  double moved = 0;            // bytes delivered, older ones count less
  std::uint64_t paced_at = 0;  // bytes delivered when it was paced last
  std::uint64_t noted = 0;     // of arrived(), the other side knows so many
  Time noted_at = 0;
  std::size_t frames_sent = 0;
};

using StripePtr = std::shared_ptr<Stripe>;

}  // namespace

struct Link::Impl : std::enable_shared_from_this<Impl> {
  Impl(Loop& l, LinkOptions o, DataSink* s, LinkEvents e)
      : loop(l),
        options(std::move(o)),
        sink(s),
        events(std::move(e)),
        flight(options.sent_keys_max) {}

  // Stands between a stripe's reader and the owner's sink: the link's notes are its own.
  struct StripeSink final : DataSink {
    StripeSink(Impl* link, StripeId stripe) : link(link), stripe(stripe) {}
    Placement place(ByteView header) override {
      if (const auto found = link->stripes.find(stripe); found != link->stripes.end()) {
        found->second->heard = true;
      }
      if (link->options.notes.read) {
        if (const auto frames = link->options.notes.read(header))
          return link->noted(stripe, *frames);
      }
      return link->sink->place(header);
    }
    Status arrived(ByteView header, std::uint64_t token) override {
      return link->sink->arrived(header, token);
    }
    void lost(ByteView header, std::uint64_t token) override { link->sink->lost(header, token); }
    Impl* link;
    StripeId stripe;
  };

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
    pumping = true;
    give();
    pumping = false;
  }

  void give() {
    std::uint64_t budget = kTurnBytes;
    while (!closed) {
      const StripePtr stripe = next_idle();
      if (!stripe) return;
      if (!has_queued()) {
        if (!events.on_room) return;
        const auto on_room = events.on_room;  // the link may go in it
        on_room();
        if (closed || !has_queued()) return;
        if (stripe->gone) continue;
      }
      if (budget == 0) return ask_pump();
      std::erase(idle, stripe);
      budget -= std::min(budget, take_batch(stripe.get()));
      write(stripe);
    }
  }

  StripePtr next_idle() const {
    for (const StripePtr& stripe : idle) {
      if (!flight.late(stripe->id)) return stripe;
    }
    return nullptr;
  }

  std::uint64_t take_batch(Stripe* stripe) {
    const Time now = loop.now();
    std::uint64_t total = 0;
    while (has_queued() && stripe->batch.frames() < kBatchFramesMax) {
      std::deque<OutFrame>& queue = urgent.empty() ? normal : urgent;
      const std::uint64_t bytes = bytes_of(queue.front());
      if (total > 0 && total + bytes > kBatchBytes) break;
      total += bytes;
      bytes_queued -= bytes;
      flight.took(stripe->id, queue.front().key, now);
      stripe->batch.push(std::move(queue.front()));
      queue.pop_front();
    }
    return total;
  }

  void write(const StripePtr& stripe) {
    if (stripe->batch.empty()) push_note(stripe.get());
    while (!stripe->batch.empty()) {
      std::array<ByteView, kPartsMax> parts;
      const std::size_t count = stripe->batch.unwritten(parts);
      const std::size_t n = stripe->stream->write_now({parts.data(), count});
      if (n == 0) return write_blocked(stripe);
      if (!advance(stripe, n)) return;
      if (stripe->batch.empty()) push_note(stripe.get());
    }
    idle.push_back(stripe);
    if (!pumping && (has_queued() || events.on_room)) ask_pump();
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
    return stripe->batch.advance(n, [&](std::uint64_t key) {
      ++stripe->frames_sent;
      if (events.on_sent) events.on_sent(key);
      return !closed && !stripe->gone;
    });
  }

  // ---- notes of arrival, late stripes ----

  void push_note(Stripe* stripe) {
    if (!std::exchange(stripe->note_due, false)) return;
    stripe->noted = stripe->arrived();
    stripe->noted_at = loop.now();
    OutFrame note;
    note.header = options.notes.make(stripe->noted);
    JCCL_CHECK(note.header.size() == options.header_bytes);
    stripe->batch.push(std::move(note), false);
  }

  void send_note(const StripePtr& stripe, Duration alive_every = 0) {
    if (!options.notes.make || stripe->gone || stripe->write_broken) return;
    const bool alive_due = alive_every > 0 && loop.now() - stripe->noted_at >= alive_every;
    if (stripe->arrived() == stripe->noted && !alive_due) return;
    stripe->note_due = true;
    if (std::erase(idle, stripe) > 0) write(stripe);
  }

  Placement noted(StripeId stripe, std::uint64_t frames) {
    const bool was_late = flight.late(stripe);
    if (!flight.arrived(stripe, frames, loop.now())) {
      return Placement::refuse({Code::kCorrupt, "more frames are said to have arrived than left"});
    }
    if (was_late && !flight.late(stripe)) ask_pump();
    return Placement::note();
  }

  void tick(Duration alive_every) {
    const std::vector<StripePtr> all = all_stripes();
    rtt = 0;
    for (const StripePtr& stripe : all) {
      const Duration one = stripe->stream->stats().rtt_ns;
      if (one > 0 && (rtt == 0 || one < rtt)) rtt = one;
      send_note(stripe, alive_every);
    }
    std::vector<std::uint64_t> again;
    std::vector<StripePtr> hopeless;
    for (const Flight::Late& late : flight.check(loop.now(), rtt)) {
      again.insert(again.end(), late.again.begin(), late.again.end());
      const auto found = stripes.find(late.stripe);
      if (late.replace && found != stripes.end()) hopeless.push_back(found->second);
    }
    if (!again.empty() || !hopeless.empty()) {
      loop.post([weak = weak_from_this(), again = std::move(again), hopeless] {
        const auto self = weak.lock();
        if (self && !self->closed) self->act_on_late(again, hopeless);
      });
    }
    ask_pump();  // a stripe may have caught up
  }

  void act_on_late(const std::vector<std::uint64_t>& again,
                   const std::vector<StripePtr>& hopeless) {
    if (!again.empty() && events.on_late) events.on_late(again);
    for (const StripePtr& stripe : hopeless) {
      if (closed) return;
      if (stripe->gone) continue;
      lose(stripe, {Code::kLinkLost, base::cat("the connection to ", stripe->stream->remote_text(),
                                               " fell far behind the others of its link")});
    }
    if (!closed) ask_pump();
  }

  // ---- receiving ----

  void read(const StripePtr& stripe) {
    const DataReader::Outcome outcome = stripe->reader.pump(*stripe->stream, kTurnBytes);
    if (rtt >= kNoteRttMin && loop.now() - stripe->noted_at > std::max(kNoteDelayMin, rtt / 4)) {
      send_note(stripe);
    }
    switch (outcome) {
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
    delivered_before += stripe->stream->stats().bytes_delivered;
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
    Flight::Rest rest = flight.remove_stripe(stripe->id);
    const StripeLoss loss{stripe->id,    status,        std::move(rest.keys),
                          rest.complete, stripe->heard, loop.now() - stripe->since};
    if (events.on_stripe_lost) events.on_stripe_lost(loss);
    if (!closed && stripes.empty() && events.on_dead) events.on_dead(status);
  }

  std::vector<StripePtr> all_stripes() const {
    std::vector<StripePtr> out;
    for (const auto& [id, stripe] : stripes) out.push_back(stripe);
    return out;
  }

  Loop& loop;
  LinkOptions options;
  DataSink* sink;
  LinkEvents events;
  std::deque<OutFrame> urgent;
  std::deque<OutFrame> normal;
  std::uint64_t bytes_queued = 0;
  bool pump_asked = false;
  bool pumping = false;
  bool closed = false;
  StripeId last_id = 0;
  Flight flight;
  Duration rtt = 0;
  std::uint64_t delivered_before = 0;  // by stripes that are gone
  std::map<StripeId, StripePtr> stripes;
  std::deque<StripePtr> idle;  // ready to take a frame; longest waiting first
};

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
  const Duration rtt = stripe->stream->stats().rtt_ns;
  if (rtt > 0 && (impl_->rtt == 0 || rtt < impl_->rtt)) impl_->rtt = rtt;
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
  for (const auto& [id, stripe] : impl_->stripes) stripe->batch.own(which);
}

void Link::own(const std::function<bool(std::uint64_t key)>& which) {
  for (std::deque<OutFrame>* queue : {&impl_->urgent, &impl_->normal}) {
    for (OutFrame& frame : *queue) {
      if (which(frame.key)) exchange::own_payload(&frame);
    }
  }
  for (const auto& [id, stripe] : impl_->stripes) stripe->batch.own(which);
}

void Link::abandon_receiving(const std::function<bool(ByteView header)>& which) {
  for (const auto& [id, stripe] : impl_->stripes) stripe->reader.abandon(which);
}

void Link::forget(const std::function<bool(std::uint64_t key)>& which) {
  impl_->flight.forget(which);
}

std::size_t Link::stripe_count() const { return impl_->stripes.size(); }

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
  const double equal = 1 / static_cast<double>(impl_->stripes.size());
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
