#include "fuzz/hostile/hostile_world.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash64.h"
#include "base/limits.h"
#include "base/text.h"
#include "master/status_json.h"
#include "protocol/master/master_state.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

constexpr base::Duration kPlaneTick = 250 * base::kMillisecond;
constexpr base::Duration kUserTurn = 200 * base::kMillisecond;
constexpr std::size_t kDeliveriesMax = 40'000;  // until everything is quiet
constexpr std::size_t kDeliveriesPerPause = 1000;
constexpr base::Duration kPause = 50 * base::kMillisecond;
constexpr std::size_t kPausedMax = 16;  // frames of the hostile one at one peer

void trace(base::Time now, const std::string& text) {
  if (hostile_trace)
    std::fprintf(stderr, "%7.3f %s\n", static_cast<double>(now) / 1e9, text.c_str());
}

std::string words_of_line(const protocol::HistoryLine& line) {
  std::string text = base::cat("master: ", line.kind);
  for (const auto& [key, value] : line.fields) text += base::cat(" ", key, "=", value);
  return text;
}

}  // namespace

HostileWorld::HostileWorld(const WorldOptions& options, HostileHook* hook)
    : options_(options), hook_(*hook), oracle_(!options.lying_master) {
  begin_master();
  for (const UserOptions& user : options_.users) {
    peers_.push_back(std::make_unique<WorldPeer>(this, &oracle_, user, fresh_life()));
    if (user.hostile) hostile_ = peers_.back().get();
  }
  for (const auto& peer : peers_) peer->start();
  drain();
}

void HostileWorld::begin_master() {
  planner_.emplace();
  const auto plan = [this](const protocol::PlanRequest& request) {
    JCCL_CHECK(!request.contributors.empty());
    return planner_->plan(request);
  };
  master_.emplace(options_.master, plan, durable_, now_);
  apply(master_->start(now_));
}

// The journal as it would be read: through its bytes.
void HostileWorld::restart_master() {
  std::vector<wire::Record> read;
  for (const wire::Record& record : durable_) {
    const auto again = wire::decode_record(wire::encode_record(record));
    JCCL_CHECK(again.ok() && again.value() == record);
    read.push_back(again.value());
  }
  durable_ = std::move(read);
  std::erase_if(deliveries_, [](const Delivery& one) {
    return one.kind != Delivery::kFrame && one.kind != Delivery::kMade;
  });
  to_master_.clear();
  conns_.clear();
  begin_master();
  ++hostile_coverage().restarts;
  const auto lost = std::move(conn_of_);
  conn_of_.clear();
  for (const auto& peer : peers_) {
    if (dead_.count(peer.get()) == 0 && lost.count(peer.get()) > 0) peer->disconnected();
  }
  drain();
}

std::vector<WorldPeer*> HostileWorld::honest() {
  std::vector<WorldPeer*> out;
  for (const auto& peer : peers_) {
    if (peer.get() != hostile_ && dead_.count(peer.get()) == 0) out.push_back(peer.get());
  }
  return out;
}

WorldPeer* HostileWorld::peer_of(wire::Incarnation incarnation) {
  for (const auto& peer : peers_) {
    if (peer->incarnation() == incarnation && dead_.count(peer.get()) == 0) return peer.get();
  }
  return nullptr;
}

// ---- connections -------------------------------------------------------------------------------

void HostileWorld::dial(WorldPeer& from) {
  if (&from == hostile_ && ended_) return;
  const ConnId conn = ++last_conn_;
  conns_[conn].peer = &from;
  conn_of_[&from] = conn;
  queue({Delivery::kConnected, conn, &from, {}, {}, {}});
}

void HostileWorld::hang_up(WorldPeer& from) {
  const auto found = conn_of_.find(&from);
  if (found == conn_of_.end()) return;
  queue({Delivery::kUpClosed, found->second, nullptr, {}, {}, {}});
  conn_of_.erase(found);
}

void HostileWorld::cut(WorldPeer& peer) {
  if (conn_of_.count(&peer) == 0) return;
  hang_up(peer);
  peer.disconnected();
  drain();
}

void HostileWorld::say(WorldPeer& from, const wire::Message& message) {
  const auto found = conn_of_.find(&from);
  if (found == conn_of_.end()) return;
  std::vector<Bytes> said;
  if (&from == hostile_)
    hook_.outgoing(message, &said);
  else
    said.push_back(wire::encode(message));
  for (Bytes& bytes : said)
    queue({Delivery::kUp, found->second, nullptr, std::move(bytes), {}, {}});
}

void HostileWorld::say_hostile(Bytes bytes) {
  const auto found = conn_of_.find(hostile_);
  if (found != conn_of_.end()) {
    queue({Delivery::kUp, found->second, nullptr, std::move(bytes), {}, {}});
  }
}

ConnId HostileWorld::open_bare() {
  const ConnId conn = ++last_conn_;
  conns_[conn];
  return conn;
}

void HostileWorld::say_bare(ConnId conn, Bytes bytes) {
  queue({Delivery::kUp, conn, nullptr, std::move(bytes), {}, {}});
}

// ---- deliveries --------------------------------------------------------------------------------

// Until all is said. Messages take no time, so whoever answers for ever is given some.
void HostileWorld::drain() {
  for (std::size_t count = 1; !deliveries_.empty() || !to_master_.empty(); ++count) {
    if (count % kDeliveriesPerPause == 0) {
      now_ += kPause;
      fire();
    }
    if (count >= kDeliveriesMax) {  // the hostile one can do that, until it has gone
      JCCL_CHECK(!ended_ || options_.lying_master);
      exhausted_ = true;
      return;
    }
    if (!to_master_.empty()) {
      const protocol::MasterEvent event = std::move(to_master_.front());
      to_master_.pop_front();
      master_event(event);
      continue;
    }
    Delivery next = std::move(deliveries_.front());
    deliveries_.pop_front();
    deliver(std::move(next));
  }
}

void HostileWorld::deliver(Delivery delivery) {
  switch (delivery.kind) {
    case Delivery::kConnected: {
      const auto found = conn_of_.find(delivery.peer);
      if (found != conn_of_.end() && found->second == delivery.conn) delivery.peer->connected();
      return;
    }
    case Delivery::kUp:
      return deliver_up(delivery.conn, delivery.bytes);
    case Delivery::kUpClosed: {
      const auto found = conns_.find(delivery.conn);
      if (found == conns_.end()) return;
      const bool greeted = found->second.greeted;
      conns_.erase(found);
      if (greeted) master_event(protocol::ConnClosed{delivery.conn});
      return;
    }
    case Delivery::kDown:
    case Delivery::kDownClosed:
      return deliver_down(delivery);
    case Delivery::kFrame:
    case Delivery::kMade:
      return deliver_frame(delivery);
  }
}

// As master/driver/driver.cc does with a frame.
void HostileWorld::deliver_up(ConnId conn, const Bytes& bytes) {
  const auto found = conns_.find(conn);
  if (found == conns_.end()) return;
  const std::size_t most = found->second.greeted ? base::kControlBytesMax : base::kHelloBytesMax;
  const auto message = wire::decode(bytes);
  const bool first = !found->second.greeted;
  const bool hello = message.ok() && std::holds_alternative<wire::Hello>(message.value());
  const bool asks = message.ok() && std::holds_alternative<wire::StatusAsk>(message.value());
  if (bytes.size() > most || !message.ok() || (first && !hello)) {
    if (first && asks) {
      const std::string text = master::status_object(master_->view(now_), {}, *planner_);
      JCCL_CHECK(wire::check(wire::StatusReply{{text.begin(), text.end()}}).ok());
      ++hostile_coverage().at_master[message.value().index()][1];
    }
    if (!message.ok()) ++hostile_coverage().undecodable;
    if (message.ok() && !asks) ++hostile_coverage().at_master[message.value().index()][3];
    queue({Delivery::kDownClosed, conn, found->second.peer, {}, {}, {}});
    conns_.erase(found);
    if (!first) master_event(protocol::ConnClosed{conn});
    return;
  }
  found->second.greeted = true;
  const WorldPeer* who = found->second.peer;
  trace(now_, base::cat("from ", who == nullptr ? "a bare connection" : who->site(), ": ",
                        wire::name_of(message.value())));
  const bool of_hostile = found->second.peer == nullptr || found->second.peer == hostile_;
  // Each peer has a key of its own, bare connections one of the hostile member's.
  wire::PublicKey key{255};
  if (who != nullptr) {
    const std::uint64_t site = base::hash64(
        {reinterpret_cast<const std::uint8_t*>(who->site().data()), who->site().size()});
    std::memcpy(key.data(), &site, sizeof site);
  }
  const protocol::MasterEffects effects =
      master_->on(protocol::ConnMessage{conn, message.value(), {key}}, now_);
  if (of_hostile) note_heard(conn, message.value(), effects);
  apply(effects);
}

void HostileWorld::note_heard(ConnId conn, const wire::Message& message,
                              const protocol::MasterEffects& fx) {
  const bool closed = std::ranges::count(fx.close, conn) > 0;
  const bool answered =
      std::ranges::any_of(fx.send, [&](const auto& send) { return send.conn == conn; });
  const bool spread = !fx.journal.empty() || fx.send.size() > (answered ? 1U : 0U);
  const std::size_t outcome = closed ? 3 : spread ? 2 : answered ? 1 : 0;
  ++hostile_coverage().at_master[message.index()][outcome];
}

void HostileWorld::deliver_down(const Delivery& delivery) {
  WorldPeer* peer = delivery.peer;
  if (peer == nullptr) {
    const auto message = wire::decode(delivery.bytes);
    if (delivery.kind == Delivery::kDown && message.ok()) hook_.heard(message.value());
    return;
  }
  const auto found = conn_of_.find(peer);
  if (dead_.count(peer) > 0 || found == conn_of_.end() || found->second != delivery.conn) return;
  if (delivery.kind == Delivery::kDownClosed) {
    conn_of_.erase(found);
    return peer->disconnected();
  }
  const auto message = wire::decode(delivery.bytes);
  JCCL_CHECK(message.ok());
  if (peer == hostile_) hook_.heard(message.value());
  trace(now_, base::cat("to ", peer->site(), ": ", wire::name_of(message.value())));
  const std::size_t before = deliveries_.size();
  peer->from_master(message.value());
  ++hostile_coverage().at_peer[message.value().index()][deliveries_.size() > before ? 1 : 0];
}

void HostileWorld::queue_frame(const QueuedFrame& frame) {
  queue({Delivery::kFrame, 0, nullptr, {}, frame, {}});
}

void HostileWorld::frame(wire::Incarnation to, FrameBytes frame) {
  QueuedFrame head;
  head.from = hostile_->incarnation();
  head.to = to;
  queue({Delivery::kMade, 0, nullptr, {}, head, std::move(frame)});
}

void HostileWorld::started_attempt(WorldPeer& at) {
  auto waiting = std::move(paused_[&at]);
  paused_.erase(&at);
  for (Delivery& one : waiting) queue(std::move(one));
}

void HostileWorld::deliver_frame(const Delivery& delivery) {
  if (delivery.kind == Delivery::kMade) return take_frame(delivery, delivery.made);
  WorldPeer* from = peer_of(delivery.frame.from);
  if (from == nullptr || peer_of(delivery.frame.to) == nullptr) return;
  const auto made = from->plane().produce(delivery.frame);
  from->settle();
  if (!made) return;
  std::vector<FrameBytes> sent;
  if (from == hostile_)
    hook_.outgoing_frame(*made, &sent);
  else
    sent.push_back(*made);
  for (const FrameBytes& one : sent) take_frame(delivery, one);
}

void HostileWorld::take_frame(const Delivery& delivery, const FrameBytes& bytes) {
  WorldPeer* to = peer_of(delivery.frame.to);
  if (to == nullptr) return;
  const bool hostile = hostile_->incarnation() == delivery.frame.from;
  if (hostile && ended_) return;
  to->plane().heard(delivery.frame.from, now_);
  const FrameFate fate = to->plane().receive(delivery.frame.from, bytes);
  if (hostile) {
    const auto header = wire::decode_frame_header(bytes.header);
    const std::size_t kind = header.ok() ? static_cast<std::size_t>(header.value().kind) : 0;
    ++hostile_coverage().frames[kind][static_cast<std::size_t>(fate)];
  }
  trace(now_, base::cat(hostile ? "hostile" : "a", " frame to ", to->site(), ": fate ",
                        static_cast<int>(fate)));
  if (fate == FrameFate::kPaused) {
    auto& waiting = paused_[to];
    Delivery again = delivery;
    again.kind = Delivery::kMade;
    again.made = bytes;
    if (!hostile || waiting.size() < kPausedMax) waiting.push_back(std::move(again));
  }
  if (fate == FrameFate::kRefused || fate == FrameFate::kDamaged) {
    to->plane().link_failed(delivery.frame.from);
  }
  to->settle();
}

// ---- the master --------------------------------------------------------------------------------

void HostileWorld::master_event(const protocol::MasterEvent& event) {
  apply(master_->on(event, now_));
}

void HostileWorld::apply(const protocol::MasterEffects& effects) {
  // Each connection hears a bounded number of things of one event, and each tag writes some.
  JCCL_CHECK(effects.send.size() <= 64 + 8 * conns_.size() + 4 * base::kTagsMax);
  JCCL_CHECK(effects.journal.size() <= 64 + base::kTagsMax);
  for (const wire::Record& record : effects.journal) journaled(record);
  for (const protocol::MasterSend& send : effects.send) {
    const auto found = conns_.find(send.conn);
    if (found == conns_.end()) continue;
    tell(send.conn, found->second.peer, send.message);
  }
  for (const ConnId conn : effects.close) {
    const auto found = conns_.find(conn);
    if (found == conns_.end()) continue;
    queue({Delivery::kDownClosed, conn, found->second.peer, {}, {}, {}});
    conns_.erase(found);
    to_master_.push_back(protocol::ConnClosed{conn});
  }
  for (const auto& [incarnation, addresses] : effects.probe) {
    to_master_.push_back(protocol::ProbeAnswer{incarnation, peer_of(incarnation) == nullptr});
  }
  for (const auto& [id, measured] : effects.measured) planner_->note(id, measured);
  for (const protocol::HistoryLine& line : effects.history) trace(now_, words_of_line(line));
  master_wake_ = effects.wake;
  JCCL_CHECK(master_wake_ > now_);
}

void HostileWorld::tell(ConnId conn, WorldPeer* peer, const wire::Message& message) {
  std::vector<Bytes> told;
  if (options_.lying_master && peer != nullptr && peer != hostile_)
    hook_.from_master(message, &told);
  else
    told.push_back(wire::encode(message));
  for (Bytes& bytes : told) queue({Delivery::kDown, conn, peer, std::move(bytes), {}, {}});
}

void HostileWorld::journaled(const wire::Record& record) {
  (void)wire::encode_record(record);  // within its bounds, or this ends here
  durable_.push_back(record);
  if (const auto* epoch = std::get_if<wire::EpochRecord>(&record)) {
    JCCL_CHECK(epoch->epoch > epoch_);
    epoch_ = epoch->epoch;
    hostile_coverage().evictions += epoch->reason.starts_with("admitted") ? 0 : 1;
  }
  if (const auto* birth = std::get_if<wire::BirthRecord>(&record)) {
    for (const wire::Incarnation life : birth->sources) {
      const WorldPeer* source = peer_of(life);
      if (source == nullptr || source == hostile_) founded_by_hostile_ = true;
    }
  }
  if (const auto* commit = std::get_if<wire::CommitRecord>(&record)) {
    JCCL_CHECK(commit->round.n == committed_[commit->round.tag] + 1);
    committed_[commit->round.tag] = commit->round.n;
    JCCL_CHECK(commits_.insert(commit->attempt).second);
    JCCL_CHECK(commit->world >= 1 && !commit->contributors.empty());
    ++hostile_coverage().rounds;
  }
}

// ---- time --------------------------------------------------------------------------------------

base::Time HostileWorld::next_time() const {
  base::Time next = std::min({master_wake_, planes_due_, users_due_});
  for (const auto& peer : peers_) {
    if (dead_.count(peer.get()) == 0 && !peer->gone()) next = std::min(next, peer->wake());
  }
  return next;
}

void HostileWorld::run_for(base::Duration duration) {
  const base::Time end = now_ + duration;
  drain();
  for (base::Time next = next_time(); next <= end && !exhausted_; next = next_time()) {
    now_ = std::max(now_, next);
    fire();
    drain();
  }
  now_ = std::max(now_, end);
}

void HostileWorld::fire() {
  if (master_wake_ <= now_) master_event(protocol::Tick{});
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    WorldPeer& peer = *peers_[i];
    if (dead_.count(&peer) > 0 || peer.gone() || peer.wake() > now_) continue;
    peer.tick();
    JCCL_CHECK(peer.gone() || peer.wake() > now_);
  }
  if (planes_due_ <= now_) tick_planes();
  if (users_due_ > now_) return;
  users_due_ = now_ + kUserTurn;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (dead_.count(peers_[i].get()) == 0) peers_[i]->user_turn();
  }
}

// Links say every now and then that their other side lives, also one that sends no data.
void HostileWorld::tick_planes() {
  planes_due_ = now_ + kPlaneTick;
  for (const auto& peer : peers_) {
    if (dead_.count(peer.get()) > 0) continue;
    for (const auto& other : peers_) {
      const bool quiet = other.get() == hostile_ && (links_silent_ || ended_);
      if (dead_.count(other.get()) > 0 || quiet) continue;
      peer->plane().heard(other->incarnation(), now_);
    }
    peer->plane().tick(now_, peer->machine().silence());
    peer->settle();
  }
}

// ---- the script --------------------------------------------------------------------------------

void HostileWorld::kill(std::size_t which, bool restart) {
  const std::vector<WorldPeer*> alive = honest();
  if (alive.size() < 2) return;  // somebody has to remember the run
  WorldPeer& peer = *alive[which % alive.size()];
  hang_up(peer);
  dead_.insert(&peer);
  paused_.erase(&peer);
  if (!restart) return;
  UserOptions user = peer.options();
  user.source = false;
  peers_.push_back(std::make_unique<WorldPeer>(this, &oracle_, user, fresh_life()));
  peers_.back()->start();
  drain();
}

void HostileWorld::end_hostile(bool silent) {
  ended_ = true;
  exhausted_ = false;
  for (auto& [conn, entry] : conns_) {
    if (entry.peer != nullptr || silent) continue;
    queue({Delivery::kUpClosed, conn, nullptr, {}, {}, {}});
  }
  if (!silent) hang_up(*hostile_);
  dead_.insert(hostile_);
  drain();
}

void HostileWorld::check_end() const {
  const auto& state = master_->state();
  JCCL_CHECK(state.rounds_.size() <= base::kTagsMax);
  JCCL_CHECK(state.processes_.size() <= conns_.size() + state.ledger_.members().size());
  JCCL_CHECK(state.conns_.size() <= conns_.size() && state.doomed_.size() <= last_conn_);
  JCCL_CHECK(state.cuts_.size() <= 64 && state.holds_.size() <= 64);
  const protocol::MasterView view = master_->view(now_);
  for (const protocol::TagView& tag : view.tags) {
    const auto found = committed_.find(tag.info.tag);
    JCCL_CHECK(tag.info.committed == (found == committed_.end() ? 0 : found->second));
    if (tag.phase != "idle") JCCL_CHECK(!tag.waiting_for.empty());
  }
}

}  // namespace jccl::fuzz
