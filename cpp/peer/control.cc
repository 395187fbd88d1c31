// See control.h.
#include "peer/control.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/failpoint.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "net/security/credentials.h"
#include "peer/control_hook.h"
#include "wire/serialize.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Failpoint;
using base::Status;

// Of several masters one serves. The others refuse at once, or their machine is dead, or their
// process is stopped and only its kernel still accepts: each of these must cost little.
constexpr base::Duration kReachMax = base::kSecond;
constexpr base::Duration kFirstWordMax = 1500 * base::kMillisecond;

Status leaving() { return {Code::kClosed, "this peer leaves the run; connect again to come back"}; }

void at_received(const wire::Message& message) {
  if (base::failpoint_hook == nullptr) return;
  const auto* outcome = std::get_if<wire::Outcome>(&message);
  const bool commit = outcome != nullptr && outcome->verdict == wire::Verdict::kCommitted;
  if (std::holds_alternative<wire::Start>(message)) base::failpoint(Failpoint::kPeerStartReceived);
  if (commit) base::failpoint(Failpoint::kPeerCommitReceived);
}

// Reached when the message has been written: the write waits in the loop, and this behind it.
void at_sent(net::Loop& loop, const wire::Message& message) {
  if (base::failpoint_hook == nullptr) return;
  const auto post = [&](Failpoint point) { loop.post([point] { base::failpoint(point); }); };
  if (std::holds_alternative<wire::Hello>(message)) post(Failpoint::kPeerHelloSent);
  if (std::holds_alternative<wire::Ready>(message)) post(Failpoint::kPeerReadySent);
  if (std::holds_alternative<wire::Done>(message)) post(Failpoint::kPeerDoneSent);
}

}  // namespace

Control::Control(net::Loop& loop, net::Loop& data_loop, DataPlane& plane, Config config)
    : loop_(loop),
      data_loop_(data_loop),
      plane_(plane),
      config_(std::move(config)),
      recorder_(config_.recordings.any() ? config_.record_bytes : 0),
      machine_(config_.machine, config_.incarnation, loop.now()),
      writer_(std::move(config_.recordings)) {}

Control::~Control() {
  loop_.cancel(timer_);
  loop_.cancel(first_word_);
  dial_.reset();
  stream_.reset();
}

void Control::begin() {
  loop_.post([this] {
    update_view();
    apply(recorder_.start(machine_, loop_.now()));
  });
}

void Control::call(const protocol::Call& call, CallRef record) {
  loop_.post([this, call, record] {
    calls_[call.tag] = record;
    if (!view_.broken.ok()) {
      break_off(Status(view_.broken));
      return;
    }
    if (retiring_) {
      protocol::CompleteCall done;
      done.tag = call.tag;
      done.status = leaving();
      return complete(done);
    }
    on(call);
  });
}

void Control::cancel_all(const Status& ended_as) {
  loop_.post([this, ended_as] {
    if (!ended_as.ok() && !JCCL_PLANTED("closed-is-told-aborted")) ended_as_ = ended_as;
    std::set<wire::Tag> open;
    for (const auto& [tag, call] : calls_) open.insert(tag);
    for (const auto& [tag, record] : syncs_) open.insert(tag);
    for (const wire::Tag& tag : open) on(protocol::CancelCall{tag});
  });
}

void Control::sync(const protocol::SyncCall& call, SyncRef record) {
  loop_.post([this, call, record] {
    if (JCCL_PLANTED("second-sync-replaces")) syncs_.erase(call.tag);
    if (!syncs_.try_emplace(call.tag, record).second) {
      {
        std::lock_guard lock(mutex_);
        record->status = {Code::kBusyTag, cat("'", call.tag, "' is already being synchronised")};
        record->done = true;
      }
      changed_.notify_all();
      return;
    }
    if (!view_.broken.ok()) {
      break_off(Status(view_.broken));
      return;
    }
    if (retiring_) return synced({call.tag, leaving(), {}});
    on(call);
  });
}

void Control::published(const wire::Held& held) {
  loop_.post([this, held] { on(protocol::PublishState{held}); });
}

void Control::state_changed(const wire::Tag& tag, const std::string& why) {
  loop_.post([this, tag, why] { on(protocol::StateChanged{tag, why}); });
}

void Control::retire() {
  loop_.post([this] {
    retiring_ = true;
    ended_as_ = leaving();
    leave_rounds();
  });
}

// A round that moves has counted on this peer: it goes on to its end, as the others' does.
void Control::leave_rounds() {
  std::set<wire::Tag> waiting;
  for (const auto& [tag, call] : calls_) {
    if (!machine_.has_started(tag) || JCCL_PLANTED("leaves-in-mid-round")) waiting.insert(tag);
  }
  for (const auto& [tag, record] : syncs_) waiting.insert(tag);
  for (const wire::Tag& tag : waiting) on(protocol::CancelCall{tag});
}

void Control::depart() {
  loop_.post([this] { on(protocol::Depart{}); });
}

bool Control::needs_resync(const wire::Tag& tag) {
  bool answer = false;
  loop_.call([&] { answer = machine_.needs_resync(tag); });
  return answer;
}

void Control::attempt_done(const wire::Attempt& attempt, const base::Digest& result,
                           std::vector<wire::Share> shares, wire::AuditRoots audit) {
  loop_.post([this, attempt, result, shares = std::move(shares), audit = std::move(audit)] {
    on(protocol::AttemptDone{attempt, result, shares, audit});
  });
}

void Control::attempt_failed(const wire::Attempt& attempt, Code cause, base::PeerId peer,
                             std::string text) {
  loop_.post([this, attempt, cause, peer, text = std::move(text)] {
    on(protocol::AttemptFailed{attempt, cause, peer, text});
  });
}

void Control::fetched(const wire::Held& held) {
  loop_.post([this, held] { on(protocol::FetchDone{held}); });
}

void Control::fetch_failed(const wire::Tag& tag, const Status& status) {
  loop_.post([this, tag, status] {
    on(protocol::FetchFailed{tag, status.text, status.code == Code::kDisputed});
  });
}

void Control::outvoted(const wire::Outvoted& said) {
  loop_.post([this, said] { on(protocol::HolderOutvoted{said}); });
}

void Control::measured(const wire::Measured& measured) {
  loop_.post([this, measured] { on(protocol::NewMeasures{measured}); });
}

// Carries out effects in their order. Everything that concerns the data thread goes there in one
// post each, so that its order holds there too: a call completes after its commit was written.
void Control::apply(protocol::PeerEffects effects) {
  for (const wire::Attempt& attempt : effects.discard) {
    data_loop_.post([this, attempt] { plane_.discard(attempt); });
  }
  if (effects.roster) {
    data_loop_.post([this, roster = *effects.roster] { plane_.set_roster(roster); });
  }
  {
    std::lock_guard lock(mutex_);
    view_.hear(effects);
  }
  for (const protocol::RunAttempt& order : effects.run) {
    const auto found = calls_.find(order.start.round.tag);
    if (found == calls_.end()) {
      attempt_failed(order.start.attempt, Code::kAborted, 0, "no such call is open here");
      continue;
    }
    data_loop_.post([this, order, call = found->second] { plane_.run(order, call); });
  }
  for (const wire::Attempt& attempt : effects.commit) {
    data_loop_.post([this, attempt] { plane_.commit(attempt); });
  }
  for (const wire::AuditAsk& ask : effects.audit)
    data_loop_.post([this, ask] { plane_.audit(ask); });
  update_view();  // whoever a completion wakes sees the epoch it happened in
  for (const protocol::CompleteCall& done : effects.complete) complete(done);
  for (const protocol::FetchSnapshot& order : effects.fetch) {
    const auto found = syncs_.find(order.want.tag);
    if (found == syncs_.end()) continue;
    data_loop_.post([this, order, record = found->second] { plane_.fetch(order, record->layout); });
  }
  for (const protocol::CompleteSync& done : effects.synced) synced(done);
  for (const wire::Message& message : effects.send) send(message);
  if (effects.broken) break_off(*effects.broken);
  if (effects.departed) {  // when what it ends with has been sent
    std::lock_guard lock(mutex_);
    view_.departed = true;
    changed_.notify_all();
  }
  if (effects.disconnect) disconnect();
  arm(effects.wake);
  // An attempt that was aborted waits for its next one.
  if (retiring_ && !effects.send.empty()) loop_.post([this] { leave_rounds(); });
  update_view();
  if (effects.rejoin) {
    {
      std::lock_guard lock(mutex_);
      ++view_.evictions;
      view_.evicted = effects.evicted;
    }
    const auto random = net::random_u64();
    if (random.ok()) {
      on(protocol::NewLife{effects.renumber
                               ? base::first_life(random.value())
                               : base::next_life(machine_.incarnation(), random.value())});
    }
  }
  if (effects.connect) connect();
}

// Terminal: whatever is open ends here, and so will every later call.
void Control::break_off(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    view_.broken = why;
  }
  changed_.notify_all();
  while (!calls_.empty()) {
    protocol::CompleteCall done;
    done.tag = calls_.begin()->first;
    done.status = why;
    complete(done);
  }
  while (!syncs_.empty()) synced({syncs_.begin()->first, why, {}});
}

void Control::update_view() {
  const wire::RunId run = machine_.run();
  const base::Incarnation incarnation = machine_.incarnation();
  bool fresh = false, news = false;
  {
    std::lock_guard lock(mutex_);
    fresh = view_.run != run || view_.incarnation != incarnation;
    news = fresh || view_.id != machine_.id() || view_.epoch != machine_.epoch() ||
           view_.idle != calls_.empty();
    view_.idle = calls_.empty();
    view_.run = run;
    view_.incarnation = incarnation;
    view_.id = machine_.id();
    view_.epoch = machine_.epoch();
    view_.welcomed = view_.welcomed || machine_.epoch() > 0;
  }
  if (machine_.silence() != silence_) {
    silence_ = machine_.silence();
    data_loop_.post([this, silence = silence_] { plane_.set_silence(silence); });
  }
  if (machine_.max_rate() != max_rate_) {
    max_rate_ = machine_.max_rate();
    data_loop_.post([this, rate = max_rate_] { plane_.set_max_rate(rate); });
  }
  if (news) changed_.notify_all();  // not at every message: each waiting thread would wake
  if (!fresh) return;
  const bool dialled = !config_.machine.addresses.empty();
  data_loop_.post(
      [this, run, incarnation, dialled] { plane_.set_self(run, incarnation, dialled); });
}

// Whom the machine tells that it was interrupted hears by what. Only the machine knows whether a
// call was sure to have come to nothing.
Status Control::told(const Status& status) const {
  return status.code == Code::kAborted && !ended_as_.ok() ? ended_as_ : status;
}

void Control::complete(const protocol::CompleteCall& done) {
  const auto found = calls_.find(done.tag);
  if (found == calls_.end()) return;
  const CallRef call = found->second;
  calls_.erase(found);
  protocol::CompleteCall said = done;
  said.status = told(done.status);
  data_loop_.post([this, call, said] { finish_call(call, said); });
}

// On the data thread, after the commit or discard of the call's last attempt.
void Control::finish_call(const CallRef& call, const protocol::CompleteCall& done) {
  plane_.release(call);
  if (!call->delivered) {
    for (const Leaf& leaf : call->leaves) keep_input(call->options, leaf);
  }
  {
    std::lock_guard lock(mutex_);
    RoundResult& result = call->result;
    result.status = done.status;
    if (done.status.ok() && !call->delivered) {
      result.status = {Code::kInternal,
                       "the master committed an attempt that is not complete here"};
    } else if (!done.status.ok() && !call->here.empty()) {
      result.status.text += cat(" (here: ", call->here, ")");
    }
    result.n = done.n;
    result.world = done.world;
    result.epoch = done.epoch;
    result.attempts = done.attempts;
    for (const wire::Contributor& c : done.contributors) {
      result.contributors.push_back(c.id);
      result.weights.push_back(JCCL_PLANTED("weights-not-handed-out") ? 1.0 : c.weight);
    }
    result.sent_bytes = call->sent_bytes;
    result.received_bytes = call->received_bytes;
    result.scatter_first = call->scatter_first;
    result.scatter_count = call->scatter_count;
    call->ended_at = data_loop_.now();
    result.elapsed = call->ended_at - call->begun;
    call->done = true;
    if (call->delivered) ++view_.rounds_committed;
    if (done.attempts > 1) view_.rounds_retried += done.attempts - 1;
  }
  call->ended.notify_all();
  base::failpoint(Failpoint::kPeerCallEnded);
}

void Control::synced(const protocol::CompleteSync& done) {
  const auto found = syncs_.find(done.tag);
  if (found == syncs_.end()) return;
  const SyncRef record = found->second;
  syncs_.erase(found);
  if (!done.status.ok()) data_loop_.post([this, tag = done.tag] { plane_.stop_fetch(tag); });
  {
    std::lock_guard lock(mutex_);
    record->status = told(done.status);
    record->held = done.held;
    record->went_back = done.went_back;
    record->done = true;
  }
  changed_.notify_all();
}

void Control::connect() {
  ++connection_;
  stream_.reset();
  const std::uint64_t connection = connection_;
  net::DialOptions options;
  options.group = config_.group;
  if (config_.master.size() > 1) options.connect_max = options.handshake_max = kReachMax;
  dial_ = net::dial(loop_, config_.master, config_.credentials, options,
                    [this, connection](base::Result<std::unique_ptr<net::ByteStream>> stream) {
                      if (connection != connection_) return;
                      if (stream.ok()) {
                        connected(std::move(stream.value()));
                      } else {
                        lost(stream.status());
                      }
                    });
}

void Control::connected(std::unique_ptr<net::ByteStream> stream) {
  const std::uint64_t connection = connection_;
  const net::DialPolicy policy(net::endpoint_of(stream->remote_text()), net::own_endpoints());
  data_loop_.post([this, policy] { plane_.set_policy(policy); });
  net::FramedOptions options;
  options.frame_bytes_max = base::kRosterBytesMax;
  stream_ = std::make_unique<net::FramedStream>(loop_, std::move(stream), options);
  stream_->authenticated();  // we chose whom to dial
  stream_->start(
      [this, connection](base::ByteView frame) {
        if (connection != connection_) return;
        loop_.cancel(std::exchange(first_word_, 0));
        auto message = wire::decode(frame);
        if (!message.ok()) {
          lost({Code::kCorrupt, cat("the master's message is broken: ", message.status().text)});
          return;
        }
        at_received(message.value());
        hear_refusal(message.value());
        if (control_hook != nullptr) [[unlikely]] {
          for (const base::Bytes& word : control_hook->hears(message.value())) put(word);
        }
        on(protocol::FromMaster{std::move(message.value())});
      },
      [this, connection](Status cause) {
        if (connection == connection_) lost(std::move(cause));
      });
  if (config_.master.size() > 1) await_first_word();
  on(protocol::Connected{});
}

void Control::hear_refusal(const wire::Message& message) {
  const auto* refuse = std::get_if<wire::Refuse>(&message);
  if (refuse == nullptr) return;
  std::lock_guard lock(mutex_);
  view_.refused = refuse->text;
}

void Control::await_first_word() {
  loop_.cancel(first_word_);
  first_word_ = loop_.run_after(kFirstWordMax, [this] {
    first_word_ = 0;
    lost({Code::kMasterLost, "the master accepted the connection, but does not answer"});
  });
}

// The next dial begins with another master: the one that was lost may be gone for good.
void Control::rotate() {
  ++connection_;
  loop_.cancel(std::exchange(first_word_, 0));
  auto& list = config_.master;
  if (!list.empty() && !JCCL_PLANTED("same-master-again"))
    std::rotate(list.begin(), list.begin() + 1, list.end());
}

void Control::disconnect() {
  rotate();
  if (stream_) stream_->finish();
  stream_.reset();
  dial_.reset();
}

void Control::lost(Status cause) {
  rotate();
  stream_.reset();
  dial_.reset();
  {
    std::lock_guard lock(mutex_);
    view_.last_error = cause;
    view_.refused.clear();
  }
  on(protocol::Disconnected{std::move(cause)});
}

void Control::send(const wire::Message& message) {
  if (!stream_) return;  // the machine sends again after it reconnected
  if (control_hook != nullptr) [[unlikely]] {
    for (const base::Bytes& word : control_hook->says(message)) put(word);
  } else {
    put(wire::encode(message));
  }
  at_sent(loop_, message);
}

void Control::put(const base::Bytes& word) {
  const Status sent = stream_->send(word);
  if (sent.ok()) return;
  loop_.post([this, sent, connection = connection_] {  // not in the middle of other effects
    if (connection == connection_) lost(sent);
  });
}

void Control::arm(base::Time wake) {
  if (wake == timer_at_ && timer_ != 0) return;
  loop_.cancel(timer_);
  timer_ = 0;
  timer_at_ = wake;
  if (wake == base::kNever) return;
  const base::Duration late = JCCL_PLANTED("timers-come-late") ? 900 * base::kMillisecond : 0;
  timer_ = loop_.run_after(std::max<base::Duration>(0, wake - loop_.now()) + late, [this] {
    timer_ = 0;
    timer_at_ = base::kNever;
    beat();
  });
}

void Control::beat() {
  on(protocol::Progress{plane_.progress(), plane_.moving()});
  on(protocol::PeerTick{});
}

}  // namespace jccl::peer
