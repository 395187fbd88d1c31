// What may happen next in the small world, the hash of all that matters, and a choice in words.
#include <algorithm>
#include <string_view>

#include "base/hash64.h"
#include "sim/model/world.h"
#include "wire/codec.h"

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
    if (conn.master_open && !conn.peer_open) out.push_back({Step::kMasterSees, i});
    if (conn.peer_open && !conn.master_open) out.push_back({Step::kPeerSees, i});
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
    if (!run.receiver) out.push_back({stuck ? Step::kBreak : Step::kLinkFails, slot, r});
  }
  if (peer.call == 0 && !peer.syncing && wants(peer)) out.push_back({Step::kAct, slot});
  if (peer.wanted.has_value()) {
    for (const ModelPeer& other : peers_) {
      if (&other == &peer || other.box == nullptr || other.digest != peer.wanted->digest) continue;
      out.push_back({Step::kFetched, slot});
      break;
    }
  }
}

void World::fault_choices(std::vector<Choice>& out) const {
  for (std::uint8_t i = 0; i < conns_.size(); ++i) {
    if (!conns_[i].peer_open || !conns_[i].master_open) continue;
    out.push_back({Step::kReset, i, 0});
    out.push_back({Step::kReset, i, 1});
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

bool World::take(const Choice& choice) {
  if (choice.costs_fault()) --faults_left_;
  death_ = choice.death;
  const bool wrote = progress(choice);
  death_ = 0;
  if (scope_.coarse) pass_rosters();
  return wrote;
}

// Hello, Welcome and Resume as one step. What follows them takes its time.
bool World::greet(std::uint8_t slot) {
  bool wrote = false;
  for (int turn = 0; turn < 2; ++turn) {
    ModelConn* conn = conn_at(slot);
    if (master_ == nullptr || conn == nullptr || conn->up.empty()) return wrote;
    const protocol::ConnId id = conn->id;
    const auto said = conn->up.front();
    conn->up.erase(conn->up.begin());
    wrote = to_master(protocol::ConnMessage{id, said->message}) || wrote;
    conn = conn_at(slot);
    if (conn == nullptr || conn->down.empty()) return wrote;
    const auto answer = conn->down.front();
    if (!std::holds_alternative<wire::Welcome>(answer->message)) continue;
    conn->down.erase(conn->down.begin());
    to_peer(slot, protocol::FromMaster{answer->message});
  }
  return wrote;
}

void World::pass_rosters() {
  for (std::uint8_t slot = 0; slot < peers_.size(); ++slot) {
    while (true) {
      ModelConn* conn = conn_at(slot);
      if (conn == nullptr || conn->down.empty()) break;
      const auto first = conn->down.front();
      if (!std::holds_alternative<wire::Roster>(first->message)) break;
      conn->down.erase(conn->down.begin());
      p5_told(book(), slot, first->message);
      to_peer(slot, protocol::FromMaster{first->message});
    }
  }
}

// What befalls a connection.
bool World::on_conn(const Choice& choice) {
  const std::uint8_t which = choice.which;
  switch (choice.step) {
    case Step::kToMaster: {
      ModelConn& conn = conns_[which];
      const auto parcel = conn.up.front();
      conn.up.erase(conn.up.begin());
      return to_master(protocol::ConnMessage{conn.id, parcel->message});
    }
    case Step::kToPeer: {
      ModelConn& conn = conns_[which];
      const auto parcel = conn.down.front();
      conn.down.erase(conn.down.begin());
      p5_told(book(), conn.slot, parcel->message);
      to_peer(conn.slot, protocol::FromMaster{parcel->message});
      return false;
    }
    case Step::kMasterSees: {
      const protocol::ConnId id = conns_[which].id;
      conns_[which].master_open = false;
      tidy();
      return to_master(protocol::ConnClosed{id});
    }
    case Step::kPeerSees: {
      const std::uint8_t slot = conns_[which].slot;
      conns_[which].peer_open = false;
      tidy();
      to_peer(slot, protocol::Disconnected{{base::Code::kIo, "connection lost"}});
      return false;
    }
    case Step::kReset:  // one end finds out, the other after any part of what is on its way
      if (choice.other == 0) {
        conns_[which].peer_open = false, conns_[which].down.clear();
        to_peer(conns_[which].slot, protocol::Disconnected{{base::Code::kIo, "reset"}});
        return false;
      }
      conns_[which].master_open = false, conns_[which].up.clear();
      return to_master(protocol::ConnClosed{conns_[which].id});
    default:
      return false;
  }
}

bool World::progress(const Choice& choice) {
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
      conns_.push_back({1000U * (which + 1U) + ++peer.dials, which, true, true, {}, {}});
      to_peer(which, protocol::Connected{});
      return scope_.coarse && greet(which);
    }
    case Step::kProbe: {
      const wire::Incarnation asked = probes_[which].first;
      probes_.erase(probes_.begin() + which);
      return to_master(protocol::ProbeAnswer{asked, true});
    }
    case Step::kComplete:
      complete_run(which, peers_[which].runs[choice.other]);
      return false;
    case Step::kBreak:
    case Step::kLinkFails: {
      ModelRun& run = peers_[which].runs[choice.other];
      run.failed = true;
      wire::PeerId other = 0;
      for (const wire::Contributor& one : run.start.contributors) {
        if (one.id != peers_[which].box->machine.id()) other = one.id;
      }
      to_peer(which, protocol::AttemptFailed{run.start.attempt, base::Code::kLinkLost, other, ""});
      return false;
    }
    case Step::kAct:
      act(which);
      return false;
    case Step::kFetched: {
      ModelPeer& peer = peers_[which];
      const wire::Held held = *peer.wanted;
      peer.wanted.reset();
      peer.revision = held.revision, peer.digest = held.digest;
      to_peer(which, protocol::FetchDone{held});
      return false;
    }
    case Step::kPeerUp:
      boot(which);
      return false;
    case Step::kMasterUp:
      start_master();
      return false;
    case Step::kTimer:
      return fire_timer(which);
    case Step::kPeerDies:
      die(which);
      return false;
    case Step::kMasterDies:
      kill_master();
      return false;
  }
  return false;
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

// ---- the state ---------------------------------------------------------------------------------

std::uint64_t World::book_hash() const {
  if (book_hash_ != 0) return book_hash_;
  base::Writer out;
  out.u64(book_->durable.size());
  for (const wire::Record& record : book_->durable) {
    const base::Bytes bytes = wire::encode_record(record);
    out.raw(bytes.data(), bytes.size());
  }
  for (const auto& [attempt, info] : book_->attempts) {
    out.attempt(attempt);
    out.flag(info.told_aborted);
    for (const auto& [id, part] : info.parts) {
      out.u64(id), out.u64(part.call), out.flag(part.done), out.digest(part.result);
    }
  }
  for (const auto& [round, info] : book_->commits) out.u64(info.results.size());
  for (const CallRecord& call : book_->calls) {
    if (call.deadline == 0) continue;
    out.u64(call.id), out.flag(call.open), out.flag(call.success);
    out.u64(static_cast<std::uint64_t>(call.code)), out.u64(call.open ? call.deadline : 0);
  }
  for (const auto& [key, digest] : book_->states) {
    out.u64(std::get<2>(key)), out.digest(digest);
  }
  book_hash_ = base::hash64(out.bytes()) | 1;
  return book_hash_;
}

base::Digest World::digest() const {
  base::Writer out;
  out.u64(book_hash()), out.u64(static_cast<std::uint64_t>(now_));
  out.u64(faults_left_ * 100 + ticks_left_);
  out.flag(master_ != nullptr);
  if (master_ != nullptr) out.digest(master_->digest);
  out.u64(static_cast<std::uint64_t>(master_wake_));
  for (const ModelPeer& peer : peers_) {
    out.flag(peer.box != nullptr);
    if (peer.box != nullptr) out.digest(peer.box->digest);
    out.u64(peer.incarnation), out.u8(peer.lives), out.u8(peer.dials), out.u8(peer.calls);
    out.flag(peer.dialing), out.u64(static_cast<std::uint64_t>(peer.wake));
    for (const ModelRun& run : peer.runs) {
      out.attempt(run.start.attempt), out.u64(run.call), out.u8(run.done), out.u8(run.failed);
    }
    out.u64(peer.call), out.flag(peer.needs_sync), out.flag(peer.syncing), out.flag(peer.lost);
    out.u64(peer.revision), out.digest(peer.digest), out.flag(peer.wanted.has_value());
    if (peer.wanted.has_value()) out.digest(peer.wanted->digest);
  }
  for (const ModelConn& conn : conns_) {
    out.u64(conn.id), out.flag(conn.peer_open), out.flag(conn.master_open);
    out.u64(conn.up.size());
    for (const auto& parcel : conn.up) out.u64(parcel->hash);
    for (const auto& parcel : conn.down) out.u64(parcel->hash);
  }
  for (const auto& [incarnation, slot] : probes_) out.u64(incarnation);
  return {base::hash64(out.bytes(), 1), base::hash64(out.bytes(), 2)};
}

std::string World::words(const Choice& choice) const {
  const auto peer = [](std::uint8_t slot) { return cat("peer ", slot + 0); };
  const auto conn = [&](bool up) {
    const ModelConn& c = conns_[choice.which];
    return cat(peer(c.slot), ": ", text_of((up ? c.up : c.down).front()->message));
  };
  const auto of = [&] { return to_text(peers_[choice.which].runs[choice.other].start.attempt); };
  const std::string death = choice.death == 0   ? ""
                            : choice.death == 1 ? "; it dies before the write"
                                                : "; it dies after the write";
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
      return cat(peer(conns_[choice.which].slot), "'s connection is reset, ",
                 choice.other == 0 ? "it" : "the master", " sees it first");
    case Step::kPeerDies:
      return cat(peer(choice.which), " dies");
    case Step::kMasterDies:
      return "the master dies";
  }
  return {};
}

}  // namespace jccl::sim::model
