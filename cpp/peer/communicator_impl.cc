// Checks calls, hands them to the control thread, and waits.
#include "peer/communicator_impl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "net/security/credentials.h"
#include "net/socket/address.h"
#include "peer/connect.h"
#include "peer/record_signal.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Status;
using collective::CollectiveSpec;

constexpr base::Duration kDepartMax = base::kSecond;
constexpr base::Duration kSettleMax = 10 * base::kSecond;  // for a round that moves
constexpr std::size_t kTimelineMax = 1024;

Status closed_status() {
  return {Code::kClosed, "the communicator is closed; connect again to go on"};
}

// There is something to keep back, and results are received into no memory that is compared.
bool may_compare_beside(const std::vector<Leaf>& leaves, const RoundOptions& options) {
  if (!options.state_leaves) return false;
  const auto end = [](const void* at, std::uint64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(at) + bytes;
  };
  bool has_values = false;
  for (const Leaf& leaf : leaves) {
    has_values = has_values || leaf.count > 0;
    if (leaf.out == nullptr) continue;
    const std::uintptr_t out_end = end(leaf.out, output_bytes(options, leaf));
    for (const Leaf& state : *options.state_leaves) {
      const std::uintptr_t state_end = end(state.in, state.count * codec::size_of(state.dtype));
      if (end(leaf.out, 0) < state_end && end(state.in, 0) < out_end) return false;
    }
  }
  return has_values;
}

// Bit 63 stays clear: bindings mark starts that failed with it.
Handle handles_of(base::Incarnation incarnation) { return (incarnation & 0x7FFF'FFFF) << 32; }

// Of a call that the loops have let go of: its result, or what a failed one leaves behind.
void hand_out(const CallRecord& call, const std::vector<void*>& outs, OnFailure on_failure) {
  const bool other_form = has_output_of_its_own(call.options);
  if (!call.delivered && (other_form || on_failure == OnFailure::kLeave)) return;
  for (std::size_t i = 0; i < outs.size() && i < call.leaves.size(); ++i) {
    const std::size_t bytes = output_bytes(call.options, call.leaves[i]);
    if (bytes > 0 && outs[i] != nullptr) std::memcpy(outs[i], call.staged_out[i]->data(), bytes);
  }
}

}  // namespace

Status forked_status() {
  return {Code::kClosed,
          "this process was forked after connect; communicators do not survive a "
          "fork: connect in the child"};
}

Communicator::Impl::Impl(ConnectOptions options) : options_(std::move(options)), pid_(::getpid()) {}

Status Communicator::Impl::open() {
  auto setup = make_setup(options_);
  if (!setup.ok()) return setup.status();
  Setup& s = setup.value();
  options_.identity = s.credentials.identity;
  next_handle_ = handles_of(s.incarnation) + 1;
  control_loop_.start();
  data_loop_.start();
  DataPlaneOptions plane;
  plane.credentials = s.credentials;
  plane.stripes = options_.stripes;
  plane.max_rate = options_.max_rate, plane.day_bytes = options_.day_bytes;
  plane.io_threads = options_.io_threads;
  plane.chunk_bytes = options_.chunk_bytes;
  DataPlaneEvents events;
  events.attempt_done = [this](const auto& a, const auto& d, auto shares, auto audit) {
    control_->attempt_done(a, d, std::move(shares), std::move(audit));
  };
  events.audited = [this](const auto& a, auto parts) { control_->audited(a, std::move(parts)); };
  events.attempt_failed = [this](const auto& a, Code c, base::PeerId p, std::string t) {
    control_->attempt_failed(a, c, p, std::move(t));
  };
  events.fetched = [this](const auto& held) { control_->fetched(held); };
  events.fetch_failed = [this](const auto& tag, const Status& why) {
    control_->fetch_failed(tag, why);
  };
  events.outvoted = [this](const auto& said) { control_->outvoted(said); };
  events.violation = [this](const auto& seen) { control_->violation(seen); };
  events.measured = [this](const auto& measured) { control_->measured(measured); };
  Status listening;
  data_loop_.call([&] {
    plane_ = std::make_unique<DataPlane>(data_loop_, plane, &store_, std::move(events));
    if (s.bind) listening = plane_->listen(*s.bind);
    if (listening.ok() && s.bind) s.bind->port = plane_->port();
  });
  if (!listening.ok()) return listening;
  Control::Config config;
  config.machine = s.machine;
  config.incarnation = s.incarnation;
  config.master = s.master;
  config.credentials = s.credentials;
  config.group = options_.group;
  config.recordings = std::move(s.recordings);
  config.record_bytes = options_.record_bytes;
  if (s.bind) {
    config.machine.addresses = advertised(options_, *s.bind, s.master);
    listen_text_ = config.machine.addresses.empty() ? "" : config.machine.addresses.front();
  }
  control_loop_.call([&] {
    control_ = std::make_unique<Control>(control_loop_, data_loop_, *plane_, std::move(config));
  });
  if (options_.record_on_signal) {
    const Status ours =
        record_at_signal(this, [this](const std::string& why) { control_->record_and_note(why); });
    if (!ours.ok()) return ours;
  }
  control_->begin();
  const base::Time limit = control_loop_.now() + options_.connect_timeout;
  std::unique_lock lock(control_->mutex());
  wait_until(lock, control_->changed(), limit,
             [&] { return control_->view().welcomed || !control_->view().broken.ok(); });
  const ControlView& view = control_->view();
  if (!view.broken.ok()) return view.broken;
  if (view.welcomed) return {};
  if (!view.refused.empty()) {
    return {Code::kMasterLost,
            cat("the master at ", options_.master, " did not admit this peer within ",
                options_.connect_timeout / base::kMillisecond, " ms: ", view.refused)};
  }
  return {Code::kMasterLost, cat("no master answered at ", options_.master, " within ",
                                 options_.connect_timeout / base::kMillisecond, " ms",
                                 view.last_error.ok() ? "" : cat(": ", view.last_error.text),
                                 "; start one with `jccl master`, or correct the address")};
}

// Waits in slices, so that a wait never depends on one notification.
bool Communicator::Impl::wait_until(std::unique_lock<std::mutex>& lock,
                                    std::condition_variable& changed, base::Time limit,
                                    const std::function<bool()>& ready) {
  while (!ready()) {
    const base::Time now = control_loop_.now();
    if (now >= limit) return false;
    const auto slice =
        std::chrono::nanoseconds(std::min<base::Duration>(limit - now, base::kSecond));
    changed.wait_for(lock, slice);
  }
  return true;
}

Status Communicator::Impl::usable() const {
  if (::getpid() != pid_) return forked_status();
  if (closed_ || closing_) return closed_status();
  return {};
}

Status Communicator::Impl::room_for(const base::Tag& tag) const {
  if (books_.count(tag) > 0 || books_.size() < base::kTagsMax) return {};
  return {Code::kLimit,
          cat("tag '", tag, "' is one too many; use at most ", base::kTagsMax,
              " tags: a tag names a stream of rounds, which are numbered, and not one round")};
}

base::Result<Handle> Communicator::Impl::start(const std::vector<Leaf>& leaves,
                                               const RoundOptions& options, bool stage,
                                               bool blocks) {
  if (::getpid() != pid_) return forked_status();
  const Status checked = check_call(leaves, options);
  if (!checked.ok()) return checked;
  if (Status status = check_feed(leaves, options.feed, stage); !status.ok()) return status;
  auto call = std::make_shared<CallRecord>();
  call->blocks = blocks;
  call->leaves = leaves;
  call->options = options;
  RoundOptions& o = call->options;
  if (o.plan == "auto") o.plan.clear();
  const CollectiveSpec& spec = collective::spec_of(o.collective);
  o.op = spec.op.value_or(o.op);
  if (spec.weight == CollectiveSpec::Weight::kOne && o.weight > 0) o.weight = 1.0;
  if (spec.weight == CollectiveSpec::Weight::kRoot) o.weight = o.root ? 1.0 : 0.0;
  call->begun = control_loop_.now();
  const bool goes_before = !options.state_tag.empty();
  const bool beside = !goes_before && o.weight > 0 && may_compare_beside(leaves, options);
  if (Status status =
          goes_before ? admit_before_state(options) : begin_comparison(call, options, beside);
      !status.ok())
    return status;
  o.state_leaves.reset();  // the caller's memory, until this returns
  call->specs = exchange::specs_of(call->leaves, o);
  for (Leaf& leaf : call->leaves) {
    const std::size_t bytes = leaf.count * codec::size_of(leaf.dtype);
    call->payload_bytes += bytes;
    if (!stage) continue;
    const std::size_t held = leaf.encoded != nullptr ? leaf.encoded_bytes : bytes;
    const void* from = leaf.encoded != nullptr ? leaf.encoded : leaf.in;
    BufferRef in = staging_.take(std::max<std::size_t>(held, 1));
    BufferRef out = staging_.take(std::max<std::size_t>(output_bytes(o, leaf), 1));
    if (held > 0) std::memcpy(in->data(), from, held);
    if (leaf.encoded != nullptr) {
      leaf.encoded = in->data();
    } else {
      leaf.in = in->data();
    }
    leaf.out = out->data();  // the result, or the input, lies here until wait() hands it out
    call->staged_in.push_back(std::move(in));
    call->staged_out.push_back(std::move(out));
  }
  o.out_private = o.out_private || stage;
  const Descriptor descriptor = describe_call(*call, options_.chunk_bytes);
  protocol::Call order;
  order.tag = o.tag;
  order.descriptor = descriptor.digest;
  order.summary = descriptor.summary;
  order.hint = descriptor.hint;
  order.contributors_max = descriptor.contributors_max;
  order.unit_weights = descriptor.unit_weights;
  order.quorum = descriptor.quorum;
  order.weight = o.weight;
  order.fingerprint = o.fingerprint;
  order.before = o.state_tag;
  order.deadline =
      call->begun + deadline_of(o.deadline) * (JCCL_PLANTED("deadline-four-times") ? 4 : 1);
  forget_lost(o.tag, std::max(order.deadline, control_loop_.now() + kDeadlineSlack));
  {
    std::lock_guard lock(mutex_);
    if (const Status open = usable(); !open.ok()) return open;
    if (open_tags_.count(o.tag) > 0 && !JCCL_PLANTED("busy-tag-taken")) {
      return Status(Code::kBusyTag, cat("a call with tag '", o.tag,
                                        "' is already running; wait for it, end it with "
                                        "comm.abort(), or use another tag"));
    }
    if (const Status room = room_for(o.tag); !room.ok()) return room;
    order.is_state = books_[o.tag].state.known();
    call->handle = next_handle_++;
    calls_[call->handle] = call;
    open_tags_[o.tag] = call->handle;
  }
  control_->call(order, call);
  if (beside) compare_beside(call, *options.state_leaves);
  return call->handle;
}

RoundResult Communicator::Impl::wait(Handle handle, const std::vector<void*>* outs,
                                     OnFailure on_failure) {
  RoundResult result;
  CallRef call;
  const base::Time awaited = control_loop_.now();
  if (::getpid() != pid_) {
    result.status = forked_status();
    return result;
  }
  {
    std::lock_guard lock(mutex_);
    const auto found = calls_.find(handle);
    if (found == calls_.end()) {
      result.status = {
          closed_ ? Code::kClosed : Code::kUnknownTag,
          closed_ ? closed_status().text
                  : cat("no round with handle ", handle,
                        " is open: it was never started, was waited for already, or belonged to a "
                        "state that has been replaced")};
      return result;
    }
    call = found->second;
    if (call->taken && !JCCL_PLANTED("two-wait-for-one")) {
      result.status = {Code::kBusyTag, cat("another thread already waits for tag '",
                                           call->options.tag, "'; let one thread wait")};
      return result;
    }
    call->taken = true;
  }
  {
    const base::Time limit = call->begun + deadline_of(call->options.deadline) + kDeadlineSlack;
    std::unique_lock lock(control_->mutex());
    wait_until(lock, call->ended, limit, [&] { return call->done; });
    if (!call->done) {
      // The control thread owes an answer by the deadline; the memory may still be in use.
      lock.unlock();
      data_loop_.call([&] {
        plane_->release(call);
        if (call->delivered) return;
        for (const Leaf& leaf : call->leaves) keep_input(call->options, leaf);
      });
      lock.lock();
      if (!call->done) {
        call->result.status = {Code::kInternal,
                               cat("round '", call->options.tag, "' outlived its deadline")};
      }
    }
    result = call->result;
  }
  if (!call->staged_out.empty() && outs != nullptr) hand_out(*call, *outs, on_failure);
  std::lock_guard lock(mutex_);
  note_times(*call, awaited);
  calls_.erase(handle);
  open_tags_.erase(call->options.tag);
  if (call->delivered && !JCCL_PLANTED("revision-not-advanced"))
    books_[call->options.tag].revision = result.n;
  return result;
}

void Communicator::Impl::note_times(const CallRecord& call, base::Time awaited) {
  if (timeline_.size() == kTimelineMax) timeline_.pop_front();
  const RoundResult& r = call.result;
  timeline_.push_back({call.options.tag, r.n, r.status.code, r.attempts, call.begun, call.started,
                       call.moved, call.ended_at, awaited, control_loop_.now()});
}

std::vector<RoundTimes> Communicator::Impl::timeline() {
  if (::getpid() != pid_) return {};
  std::lock_guard lock(mutex_);
  return {timeline_.begin(), timeline_.end()};
}

void Communicator::Impl::abort() {
  if (!usable().ok()) return;
  {
    std::lock_guard lock(mutex_);
    for (auto& [handle, call] : calls_) call->aborted = true;
  }
  control_->cancel_all();
}

base::Result<std::string> Communicator::Impl::record(const std::string& why) {
  if (const Status now = usable(); !now.ok()) return now;
  return control_->record(why);
}

void Communicator::Impl::leave() {
  if (!usable().ok()) return close();
  control_->retire();
  control_loop_.call([] {});  // behind it, so that the view is of after it
  {
    std::unique_lock lock(control_->mutex());
    const auto idle = [&] { return control_->view().idle || !control_->view().broken.ok(); };
    wait_until(lock, control_->changed(), control_loop_.now() + kSettleMax, idle);
  }
  close();
}

// Makes room, by `limit`, where a round is open whose handle nobody will bring: abort() ended it,
// or it is a state's, and whoever holds the handle of one ends it before the next. That one goes on
// to its end, as the others count on it; its result is not this peer's state, which stays behind.
void Communicator::Impl::forget_lost(const base::Tag& tag, base::Time limit) {
  CallRef old;
  {
    std::lock_guard lock(mutex_);
    const auto open = open_tags_.find(tag);
    if (open == open_tags_.end()) return;
    old = calls_.at(open->second);
    const bool aborted = old->aborted && !JCCL_PLANTED("aborted-tag-stays-busy");
    const bool of_state = books_[tag].state.known() && !JCCL_PLANTED("lost-round-stays-open");
    const bool awaited = old->taken || old->blocks;
    if ((!aborted && !of_state) || awaited) return;
  }
  {
    std::unique_lock lock(control_->mutex());
    if (!wait_until(lock, old->ended, limit, [&] { return old->done; })) return;
  }
  std::lock_guard lock(mutex_);
  if (old->taken || calls_.erase(old->handle) == 0) return;
  open_tags_.erase(tag);
  const bool missed = old->delivered && books_[tag].state.known();
  if (missed && !JCCL_PLANTED("lost-result-is-no-loss")) {
    control_->state_changed(tag, "nobody took the result of its last round");
  }
}

bool Communicator::Impl::finished(Handle handle) {
  if (::getpid() != pid_) return true;
  CallRef call;
  {
    std::lock_guard lock(mutex_);
    const auto found = calls_.find(handle);
    if (found == calls_.end()) return true;
    call = found->second;
  }
  std::lock_guard lock(control_->mutex());
  return call->done;
}

bool Communicator::Impl::is_open(Handle handle) {
  if (::getpid() != pid_) return false;
  std::lock_guard lock(mutex_);
  return calls_.count(handle) > 0;
}

void Communicator::Impl::close() {
  if (::getpid() != pid_) return;
  {
    std::unique_lock lock(mutex_);
    if (closing_) {  // by another thread: who is told that it is closed may free its arrays
      closed_changed_.wait(lock, [&] { return closed_.load(); });
      return;
    }
    closing_ = true;
  }
  if (options_.record_on_signal) forget_signal(this);
  if (control_) {
    control_->cancel_all(closed_status());
    control_->depart();
    std::unique_lock lock(control_->mutex());
    const auto& view = control_->view();
    const auto gone = [&] { return view.departed || !view.broken.ok() || !view.welcomed; };
    wait_until(lock, control_->changed(), control_loop_.now() + kDepartMax, gone);
  }
  control_loop_.stop();
  data_loop_.call([] {});  // by then every call has its end that the control thread came to
  // Who fetches a state from here goes on to another at once, and not when this object is
  // destroyed.
  if (plane_) data_loop_.call([this] { plane_->hang_up(); });
  data_loop_.stop();
  std::lock_guard lock(mutex_);
  closed_ = true;
  closed_changed_.notify_all();
  if (control_) {
    std::lock_guard results(control_->mutex());
    // Of calls that the loops did not come to any more. Who waits for one may free its memory as
    // soon as it is told: until then frames that are half sent point there.
    for (auto& [handle, call] : calls_)
      if (!call->done) plane_->release(call);
    for (auto& [handle, call] : calls_) {
      if (call->done) continue;
      Status& ended = call->result.status = closed_status();
      if (call->started != 0)
        ended = {Code::kInDoubt, "the communicator was closed before the outcome was known"};
      call->done = true;
      for (const Leaf& leaf : call->leaves) keep_input(call->options, leaf);
      call->ended.notify_all();
    }
    control_->changed().notify_all();
  }
}

}  // namespace jccl::peer
