// A script for the real peer machine: a user who calls, a data plane that ends attempts, and a
// master that says anything at all. No call ends twice, none outlives its deadline, none is
// reported as done without a commit, nothing is said on a connection that is not there.
#include <map>
#include <set>

#include "fuzz/script_messages.h"
#include "fuzz/target.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::fuzz {
namespace {

constexpr int kPeerStepsMax = 600;
constexpr std::size_t kPeerSendsMax = 64;  // per event, with so few tags

class PeerScript {
 public:
  explicit PeerScript(ByteView bytes) : in_(bytes), messages_(&in_) {
    protocol::PeerOptions options;
    options.site = "a";
    options.master_grace = static_cast<base::Duration>(1 + in_.below(60)) * base::kSecond;
    machine_.emplace(options, incarnation_, now_);
    apply(machine_->start(now_), false);
  }

  void run() {
    for (int step = 0; step < kPeerStepsMax && !in_.done(); ++step) act();
    // Every call has a deadline, and nothing outlives it.
    advance(60 * base::kSecond);
    JCCL_CHECK(open_.empty() && syncs_.empty());
  }

 private:
  void act() {
    switch (in_.below(12)) {
      case 0:
        return connection();
      case 1:
        return advance(static_cast<base::Duration>(in_.u8()) * 20 * base::kMillisecond);
      case 2:
      case 3:
        return call();
      case 4:
        return end_attempt();
      case 5:
        return state();
      case 6:
        return rare();
      default:
        if (connected_) event(protocol::FromMaster{messages_.from_master()});
    }
  }

  void connection() {
    if (!connected_ && dialing_) {
      dialing_ = false;
      if (in_.below(4) == 0) {
        return event(protocol::Disconnected{
            {in_.below(8) == 0 ? base::Code::kAuth : base::Code::kLinkLost, "lost"}});
      }
      connected_ = true;
      return event(protocol::Connected{});
    }
    if (connected_ && in_.below(4) == 0) {
      connected_ = false;
      event(protocol::Disconnected{{base::Code::kLinkLost, "lost"}});
    }
  }

  base::Time deadline() {
    return now_ + static_cast<base::Duration>(in_.u8()) * 100 * base::kMillisecond;
  }

  void call() {
    const wire::Tag tag = messages_.tag();
    if (in_.below(4) == 0) {
      protocol::SyncCall sync;
      const wire::Held own = messages_.held();
      sync.tag = tag;
      sync.source = in_.flag();
      sync.revision = own.revision;
      sync.digest = own.digest;
      sync.deadline = deadline();
      syncs_.insert(tag);  // the answer may come in the same breath
      return event(sync);
    }
    if (in_.below(8) == 0) return event(protocol::CancelCall{tag});
    protocol::Call call;
    call.tag = tag;
    call.descriptor = messages_.digest();
    call.is_state = tag == "model";
    call.weight = in_.below(5) == 0 ? 0 : 1;
    call.deadline = deadline();
    ++made_;
    ++open_[tag];
    event(call);
  }

  void end_attempt() {
    const wire::Attempt attempt = messages_.attempt();
    if (in_.below(3) > 0) return event(protocol::AttemptDone{attempt, messages_.digest()});
    const base::Code cause = in_.flag() ? base::Code::kLinkLost : base::Code::kGuard;
    event(protocol::AttemptFailed{attempt, cause, static_cast<wire::PeerId>(in_.below(4)), "why"});
  }

  void state() {
    if (in_.flag()) return event(protocol::PublishState{messages_.held()});
    const wire::Held held = messages_.held();
    if (in_.below(3) == 0) return event(protocol::FetchFailed{held.tag, "gone"});
    event(protocol::FetchDone{held});
  }

  void rare() {
    switch (in_.below(8)) {
      case 0:
        return event(protocol::Depart{});
      case 1:
        return event(protocol::Progress{in_.u64()});
      case 2:
        return event(protocol::NewMeasures{{in_.u64(), {}}});
      case 3:
        return event(protocol::StateChanged{messages_.tag()});
      default:
        (void)machine_->waiting_for(messages_.tag(), now_);
        (void)machine_->needs_resync(messages_.tag());
    }
  }

  void advance(base::Duration duration) {
    const base::Time end = now_ + duration;
    for (int ticks = 0; wake_ <= end; ++ticks) {
      JCCL_CHECK(ticks < 200'000);
      now_ = std::max(now_, wake_);
      const base::Time at = now_;
      event(protocol::PeerTick{});
      JCCL_CHECK(wake_ > at);
      if (rejoin_) revive();
    }
    now_ = end;
  }

  void revive() {
    rejoin_ = false;
    messages_.self = ++incarnation_;
    event(protocol::NewLife{incarnation_});
  }

  void event(const protocol::PeerEvent& event) {
    const bool tick = std::holds_alternative<protocol::PeerTick>(event);
    apply(machine_->on(event, now_), tick);
    if (rejoin_ && in_.below(4) > 0) revive();
  }

  void apply(const protocol::PeerEffects& effects, bool tick) {
    JCCL_CHECK(effects.send.size() <= kPeerSendsMax);
    for (const wire::Attempt& attempt : effects.discard) discarded_.insert(attempt);
    for (const protocol::RunAttempt& run : effects.run) {
      messages_.note(run.start.attempt, run.start.round);
      ran_.insert(run.start.attempt);
      discarded_.erase(run.start.attempt);
    }
    for (const wire::Attempt& attempt : effects.commit) {
      JCCL_CHECK(ran_.count(attempt) > 0 && discarded_.count(attempt) == 0);
    }
    std::size_t good = 0;
    for (const protocol::CompleteCall& done : effects.complete) {
      JCCL_CHECK(open_[done.tag] > 0);
      if (--open_[done.tag] == 0) open_.erase(done.tag);
      if (done.status.ok()) ++good;
    }
    JCCL_CHECK(good <= effects.commit.size());
    for (const protocol::CompleteSync& done : effects.synced) syncs_.erase(done.tag);
    for (const wire::Message& message : effects.send) {
      JCCL_CHECK(connected_);
      JCCL_CHECK(wire::check(message).ok());
      if (const auto* ready = std::get_if<wire::Ready>(&message)) messages_.call = ready->call;
    }
    if (effects.disconnect) connected_ = dialing_ = false;
    if (effects.connect) {
      JCCL_CHECK(!connected_ && !dialing_);
      dialing_ = true;
    }
    rejoin_ = rejoin_ || effects.rejoin;
    wake_ = effects.wake;
    if (tick) JCCL_CHECK(wake_ > now_);
  }

  Input in_;
  ScriptMessages messages_;
  std::optional<protocol::PeerMachine> machine_;
  base::Time now_ = base::kSecond, wake_ = base::kNever;
  wire::Incarnation incarnation_ = 1;
  bool connected_ = false, dialing_ = false, rejoin_ = false;
  std::uint64_t made_ = 0;
  std::map<wire::Tag, int> open_;
  std::set<wire::Tag> syncs_;
  std::set<wire::Attempt> ran_, discarded_;
};

}  // namespace

void run_peer(ByteView bytes) { PeerScript(bytes).run(); }

}  // namespace jccl::fuzz
