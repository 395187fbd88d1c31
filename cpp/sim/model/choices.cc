// What may happen next in the small world, what is enough of it, and a choice in words.
#include <algorithm>
#include <string_view>

#include "base/hash64.h"
#include "base/ids.h"
#include "sim/model/world.h"
#include "wire/serialize.h"

namespace jccl::sim::model {

using base::cat;

namespace {

std::uint64_t hash_of(const wire::Message& message) { return base::hash64(wire::encode(message)); }

std::string text_of(const wire::Message& message) {
  std::string text(wire::name_of(message));
  if (const auto* m = std::get_if<wire::Ready>(&message)) {
    text += cat(" ", m->round.tag, " ", m->round.n, " call ", m->call, " weight ", m->weight);
  } else if (const auto* start = std::get_if<wire::Start>(&message)) {
    text += cat(" ", to_text(start->attempt), " of ", start->round.tag, " ", start->round.n,
                " call ", start->call, " contributors");
    for (const wire::Contributor& one : start->contributors) text += cat(" ", one.id);
    for (const wire::PeerId id : start->receivers) text += cat(" receiver ", id);
  } else if (const auto* outcome = std::get_if<wire::Outcome>(&message)) {
    constexpr std::array<std::string_view, 4> kVerdicts = {"?", "COMMIT", "ABORT", "EXPIRED"};
    text += cat(" ", to_text(outcome->attempt), " ",
                std::string(kVerdicts.at(static_cast<std::size_t>(outcome->verdict))),
                outcome->retry ? " retry" : "");
  } else if (const auto* done = std::get_if<wire::Done>(&message)) {
    text += cat(" ", to_text(done->attempt));
  } else if (const auto* fail = std::get_if<wire::Fail>(&message)) {
    text += cat(" ", to_text(fail->attempt), " ", std::string(base::name_of(fail->cause)));
  } else if (const auto* query = std::get_if<wire::Query>(&message)) {
    text += cat(" ", to_text(query->about.attempt));
  } else if (const auto* resume = std::get_if<wire::Resume>(&message)) {
    for (const wire::Unresolved& one : resume->unresolved) text += cat(" ", to_text(one.attempt));
  } else if (const auto* roster = std::get_if<wire::Roster>(&message)) {
    text += cat(" epoch ", roster->epoch);
  } else if (const auto* reject = std::get_if<wire::Reject>(&message)) {
    text += cat(" ", reject->round.n, " ", std::string(base::name_of(reject->code)));
  }
  return text;
}

}  // namespace

std::shared_ptr<const Parcel> wrap(wire::Message message) {
  std::visit(
      [](auto& m) {
        if constexpr (requires { m.text.clear(); }) m.text.clear();
      },
      message);
  const std::uint64_t hash = hash_of(message);
  return std::make_shared<const Parcel>(Parcel{std::move(message), hash});
}

bool told_worthy(const wire::Message& message) {
  return std::holds_alternative<wire::Roster>(message) ||
         std::holds_alternative<wire::Start>(message) ||
         std::holds_alternative<wire::Outcome>(message);
}

bool send_worthy(const wire::Message& message) {
  if (const auto* reply = std::get_if<wire::SyncReply>(&message)) {
    return reply->verdict != wire::SyncVerdict::kWait;
  }
  return !std::holds_alternative<wire::Waiting>(message);
}

// ---- choices -----------------------------------------------------------------------------------

void World::conn_choices(std::vector<Choice>& out) const {
  for (std::uint8_t i = 0; i < conns_.size(); ++i) {
    const ModelConn& conn = conns_[i];
    if (conn.master_open && !conn.up.empty()) out.push_back({Step::kToMaster, i});
    if (conn.peer_open && !conn.down.empty()) out.push_back({Step::kToPeer, i});
    if (conn.master_open && (conn.broken || (!conn.peer_open && conn.up.empty()))) {
      out.push_back({Step::kMasterSees, i});
    }
    if (conn.peer_open && (conn.broken || (!conn.master_open && conn.down.empty()))) {
      out.push_back({Step::kPeerSees, i});
    }
  }
}

void World::peer_choices(std::uint8_t slot, std::vector<Choice>& out) const {
  const ModelPeer& peer = peers_[slot];
  if (peer.box == nullptr) {
    if (peer.begun || !book_->commits.empty()) out.push_back({Step::kPeerUp, slot});
    return;
  }
  if (peer.dialing && master_ != nullptr) out.push_back({Step::kDial, slot});
  for (std::uint8_t r = 0; r < peer.runs.size(); ++r) {
    const ModelRun& run = peer.runs[r];
    if (run.done || run.failed) continue;
    if (accepted_by_all(run)) out.push_back({Step::kComplete, slot, r});
    const auto& in = run.start.contributors;
    const bool stuck = std::any_of(in.begin(), in.end(),
                                   [&](const wire::Contributor& one) { return !alive(one.id); });
    if (run.receiver) continue;
    if (stuck) out.push_back({Step::kBreak, slot, r});
    out.push_back({Step::kLinkFails, slot, r});
  }
  if (peer.call == 0 && !peer.syncing && wants(peer)) out.push_back({Step::kAct, slot});
  if (peer.wanted.has_value()) out.push_back({Step::kFetched, slot});
}

void World::fault_choices(std::vector<Choice>& out) const {
  for (std::uint8_t i = 0; i < conns_.size(); ++i) {
    const ModelConn& conn = conns_[i];
    if (conn.peer_open && conn.master_open && !conn.broken) out.push_back({Step::kReset, i});
  }
  for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
    if (peers_[slot].box != nullptr) out.push_back({Step::kPeerDies, slot});
  }
  if (master_ != nullptr) out.push_back({Step::kMasterDies});
}

std::vector<Choice> World::choices() const {
  std::vector<Choice> out;
  conn_choices(out);
  for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) peer_choices(slot, out);
  for (std::uint8_t i = 0; i < probes_.size() && master_ != nullptr; ++i) {
    if (peers_[probes_[i].second].incarnation != probes_[i].first) {
      out.push_back({Step::kProbe, i});
    }
  }
  if (master_ == nullptr) out.push_back({Step::kMasterUp});
  const base::Time at = earliest();
  if (ticks_left_ > 0 && at != base::kNever) {
    for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
      if (peers_[slot].wake == at) out.push_back({Step::kTimer, slot});
    }
    if (master_wake_ == at) {
      out.push_back({Step::kTimer, static_cast<std::uint8_t>(peers_.size())});
    }
  }
  if (faults_left_ > 0) fault_choices(out);
  if (faults_left_ == 0) std::erase_if(out, [](const Choice& one) { return one.costs_fault(); });
  return out;
}

// Whether all that this peer can do or suffer now commutes with all that can happen elsewhere
// before one of these steps, and one of them stays possible whatever happens elsewhere:
//   * It has a message to hear, or the end of its connection to see. Others only append to its
//     queue, or end the connection behind what is in it.
//   * What it says goes to the end of a queue of its own, which others shorten at the other end, or
//     throw away with the connection, before or after alike.
//   * It runs no attempt whose data depends on who else accepts it or dies.
//   * Its own death and the break of its connection are among the steps; faults are counted, in any
//     order. The master's death loses nothing that is on its way.
//   * What the oracles note of it is its own, or is flagged whichever comes first: what a master
//     tells is judged when it is sent, DONEs when they are heard, calls when they end and again
//     when a commit counts them.
bool World::commutes(std::uint8_t slot) const {
  const ModelPeer& peer = peers_[slot];
  if (peer.box == nullptr || peer.dialing) return false;
  for (const ModelRun& run : peer.runs) {
    if (!run.done && !run.failed) return false;
  }
  return std::any_of(conns_.begin(), conns_.end(), [slot](const ModelConn& conn) {
    return conn.slot == slot && conn.peer_open && (!conn.down.empty() || !conn.master_open);
  });
}

// Of which process such a step is: a slot, or the number of slots for the others.
std::size_t World::owner(const Choice& choice) const {
  switch (choice.step) {
    case Step::kToPeer:
    case Step::kPeerSees:
    case Step::kReset:
      return conns_[choice.which].slot;
    case Step::kAct:
    case Step::kFetched:
    case Step::kPeerDies:
      return choice.which;
    default:
      return peers_.size();
  }
}

// Whether a fault can't have come earlier with the same effect. A death commutes with whatever
// others do, so it is tried after a step of the process that dies, and not again before its next; a
// connection that breaks may break at any time from then on, so that is decided when it is made.
// (Sleep sets, P. Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems",
// 1996: a state before had the same fault tried, and by induction over the steps what it leads to
// was looked at. Every way to a state ends in fewer steps or fewer faults left, so nothing leads
// round in a circle.)
bool World::anchored(const Choice& choice) const {
  switch (choice.step) {
    case Step::kReset:
      return conns_[choice.which].fresh;
    case Step::kPeerDies:
      return (moved_ >> choice.which & 1) != 0;
    case Step::kLinkFails:  // notes the time
      return ticks_left_ > 0 || (moved_ >> choice.which & 1) != 0;
    case Step::kMasterDies:
      return (moved_ & kMasterBit) != 0;
    default:
      return true;
  }
}

// One process's steps are enough where they meet the conditions D1 and D2 of stubborn sets
// (A. Valmari, "The state explosion problem", Lectures on Petri Nets I, 1998): every state without
// a successor is still reached. Every run of this world ends in one, since calls, lives and faults
// are bounded, and a broken promise stays broken until then; so it is found, if by another order.
// Timers look at everybody's clock: as long as one may fire, nothing commutes. A start is such a
// step too: a process that is not there does nothing else, and nobody sees whether it has begun
// before it speaks; so is the master's, whose connections are all gone.
std::vector<Choice> World::ample() {
  std::vector<Choice> all = choices();
  tried_ = ~0U;
  if (!scope_.reduce) return all;
  std::erase_if(all, [this](const Choice& one) { return !anchored(one); });
  if (ticks_left_ > 0) return all;
  for (const Choice& one : all) {
    if (one.step != Step::kPeerUp && one.step != Step::kMasterUp) continue;
    tried_ = 0;
    return {one};
  }
  for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
    if (!commutes(slot)) continue;
    std::erase_if(all, [&](const Choice& one) { return owner(one) != slot; });
    tried_ = 1U << slot;
    return all;
  }
  return all;
}

Done World::take(const Choice& choice) {
  if (choice.costs_fault()) --faults_left_;
  death_ = choice.death, done_ = {};
  if (choice.step < Step::kLinkFails) {
    moved_ &= ~tried_;
    for (ModelConn& conn : conns_) conn.fresh = conn.fresh && (tried_ >> conn.slot & 1) == 0;
  }
  progress(choice);
  if (death_ >= 3 && master_ != nullptr) kill_master();
  death_ = 0;
  const Done done = done_;
  if (scope_.coarse) pass_rosters();
  return done;
}

// Each process has a key of its own.
wire::PublicKey key_of(const wire::Message& message) {
  const auto* hello = std::get_if<wire::Hello>(&message);
  wire::PublicKey key{};
  if (hello == nullptr) return key;
  const std::uint64_t process = base::process_of(hello->incarnation);
  key[0] = static_cast<std::uint8_t>(process), key[1] = static_cast<std::uint8_t>(process >> 8);
  return key;
}

// Hello, Welcome and Resume as one step. What follows them takes its time.
void World::greet(std::uint8_t slot) {
  for (int turn = 0; turn < 2; ++turn) {
    ModelConn* conn = conn_at(slot);
    if (master_ == nullptr || conn == nullptr || conn->up.empty()) return;
    const protocol::ConnId id = conn->id;
    const auto said = conn->up.front();
    conn->up.erase(conn->up.begin());
    heard(*conn, said->message);
    to_master(protocol::ConnMessage{id, said->message, {key_of(said->message)}});
    conn = conn_at(slot);
    if (conn == nullptr || conn->down.empty()) return;
    const auto answer = conn->down.front();
    if (!std::holds_alternative<wire::Welcome>(answer->message)) continue;
    conn->down.erase(conn->down.begin());
    to_peer(slot, protocol::FromMaster{answer->message});
  }
}

void World::pass_rosters() {
  for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
    while (true) {
      ModelConn* conn = conn_at(slot);
      if (conn == nullptr || conn->down.empty()) break;
      const auto first = conn->down.front();
      if (!std::holds_alternative<wire::Roster>(first->message)) break;
      conn->down.erase(conn->down.begin());
      p5_names(book(), slot, first->message);
      to_peer(slot, protocol::FromMaster{first->message});
    }
  }
}

// What befalls a connection.
void World::on_conn(const Choice& choice) {
  ModelConn& conn = conns_[choice.which];
  const protocol::ConnId id = conn.id;
  const std::uint8_t slot = conn.slot;
  switch (choice.step) {
    case Step::kToMaster: {
      const auto parcel = conn.up.front();
      conn.up.erase(conn.up.begin());
      heard(conn, parcel->message);
      return to_master(protocol::ConnMessage{id, parcel->message, {key_of(parcel->message)}});
    }
    case Step::kToPeer: {
      const auto parcel = conn.down.front();
      conn.down.erase(conn.down.begin());
      if (told_worthy(parcel->message)) p5_names(book(), slot, parcel->message);
      return to_peer(slot, protocol::FromMaster{parcel->message});
    }
    case Step::kMasterSees:
      conn.master_open = false, conn.up.clear();
      tidy();
      return to_master(protocol::ConnClosed{id});
    case Step::kPeerSees:
      conn.peer_open = false, conn.down.clear();
      tidy();
      return to_peer(slot, protocol::Disconnected{{base::Code::kIo, "connection lost"}});
    default:
      conn.broken = true;
  }
}

void World::progress(const Choice& choice) {
  const std::uint8_t which = choice.which;
  switch (choice.step) {
    case Step::kToMaster:
    case Step::kToPeer:
    case Step::kMasterSees:
    case Step::kPeerSees:
    case Step::kReset:
      return on_conn(choice);
    case Step::kDial: {
      ModelPeer& peer = peers_[which];
      peer.dialing = false;
      moved_ |= kMasterBit;
      ModelConn fresh;
      fresh.id = 1000U * (which + 1U) + ++peer.dials, fresh.slot = which;
      const auto later = [&](const ModelConn& conn) { return conn.id > fresh.id; };
      conns_.insert(std::find_if(conns_.begin(), conns_.end(), later), fresh);
      to_peer(which, protocol::Connected{});
      return scope_.coarse ? greet(which) : void();
    }
    case Step::kProbe: {
      const wire::Incarnation asked = probes_[which].first;
      probes_.erase(probes_.begin() + which);
      return to_master(protocol::ProbeAnswer{asked, true});
    }
    case Step::kComplete:
      return complete_run(which, peers_[which].runs[choice.other]);
    case Step::kBreak:
    case Step::kLinkFails: {
      ModelRun& run = peers_[which].runs[choice.other];
      run.failed = true;
      wire::PeerId other = 0;
      for (const wire::Contributor& one : run.start.contributors) {
        if (one.id != peers_[which].box->machine.id()) other = one.id;
      }
      return to_peer(which,
                     protocol::AttemptFailed{run.start.attempt, base::Code::kLinkLost, other, ""});
    }
    case Step::kAct:
      return act(which);
    case Step::kFetched: {
      ModelPeer& peer = peers_[which];
      const wire::Held held = *peer.wanted;
      peer.wanted.reset();
      peer.revision = held.revision, peer.digest = held.digest;
      return to_peer(which, protocol::FetchDone{held});
    }
    case Step::kPeerUp:
      return boot(which);
    case Step::kMasterUp:
      return start_master();
    case Step::kTimer:
      return fire_timer(which);
    case Step::kPeerDies:
      return die(which);
    case Step::kMasterDies:
      return kill_master();
  }
}

// If nobody is missing and nothing is on its way, only the clock can end an open call: that is a
// lost wake-up.
void World::check_quiet() {
  if (master_ == nullptr) return;
  std::set<wire::Incarnation> present;
  for (const ModelPeer& peer : peers_) {
    if (peer.box == nullptr || peer.call == 0) return;
    present.insert(peer.incarnation);
  }
  for (const auto& [id, member] : book_->members) {
    if (present.count(member.incarnation) == 0) return;  // its grace is running
  }
  if (conns_.size() != peers_.size()) return;
  book().fail("L", "every peer has a call open, nothing is on its way, and nothing happens");
}

// ---- words --------------------------------------------------------------------------------------

std::string World::words(const Choice& choice) const {
  const auto peer = [](std::uint8_t slot) { return cat("peer ", slot + 0); };
  const auto conn = [&](bool up) {
    const ModelConn& c = conns_[choice.which];
    return cat(peer(c.slot), ": ", text_of((up ? c.up : c.down).front()->message));
  };
  const auto of = [&] { return to_text(peers_[choice.which].runs[choice.other].start.attempt); };
  const std::string death = choice.death == 0   ? ""
                            : choice.death == 1 ? "; it dies before the write"
                            : choice.death == 2 ? "; it dies after the write"
                                                : cat("; it dies, only the peers of the bits ",
                                                      choice.death - 3, " hear of it");
  switch (choice.step) {
    case Step::kToMaster:
      return cat("the master hears ", conn(true), death);
    case Step::kToPeer:
      return cat("the master tells ", conn(false));
    case Step::kMasterSees:
      return cat("the master sees ", peer(conns_[choice.which].slot), "'s connection end", death);
    case Step::kPeerSees:
      return cat(peer(conns_[choice.which].slot), " sees its connection end");
    case Step::kDial:
      return cat(peer(choice.which), " connects");
    case Step::kProbe:
      return cat("the listener of ", peer(probes_[choice.which].second), "'s life refuses", death);
    case Step::kComplete:
      return cat(peer(choice.which), " has the whole result of ", of());
    case Step::kBreak:
    case Step::kLinkFails:
      return cat(peer(choice.which), " loses a link in ", of());
    case Step::kAct:
      return cat("the user of ", peer(choice.which), " calls");
    case Step::kFetched:
      return cat(peer(choice.which), " has fetched revision ",
                 peers_[choice.which].wanted->revision);
    case Step::kPeerUp:
      return cat(peer(choice.which), " starts");
    case Step::kMasterUp:
      return "the master starts again";
    case Step::kTimer:
      return cat(choice.which == peers_.size() ? "the master" : peer(choice.which),
                 "'s timer fires at ", earliest() / base::kMillisecond, " ms", death);
    case Step::kReset:
      return cat(peer(conns_[choice.which].slot), "'s connection breaks");
    case Step::kPeerDies:
      return cat(peer(choice.which), " dies");
    case Step::kMasterDies:
      return "the master dies";
  }
  return {};
}

}  // namespace jccl::sim::model
