#include "registry.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::xla_ext {

using base::Code;
using base::Status;

namespace {
constexpr std::size_t kRecentMax = 256;
}

Status unknown_handle(peer::Handle handle) {
  return {Code::kUnknownTag,
          base::cat("handle ", handle,
                    " names no open round: it was ended already, or is another communicator's or "
                    "an earlier process's")};
}

Status other_leaves(const base::Tag& tag) {
  return {Code::kInvalid,
          base::cat("done() of tag '", tag, "' was given other leaves than its start()")};
}

Entry::Entry(std::shared_ptr<peer::Communicator> communicator, std::int64_t id)
    : communicator_(std::move(communicator)), id_(id), pid_(getpid()) {}

bool Entry::foreign() const { return getpid() != pid_; }

Status Entry::enter(const base::Tag& tag, std::int64_t execution, std::int32_t device) {
  std::lock_guard lock(mutex_);
  const auto [at, fresh] = calls_.try_emplace(tag, LocalCall{execution, device});
  if (!fresh && !JCCL_PLANTED("two-devices-of-one-tag") && at->second.execution == execution &&
      at->second.device != device) {
    return {Code::kLocalSkew,
            base::cat("tag '", tag, "': local devices ", at->second.device, " and ", device,
                      " both called it in one execution; use jccl.all_reduce inside shard_map, "
                      "or call from a program that runs on one device")};
  }
  at->second = {execution, device};
  return {};
}

void Entry::arrives(const base::Tag& tag, std::int64_t execution, std::int32_t device) {
  std::lock_guard lock(mutex_);
  LocalCall& speaker = speakers_.try_emplace(tag, LocalCall{execution, device}).first->second;
  if (speaker.execution != execution) speaker = {execution, device};
  speaker.device = std::min(speaker.device, device);
}

bool Entry::speaks(const base::Tag& tag, std::int64_t execution, std::int32_t device) const {
  std::lock_guard lock(mutex_);
  const auto found = speakers_.find(tag);
  return found == speakers_.end() || found->second.execution != execution ||
         found->second.device == device;
}

void Fault::follow(Code code) {
  const bool same = status.code == code || JCCL_PLANTED("row-over-codes");
  row = same ? row + 1 : 1;
}

// A program is given a status and goes on, so what happened is kept for those beside it.
void Entry::note(const base::Tag& tag, const Status& status) {
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    if (!rows_.empty()) rows_.erase(tag);
    return;
  }
  const std::string mistake = communicator_->new_mistake(tag);
  std::lock_guard lock(mutex_);
  if (!JCCL_PLANTED("fault-not-kept")) faults_[tag] = peer::describe(status);
  Fault& last = rows_[tag];
  last.follow(status.code);
  last.number = ++noted_;
  last.tag = tag;
  last.status = {status.code, mistake.empty() ? status.text : mistake};
  if (recent_.size() == kRecentMax) recent_.pop_front();
  recent_.push_back(last);
}

std::vector<Fault> Entry::faults_after(std::uint64_t number) const {
  std::lock_guard lock(mutex_);
  std::vector<Fault> later;
  for (const Fault& fault : recent_)
    if (fault.number > number) later.push_back(fault);
  return later;
}

std::vector<Fault> Entry::open_faults() const {
  std::lock_guard lock(mutex_);
  std::vector<Fault> open;
  for (const auto& [tag, fault] : rows_) open.push_back(fault);
  return open;
}

std::string Entry::last_fault(const base::Tag& tag) const {
  std::lock_guard lock(mutex_);
  const auto at = faults_.find(tag);
  return at == faults_.end() ? std::string() : at->second;
}

void Entry::count(const base::Tag& tag, const peer::RoundResult& committed) {
  std::lock_guard lock(mutex_);
  counted_[tag] = {committed.n, committed.contributors, committed.weights};
}

Counted Entry::counted(const base::Tag& tag) const {
  std::lock_guard lock(mutex_);
  const auto at = counted_.find(tag);
  return at == counted_.end() ? Counted{} : at->second;
}

void Entry::opened(peer::Handle handle, const base::Tag& tag, std::vector<Shape> shapes) {
  std::lock_guard lock(mutex_);
  open_[handle] = {tag, std::move(shapes)};
}

Status Entry::take(peer::Handle handle, const std::vector<Shape>& shapes, base::Tag* tag) {
  std::lock_guard lock(mutex_);
  const auto at = open_.find(handle);
  if (at == open_.end()) return unknown_handle(handle);
  if (at->second.shapes != shapes && !JCCL_PLANTED("done-with-other-leaves"))
    return other_leaves(at->second.tag);
  *tag = at->second.tag;
  open_.erase(at);
  return {};
}

std::shared_ptr<void> Entry::attached(const std::function<std::shared_ptr<void>()>& make) {
  std::lock_guard lock(mutex_);
  if (!attached_ && !let_go_) attached_ = make();
  return attached_;
}

void Entry::let_go() {
  rendezvous_.abort();         // devices that come later find no entry: nobody is to wait for them
  std::shared_ptr<void> last;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  let_go_ = true;
  last.swap(attached_);
}

namespace {
Registry* instance = nullptr;
}

Registry& Registry::get() {
  static const bool made = [] {
    instance = new Registry(1);
    pthread_atfork(nullptr, nullptr, &Registry::after_fork_in_child);
    return true;
  }();
  (void)made;
  return *instance;
}

// Only this thread exists in the child, and the old registry's mutex may be held by one that does
// not: leave it where it is. Reading `next_` unlocked is safe enough, as ids only have to differ.
void Registry::after_fork_in_child() { instance = new Registry(instance->next_ + 1000); }

std::shared_ptr<Entry> Registry::add(std::shared_ptr<peer::Communicator> communicator) {
  std::lock_guard lock(mutex_);
  const std::int64_t id = next_++;
  auto entry = std::make_shared<Entry>(std::move(communicator), id);
  entries_[id] = entry;
  return entry;
}

std::shared_ptr<Entry> Registry::find(std::int64_t id) const {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? nullptr : at->second;
}

void Registry::remove(std::int64_t id) {
  std::shared_ptr<Entry> last;  // destroyed after the lock: it may close the communicator
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  if (at == entries_.end()) return;
  last = std::move(at->second);
  entries_.erase(at);
}

std::vector<std::shared_ptr<Entry>> Registry::all() const {
  std::vector<std::shared_ptr<Entry>> all;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) all.push_back(entry);
  return all;
}

void Registry::leave_all() {
  for (const auto& entry : all()) {
    if (!entry->leaves_on_term()) continue;
    try {
      std::thread([entry] { entry->comm().leave(); }).detach();
    } catch (const std::system_error&) {  // no thread to be had: the program leaves when it hears
    }
  }
}

void Registry::abort_all() {
  for (const auto& entry : all()) {
    entry->rendezvous().abort();
    entry->comm().abort();
  }
}

}  // namespace jccl::xla_ext
