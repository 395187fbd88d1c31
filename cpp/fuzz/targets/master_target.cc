// A script of connections, messages, silence, operators and crashes for the real master machine.
// Whatever peers send: nothing is said before it is journaled, no commit is lost, skipped or
// doubled, no message breaks a limit, nothing grows without bound, and a new machine takes over
// from the journal at any point.
#include <map>
#include <set>

#include "base/text.h"
#include "fuzz/script_messages.h"
#include "fuzz/target.h"
#include "protocol/master/master_machine.h"

namespace jccl::fuzz {
namespace {

using protocol::ConnId;

constexpr int kStepsMax = 600;
constexpr std::size_t kConnsMax = 12;
constexpr std::size_t kSendsMax = 400;  // per event, with so few connections and tags

class MasterScript {
 public:
  explicit MasterScript(ByteView bytes) : in_(bytes), messages_(&in_) {
    options_.start_peers = static_cast<std::uint32_t>(1 + in_.below(3));
    options_.min_peers = static_cast<std::uint32_t>(1 + in_.below(2));
    options_.history = 1 + in_.below(4);
    options_.run = {9};
    begin();
  }

  void run() {
    for (int step = 0; step < kStepsMax && !in_.done(); ++step) act();
    advance(120 * base::kSecond);
    const protocol::MasterView view = machine_->view(now_);
    JCCL_CHECK(view.peers.size() <= conns_.size() + incarnations_);
    for (const auto& tag : view.tags) {
      const bool still = tag.phase != "idle";
      if (still) JCCL_CHECK(!tag.waiting_for.empty());
    }
  }

 private:
  void begin() {
    machine_.emplace(
        options_, [this](const protocol::PlanRequest& request) { return plan(request); }, durable_,
        now_);
    apply(machine_->start(now_), false);
  }

  base::Result<Bytes> plan(const protocol::PlanRequest& request) {
    JCCL_CHECK(!request.contributors.empty());
    if (!request.bad_links.empty() && in_.flag()) {
      return base::Status{base::Code::kLinkLost, "no plan avoids the link"};
    }
    return Bytes{1, 2};
  }

  void act() {
    switch (in_.below(12)) {
      case 0:
        return greet();
      case 1:
        return advance(static_cast<base::Duration>(in_.u8()) * 20 * base::kMillisecond);
      case 2:
        if (in_.below(3) == 0) return close();
        return advance(base::kMillisecond);
      case 3:
        return rare();
      default:
        return say(messages_.from_peer());
    }
  }

  void rare() {
    switch (in_.below(6)) {
      case 0:
        return event(protocol::ProbeAnswer{1 + in_.below(8), in_.flag()});
      case 1:
        return event(protocol::EvictSite{std::string(1, static_cast<char>('a' + in_.below(4)))});
      case 2:
        return crash();
      default:
        return;
    }
  }

  // The driver hands on nothing before a Hello, and no connection twice.
  void greet() {
    if (conns_.size() >= kConnsMax) return;
    const wire::Hello hello = messages_.hello();
    const ConnId conn = ++last_conn_;
    conns_.insert(conn);
    ++incarnations_;
    event(protocol::ConnMessage{conn, hello});
    if (in_.below(4) > 0 && conns_.count(conn) > 0) {
      event(protocol::ConnMessage{conn, wire::Resume{}});
    }
  }

  ConnId any_conn() {
    auto it = conns_.begin();
    std::advance(it, static_cast<long>(in_.below(conns_.size())));
    return *it;
  }

  void say(const wire::Message& message) {
    if (!conns_.empty()) event(protocol::ConnMessage{any_conn(), message});
  }

  void close() {
    if (conns_.empty()) return;
    const ConnId conn = any_conn();
    conns_.erase(conn);
    event(protocol::ConnClosed{conn});
  }

  // Time passes as a driver lets it: with every tick that was asked for.
  void advance(base::Duration duration) {
    const base::Time end = now_ + duration;
    for (int ticks = 0; wake_ <= end; ++ticks) {
      JCCL_CHECK(ticks < 5000);  // a machine that asks for ticks that change nothing
      now_ = std::max(now_, wake_);
      const base::Time at = now_;
      event(protocol::Tick{});
      JCCL_CHECK(wake_ > at);
    }
    now_ = end;
  }

  void crash() {
    // Nothing that was journaled in memory only: the driver waits for the disk before it speaks.
    conns_.clear();
    now_ += static_cast<base::Duration>(in_.u8()) * base::kMillisecond;
    std::vector<wire::Record> read;
    for (const wire::Record& record : durable_) {
      const auto again = wire::decode_record(wire::encode_record(record));
      JCCL_CHECK(again.ok() && again.value() == record);
      read.push_back(again.value());
    }
    durable_ = std::move(read);
    begin();
  }

  void event(const protocol::MasterEvent& event) {
    const bool tick = std::holds_alternative<protocol::Tick>(event);
    apply(machine_->on(event, now_), tick);
  }

  void apply(const protocol::MasterEffects& effects, bool tick) {
    JCCL_CHECK(effects.journal.size() <= 64 && effects.send.size() <= kSendsMax);
    for (const wire::Record& record : effects.journal) journal(record);
    for (const protocol::MasterSend& send : effects.send) sent(send);
    for (const ConnId conn : effects.close) closed_.push_back(conn);
    wake_ = effects.wake;
    if (tick) JCCL_CHECK(wake_ > now_);
    while (!closed_.empty()) {
      const ConnId conn = closed_.back();
      closed_.pop_back();
      if (conns_.erase(conn) > 0) event(protocol::ConnClosed{conn});
    }
  }

  void journal(const wire::Record& record) {
    durable_.push_back(record);
    if (const auto* epoch = std::get_if<wire::EpochRecord>(&record)) {
      JCCL_CHECK(epoch->epoch > epoch_);
      epoch_ = epoch->epoch;
    }
    if (const auto* commit = std::get_if<wire::CommitRecord>(&record)) {
      JCCL_CHECK(commit->round.n == committed_[commit->round.tag] + 1);
      committed_[commit->round.tag] = commit->round.n;
      JCCL_CHECK(started_.count(commit->attempt) > 0);
      JCCL_CHECK(started_[commit->attempt] == commit->round);
      JCCL_CHECK(commits_.emplace(commit->attempt, *commit).second);
      JCCL_CHECK(aborted_.count(commit->attempt) == 0);
      JCCL_CHECK(commit->world >= 1 && !commit->contributors.empty());
    }
  }

  void sent(const protocol::MasterSend& send) {
    JCCL_CHECK(wire::check(send.message).ok());
    if (const auto* start = std::get_if<wire::Start>(&send.message)) {
      messages_.note(start->attempt, start->round);
      JCCL_CHECK(start->attempt.epoch <= epoch_);
      const auto [at, fresh] = started_.emplace(start->attempt, start->round);
      JCCL_CHECK(fresh || at->second == start->round);
      JCCL_CHECK(commits_.count(start->attempt) == 0);
    } else if (const auto* outcome = std::get_if<wire::Outcome>(&send.message)) {
      const auto commit = commits_.find(outcome->attempt);
      if (outcome->verdict == wire::Verdict::kCommitted) {
        JCCL_CHECK(commit != commits_.end());
        JCCL_CHECK(outcome->contributors == commit->second.contributors);
        JCCL_CHECK(outcome->round == commit->second.round);
      } else if (outcome->verdict == wire::Verdict::kAborted) {
        JCCL_CHECK(commit == commits_.end());
        // A peer may ask about an attempt that the master never started (DECISIONS, Known limits).
        if (started_.count(outcome->attempt) > 0) aborted_.insert(outcome->attempt);
      }
    } else if (const auto* roster = std::get_if<wire::Roster>(&send.message)) {
      JCCL_CHECK(roster->epoch <= epoch_);
    } else if (const auto* moved = std::get_if<wire::Moved>(&send.message)) {
      JCCL_CHECK(moved->committed <= committed_[moved->round.tag]);
    }
  }

  Input in_;
  ScriptMessages messages_;
  protocol::MasterOptions options_;
  std::optional<protocol::MasterMachine> machine_;
  base::Time now_ = base::kSecond, wake_ = base::kNever;
  std::vector<wire::Record> durable_;
  std::set<ConnId> conns_;
  std::vector<ConnId> closed_;
  ConnId last_conn_ = 0;
  std::size_t incarnations_ = 0;
  std::uint64_t epoch_ = 0;
  std::map<wire::Tag, std::uint64_t> committed_;
  std::map<wire::Attempt, wire::RoundName> started_;
  std::map<wire::Attempt, wire::CommitRecord> commits_;
  std::set<wire::Attempt> aborted_;
};

}  // namespace

void run_master(ByteView bytes) { MasterScript(bytes).run(); }

}  // namespace jccl::fuzz
