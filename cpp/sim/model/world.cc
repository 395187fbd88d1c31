// The processes of the small world: what each choice does to them.
#include "sim/model/world.h"

#include <algorithm>
#include <utility>

#include "base/ids.h"

namespace jccl::sim::model {

using base::cat;
using base::Code;

namespace {

const exchange::Terms kSum = [] {  // what all calls of the model ask for
  exchange::Terms terms;
  terms.op = collective::Op::kSum;
  return terms;
}();

constexpr base::Duration kHeartbeat = 1000 * kSecond;
constexpr std::uint8_t kCallsMax = 16;  // of one slot
const wire::Tag kTag = "t";

}  // namespace

World::World(const Scope& scope)
    : scope_(scope),
      peers_(scope.peers),
      book_(std::make_shared<History>()),
      faults_left_(scope.faults),
      ticks_left_(scope.ticks) {
  book().min_peers = scope.min_peers;
  book().remembered = scope.history;
  for (std::uint64_t id = 1; id <= std::uint64_t{scope.peers} * kCallsMax; ++id) {
    CallRecord record;
    record.id = id, record.slot = static_cast<std::uint32_t>((id - 1) / kCallsMax);
    record.open = false, record.success = false, record.code = Code::kInDoubt;
    book().calls.push_back(record);
  }
  start_master();
  asleep_ = scope.begun;
  for (std::uint8_t slot = 0; slot < peers_.size() - scope.late; ++slot) boot(slot);
  if (scope.begun) connect_all();
  moved_ = ~0U;
  for (ModelConn& conn : conns_) conn.fresh = true;
}

// Everybody connects in one order; then the users begin.
void World::connect_all() {
  for (bool more = true; more;) {
    more = false;
    for (const Choice& choice : choices()) {
      const bool delivers = choice.step == Step::kToMaster || choice.step == Step::kToPeer ||
                            choice.step == Step::kDial;
      if (!delivers) continue;
      take(choice);
      more = true;
      break;
    }
  }
  asleep_ = false;
  for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
    if (peers_[slot].box != nullptr) act(slot);
  }
}

History& World::book() {
  if (book_.use_count() > 1) book_ = std::make_shared<History>(*book_);
  book_hash_ = 0;
  book_->now = now_;
  return *book_;
}

ModelConn* World::conn_of(protocol::ConnId id) {
  const auto found = std::find_if(conns_.begin(), conns_.end(),
                                  [id](const ModelConn& conn) { return conn.id == id; });
  return found == conns_.end() ? nullptr : &*found;
}

ModelConn* World::conn_at(std::uint8_t slot) {
  const auto found = std::find_if(conns_.begin(), conns_.end(), [slot](const ModelConn& conn) {
    return conn.slot == slot && conn.peer_open;
  });
  return found == conns_.end() ? nullptr : &*found;
}

void World::tidy() {
  std::erase_if(conns_, [](const ModelConn& c) { return !c.peer_open && !c.master_open; });
}

bool World::alive(wire::PeerId id) const {
  const auto member = book_->everybody.find(id);
  return member != book_->everybody.end() &&
         std::any_of(peers_.begin(), peers_.end(), [&](const ModelPeer& peer) {
           return peer.incarnation == member->second.incarnation;
         });
}

// ---- the master --------------------------------------------------------------------------------

void World::start_master() {
  protocol::MasterOptions options;
  options.run = {1, 2, 3, 4};
  options.start_peers = scope_.peers - scope_.late, options.min_peers = scope_.min_peers;
  options.heartbeat = kHeartbeat, options.silence = 4 * kHeartbeat;
  options.reset_grace = kSecond, options.restart_grace = 5 * kSecond;
  options.history = scope_.history;
  const auto planner = [](const protocol::PlanRequest& request) -> base::Result<base::Bytes> {
    collective::Plan direct;
    direct.order = request.contributors;
    std::sort(direct.order.begin(), direct.order.end());
    if (request.bad_links.empty()) return collective::encode(direct);
    return base::Status{Code::kLinkLost, "no way around the links that failed"};
  };
  ++master_lives_;
  moved_ |= kMasterBit;
  protocol::MasterMachine fresh(options, planner, book_->durable, now_);
  protocol::MasterEffects effects = fresh.start(now_);
  master_ = std::make_shared<Box<protocol::MasterMachine>>(
      Box<protocol::MasterMachine>{fresh.clone(), fresh.digest()});
  apply(std::move(effects));
}

void World::kill_master() {
  master_ = nullptr;
  master_wake_ = base::kNever;
  probes_.clear();
  for (ModelConn& conn : conns_) conn.master_open = false, conn.up.clear();
  tidy();
}

void World::to_master(const protocol::MasterEvent& event) {
  moved_ |= kMasterBit;
  protocol::MasterMachine next = master_->machine.clone();
  protocol::MasterEffects effects = next.on(event, now_);
  const base::Digest digest = next.digest();
  master_ = std::make_shared<Box<protocol::MasterMachine>>(
      Box<protocol::MasterMachine>{std::move(next), digest});
  apply(std::move(effects));
}

void World::apply(protocol::MasterEffects effects) {
  const bool writes = !effects.journal.empty();
  done_.wrote = done_.wrote || writes;
  if (death_ == 1 && writes) return kill_master();
  for (const wire::Record& record : effects.journal) {
    book().on_durable(record);
    p1_no_means_no(book());
  }
  if (death_ == 2 && writes) return kill_master();
  master_wake_ = effects.wake;
  for (protocol::MasterSend& send : effects.send) tell(send);
  for (const auto& [incarnation, addresses] : effects.probe) {
    for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
      if (base::process_of(incarnation) / 100 == slot + 1U) probes_.emplace_back(incarnation, slot);
    }
  }
  for (const protocol::ConnId id : effects.close) {
    ModelConn* conn = conn_of(id);
    if (conn != nullptr) conn->master_open = false, conn->up.clear();
    tidy();
    to_master(protocol::ConnClosed{id});
    if (master_ == nullptr) break;
  }
}

void World::tell(protocol::MasterSend& send) {
  ModelConn* conn = conn_of(send.conn);
  if (conn == nullptr || !conn->master_open || !send_worthy(send.message)) return;
  done_.told = static_cast<std::uint8_t>(done_.told | 1U << conn->slot);
  if (death_ >= 3 && ((death_ - 3U) >> conn->slot & 1) == 0) return;
  if (told_worthy(send.message)) p5_true(book(), conn->slot, send.message);
  if (conn->peer_open) conn->down.push_back(wrap(std::move(send.message)));
}

// ---- peers -------------------------------------------------------------------------------------

void World::boot(std::uint8_t slot) {
  moved_ |= 1U << slot;
  ModelPeer& peer = peers_[slot];
  const std::uint8_t lives = peer.lives, dials = peer.dials, calls = peer.calls;
  peer = {};
  peer.lives = lives + 1, peer.dials = dials, peer.calls = calls, peer.begun = true;
  peer.incarnation = base::first_life(100U * (slot + 1U) + peer.lives);
  peer.needs_sync = scope_.state;
  book().stood.erase({slot, kTag});
  peer.digest = {1000U * slot + peer.lives, 1};
  protocol::PeerOptions options;
  options.site = cat("s", static_cast<int>(slot));
  options.addresses = {"here"};
  options.master_grace = 1000 * kHeartbeat;
  options.reconnect_pause = 0;
  protocol::PeerMachine fresh(options, peer.incarnation, now_);
  protocol::PeerEffects effects = fresh.start(now_);
  const base::Digest digest = fresh.digest();
  peer.box = std::make_shared<Box<protocol::PeerMachine>>(
      Box<protocol::PeerMachine>{std::move(fresh), digest});
  std::vector<protocol::PeerEvent> next;
  apply(slot, effects, next);
  if (!asleep_) act(slot);
}

void World::die(std::uint8_t slot) {
  hang_up(slot);
  ModelPeer& peer = peers_[slot];
  peer.box = nullptr;
  peer.incarnation = 0, peer.call = 0;
  peer.dialing = peer.syncing = false;
  peer.runs.clear();
  peer.wake = base::kNever;
  peer.visible.reset(), peer.wanted.reset();
}

void World::hang_up(std::uint8_t slot) {
  if (ModelConn* conn = conn_at(slot)) conn->peer_open = false, conn->down.clear();
  tidy();
}

// One event, and at once all that this process does about it by itself.
void World::to_peer(std::uint8_t slot, protocol::PeerEvent event) {
  moved_ |= 1U << slot;
  std::vector<protocol::PeerEvent> next{std::move(event)};
  ModelPeer& peer = peers_[slot];
  protocol::PeerMachine machine = peer.box->machine.clone();
  for (std::size_t i = 0; i < next.size() && peer.box != nullptr; ++i) {
    const protocol::PeerEvent one = next[i];
    protocol::PeerEffects effects = machine.on(one, now_);
    apply(slot, effects, next);
  }
  if (peer.box == nullptr) return;
  const base::Digest digest = machine.digest();
  peer.box = std::make_shared<Box<protocol::PeerMachine>>(
      Box<protocol::PeerMachine>{std::move(machine), digest});
}

void World::apply(std::uint8_t slot, protocol::PeerEffects& effects,
                  std::vector<protocol::PeerEvent>& next) {
  ModelPeer& peer = peers_[slot];
  for (const wire::Attempt& attempt : effects.discard) {
    std::erase_if(peer.runs, [&](const ModelRun& r) { return r.start.attempt == attempt; });
  }
  for (const protocol::RunAttempt& order : effects.run) run(slot, order);
  for (const wire::Attempt& attempt : effects.commit) peer.visible = attempt;
  for (const protocol::CompleteCall& done : effects.complete) complete(slot, done, next);
  for (const protocol::FetchSnapshot& fetch : effects.fetch) peer.wanted = fetch.want;
  for (const protocol::CompleteSync& done : effects.synced) synced(slot, done, next);
  if (ModelConn* conn = conn_at(slot)) {
    for (wire::Message& message : effects.send) {
      if (conn->master_open) conn->up.push_back(wrap(std::move(message)));
    }
  }
  if (effects.disconnect || effects.connect) hang_up(slot);
  if (effects.connect) peer.dialing = true;
  peer.wake = effects.wake;
  if (effects.rejoin) {
    ++peer.lives;
    peer.incarnation = base::next_life(peer.incarnation, 0);
    next.push_back(protocol::NewLife{peer.incarnation});
  }
  if (effects.broken)
    book().fail("L", cat("slot ", slot + 0, " is broken: ", effects.broken->text));
}

void World::run(std::uint8_t slot, const protocol::RunAttempt& order) {
  ModelPeer& peer = peers_[slot];
  AttemptInfo::Part part;
  part.call = peer.call, part.plan = order.start.plan;
  part.revision = peer.revision, part.state = peer.digest;
  if (peer.call != 0) part.weight = book_->calls[peer.call - 1].weight;
  book().attempts[order.start.attempt].parts[peer.box->machine.id()] = part;
  std::erase_if(peer.runs,
                [&](const ModelRun& r) { return r.start.attempt == order.start.attempt; });
  ModelRun fresh;
  fresh.start = order.start, fresh.receiver = order.receiver, fresh.call = peer.call;
  peer.runs.push_back(std::move(fresh));
}

void World::complete(std::uint8_t slot, const protocol::CompleteCall& done,
                     std::vector<protocol::PeerEvent>& next) {
  ModelPeer& peer = peers_[slot];
  JCCL_CHECK(peer.call != 0);
  CallRecord& record = book().call(peer.call);
  const bool success = peer.visible.has_value();
  if (success != done.status.ok()) {
    return book().fail("P3", cat("slot ", slot + 0, ": ", name_of(done.status.code),
                                 success ? " after a commit" : " without a commit"));
  }
  record.open = false, record.success = success, record.code = done.status.code, record.n = done.n;
  if (!success && done.attempts == 0 && done.status.code != Code::kDeadline) {
    // Refused at the door: as if it had never been made.
    record.code = Code::kInDoubt;
    if (peer.calls > 0) --peer.calls;
  }
  if (success) {
    const auto run = std::find_if(peer.runs.begin(), peer.runs.end(), [&](const ModelRun& r) {
      return r.start.attempt == *peer.visible;
    });
    if (run == peer.runs.end() || !run->done) {
      return book().fail("P1", cat("slot ", slot + 0, " hands out a result it does not have"));
    }
    book().on_published({slot, 0, *peer.visible, peer.call, &run->result, &kSum, &done});
    if (scope_.state) {
      const std::uint64_t seed = mix_in(peer.digest.low, digest_of(run->result).high);
      peer.revision = run->start.round.n;
      peer.digest = {mix_in(seed, run->start.attempt.epoch), peer.revision};
      const wire::Held held{kTag, peer.revision, peer.digest};
      book().on_state(slot, 0, held);
      next.push_back(protocol::PublishState{held});
    }
    peer.runs.erase(run);
  } else {
    p1_no_means_no(book());
  }
  const Code code = done.status.code;
  peer.call = 0;
  peer.visible.reset();
  if (code == Code::kInDoubt || code == Code::kEvicted || code == Code::kResync) {
    peer.needs_sync = scope_.state;
  }
  if (success && wants(peer, done.n)) {
    if (const auto call = new_call(slot)) next.push_back(*call);
  }
}

void World::synced(std::uint8_t slot, const protocol::CompleteSync& done,
                   std::vector<protocol::PeerEvent>& next) {
  ModelPeer& peer = peers_[slot];
  peer.syncing = false;
  peer.lost = done.status.code == Code::kStateLost;
  peer.wanted.reset();
  if (!done.status.ok()) return;
  const wire::Held own{kTag, peer.revision, peer.digest};
  if (done.held != own) {
    return book().fail("P6", cat("slot ", slot + 0, " is told that its state is revision ",
                                 done.held.revision, ", it is ", own.revision));
  }
  book().on_state(slot, 0, own);
  peer.needs_sync = false;
  next.push_back(protocol::PublishState{own});
  if (wants(peer, done.held.revision)) {
    if (const auto call = new_call(slot)) next.push_back(*call);
  }
}

// As far as it knows.
bool World::wants(const ModelPeer& peer, std::uint64_t known) const {
  return peer.box != nullptr && peer.calls < kCallsMax && known < scope_.rounds &&
         peer.box->machine.committed(kTag) < scope_.rounds;
}

std::optional<protocol::Call> World::new_call(std::uint8_t slot) {
  ModelPeer& peer = peers_[slot];
  peer.call = slot * kCallsMax + ++peer.calls;
  CallRecord& record = book().call(peer.call);
  record.open = true, record.tag = kTag, record.incarnation = peer.incarnation;
  record.weight = 1.0 + peer.calls % 2;  // a call taken for another shows
  record.deadline = now_ + 10 * kSecond;
  protocol::Call call;
  call.tag = kTag;
  call.descriptor = {1, 1};
  call.weight = record.weight;
  call.is_state = scope_.state;
  call.deadline = record.deadline;
  return call;
}

// The user's next wish.
void World::act(std::uint8_t slot) {
  ModelPeer& peer = peers_[slot];
  if (!peer.needs_sync) {
    if (const auto call = new_call(slot)) to_peer(slot, *call);
    return;
  }
  peer.syncing = true;
  protocol::SyncCall sync;
  sync.tag = kTag;
  sync.revision = peer.revision, sync.digest = peer.digest;
  sync.descriptor = {3, 3};
  sync.deadline = now_ + 100 * kSecond;
  to_peer(slot, sync);
}

// ---- data --------------------------------------------------------------------------------------

bool World::accepted_by_all(const ModelRun& run) const {
  const auto attempt = book_->attempts.find(run.start.attempt);
  const auto& in = run.start.contributors;
  return std::all_of(in.begin(), in.end(), [&](const wire::Contributor& one) {
    return attempt->second.parts.count(one.id) > 0;
  });
}

void World::complete_run(std::uint8_t slot, ModelRun& run) {
  const AttemptInfo& attempt = book_->attempts.at(run.start.attempt);
  std::map<wire::PeerId, Part> parts;
  for (const wire::Contributor& one : run.start.contributors) {
    parts[one.id] = {input_of(attempt.parts.at(one.id).call), one.weight};
  }
  run.result = result_of(run.start.plan, parts, kSum);
  run.done = true;
  to_peer(slot,
          protocol::AttemptDone{run.start.attempt, reported_digest(run.start.plan, run.result)});
}

// A result counts as reported when the master hears of it, not when a peer has it.
void World::heard(const ModelConn& conn, const wire::Message& message) {
  const auto* done = std::get_if<wire::Done>(&message);
  if (done == nullptr || book_->attempts.count(done->attempt) == 0) return;
  for (auto& [id, part] : book().attempts.at(done->attempt).parts) {
    const auto member = book_->everybody.find(id);
    if (member == book_->everybody.end()) continue;
    if (base::process_of(member->second.incarnation) / 100 != conn.slot + 1U) continue;
    part.done = true, part.result = done->result;
  }
}

// ---- time --------------------------------------------------------------------------------------

base::Time World::earliest() const {
  base::Time at = master_wake_;
  for (const ModelPeer& peer : peers_) at = std::min(at, peer.wake);
  return at;
}

void World::fire_timer(std::uint8_t which) {
  --ticks_left_;
  now_ = std::max(now_, which == peers_.size() ? master_wake_ : peers_[which].wake);
  if (which == peers_.size()) {
    master_wake_ = base::kNever;
    to_master(protocol::Tick{});
  } else {
    peers_[which].wake = base::kNever;
    to_peer(which, protocol::PeerTick{});
  }
  for (const ModelPeer& peer : peers_) {
    if (peer.call == 0) continue;
    const CallRecord& call = book().call(peer.call);
    if (call.open) p4_in_time(book(), call.slot, call.tag, call.deadline);
  }
}

}  // namespace jccl::sim::model
