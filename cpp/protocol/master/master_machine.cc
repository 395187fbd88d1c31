// The master machine's front: takes an event, hands it to whoever answers it, then lets everything
// that follows settle. Pure; one event at a time. See master_state.h for the pieces.
#include "protocol/master/master_machine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Duration;
using base::Time;

namespace {

constexpr int kSweepsMax = 4096;  // of one event

}  // namespace

MasterMachine::State::State(MasterOptions options, Planner planner,
                            const std::vector<wire::Record>& records, Time now)
    : Frame(std::move(options), std::move(planner), now) {
  for (const wire::Record& record : records) ledger_.apply(record);
  begun_ = took_over_ = ledger_.begun();
  for (const auto& [id, member] : ledger_.members()) {
    ProcessRecord& process = processes_[member.incarnation];
    sites_[member.site].insert(member.incarnation);
    of_key_[member.key][member.site].insert(member.incarnation);
    process.incarnation = member.incarnation;
    process.site = member.site;
    process.shard = member.shard;
    process.shards = member.shards;
    process.key = member.key;
    process.id = id;
    process.in_commit = true;  // for all that is known
    process.heard = process.gone = now;
  }
  know_participants();
}

void MasterMachine::State::begin(Time now) {
  now_ = std::max(now, last_);
  const base::OwnPause pause(wake_, now_, options_.silence);
  if (pause.counts()) stood_still(pause);
  before_ = std::exchange(last_, now_);
}

// A machine that is woken later than it asked has no evidence that others were silent, or late, or
// that they ask no more: what their clocks say of that time, if it was any, it does not know.
void MasterMachine::State::stood_still(const base::OwnPause& pause) {
  const auto by = [&](Time& since) { pause.pass_over(&since); };
  if (!JCCL_PLANTED("own-pause-held-against-peers")) {
    for (auto& [incarnation, process] : processes_) by(process.heard), by(process.gone);
    by(states_crossed_since_);
    by(started_at_);  // nobody could come back in that time
    for (auto& [tag, round] : rounds_) by(round.quorum_since), by(round.met_since);
  }
  woke_at_ = now_;
  if (JCCL_PLANTED("own-pause-ends-syncs")) return;
  for (auto& [incarnation, process] : processes_) {
    for (auto& [tag, asked] : process.syncs) {
      if (asked.deadline != base::kNever) asked.deadline += pause.length();
    }
  }
  for (auto& [tag, round] : rounds_) {
    by(round.lost_since), by(round.unasked_since), by(round.unheld_since);
    by(round.unborn_since);
    if (round.poll.has_value()) by(round.poll->doubt_since);
  }
}

void MasterMachine::State::start() {
  started_at_ = now_;
  next_tick_ = now_ + options_.heartbeat;
  if (!ledger_.has_run()) journal(wire::RunRecord{options_.run, wire::kVersion});
  std::vector<wire::Member> members;
  for (const auto& [id, member] : ledger_.members()) members.push_back(member);
  if (JCCL_PLANTED("attempts-reused") && ledger_.epoch() > 0) return;
  write_epoch(std::move(members), ledger_.next_id(), "master started");
  links_ = ledger_.epoch();
  remember_bans();
  probe_absent();
}

void MasterMachine::State::on(const MasterEvent& event) {
  if (const auto* message = std::get_if<ConnMessage>(&event)) {
    on_message(*message);
  } else if (const auto* closed = std::get_if<ConnClosed>(&event)) {
    if (closed->nonsense) charge_nonsense(closed->conn);
    on_closed(closed->conn);
  } else if (const auto* probe = std::get_if<ProbeAnswer>(&event)) {
    ProcessRecord* process = record_of(probe->incarnation);
    if (probe->refused && process != nullptr && process->id != 0 && !process->connected()) {
      depart(process->site, cat(name(*process), " is gone: its listener refuses connections"),
             "evict");
    }
  } else if (const auto* wish = std::get_if<EvictSite>(&event)) {
    evict(wish->site, cat(wish->site, " was evicted by the operator"), "evict");
  }
  // What is due by the clock is done by whichever event comes: where each finds another before the
  // timer's, as behind a disk that is always busy, the timer's may be put off for ever.
  if (std::holds_alternative<Tick>(event) || !JCCL_PLANTED("ticks-alone-bring-the-time")) tick();
  settle();
  if (std::exchange(ticking_, false)) tell_waiting();
}

// Each heartbeat all is looked at; between two of them what its time has come for: whoever has many
// tags end at as many moments has each of them looked at, and not all as often.
void MasterMachine::State::tick() {
  if (now_ < wake_) return;
  if (now_ < next_tick_) {
    for (const auto& [tag, round] : rounds_) {
      if (due(round, before_) <= now_) touch(tag);
    }
    return;
  }
  next_tick_ = now_ + options_.heartbeat;
  ticking_ = true;
  touch_all();
  probe_absent();
  uncross();
}

void MasterMachine::State::on_message(const ConnMessage& said) {
  const auto& [conn, message, shown] = said;
  if (doomed_.count(conn) > 0) return;  // closed by us; this was on its way
  const auto [entry, fresh] = conns_.try_emplace(conn, 0);
  if (const auto* hello = std::get_if<wire::Hello>(&message)) {
    if (!fresh) return refuse_nonsense(conn, "a second Hello on one connection");
    return on_hello(conn, *hello, shown);
  }
  if (const auto* order = std::get_if<wire::Order>(&message); order != nullptr) {
    if (!fresh) return refuse(conn, Code::kInvalid, "an Order comes instead of a Hello");
    return on_order(conn, *order, shown);
  }
  ProcessRecord* process = entry->second == 0 ? nullptr : record_of(entry->second);
  if (process == nullptr || process->conn != conn) {
    return refuse(conn, Code::kInvalid, "the first message must be a Hello");
  }
  process->heard = now_;
  if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) {
    process->progress = beat->progress;
    process->moving_before = std::exchange(process->moving, beat->moving);
    process->beat_before = std::exchange(process->beat, now_);
    note_lacks(*process);
    return send(conn, wire::HeartbeatAck{beat->sequence});
  }
  if (const auto* resume = std::get_if<wire::Resume>(&message)) {
    if (process->resumed) return refuse_nonsense(conn, "a second Resume on one connection");
    return on_resume(*process, *resume);
  }
  if (std::holds_alternative<wire::Leave>(message)) return on_leave(*process);
  if (!process->resumed && !JCCL_PLANTED("resume-not-needed"))
    return refuse_nonsense(conn, "Resume must follow Welcome");
  on_peer_message(*process, message);
}

void MasterMachine::State::on_peer_message(ProcessRecord& process, const wire::Message& message) {
  if (const auto* ready = std::get_if<wire::Ready>(&message)) return on_ready(process, *ready);
  if (const auto* done = std::get_if<wire::Done>(&message)) return on_done(process, *done);
  if (const auto* fail = std::get_if<wire::Fail>(&message)) return on_fail(process, *fail);
  if (const auto* back = std::get_if<wire::Withdraw>(&message)) return on_withdraw(process, *back);
  if (const auto* part = std::get_if<wire::AuditPart>(&message))
    return on_audit_part(process, *part);
  if (const auto* query = std::get_if<wire::Query>(&message)) return on_query(process, *query);
  if (const auto* sync = std::get_if<wire::Sync>(&message)) return on_sync(process, *sync);
  if (const auto* published = std::get_if<wire::Published>(&message)) {
    return report(process, published->held);
  }
  if (const auto* outvoted = std::get_if<wire::Outvoted>(&message)) {
    return on_outvoted(process, *outvoted);
  }
  if (const auto* seen = std::get_if<wire::Violation>(&message)) {
    return on_violation(process, *seen);
  }
  if (const auto* found = std::get_if<wire::Finding>(&message)) return on_finding(process, *found);
  if (const auto* measured = std::get_if<wire::Measured>(&message)) {
    if (process.id != 0) fx_.measured.emplace_back(process.id, *measured);
    return;
  }
  refuse_nonsense(process.conn, "a message that only the master sends");
}

// Lives first, for they decide who is waited for; then every tag that anything happened to, each
// once a sweep. An eviction, an admission or an ended call touches all tags again, for the next
// sweep: what one event can end is finite, so this ends when nothing is touched. Should it not,
// the rest is done at the next tick, one moment later: no message may stop the master.
void MasterMachine::State::settle() {
  punish();
  open_gates();
  expire_processes();
  end_holds();
  end_pauses();
  for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
    if (std::exchange(processes_changed_, false)) {
      for (const auto& [tag, round] : rounds_) {
        // A state that many ask for, and that is not born: each connection would cost a look at all
        // of them, on every tag that they ask for.
        const bool at_the_tick = !ticking_ && round.asking.size() >= kCrowd &&
                                 !ledger_.standing(tag).born &&
                                 !JCCL_PLANTED("each-connection-looks-at-crowds");
        if (!at_the_tick) touched_.insert(tag);
      }
    }
    if (touched_.empty()) break;
    for (const wire::Tag& tag : std::exchange(touched_, {})) {
      settle(tag);
      ++settled_;
    }
    punish();
  }
  drop_unused_tags();
  flush_roster();
}

// Whichever event brings the time.
void MasterMachine::State::end_pauses() {
  if (now_ < pauses_due_) return;
  pauses_due_ = base::kNever;
  for (const auto& [tag, round] : rounds_) {
    const Time until = round.memory.paused_until;
    if (until > now_) {
      pauses_due_ = std::min(pauses_due_, until);
    } else if (until > 0) {
      touch(tag);
    }
  }
}

void MasterMachine::State::settle(const wire::Tag& tag) {
  const bool ended = conclude(tag);
  sync_tag(tag);
  if (ended || admit_some()) {
    touch(tag);  // who stands still for this commit is admitted before it forms
  } else {
    form(tag);
  }
}

// A tag that nobody asks for any more and that the journal does not know makes room for another, if
// nobody is its source: who differs from that one would only have to come when nobody asks.
void MasterMachine::State::drop_unused_tags() {
  if (rounds_.size() <= ledger_.tags().size()) return;
  for (auto at = rounds_.begin(); at != rounds_.end();) {
    Round& round = at->second;
    const bool open = round.running.has_value() || !round.ready.empty() || !round.asking.empty();
    const bool unused = !open && round.memory.aborted.empty() &&
                        ledger_.tags().count(at->first) == 0 && !is_claimed(&round);
    at = unused ? rounds_.erase(at) : std::next(at);
  }
}

void MasterMachine::State::touch_all() {
  for (const auto& [tag, round] : rounds_) touched_.insert(tag);
}

// When it has to be looked at, if nothing happens to it before. `seen`: of what comes once the time
// until then is over.
Time MasterMachine::State::due(const Round& round, Time seen) const {
  Time due = base::kNever;
  const auto by = [&](Time at) { due = std::min(due, at); };
  const auto once = [&](Time at) { by(at > seen ? at : base::kNever); };
  if (round.running.has_value()) {
    // READYs expire when it has ended.
    by(std::min(round.running->deadline, round.running->judged_at));
    by(audit_due(*round.running));
  } else if (!round.ready.empty()) {
    by(round.ready_due);
    const bool judges = options_.straggler != Straggler::kWait;
    if (judges && round.quorum_since != base::kNever) {
      once(leaves_behind_at(round));
      by(round.quorum_since + options_.straggler_after);
    }
    if (round.met_since != base::kNever) once(round.met_since + round.quorum.grace);
  }
  if (!round.ready.empty()) once(round.memory.paused_until);
  if (!round.asking.empty()) by(round.sync_due);
  if (round.poll.has_value() && round.poll->doubt_since != base::kNever) {
    once(round.poll->doubt_since + options_.silence);
  }
  if (round.unheld_since != base::kNever) once(awaited_until(round));
  if (round.unborn_since != base::kNever) {
    once(round.unborn_since + options_.restore_after);
    once(round.unborn_since + options_.straggler_after);
  }
  for (const auto& [key, since] : round.half_since) once(since + options_.restore_after);
  if (round.lost_since != base::kNever) {
    once(round.lost_since + options_.silence);
    once(round.lost_since + options_.restore_after);
    once(round.brought_at + options_.silence);
  }
  return due;
}

Time MasterMachine::State::next_wake() const {
  Time wake = base::kNever;
  const auto by = [&](Time at) { wake = std::min(wake, std::max(at, now_ + 1)); };
  if (!processes_.empty()) by(processes_due_);
  for (const auto& [tag, round] : rounds_) by(due(round, now_));
  for (const auto& [site, until] : holds_) by(held_until(until));
  if (!touched_.empty() || processes_changed_) by(now_ + 1);
  if (!processes_.empty()) by(next_tick_);
  return wake;
}

MasterEffects MasterMachine::State::finish() {
  fx_.wake = wake_ = next_wake();
  MasterEffects out = std::move(fx_);
  fx_ = {};
  return out;
}

void MasterMachine::State::journal(wire::Record record) {
  ledger_.apply(record);
  fx_.journal.push_back(std::move(record));
}

void MasterMachine::State::send(ConnId conn, wire::Message message) {
  if (conns_.count(conn) > 0) fx_.send.push_back({conn, std::move(message)});
}

void MasterMachine::State::note(std::string kind,
                                std::vector<std::pair<std::string, std::string>> fields) {
  fx_.history.push_back({std::move(kind), std::move(fields)});
}

void MasterMachine::State::refuse(ConnId conn, Code code, std::string text) {
  note("refuse", {{"code", std::string(base::name_of(code))}, {"text", text}});
  send(conn, wire::Refuse{code, std::move(text)});
  close(conn);
}

void MasterMachine::State::refuse_nonsense(ConnId conn, std::string text) {
  charge_nonsense(conn);
  refuse(conn, Code::kInvalid, std::move(text));
}

void MasterMachine::State::close(ConnId conn) {
  fx_.close.push_back(conn);
  doomed_.insert(conn);
  lose(conn);
}

MasterMachine::MasterMachine(MasterOptions options, Planner planner,
                             const std::vector<wire::Record>& records, Time now)
    : state_(std::make_unique<State>(options, std::move(planner), records, now)) {}
MasterMachine::~MasterMachine() = default;
MasterMachine::MasterMachine(MasterMachine&&) noexcept = default;

MasterEffects MasterMachine::start(Time now) {
  state_->begin(now);
  state_->start();
  return state_->finish();
}

MasterEffects MasterMachine::on(const MasterEvent& event, Time now) {
  state_->begin(now);
  state_->on(event);
  return state_->finish();
}

MasterView MasterMachine::view(Time now) const { return state_->view(now); }
base::Status revoked_status(const std::string& token) {
  return {base::Code::kBanned, base::cat("the token ", token, " was revoked")};
}
base::Status MasterMachine::reserved(
    const std::string& site, const wire::PublicKey& key,
    const std::function<bool(const std::string&)>& is_its_own) const {
  return state_->reserved(site, key, is_its_own);
}
bool MasterMachine::is_revoked(const std::string& token) const { return state_->is_revoked(token); }
base::Status MasterMachine::objects_to(const wire::Hello& hello, const Shown& shown) const {
  if (const auto no = state_->unwelcome(hello, shown)) return *no;
  const std::string why = state_->not_let_in(shown.key);
  return why.empty() ? base::Status() : base::Status{base::Code::kBanned, why};
}
std::size_t MasterMachine::sites() const { return state_->ledger_.sites(); }
bool MasterMachine::is_deserted() const {
  return state_->processes_.empty() && state_->ledger_.members().empty();
}

}  // namespace jccl::protocol
