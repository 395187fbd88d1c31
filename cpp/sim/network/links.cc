// The links of a peer's data plane: what a stripe is given, what comes by it, and what becomes of a
// link that broke. The world carries the frames (pipes.cc).
#include <algorithm>
#include <cstring>

#include "base/own_pause.h"
#include "base/planted.h"
#include "sim/network/plane.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;
using exchange::Placement;

namespace {

std::uint64_t bytes_of(const std::vector<base::ByteView>& views) {
  std::uint64_t bytes = 0;
  for (const base::ByteView& view : views) bytes += view.size();
  return bytes;
}

constexpr std::size_t kRemembered = 4096;
constexpr std::uint64_t kForgotten = 0;  // instead of a key

}  // namespace

// ---- sending ------------------------------------------------------------------------------------

DataPlane::Link& DataPlane::link_to(wire::Incarnation life) {
  const auto [link, fresh] =
      links_.try_emplace(life, world_.mix.remember > 0 ? world_.mix.remember : kRemembered);
  if (fresh) link->second.down_since = world_.now;
  return link->second;
}

void DataPlane::enqueue(base::Incarnation to, std::uint64_t key, bool ahead) {
  if (members_.count(to) == 0) return;  // gone: the attempt is failed by whoever waits for it
  Link& link = link_to(to);
  ++queued_;
  news_ = true;
  if (ahead) {
    link.queue.push_front(key);
  } else {
    link.queue.push_back(key);
  }
}

void DataPlane::settle() {
  if (queued_ == 0 || std::exchange(settling_, true)) return;
  do {
    news_ = false;  // frames that are made may make others
    for (auto& [life, link] : links_) {
      if (!link.queue.empty()) pump(life, link);
    }
  } while (news_);
  settling_ = false;
}

// Whichever stripe has waited longest takes the next frame, so that a slow one never holds others.
DataPlane::Stripe* DataPlane::room(Link& link, exchange::StripeId* id) {
  Stripe* best = nullptr;
  for (auto& [number, stripe] : link.stripes) {
    if (stripe.writing >= kWriting || link.flight.late(number)) continue;
    if (best != nullptr && stripe.given_at >= best->given_at) continue;
    best = &stripe;
    *id = number;
  }
  return best;
}

void DataPlane::pump(wire::Incarnation to, Link& link) {
  dial_if_needed(to, link);
  exchange::StripeId id = 0;
  while (!link.queue.empty()) {
    Stripe* stripe = room(link, &id);
    if (stripe == nullptr) return;
    const std::uint64_t key = link.queue.front();
    link.queue.pop_front();
    --queued_;
    auto frame = attempts_.produce(key);
    if (!frame) continue;
    const std::uint64_t bytes = exchange::bytes_of(*frame);
    moved_ += bytes;
    if (Own* own = find_own(*attempts_.attempt_of(key)))
      own->info->sent_to[to] += bytes - frame->header.size();
    stripe->given_at = world_.now;
    Transit transit;
    transit.frame = std::move(*frame);
    const exchange::WorkItem item = exchange::item_of(key);
    if (world_.mix.frame_lies > 0 && item.kind != wire::FrameKind::kResult)
      gave_.insert({*attempts_.attempt_of(key), item.chunk});
    const auto leave = [&](Transit one) {
      link.flight.took(id, key, world_.now);
      stripe->taken.push_back(key);
      ++stripe->writing;
      world_.carry(id, stripe->end, std::move(one));
    };
    if (!peer_.lies()) {
      leave(std::move(transit));
      continue;
    }
    for (Transit& one : lie_in_frame(to, std::move(transit))) leave(std::move(one));
  }
}

void DataPlane::has_room(Pipe& pipe, std::size_t end) {
  const auto link = links_.find(pipe.life[1 - end]);
  if (link == links_.end()) return;
  const auto stripe = link->second.stripes.find(pipe.id);
  if (stripe == link->second.stripes.end() || stripe->second.writing == 0) return;
  --stripe->second.writing;
  if (!link->second.queue.empty() && peer_.running()) settle();
}

void DataPlane::send_again(Link& link, const std::vector<std::uint64_t>& keys) {
  queued_ += keys.size();
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    link.queue.push_front(*key);
    const wire::Attempt* attempt = attempts_.attempt_of(*key);
    Own* own = attempt == nullptr ? nullptr : find_own(*attempt);
    if (own != nullptr) own->info->sent_again = true;
  }
}

void DataPlane::abandon(const std::function<bool(std::uint64_t)>& keys,
                        const std::function<bool(const wire::FrameHeader&)>& frames) {
  for (auto& [life, link] : links_) {
    queued_ -= std::erase_if(link.queue, keys);
    forget(link, keys);
    for (auto& [id, stripe] : link.stripes) {
      if (stripe.writing == 0) continue;
      for (Transit& transit : world_.pipe(id).way[stripe.end].queue) {
        if (transit.kind == Transit::Kind::kFrame && keys(transit.frame.key))
          exchange::own_payload(&transit.frame);
      }
    }
    if (reading_ > 0) abandon_receiving(life, frames);
  }
}

void DataPlane::forget(Link& link, const std::function<bool(std::uint64_t)>& keys) {
  const auto idle = [](const auto& entry) { return entry.second.taken.empty(); };
  if (std::all_of(link.stripes.begin(), link.stripes.end(), idle)) return;
  link.flight.forget(keys);
  for (auto& [id, stripe] : link.stripes) {
    std::replace_if(stripe.taken.begin(), stripe.taken.end(), keys, kForgotten);
  }
}

void DataPlane::abandon_receiving(base::Incarnation from,
                                  const std::function<bool(const wire::FrameHeader&)>& frames) {
  const auto link = links_.find(from);
  if (link == links_.end()) return;
  for (auto& [id, stripe] : link->second.stripes) {
    auto& reading = world_.pipe(id).way[1 - stripe.end].reading;
    if (reading && frames(reading->header)) reading->dropped = true;
  }
}

// ---- receiving ----------------------------------------------------------------------------------

bool DataPlane::receive(Pipe& pipe, std::size_t end) {
  Way& way = pipe.way[1 - end];
  const auto found = links_.find(pipe.life[1 - end]);
  JCCL_CHECK(found != links_.end());
  Link& link = found->second;
  link.received = world_.now;
  pipe.heard[end] = true;
  Transit& first = way.queue.front();
  if (first.kind == Transit::Kind::kAck) {
    const std::uint64_t frames = first.number;
    way.queue.pop_front();
    Stripe& stripe = link.stripes.at(pipe.id);
    if (!link.flight.arrived(pipe.id, frames, world_.now)) {
      overcounted(pipe, end);
      return false;
    }
    const std::uint64_t fresh = frames - std::exchange(stripe.told, frames);
    stripe.taken.erase(stripe.taken.begin(),
                       stripe.taken.begin() + static_cast<std::ptrdiff_t>(fresh));
    return true;
  }
  if (!way.reading && !place(pipe, end)) return false;
  if (!way.reading) return true;            // it was drained
  if (first.at > world_.now) return false;  // the rest comes later
  const Transit transit = std::move(first);
  way.queue.pop_front();
  return finish(pipe, end, transit);
}

// Asks for a place and reads half of the frame; or drains it.
bool DataPlane::place(Pipe& pipe, std::size_t end) {
  Way& way = pipe.way[1 - end];
  Transit& transit = way.queue.front();
  const bool damaged = transit.flip && *transit.flip < 8 * transit.frame.header.size();
  if (damaged) {
    std::uint8_t& byte = transit.frame.header[*transit.flip / 8];
    byte = static_cast<std::uint8_t>(byte ^ 1U << *transit.flip % 8);
  }
  const auto h = wire::decode_frame_header(transit.frame.header);
  if (!h.ok()) {
    lose_stripe(pipe, end, "a header arrived damaged");
    return false;
  }
  Placement at = attempts_.place(pipe.life[1 - end], h.value());
  check_violation(pipe, end, transit, h.value(), at.kind == Placement::Kind::kInto);
  switch (at.kind) {
    case Placement::Kind::kPause:
      way.paused = true;
      return false;
    case Placement::Kind::kDrain:
      way.queue.pop_front();
      consumed(pipe, end, true);
      return true;
    case Placement::Kind::kInto:
      way.reading = Reading{h.value(), std::move(at), false};
      ++reading_;
      if (world_.rng.data.chance(0.1)) {
        transit.at = world_.now + 1 + between(world_.rng.data, 0, world_.mix.data_latency);
        way.last = std::max(way.last, transit.at);
      }
      return true;
    default:
      lose_stripe(pipe, end, "a frame was refused");
      return false;
  }
}

// The sender's memory as it is now, with a bit that is another if the line made it so.
void DataPlane::read(const Transit& transit, const Placement& place) {
  auto part = transit.frame.payload.begin();
  std::size_t from = 0;
  for (const base::MutableView& span : place.spans) {
    for (std::size_t at = 0; at < span.size();) {
      const std::size_t step = std::min(span.size() - at, part->size() - from);
      std::memcpy(span.data() + at, part->data() + from, step);
      at += step, from += step;
      if (from == part->size()) ++part, from = 0;
    }
  }
  if (!transit.flip) return;
  std::uint64_t bit = *transit.flip - 8 * transit.frame.header.size();
  for (const base::MutableView& span : place.spans) {
    if (bit < 8 * span.size()) {
      span[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
      return;
    }
    bit -= 8 * span.size();
  }
}

bool DataPlane::finish(Pipe& pipe, std::size_t end, const Transit& transit) {
  Way& way = pipe.way[1 - end];
  const Reading reading = std::move(*way.reading);
  way.reading.reset();
  --reading_;
  if (reading.dropped || drops_what_it_acknowledges()) {
    if (!reading.dropped) attempts_.lost(reading.header, reading.place.token);
    consumed(pipe, end, true);
    return true;
  }
  const bool damaged = transit.flip.has_value();
  if (bytes_of(transit.frame.payload) != reading.header.payload_bytes) {
    world_.history.fail("P9", "a frame is not as long as its header says");
    return false;
  }
  if (damaged) ++world_.counts.flipped;
  read(transit, reading.place);
  const Own* own = find(reading.header.attempt);
  const bool failed = own == nullptr || own->failed;
  const base::Status status =
      attempts_.arrived(pipe.life[1 - end], reading.header, reading.place.token);
  if (!failed) check_values(transit, reading.header);
  moved_ += reading.header.payload_bytes;
  if (damaged && !status.ok() && JCCL_PLANTED("damaged-frame-counts")) {
    consumed(pipe, end, true);
    return true;
  }
  if (status.ok()) {
    if (damaged) p9_taken(world_.history, peer_.slot, reading.header);
    consumed(pipe, end, true);
    settle();
    return true;
  }
  if (!damaged) p9_changed(world_.history, peer_.slot, reading.header);
  lose_stripe(pipe, end, "a frame arrived damaged");
  return false;
}

void DataPlane::consumed(Pipe& pipe, std::size_t end, bool counts) {
  const auto link = links_.find(pipe.life[1 - end]);
  if (counts && link != links_.end()) {
    const auto stripe = link->second.stripes.find(pipe.id);
    if (stripe != link->second.stripes.end()) ++stripe->second.arrived;
  }
  world_.room_at(pipe, 1 - end);
}

void DataPlane::resume() {
  for (auto& [life, link] : links_) {
    for (auto& [id, stripe] : link.stripes) {
      Way& way = world_.pipe(id).way[1 - stripe.end];
      if (std::exchange(way.paused, false)) world_.post_pipe(world_.pipe(id), 1 - stripe.end);
    }
  }
}

base::Time DataPlane::last_received(base::Incarnation peer) const {
  const auto link = links_.find(peer);
  return link == links_.end() ? 0 : link->second.received;
}

// ---- stripes that come and go -------------------------------------------------------------------

void DataPlane::add_stripe(Pipe& pipe, std::size_t end) {
  Link& link = link_to(pipe.life[1 - end]);
  Stripe stripe;
  stripe.end = end;
  stripe.acked_at = world_.now;
  if (end == 1) link.taken_in = world_.now;
  link.stripes[pipe.id] = stripe;
  link.flight.add_stripe(pipe.id, world_.now);
  if (!link.queue.empty()) settle();
}

void DataPlane::lose_stripe(Pipe& pipe, std::size_t end, const char* why) {
  if (!std::exchange(pipe.open[end], false)) return;
  const wire::Incarnation other = pipe.life[1 - end];
  if (world_.tracing()) world_.note(cat("     ", peer_.slot, " loses stripe ", pipe.id, ": ", why));
  for (Transit& transit : pipe.way[end].queue) {  // what is in the kernel goes on
    if (transit.kind == Transit::Kind::kFrame) exchange::own_payload(&transit.frame);
  }
  if (silent_) pipe.way[end].queue.clear();
  if (!silent_) world_.end_of_pipe(pipe, end);
  auto& reading = pipe.way[1 - end].reading;
  if (reading && !reading->dropped) attempts_.lost(reading->header, reading->place.token);
  if (reading) --reading_;
  reading.reset();
  attempts_.stripe_lost(other);
  const auto found = links_.find(other);
  if (found == links_.end()) return;
  Link& link = found->second;
  const exchange::Flight::Rest rest = link.flight.remove_stripe(pipe.id);
  check_rest(link.stripes.at(pipe.id), rest);
  link.stripes.erase(pipe.id);
  send_again(link, rest.keys);
  if (pipe.heard[end] || world_.now - pipe.since > repair_max()) {
    link.down_since = world_.now;
    link.redial.broke(world_.now, link.stripes.empty());
  } else {
    link.redial.closed_unheard(world_.now);
  }
  if (!rest.complete) attempts_.link_failed(other, "more was under way than is remembered");
  if (!link.queue.empty()) settle();
}

// What the other side is not known to have goes again: all of it, and nothing else.
void DataPlane::check_rest(const Stripe& stripe, const exchange::Flight::Rest& rest) {
  std::vector<std::uint64_t> due = stripe.taken;
  std::erase(due, kForgotten);
  if (!rest.complete && due.size() > rest.keys.size()) {
    due.erase(due.begin(), due.end() - std::ssize(rest.keys));
  }
  if (rest.keys == due) return;
  world_.history.fail("L", cat("slot ", peer_.slot, " lost a stripe with ", due.size(),
                               " frames under way, and sends ", rest.keys.size(), " again"));
}

void DataPlane::close(wire::Incarnation to) {
  const auto found = links_.find(to);
  if (found == links_.end()) return;
  std::vector<exchange::StripeId> stripes;
  for (const auto& [id, stripe] : found->second.stripes) stripes.push_back(id);
  queued_ -= found->second.queue.size();
  found->second.queue.clear();
  settling_ = true;  // nothing of it goes on
  for (const exchange::StripeId id : stripes) {
    Pipe& pipe = world_.pipe(id);
    const std::size_t end = pipe.life[1] == to ? 0 : 1;
    lose_stripe(pipe, end, "closed");
  }
  settling_ = false;
  queued_ -= found->second.queue.size();
  links_.erase(found);
}

void DataPlane::renew(base::Incarnation peer, const base::Status&) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  std::vector<exchange::StripeId> stripes;
  for (const auto& [id, stripe] : found->second.stripes) stripes.push_back(id);
  for (const exchange::StripeId id : stripes) {
    Pipe& pipe = world_.pipe(id);
    lose_stripe(pipe, pipe.life[1] == peer ? 0 : 1, "it carries nothing");
  }
}

// ---- time ---------------------------------------------------------------------------------------

void DataPlane::tick_link(wire::Incarnation to, Link& link) {
  const bool wanted = attempts_.wanted(to);
  const Duration alive_every = wanted && world_.mix.life_signs ? world_.mix.silence / 6 : 0;
  for (auto& [id, stripe] : link.stripes) {
    const bool alive_due = alive_every > 0 && world_.now - stripe.acked_at >= alive_every;
    if (stripe.arrived == stripe.noted && !alive_due) continue;
    stripe.noted = stripe.arrived;
    stripe.acked_at = world_.now;
    Transit note;
    note.kind = Transit::Kind::kAck;
    note.number = stripe.noted + overcount();
    world_.carry(id, stripe.end, std::move(note));
  }
  std::vector<exchange::StripeId> hopeless;
  for (const auto& late : link.flight.check(world_.now, 2 * world_.mix.data_latency)) {
    send_again(link, late.again);
    if (late.replace) hopeless.push_back(late.stripe);
  }
  for (const exchange::StripeId id : hopeless) {
    Pipe& pipe = world_.pipe(id);
    lose_stripe(pipe, pipe.life[1] == to ? 0 : 1, "it is far behind the others");
  }
  dial_if_needed(to, link);
  if (wanted && link.stripes.empty() && world_.now - link.down_since > repair_max()) {
    link.down_since = world_.now;
    attempts_.link_failed(to, "no connection could be made");
  }
}

void DataPlane::tick() {
  if (base::OwnPause(ticked_ + kEnginePause, world_.now, world_.mix.silence).counts())
    awake_since_ = world_.now;
  ticked_ = world_.now;
  std::vector<wire::Incarnation> all;
  for (const auto& [life, link] : links_) all.push_back(life);
  for (const wire::Incarnation life : all) tick_link(life, links_.at(life));
  tick_fetches();
  check_progress();
  attempts_.check_stalls(world_.now, silent_after(), awake_since_);
  const auto gone = attempts_.sweep([this](std::uint32_t slot) {
    return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
      const auto of_it = [slot](std::uint64_t key) { return exchange::slot_of(key) == slot; };
      const Link& link = entry.second;
      return std::any_of(link.queue.begin(), link.queue.end(), of_it) ||
             std::any_of(link.stripes.begin(), link.stripes.end(),
                         [](const auto& s) { return s.second.writing > 0; });
    });
  });
  for (auto& [life, link] : links_) {
    for (const std::uint32_t slot : gone) {
      forget(link, [slot](std::uint64_t key) { return exchange::slot_of(key) == slot; });
    }
  }
  check_memory();
  check_held();
  settle();
  check_stripes();
}

Duration DataPlane::slowest_link() const {
  Duration slowest = 0;
  for (const auto& [life, link] : links_) slowest = std::max(slowest, link.flight.typical());
  return slowest;
}

Duration DataPlane::silent_after() const { return world_.mix.silence * 5 / 6; }

}  // namespace jccl::sim
