// How a Link works, see link.h: one batch at a time to the stripe that has waited longest, acks,
// late stripes, the end of stripes. For link.cc alone.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "net/link/link.h"
#include "net/link/stripe.h"

namespace jccl::net {

struct Link::Impl : std::enable_shared_from_this<Impl> {
  static constexpr std::size_t kTurnBytes =
      1024 * 1024;  // per stripe or queue and turn of the loop
  static constexpr std::size_t kBatchBytes =
      64 * 1024;  // small frames up to this leave in one write
  static constexpr std::size_t kBatchFramesMax = 16;
  // Less than that is written sooner than handed to another thread. The more at a time the better,
  // but a slow connection shall not hold what another one would have moved by then.
  static constexpr std::size_t kHandedBytesMin = 64 * 1024;
  static constexpr std::size_t kHandedBytes = 1024 * 1024;
  static constexpr Duration kHandedMax = 2 * base::kMillisecond;
  static constexpr std::size_t kPartsMax = 64;
  // On long paths acks come more often than tick(), so that late is known early.
  static constexpr Duration kAckRttMin = 2 * base::kMillisecond;
  static constexpr Duration kAckDelayMin = 20 * base::kMillisecond;

  Impl(Loop& l, LinkOptions o, DataSink* s, LinkEvents e)
      : loop(l),
        options(std::move(o)),
        sink(s),
        events(std::move(e)),
        flight(options.sent_keys_max) {}

  // Stands between a stripe's reader and the owner's sink: the link's acks are its own.
  struct StripeSink final : DataSink {
    StripeSink(Impl* l, StripeId s) : link(l), stripe(s) {}
    Placement place(ByteView header) override {
      const auto found = link->stripes.find(stripe);
      if (found != link->stripes.end()) found->second->heard = true;
      if (link->options.acks.read) {
        if (const auto ack = link->options.acks.read(header)) return link->acked(stripe, *ack);
      }
      if (found != link->stripes.end() && found->second->retirement.has_come() &&
          !JCCL_PLANTED("frame-after-the-last")) {
        return Placement::refuse({Code::kCorrupt, "a frame came after the last one"});
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
      const auto locked = weak_stripe.lock();
      if (self && locked && !locked->gone) (*self.*step)(locked);
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
      if (!stripe) return give_way();
      if (!is_turn()) return;
      if (!has_queued()) {
        if (!events.on_room) return give_way();
        const auto on_room = events.on_room;  // the link may go in it
        on_room();
        if (closed || !has_queued()) return give_way();
        if (stripe->gone) continue;
      }
      if (budget == 0) return ask_pump();
      std::erase(idle, stripe);
      const std::uint64_t bytes = take_batch(stripe.get());
      if (bounded()) options.throttle->sent(this, bytes, loop.now());
      budget -= std::min(budget, bytes);
      write(stripe);
    }
  }

  bool bounded() const { return options.throttle != nullptr && options.throttle->bounds(); }

  // False: pump() runs again when its turn may have come.
  bool is_turn() {
    if (!bounded()) return true;
    const Duration wait = options.throttle->wait(this, loop.now());
    if (wait > 0 && !std::exchange(waits_for_turn, true)) {
      loop.run_after(wait, [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self) return;
        self->waits_for_turn = false;
        self->pump();
      });
    }
    return wait == 0;
  }

  void give_way() {
    if (options.throttle != nullptr) options.throttle->leave(this);
  }

  StripePtr next_idle() const {
    for (const StripePtr& stripe : idle) {
      if (takes(*stripe) && !flight.late(stripe->id)) return stripe;
    }
    return nullptr;
  }

  std::size_t room_of(const Stripe& stripe) const {
    const bool many = hands_over() && !bounded();  // a turn is a small part of it
    return many ? std::max(stripe.takes, kBatchBytes) : kBatchBytes;
  }

  bool takes(const Stripe& stripe) const {
    return (stripe.id <= last_used || JCCL_PLANTED("stripe-that-stands-by-sends")) &&
           !stripe.retirement.begun();
  }

  // Those that stand, the oldest first; what retires is none of them.
  std::vector<StripePtr> standing() const {
    std::vector<StripePtr> out;
    for (const auto& [id, stripe] : stripes) {
      if (!stripe->retirement.begun()) out.push_back(stripe);
    }
    return out;
  }

  // To be called whenever stripes come, go or retire: frames go to the oldest.
  void choose() {
    const std::vector<StripePtr> all = standing();
    const bool some = used > 0 && used < all.size();
    last_used = some ? all[used - 1]->id : last_id;
    ask_pump();
  }

  std::uint64_t take_batch(Stripe* stripe) {
    const Time now = loop.now();
    const std::size_t most = room_of(*stripe);
    std::uint64_t total = 0;
    while (has_queued() && stripe->batch.frames() < kBatchFramesMax) {
      std::deque<OutFrame>& queue = urgent.empty() ? normal : urgent;
      const std::uint64_t bytes = bytes_of(queue.front());
      if (total > 0 && total + bytes > most) break;
      total += bytes;
      bytes_queued -= bytes;
      flight.took(stripe->id, queue.front().key, now);
      stripe->batch.push(std::move(queue.front()));
      queue.pop_front();
    }
    return total;
  }

  void write(const StripePtr& stripe) {
    if (stripe->batch.empty()) push_ack(stripe.get());
    while (!stripe->batch.empty()) {
      std::array<ByteView, kPartsMax> parts;
      const std::size_t count = stripe->batch.unwritten(parts);
      if (hand_over(stripe, {parts.data(), count})) return;
      const std::size_t n = stripe->stream->write_now({parts.data(), count});
      if (n == 0) return write_blocked(stripe);
      if (!advance(stripe, n)) return;
      if (stripe->batch.empty()) push_ack(stripe.get());
    }
    if (stripe->retirement.shuts()) return stripe->stream->shut_write();
    idle.push_back(stripe);
    if (!pumping && (has_queued() || events.on_room)) ask_pump();
  }

  // ---- what other threads move ----

  bool hands_over() const { return options.io != nullptr && options.io->used; }

  // To the writing thread; wrote() follows. False: it is for this one.
  bool hand_over(const StripePtr& stripe, std::span<const ByteView> parts) {
    if (!hands_over() || stripe->stream->descriptor() < 0) return false;
    std::uint64_t bytes = 0;
    for (const ByteView& part : parts) bytes += part.size();
    if (bytes < kHandedBytesMin || !stripe->stream->begin_apart()) return false;
    stripe->writing =
        options.io->writing.write(stripe->stream.get(), parts, later<&Impl::wrote>(stripe));
    stripe->handed_at = loop.now();
    if (stripe->writing) return true;
    options.io->used = false;
    stripe->stream->end_apart();
    return false;
  }

  void wrote(const StripePtr& stripe) {
    const std::uint64_t bytes = stop_writing(stripe.get());
    const bool soon = loop.now() - stripe->handed_at < kHandedMax;
    stripe->takes = soon ? std::min(2 * room_of(*stripe), kHandedBytes)
                         : std::max(stripe->takes / 2, kBatchBytes);
    if (!advance(stripe, bytes)) return;
    if (!stripe->stream->failure().ok()) return write_blocked(stripe);
    write(stripe);
  }

  std::uint64_t stop_writing(Stripe* stripe) {
    options.io->writing.recall(stripe->writing);
    stripe->stream->end_apart();
    return std::exchange(stripe->writing, nullptr)->bytes();
  }

  void hand_reading(const StripePtr& stripe) {
    stripe->reading = options.io->reading.read(stripe->stream.get(), stripe->reader.missing(),
                                               later<&Impl::was_read>(stripe));
    if (stripe->reading) return;
    options.io->used = false;
    loop.post(later<&Impl::read>(stripe));
  }

  void was_read(const StripePtr& stripe) {
    stop_reading(stripe.get());
    stripe->reader.took(0);
    if (!closed && !stripe->gone) read(stripe);
  }

  // Its frame is told of later, or abandoned.
  void stop_reading(Stripe* stripe) {
    if (!stripe->reading) return;
    options.io->reading.recall(stripe->reading);
    stripe->stream->end_read_apart();
    stripe->reader.took(std::exchange(stripe->reading, nullptr)->bytes(), true);
  }

  void abandon(const StripePtr& stripe, const std::function<bool(ByteView header)>& which) {
    if (stripe->reading && stripe->reader.under_way(which) &&
        !JCCL_PLANTED("reading-goes-on-when-abandoned")) {
      stop_reading(stripe.get());
    }
    stripe->reader.abandon(which);
  }

  void own(const std::function<bool(std::uint64_t key)>& which) {
    for (const auto& [id, stripe] : stripes) {
      // What was written by then counts when wrote() runs.
      if (stripe->writing && stripe->batch.has(which)) options.io->writing.recall(stripe->writing);
      stripe->batch.own(which);
    }
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

  // ---- acks, late stripes ----

  void push_ack(Stripe* stripe) {
    if (!std::exchange(stripe->ack_due, false) && !stripe->retirement.word_due()) return;
    stripe->acked = stripe->arrived();
    stripe->acked_at = loop.now();
    OutFrame ack;
    ack.header = options.acks.make({stripe->acked, stripe->retirement.begun()});
    stripe->retirement.said();
    JCCL_CHECK(ack.header.size() == options.header_bytes);
    stripe->batch.push(std::move(ack), false);
  }

  void send_ack(const StripePtr& stripe, Duration alive_every = 0) {
    if (!options.acks.make || stripe->gone || stripe->write_broken) return;
    if (stripe->retirement.shut()) return;
    const bool alive_due = alive_every > 0 && loop.now() - stripe->acked_at >= alive_every;
    if (stripe->arrived() == stripe->acked && !alive_due) return;
    stripe->ack_due = true;
    if (std::erase(idle, stripe) > 0) write(stripe);
  }

  Placement acked(StripeId stripe, const Ack& ack) {
    const bool was_late = flight.late(stripe);
    const auto found = stripes.find(stripe);
    if (!flight.arrived(stripe, ack.frames, loop.now())) {
      if (found != stripes.end()) found->second->overcounted = !JCCL_PLANTED("overcounts-unsaid");
      return Placement::refuse(
          {Code::kCorrupt, "the other end acknowledged more frames than were sent"});
    }
    if (was_late && !flight.late(stripe)) ask_pump();
    if (ack.last && found != stripes.end() && !found->second->retirement.has_come()) {
      found->second->retirement.came(loop.now());
      loop.post(later<&Impl::say_last>(found->second));
    }
    return Placement::ack();
  }

  // It takes no frames from here on; the rest follows from what is written and what comes.
  void say_last(const StripePtr& stripe) {
    choose();
    if (std::erase(idle, stripe) > 0) write(stripe);
  }

  void tick(Duration alive_every) {
    const std::vector<StripePtr> all = all_stripes();
    rtt = 0;
    for (const StripePtr& stripe : all) {
      const Duration one = stripe->stream->stats().rtt_ns;
      if (one > 0 && (rtt == 0 || one < rtt)) rtt = one;
      send_ack(stripe, alive_every);
    }
    std::vector<std::uint64_t> again;
    std::vector<StripePtr> hopeless;
    for (const Flight::Late& late : flight.check(loop.now(), rtt)) {
      again.insert(again.end(), late.again.begin(), late.again.end());
      const auto found = stripes.find(late.stripe);
      if (late.replace && found != stripes.end()) hopeless.push_back(found->second);
    }
    for (const StripePtr& stripe : all) {
      const Retirement& end = stripe->retirement;
      if (end.begun() && loop.now() - end.since() > options.retire_max) hopeless.push_back(stripe);
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
    if (stripe->reading) return;  // was_read() goes on
    const ByteStream& stream = *stripe->stream;
    const bool hands = hands_over() && stream.descriptor() >= 0 && stream.begin_read_apart() &&
                       stream.failure().ok();
    const std::size_t large = hands ? kHandedBytesMin : SIZE_MAX;
    const DataReader::Outcome outcome = stripe->reader.pump(*stripe->stream, kTurnBytes, large);
    if (rtt >= kAckRttMin && loop.now() - stripe->acked_at > std::max(kAckDelayMin, rtt / 4)) {
      send_ack(stripe);
    }
    switch (outcome) {
      case DataReader::Outcome::kBlocked:
        if (stripe->gone) return;
        stripe->stream->when_readable(later<&Impl::read>(stripe));
        return;
      case DataReader::Outcome::kLarge:
        if (!stripe->gone) hand_reading(stripe);
        return;
      case DataReader::Outcome::kMore:
        loop.post(later<&Impl::read>(stripe));
        return;
      case DataReader::Outcome::kPaused:
        return;  // until resume()
      case DataReader::Outcome::kFailed:
        if (!stripe->gone) ended(stripe);
        return;
    }
  }

  // ---- the end of stripes ----

  // Without callbacks to the owner but DataSink::lost().
  void detach(const StripePtr& stripe) {
    stripe->gone = true;
    if (stripe->writing) (void)stop_writing(stripe.get());
    stop_reading(stripe.get());
    delivered_before += stripe->stream->stats().bytes_delivered;
    stripes.erase(stripe->id);
    std::erase(idle, stripe);
    stripe->reader.cancel();
    stripe->stream->when_readable(nullptr);
    stripe->stream->when_writable(nullptr);
    stripe->batch.clear();
  }

  void ended(const StripePtr& stripe) {
    if (!stripe->retirement.over(flight.all_arrived(stripe->id))) {
      return lose(stripe, stripe->reader.status());
    }
    detach(stripe);
    (void)flight.remove_stripe(stripe->id);
  }

  void lose(const StripePtr& stripe, const Status& why) {
    const Status status = why;
    detach(stripe);
    choose();
    Flight::Rest rest = flight.remove_stripe(stripe->id);
    const StripeLoss loss{
        stripe->id,          status,        std::move(rest.keys),      rest.complete,
        stripe->overcounted, stripe->heard, loop.now() - stripe->since};
    if (events.on_stripe_lost) events.on_stripe_lost(loss);
    if (!closed && standing().empty() && events.on_dead) events.on_dead(status);
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
  bool waits_for_turn = false;  // by a timer
  bool closed = false;
  StripeId last_id = 0;
  std::size_t used = 0;    // so many of those that stand are given frames; 0: all
  StripeId last_used = 0;  // the newest of them
  Flight flight;
  Duration rtt = 0;
  std::uint64_t delivered_before = 0;  // by stripes that are gone
  std::map<StripeId, StripePtr> stripes;
  std::deque<StripePtr> idle;  // ready to take a frame; longest waiting first
};

}  // namespace jccl::net
