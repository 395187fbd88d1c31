// The peer machine's front: takes an event, hands it to whoever answers it, keeps time. Pure; one
// event at a time. See peer_state.h for the pieces.
#include "protocol/peer/peer_machine.h"

#include <algorithm>

#include "base/check.h"
#include "base/own_pause.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/peer/peer_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Duration;
using base::Time;

PeerMachine::State::State(PeerOptions options, wire::Incarnation incarnation, Time now)
    : options_(std::move(options)),
      incarnation_(incarnation),
      run_(options_.run),
      now_(now),
      last_(now),
      heartbeat_(500 * base::kMillisecond),
      silence_(3 * base::kSecond),
      heard_(now),
      lost_at_(now),
      dial_at_(now),
      pause_(options_.reconnect_pause) {
  JCCL_CHECK(incarnation != 0);
}

// A machine that is woken later than it asked has no evidence that the master was silent.
void PeerMachine::State::begin(Time now) {
  now_ = std::max(now, last_);
  const base::OwnPause pause(wake_, now_, silence_);
  if (pause.counts()) pause.pass_over(&heard_), pause.pass_over(&lost_at_);
  last_ = now_;
}

void PeerMachine::State::on(const PeerEvent& event) {
  if (std::holds_alternative<Connected>(event)) return on_connected();
  if (const auto* lost = std::get_if<Disconnected>(&event)) return on_disconnected(lost->cause);
  if (const auto* from = std::get_if<FromMaster>(&event)) return on_master(from->message);
  if (const auto* call = std::get_if<Call>(&event)) return on_call(*call);
  if (const auto* cancel = std::get_if<CancelCall>(&event)) return on_cancel(cancel->tag);
  if (const auto* done = std::get_if<AttemptDone>(&event)) return on_attempt_done(*done);
  if (const auto* failed = std::get_if<AttemptFailed>(&event)) return on_attempt_failed(*failed);
  if (const auto* shown = std::get_if<AuditAnswer>(&event)) return on_audit_answer(*shown);
  if (const auto* sync = std::get_if<SyncCall>(&event)) return on_sync_call(*sync);
  if (const auto* fetched = std::get_if<FetchDone>(&event)) return on_fetch_done(*fetched);
  if (const auto* missed = std::get_if<FetchFailed>(&event)) return on_fetch_failed(*missed);
  if (const auto* outvoted = std::get_if<HolderOutvoted>(&event)) return send(outvoted->said);
  if (const auto* found = std::get_if<WorkRepeated>(&event)) return send(found->said);
  if (const auto* seen = std::get_if<FrameViolation>(&event)) return send(seen->said);
  if (const auto* state = std::get_if<PublishState>(&event)) return on_publish(state->held);
  if (const auto* state = std::get_if<StateChanged>(&event)) return on_state_changed(*state);
  if (std::holds_alternative<Depart>(event)) return depart();
  if (const auto* life = std::get_if<NewLife>(&event)) return on_new_life(*life);
  if (const auto* progress = std::get_if<Progress>(&event)) {
    progress_ = progress->bytes;
    moving_ = progress->moving;
  }
  if (const auto* fresh = std::get_if<NewMeasures>(&event)) {
    measured_ = fresh->measured;
    if (up()) send(*measured_);
  }
}

void PeerMachine::State::on_master(const wire::Message& message) {
  if (link_ != MasterConnection::kUp && link_ != MasterConnection::kGreeting)
    return;  // of a connection given up
  heard_ = now_;
  if (const auto* m = std::get_if<wire::Welcome>(&message)) return on_welcome(*m);
  if (const auto* m = std::get_if<wire::Refuse>(&message)) return on_refuse(*m);
  if (const auto* m = std::get_if<wire::Evicted>(&message)) return on_evicted(*m);
  if (!up()) return;
  if (const auto* m = std::get_if<wire::Roster>(&message)) return on_roster(*m);
  if (const auto* m = std::get_if<wire::Start>(&message)) return on_start(*m);
  if (const auto* m = std::get_if<wire::Outcome>(&message)) return on_outcome(*m);
  if (const auto* m = std::get_if<wire::AuditAsk>(&message)) return on_audit_ask(*m);
  if (const auto* m = std::get_if<wire::Reject>(&message)) return on_reject(*m);
  if (const auto* m = std::get_if<wire::Moved>(&message)) return on_moved(*m);
  if (const auto* m = std::get_if<wire::Waiting>(&message)) return on_waiting(*m);
  if (const auto* m = std::get_if<wire::SyncReply>(&message)) return on_sync_reply(*m);
  if (const auto* m = std::get_if<wire::Drain>(&message)) fx_.drain = m->text;
  if (const auto* m = std::get_if<wire::Notice>(&message)) fx_.notices.push_back(m->text);
}

// Whatever is due by the clock, whichever event brought the time.
void PeerMachine::State::tick() {
  if (link_ == MasterConnection::kEnded) return;
  tend_connection();
  std::vector<wire::Tag> due;
  for (const auto& [tag, open] : calls_) {
    if (now_ >= open.call.deadline) due.push_back(tag);
  }
  for (const wire::Tag& tag : due) give_up(tag, Code::kDeadline, "deadline passed");
  due.clear();
  for (const auto& [tag, open] : syncs_) {
    if (now_ >= open.call.deadline) due.push_back(tag);
  }
  for (const wire::Tag& tag : due) {
    finish_sync(tag, Code::kDeadline, cat("deadline passed; ", syncs_.at(tag).waiting));
  }
  for (auto& [tag, open] : syncs_) {
    if (now_ < open.again) continue;
    open.again = base::kNever;
    send_sync(open);
  }
  if (master_lost()) lose_master_for_calls();
  if (departing_ && now_ >= departed_by_) {
    fx_.departed = true;
    fx_.disconnect = true;
    link_ = MasterConnection::kEnded;
  }
}

Time PeerMachine::State::next_wake() const {
  if (link_ == MasterConnection::kEnded) return base::kNever;
  Time wake = departed_by_;
  const auto by = [&](Time at) { wake = std::min(wake, std::max(at, now_ + 1)); };
  for (const auto& [tag, open] : calls_) {
    if (!JCCL_PLANTED("deadline-timer-lost")) by(open.call.deadline);
  }
  for (const auto& [tag, open] : syncs_) {
    by(open.call.deadline);
    if (open.again != base::kNever) by(open.again);
  }
  if (link_ == MasterConnection::kPaused) by(dial_at_);
  if (link_ == MasterConnection::kUp) by(next_beat_);
  if (link_ == MasterConnection::kUp || link_ == MasterConnection::kGreeting ||
      link_ == MasterConnection::kDialing) {
    by(heard_ + silence_);
  }
  if (!up() && !(calls_.empty() && syncs_.empty())) by(lost_at_ + options_.master_grace);
  return wake;
}

PeerEffects PeerMachine::State::finish() {
  tick();
  fx_.wake = wake_ = next_wake();
  PeerEffects out = std::move(fx_);
  fx_ = {};
  return out;
}

void PeerMachine::State::depart() {
  if (link_ == MasterConnection::kEnded || departing_) return;
  std::vector<wire::Tag> open;
  for (const auto& [tag, call] : calls_) open.push_back(tag);
  for (const wire::Tag& tag : open) give_up(tag, Code::kClosed, "the communicator was closed");
  open.clear();
  for (const auto& [tag, sync] : syncs_) open.push_back(tag);
  for (const wire::Tag& tag : open) finish_sync(tag, Code::kClosed, "the communicator was closed");
  departing_ = true;
  departed_by_ = up() ? now_ + std::min<Duration>(base::kSecond, silence_) : now_;
  send(wire::Leave{});
}

PeerMachine::PeerMachine(PeerOptions options, wire::Incarnation incarnation, Time now)
    : state_(std::make_unique<State>(std::move(options), incarnation, now)) {}
PeerMachine::~PeerMachine() = default;
PeerMachine::PeerMachine(PeerMachine&&) noexcept = default;

PeerEffects PeerMachine::start(Time now) {
  state_->begin(now);
  state_->dial();
  return state_->finish();
}

PeerEffects PeerMachine::on(const PeerEvent& event, Time now) {
  state_->begin(now);
  state_->on(event);
  return state_->finish();
}

wire::Incarnation PeerMachine::incarnation() const { return state_->incarnation_; }
wire::PeerId PeerMachine::id() const { return state_->id_; }
bool PeerMachine::member() const { return state_->id_ != 0; }
std::uint64_t PeerMachine::epoch() const { return state_->epoch_; }
wire::RunId PeerMachine::run() const { return state_->run_; }
base::Duration PeerMachine::silence() const { return state_->silence_; }
std::uint64_t PeerMachine::max_rate() const {
  return base::tighter(state_->options_.max_rate, state_->run_rate_);
}
bool PeerMachine::needs_resync(const wire::Tag& tag) const {
  return state_->resync_.count(tag) > 0;
}
std::uint64_t PeerMachine::committed(const wire::Tag& tag) const {
  const auto found = state_->committed_.find(tag);
  return found == state_->committed_.end() ? 0 : found->second;
}

bool PeerMachine::has_started(const wire::Tag& tag) const {
  const auto call = state_->calls_.find(tag);
  return call != state_->calls_.end() && call->second.phase != CallPhase::kWaiting;
}

std::string PeerMachine::waiting_for(const wire::Tag& tag, Time now) const {
  const State& at = *state_;
  if (at.broken_.has_value()) return at.broken_->text;
  if (!at.up()) {
    return cat(at.cut_off(), " for ", (now - at.lost_at_) / base::kMillisecond, " ms");
  }
  if (const auto sync = at.syncs_.find(tag); sync != at.syncs_.end()) {
    if (sync->second.fetching.has_value()) return "the snapshot is being fetched";
    return sync->second.waiting.empty() ? "the master's answer" : sync->second.waiting;
  }
  const auto call = at.calls_.find(tag);
  if (call == at.calls_.end()) {
    return at.doubts_.count(tag) > 0 ? "the outcome of an attempt in doubt" : "";
  }
  const OpenCall& open = call->second;
  if (!open.waiting.empty()) return open.waiting;
  switch (open.phase) {
    case CallPhase::kWaiting:
      return "READY of the other peers";
    case CallPhase::kMoving:
      return "data";
    case CallPhase::kReported:
      return "the other peers' results";
    case CallPhase::kClosing:
      return JCCL_PLANTED("end-of-call-not-named") ? "" : "the rest of a committed result";
  }
  return {};
}

}  // namespace jccl::protocol
