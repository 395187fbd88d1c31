// The façade: one line per method. See communicator_impl.h.
#include "peer/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "peer/communicator_impl.h"

namespace jccl::peer {

using base::cat;
using base::Status;

base::Result<std::shared_ptr<Communicator>> Communicator::connect(const ConnectOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  const Status opened = impl->open();
  if (!opened.ok()) return opened;
  return std::make_shared<Communicator>(std::move(impl));
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  // After a fork the threads exist in the parent only: there is nothing that could be torn down.
  if (::getpid() != impl_->pid_) (void)impl_.release();
}

Status Communicator::check_state(const RoundOptions& options) {
  if (Status status = check_tag(options.tag); !status.ok()) return status;
  return impl_->check_state(options);
}

RoundResult Communicator::run(const std::vector<Leaf>& leaves, const RoundOptions& options) {
  auto handle = impl_->start(leaves, options, false, true);
  if (handle.ok()) return impl_->wait(handle.value(), nullptr, OnFailure::kLeave);
  RoundResult result;
  result.status = handle.status();
  for (const Leaf& leaf : leaves) keep_input(options, leaf);
  return result;
}

base::Result<Handle> Communicator::start(const std::vector<Leaf>& leaves,
                                         const RoundOptions& options, bool stage) {
  return impl_->start(leaves, options, stage);
}

RoundResult Communicator::wait(Handle handle, const std::vector<void*>* outs,
                               OnFailure on_failure) {
  return impl_->wait(handle, outs, on_failure);
}

bool Communicator::finished(Handle handle) const { return impl_->finished(handle); }

bool Communicator::is_open(Handle handle) const { return impl_->is_open(handle); }

SyncResult Communicator::sync_state(const std::vector<Leaf>& leaves, const SyncOptions& options) {
  return impl_->sync_state(leaves, options);
}

SyncResult Communicator::publish(const std::vector<Leaf>& leaves, const SyncOptions& options) {
  return impl_->publish(leaves, options);
}

void Communicator::abort() { impl_->abort(); }

void Communicator::leave() { impl_->leave(); }

base::Result<std::string> Communicator::record(const std::string& why) {
  return impl_->record(why);
}

void Communicator::close() { impl_->close(); }

base::Duration Communicator::deadline() const { return impl_->options_.deadline; }

std::shared_ptr<const net::Identity> Communicator::identity() const {
  return impl_->options_.identity;
}

Attributes Communicator::attributes() const {
  Attributes a;
  if (::getpid() != impl_->pid_) return a;
  std::lock_guard lock(impl_->control_->mutex());
  const ControlView& view = impl_->control_->view();
  a.run = view.run;
  a.id = view.id;
  a.incarnation = view.incarnation;
  a.epoch = view.epoch;
  a.world = static_cast<std::uint32_t>(view.sites.size());
  a.sites = view.sites;
  a.ids = view.ids;
  a.evictions = view.evictions;
  a.evicted = view.evicted;
  a.departures = view.departures;
  a.departed = {view.departed_why.begin(), view.departed_why.end()};
  a.drain = view.drain;
  a.noticed = view.noticed;
  a.notices = {view.notices.begin(), view.notices.end()};
  a.sent_bytes = impl_->plane_->sent();
  a.received_bytes = impl_->plane_->received();
  a.rounds_committed = view.rounds_committed;
  a.rounds_retried = view.rounds_retried;
  a.listen = impl_->listen_text_;
  return a;
}

base::Digest Communicator::digest(const base::Tag& tag) const {
  const SnapshotRef newest = impl_->store_.newest(tag);
  return newest ? newest->held.digest : base::Digest{};
}

std::uint64_t Communicator::revision(const base::Tag& tag) const {
  const SnapshotRef newest = impl_->store_.newest(tag);
  return newest ? newest->held.revision : 0;
}

std::string Communicator::site_of(base::PeerId id) const {
  if (::getpid() != impl_->pid_) return "";
  std::lock_guard lock(impl_->control_->mutex());
  const auto& names = impl_->control_->view().site_of;
  const auto found = names.find(id);
  return found == names.end() ? "" : found->second;
}

base::Status Communicator::tell_found(const WorkFound& found) {
  if (::getpid() != impl_->pid_) return {base::Code::kInvalid, "opened by another process"};
  if (found.policy > static_cast<std::uint8_t>(wire::FindingPolicy::kBan)) {
    return {base::Code::kInvalid, "a policy is 0 (warn), 1 (exclude) or 2 (ban)"};
  }
  if (base::Status s = check_tag(found.tag); !s.ok()) return s;
  const double most = std::numeric_limits<std::uint32_t>::max();
  const double worst = std::isnan(found.worst) ? most : std::clamp(found.worst * 1000, 0.0, most);
  impl_->control_->found({found.tag, found.round, found.peer, found.differs,
                          static_cast<std::uint32_t>(worst),
                          static_cast<wire::FindingPolicy>(found.policy)});
  return {};
}

std::string Communicator::waiting_for() const {
  if (!impl_->usable().ok()) return "closed";
  std::string text;
  for (const auto& [tag, what] : waits()) {
    text += cat(text.empty() ? "" : "; ", tag, tag.empty() ? "" : ": ", what);
  }
  return text;
}

std::vector<std::pair<base::Tag, std::string>> Communicator::waits() const {
  if (!impl_->usable().ok()) return {};
  return impl_->control_->waits();
}

std::string Communicator::new_mistake(const base::Tag& tag) { return impl_->new_mistake(tag); }

std::vector<RoundTimes> Communicator::timeline() const { return impl_->timeline(); }

std::string describe(const Status& status) {
  if (status.ok()) return "Ok";
  const base::Remedy remedy = base::remedy_of(status.code);
  return cat(base::name_of(status.code), ": ", base::printable(status.text),
             remedy == base::Remedy::kNone ? "" : cat(" [remedy: ", base::name_of(remedy), "]"));
}

}  // namespace jccl::peer
