// A peer's calls: numbered, made ready, started, reported, ended by what the master decided. A call
// whose outcome is unknown at its deadline ends in doubt; this peer never decides alone. Pure.
#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/peer/peer_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;
using State = PeerMachine::State;

namespace {

// A call that ends Resync is in no result, so that its input may go into the next round. One whose
// round committed with it, or may have, but ends without the result, is told apart.
constexpr Code kMayBeCounted = Code::kEvicted;

}  // namespace

std::optional<Status> State::objection(const Call& call) const {
  if (broken_.has_value()) return broken_;
  if (departing_ || link_ == MasterConnection::kEnded) {
    return Status{Code::kClosed, "the communicator was closed"};
  }
  if (calls_.count(call.tag) > 0 || syncs_.count(call.tag) > 0) {
    return Status{Code::kBusyTag, busy_text(call.tag)};
  }
  if (doubts_.count(call.tag) > 0) {
    return Status{Code::kInDoubt, cat("an earlier round of ", call.tag, " is in doubt",
                                      up() ? "" : cat("; ", cut_off()))};
  }
  if (call.is_state) {
    const auto held = held_.find(call.tag);
    if (held == held_.end()) {
      return Status{Code::kResync, cat("no state of ", call.tag, ": synchronise it first")};
    }
    const auto committed = committed_.find(call.tag);
    const std::uint64_t newest = committed == committed_.end() ? 0 : committed->second;
    if (resync_.count(call.tag) == 0 && held->second.revision < newest) {
      return Status{Code::kResync, cat("this peer's state of ", call.tag, " is at revision ",
                                       held->second.revision, ", the run at ", newest,
                                       ": pass the new state to jccl.publish after each ",
                                       "committed round, or take the run's by jccl.sync_state")};
    }
    if (resync_.count(call.tag) > 0) {
      return Status{Code::kResync,
                    cat("this peer's state of ", call.tag, ", at revision ", held->second.revision,
                        ", was changed or is behind the run's: synchronise it")};
    }
  }
  if (now_ >= call.deadline) return Status{Code::kDeadline, "the deadline is over"};
  if (master_lost()) {
    return Status{Code::kMasterLost, beyond_grace()};
  }
  return std::nullopt;
}

void State::on_call(const Call& call) {
  if (call.is_state && JCCL_PLANTED("unsynchronised-calls-are-made")) {
    held_.try_emplace(call.tag, wire::Held{call.tag, committed_[call.tag], {}});
  }
  if (const auto no = objection(call)) {
    CompleteCall refused;
    refused.tag = call.tag;
    refused.status = *no;
    refused.epoch = epoch_;
    fx_.complete.push_back(std::move(refused));
    return;
  }
  OpenCall& open = calls_[call.tag];
  open.call = call;
  if (JCCL_PLANTED("deadlines-too-long")) open.call.deadline += 3 * (call.deadline - now_);
  open.number = ++calls_made_;
  open.weight = call.weight;
  open.n = (call.is_state ? held_.at(call.tag).revision : committed_[call.tag]) + 1;
  send_ready(open);
}

void State::send_ready(const OpenCall& open) {
  wire::Ready ready;
  ready.round = {open.call.tag, open.n};
  ready.descriptor = open.call.descriptor;
  ready.summary = open.call.summary;
  ready.hint = open.call.hint;
  ready.contributors_max = open.call.contributors_max;
  ready.unit_weights = open.call.unit_weights;
  ready.quorum = open.call.quorum;
  ready.weight = open.weight;
  if (open.call.is_state) {
    const wire::Held& held = held_.at(open.call.tag);
    ready.has_state = true;
    ready.revision = held.revision;
    ready.state = held.digest;
    ready.fingerprint = open.call.fingerprint;
  }
  ready.deadline = std::max<base::Duration>(0, open.call.deadline - now_);
  ready.call = open.number;
  ready.before = open.call.before;
  send(std::move(ready));
}

OpenCall* State::call_of(const wire::Attempt& attempt) {
  for (auto& [tag, open] : calls_) {
    const bool same = open.attempt == attempt || JCCL_PLANTED("outcome-of-another-attempt");
    if (open.phase != CallPhase::kWaiting && same) return &open;
  }
  return nullptr;
}

// What is decided may be another state than the one that this peer said it holds.
bool State::stands_at(const OpenCall& open, const wire::Start& start) const {
  if (!open.call.is_state || JCCL_PLANTED("start-of-another-state")) return true;
  const auto held = held_.find(open.call.tag);
  return start.has_state && held != held_.end() && held->second.revision == start.revision &&
         held->second.digest == start.state;
}

void State::on_start(const wire::Start& start) {
  const auto found = calls_.find(start.round.tag);
  const auto doubt = doubts_.find(start.round.tag);
  if (doubt != doubts_.end() && doubt->second.about.attempt == start.attempt) return;
  const bool mine = found != calls_.end() && found->second.n == start.round.n &&
                    (found->second.number == start.call || JCCL_PLANTED("start-of-an-ended-call"));
  if (!mine) {  // it crossed a Withdraw
    let_go(start.attempt);
    return send(wire::Fail{start.attempt, Code::kAborted, 0, "the call had ended"});
  }
  OpenCall& open = found->second;
  if (open.phase != CallPhase::kWaiting && open.attempt == start.attempt) return;  // said twice
  if (!stands_at(open, start)) {
    let_go(start.attempt);
    send(wire::Fail{start.attempt, Code::kAborted, 0, "START names a state unlike this peer's"});
    resync_.insert(start.round.tag);
    if (open.phase == CallPhase::kWaiting) {
      complete(wire::Tag(start.round.tag), Code::kResync,
               cat("the run goes on from another revision ", start.revision, " of ",
                   start.round.tag, " than this peer's"));
    }
    return;
  }
  if (open.phase != CallPhase::kWaiting) {
    fx_.discard.push_back(open.attempt);  // another attempt runs, so this one never commits
  }
  const auto& in = start.contributors;
  open.receiver = std::none_of(in.begin(), in.end(), [&](const auto& c) { return c.id == id_; });
  open.phase = CallPhase::kMoving;
  if (JCCL_PLANTED("doubt-comes-late")) open.call.deadline += 3 * (open.call.deadline - now_);
  open.attempt = start.attempt;
  open.own.reset();
  open.shares.clear();
  open.audit = {};
  open.failed.reset();
  open.orphan = false;
  open.waiting.clear();
  ++open.attempts;
  // It answers a READY that crossed the outcome which left the input out: to run it could count
  // what the call will end as not counted.
  const bool counts = !open.receiver && open.weight == 0 && open.left_out != Code::kOk;
  const bool taken = JCCL_PLANTED("left-out-input-runs") || JCCL_PLANTED("ready-kept-over-abort");
  if (counts && !taken) return refuse_start(open);
  beat_for(open);
  fx_.run.push_back({start, open.receiver});
}

// The others may have sent data of an attempt that never begins here. It stands in connections
// before whatever else they send, be it the state that this peer or another one waits for.
void State::let_go(const wire::Attempt& attempt) {
  if (!JCCL_PLANTED("unbegun-attempt-kept")) fx_.discard.push_back(attempt);
}

void State::refuse_start(OpenCall& open) {
  const bool guard = open.left_out == Code::kGuard;
  open.failed = wire::Fail{open.attempt, guard ? Code::kGuard : Code::kAborted, 0,
                           guard ? open.left_out_why : "START counts an input that was left out"};
  open.phase = CallPhase::kReported;
  report(open);
}

void State::on_attempt_done(const AttemptDone& done) {
  OpenCall* open = call_of(done.attempt);
  if (open == nullptr || open->own.has_value() || open->failed.has_value()) return;
  open->own = done.result;
  open->shares = done.shares;
  open->audit = done.audit;
  if (open->phase == CallPhase::kClosing) return close_committed(wire::Tag(open->call.tag));
  open->phase = CallPhase::kReported;
  if (JCCL_PLANTED("visible-at-done")) fx_.commit.push_back(done.attempt);
  report(*open);
}

void State::on_attempt_failed(const AttemptFailed& failed) {
  OpenCall* open = call_of(failed.attempt);
  if (open == nullptr || open->own.has_value() || open->failed.has_value()) return;
  open->failed = wire::Fail{failed.attempt, failed.cause, failed.peer, failed.text};
  if (open->phase == CallPhase::kClosing) return close_committed(wire::Tag(open->call.tag));
  if (failed.cause == Code::kResync) {
    // No result can have the contribution: nobody was given the whole of it.
    report(*open);
    fx_.discard.push_back(open->attempt);
    return complete(wire::Tag(open->call.tag), Code::kResync, failed.text);
  }
  if (failed.cause == Code::kGuard) {
    open->left_out = failed.cause;
    open->left_out_why = failed.text;
    if (!JCCL_PLANTED("guard-weight-kept")) open->weight = 0;
  }
  open->phase = CallPhase::kReported;
  report(*open);
}

// The master looks at what DONE bound. After its call a peer has no input to show any more, and
// says so: the others need not wait for it.
void State::on_audit_ask(const wire::AuditAsk& ask) {
  const OpenCall* open = call_of(ask.attempt);
  if (open != nullptr && open->phase == CallPhase::kReported && open->own.has_value()) {
    return fx_.audit.push_back(ask);
  }
  if (open != nullptr || JCCL_PLANTED("ended-calls-answer-no-audit")) return;
  send(wire::Fail{ask.attempt, Code::kAborted, 0, "the call had ended before the audit"});
}

void State::on_audit_answer(const AuditAnswer& answer) {
  const OpenCall* open = call_of(answer.attempt);
  if (open == nullptr && !JCCL_PLANTED("calls-that-end-answer-no-audit")) {
    return send(wire::Fail{answer.attempt, Code::kAborted, 0, "the call ended during the audit"});
  }
  if (open == nullptr || open->phase != CallPhase::kReported) return;
  for (const wire::AuditPart& part : answer.parts) send(part);
}

void State::report(const OpenCall& open) {
  if (open.own.has_value())
    send(wire::Done{open.attempt, *open.own, open.shares, open.audit});
  else if (open.failed.has_value())
    send(*open.failed);
}

void State::heard_commit(const wire::Tag& tag, std::uint64_t n) {
  std::uint64_t& committed = committed_[tag];
  committed = std::max(committed, n);
}

void State::on_outcome(const wire::Outcome& outcome) {
  for (const auto& [tag, doubt] : doubts_) {
    if (doubt.about.attempt == outcome.attempt) return settle_doubt(wire::Tag(tag), outcome);
  }
  OpenCall* open = call_of(outcome.attempt);
  if (open == nullptr && outcome.verdict == wire::Verdict::kAborted) return let_go(outcome.attempt);
  if (open == nullptr || open->phase == CallPhase::kClosing) return;
  const wire::Tag tag = open->call.tag;
  switch (outcome.verdict) {
    case wire::Verdict::kCommitted:
      heard_commit(tag, open->n);
      life_pause_ = 0;
      open->outcome = outcome;
      open->phase = CallPhase::kClosing;
      return close_committed(tag);
    case wire::Verdict::kExpired:
      heard_commit(tag, open->n);
      fx_.discard.push_back(open->attempt);
      if (open->call.is_state) resync_.insert(tag);
      return complete(tag, kMayBeCounted, outcome.text);
    case wire::Verdict::kAborted:
      fx_.discard.push_back(open->attempt);
      return on_aborted(*open, outcome);
  }
}

void State::on_aborted(OpenCall& open, const wire::Outcome& outcome) {
  const wire::Tag tag = open.call.tag;
  if (open.orphan) return complete(tag, Code::kEvicted, open.waiting);
  if (!outcome.retry) return complete(tag, failure(outcome.code), outcome.text);
  if (outcome.code == Code::kGuard || outcome.code == Code::kSkipped) {  // perhaps another shard
    if (open.left_out != Code::kGuard) open.left_out = outcome.code;
    if (open.left_out_why.empty()) open.left_out_why = outcome.text;
    open.weight = 0;
  }
  open.phase = CallPhase::kWaiting;
  open.own.reset();
  open.shares.clear();
  open.audit = {};
  open.failed.reset();
  open.waiting = outcome.text;
  send_ready(open);
}

// Visible only when the round is committed and the own copy is complete and the same.
void State::close_committed(const wire::Tag& tag) {
  OpenCall& open = calls_.at(tag);
  JCCL_CHECK(open.phase == CallPhase::kClosing && open.outcome.has_value());
  const bool right = open.own == open.outcome->result || JCCL_PLANTED("result-not-compared");
  if (open.own.has_value() && right) {
    fx_.commit.push_back(open.attempt);
    const bool counted = open.left_out == Code::kOk;
    return complete(
        tag, open.left_out,
        counted ? "" : cat("this peer's contribution was left out: ", open.left_out_why));
  }
  if (!open.own.has_value() && !open.failed.has_value() && !open.orphan) {
    return;  // the data is on its way; nobody sends any to an evicted life
  }
  fx_.discard.push_back(open.attempt);
  if (open.call.is_state) resync_.insert(tag);
  const bool differs = open.own.has_value();
  complete(tag, kMayBeCounted,
           cat("round ", open.n, " of ", tag, " was committed, but this peer's result ",
               differs ? "differs" : "is not complete"));
}

void State::complete(const wire::Tag& tag, Code code, std::string text) {
  const auto found = calls_.find(tag);
  JCCL_CHECK(found != calls_.end());
  const OpenCall& open = found->second;
  CompleteCall done;
  done.tag = tag;
  done.n = open.n;
  done.status = {code, std::move(text)};
  done.epoch = epoch_;
  done.attempts = open.attempts;
  if (open.outcome.has_value() && base::holds_result(code)) {
    done.world = open.outcome->world;
    done.contributors = open.outcome->contributors;
    done.epoch = open.attempt.epoch;
  }
  if (code == Code::kResync && open.call.is_state) resync_.insert(tag);
  fx_.complete.push_back(std::move(done));
  calls_.erase(found);
}

void State::on_reject(const wire::Reject& reject) {
  const auto found = calls_.find(reject.round.tag);
  if (found == calls_.end() || found->second.number != reject.call) return;
  if (found->second.phase != CallPhase::kWaiting) return;
  complete(reject.round.tag, failure(reject.code), reject.text);
}

void State::on_moved(const wire::Moved& moved) {
  heard_commit(moved.round.tag, moved.committed);
  const auto found = calls_.find(moved.round.tag);
  if (found == calls_.end() || found->second.n != moved.round.n) return;
  OpenCall& open = found->second;
  if (open.phase != CallPhase::kWaiting || open.call.is_state) return;
  open.n = moved.committed + 1;
  send_ready(open);
}

void State::on_waiting(const wire::Waiting& waiting) {
  const auto found = calls_.find(waiting.round.tag);
  if (found != calls_.end() && found->second.n == waiting.round.n && !found->second.orphan) {
    found->second.waiting = waiting.text;
  }
}

void State::on_cancel(const wire::Tag& tag) {
  if (calls_.count(tag) > 0)
    give_up(tag, Code::kAborted, "interrupted");
  else if (syncs_.count(tag) > 0)
    finish_sync(tag, Code::kAborted, "interrupted");
}

// Ends a call from this side. Before a START nothing has happened; after a COMMIT everything has;
// in between only the master knows.
void State::give_up(const wire::Tag& tag, Code code, const std::string& why) {
  OpenCall& open = calls_.at(tag);
  if (open.phase == CallPhase::kWaiting) {
    send(wire::Withdraw{{tag, open.n}});
    const std::string words = up() ? open.waiting : cut_off();
    return complete(tag, code, words.empty() ? why : cat(why, "; ", words));
  }
  if (open.phase == CallPhase::kClosing) {
    fx_.discard.push_back(open.attempt);
    if (open.call.is_state) resync_.insert(tag);
    return complete(tag, kMayBeCounted, cat(why, " before the committed result was complete"));
  }
  if (JCCL_PLANTED("doubt-presumes-commit") && open.own.has_value()) {
    return fx_.commit.push_back(open.attempt), complete(tag, Code::kOk, "");
  }
  if (JCCL_PLANTED("doubt-told-as-failure")) {
    return fx_.discard.push_back(open.attempt), complete(tag, code, why);
  }
  Doubt doubt;
  doubt.about = {open.attempt, {tag, open.n}};
  doubt.is_state = open.call.is_state;
  doubt.kept = open.own.has_value();
  if (doubt.kept) {
    doubt.report = wire::Done{open.attempt, *open.own, open.shares, open.audit};
  } else {
    if (!open.failed.has_value()) {
      const Code cause = code == Code::kDeadline ? code : Code::kAborted;
      open.failed = wire::Fail{open.attempt, cause, 0, why};
      send(*open.failed);
    }
    doubt.report = *open.failed;
    fx_.discard.push_back(open.attempt);
  }
  doubts_[tag] = std::move(doubt);
  complete(tag, Code::kInDoubt,
           cat(why, "; the outcome of attempt ", base::to_text(doubts_[tag].about.attempt),
               " is not known"));
}

void State::settle_doubt(const wire::Tag& tag, const wire::Outcome& outcome) {
  const Doubt doubt = doubts_.at(tag);
  doubts_.erase(tag);
  if (doubt.kept) fx_.discard.push_back(doubt.about.attempt);
  if (outcome.verdict == wire::Verdict::kAborted) return;
  heard_commit(tag, doubt.about.round.n);
  const auto held = held_.find(tag);
  const bool behind = held == held_.end() || held->second.revision < doubt.about.round.n;
  if (doubt.is_state && behind) resync_.insert(tag);  // unless synchronised meanwhile
}

void State::orphan_calls(const std::string& text) {
  std::vector<wire::Tag> state;
  for (auto& [tag, open] : calls_) {
    if (open.phase == CallPhase::kWaiting) {
      if (open.call.is_state) state.push_back(tag);
    } else {
      open.orphan = true;
      open.waiting = text;
    }
  }
  for (const wire::Tag& tag : state) complete(tag, Code::kResync, text);
}

void State::lose_master_for_calls() {
  const std::string text = cat("the master is unreachable for ", (now_ - lost_at_) / base::kSecond,
                               " s", refused_.empty() ? "" : cat("; ", cut_off()));
  std::vector<wire::Tag> tags;
  for (const auto& [tag, open] : calls_) tags.push_back(tag);
  for (const wire::Tag& tag : tags) give_up(tag, Code::kMasterLost, text);
  tags.clear();
  for (const auto& [tag, open] : syncs_) tags.push_back(tag);
  for (const wire::Tag& tag : tags) finish_sync(tag, Code::kMasterLost, text);
}

// Asks again for what should have been answered: no message is trusted to have arrived.
void State::ask_again() {
  if (now_ < next_ask_) return;
  next_ask_ = now_ + 2 * heartbeat_;
  for (const auto& [tag, doubt] : doubts_) send(wire::Query{doubt.about});
  for (const auto& [tag, open] : calls_) {
    const bool asks =
        open.phase == CallPhase::kReported || (open.phase == CallPhase::kMoving && open.orphan);
    if (asks) send(wire::Query{{open.attempt, {tag, open.n}}});
  }
}

}  // namespace jccl::protocol
