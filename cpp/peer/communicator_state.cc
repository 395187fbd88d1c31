// A communicator's shared state: compared with what this peer published or adopted, beside a call's
// data or before it; brought to the run's newest revision; published.
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "peer/communicator_impl.h"

namespace jccl::peer {

using base::cat;
using base::Code;
using base::Status;

Status Communicator::Impl::state_tag(const base::Tag& tag) const {
  if (Status status = usable(); !status.ok()) return status;
  if (Status status = check_tag(tag); !status.ok()) return status;
  return room_for(tag);
}

// Before anything is copied or sent. A state that was edited is behind, whatever its number says.
Status Communicator::Impl::check_state(const RoundOptions& options) {
  if (::getpid() != pid_) return forked_status();
  std::optional<StateMarks> handed = options.state;
  if (options.state_leaves) {
    const base::Time limit = control_loop_.now() + deadline_of(options.deadline);
    handed = marks_in_time(*options.state_leaves, is_past(limit));
    if (!handed)
      return {Code::kDeadline, "the deadline passed before this peer had compared its own state"};
  }
  std::lock_guard lock(mutex_);
  Status status = admit_state(options.tag, handed.has_value());
  if (status.ok()) {
    status =
        compare_state(options.tag, handed, options.state_leaves ? &*options.state_leaves : nullptr);
  }
  if (status.code == Code::kResync && options_.shards == 1) {
    control_->state_changed(options.tag, status.text);
  }
  return status;
}

Status Communicator::Impl::admit_state(const base::Tag& tag, bool is_handed) {
  if (const Status open = usable(); !open.ok()) return open;
  if (const Status room = room_for(tag); !room.ok()) return room;
  return books_[tag].state.admit(tag, is_handed);
}

Status Communicator::Impl::compare_state(const base::Tag& tag,
                                         const std::optional<StateMarks>& handed,
                                         const std::vector<Leaf>* leaves) {
  Book& book = books_[tag];
  const bool ahead = book.revision != book.state.revision();
  if (!handed || ahead || JCCL_PLANTED("ahead-for-ever")) return {};  // the machine refuses it
  return book.state.compare(tag, *handed, leaves);
}

TooLate Communicator::Impl::is_past(base::Time limit) {
  return [this, limit] {
    return control_loop_.now() >= limit && !JCCL_PLANTED("comparison-outlives-deadline");
  };
}

// While the data of the call move: reading a state takes longer than a short message. What is kept
// back when its deadline comes stays so.
void Communicator::Impl::compare_beside(const CallRef& call, const std::vector<Leaf>& state) {
  const base::Tag& tag = call->options.tag;
  const base::Time limit = call->begun + deadline_of(call->options.deadline);
  const std::optional<StateMarks> handed = marks_in_time(state, is_past(limit));
  if (!handed) return;
  Status status;
  {
    std::lock_guard lock(mutex_);
    status = compare_state(tag, handed, &state);
  }
  call->differs = status.text;
  call->compared = status.ok() ? Comparison::kEqual : Comparison::kDiffers;
  if (!status.ok()) control_->state_changed(tag, status.text);
  data_loop_.post([this, call] { plane_->fed(call); });
}

std::string Communicator::Impl::new_mistake(const base::Tag& tag) {
  std::lock_guard lock(mutex_);
  const auto book = books_.find(tag);
  return book == books_.end() ? "" : book->second.state.new_mistake();
}

// See RoundOptions::state_tag.
Status Communicator::Impl::admit_before_state(const RoundOptions& options) {
  RoundOptions of_state = options;
  of_state.tag = options.state_tag;
  if (Status status = check_state(of_state); !status.ok()) return status;
  if (control_->needs_resync(options.state_tag)) {
    return {Code::kResync,
            cat("this peer's state of '", options.state_tag, "' differs from the run's")};
  }
  std::lock_guard lock(mutex_);
  return admit_state(options.tag, false);
}

// Not ok: the call does not begin. Of a site with more shards it begins all the same if the state
// differs: the end of its attempt is what the others' calls end by.
Status Communicator::Impl::begin_comparison(const CallRef& call, const RoundOptions& options,
                                            bool beside) {
  if (beside) {
    std::lock_guard lock(mutex_);
    call->compared = Comparison::kRuns;
    return admit_state(options.tag, true);
  }
  Status status = check_state(options);
  if (status.code != Code::kResync || options_.shards == 1) return status;
  call->differs = status.text;
  call->compared = Comparison::kDiffers;
  return {};
}

// What is held of the run's newest revision, under the number that joiners ask for it by. It may
// have come here as another: in a checkpoint, or as an earlier revision that the run went back to,
// or that its rounds left as it was.
SnapshotRef Communicator::Impl::held_as(const base::Tag& tag, const SyncResult& newest,
                                        const SnapshotRef& own) {
  const SnapshotRef numbered = store_.find(tag, newest.revision);
  if (numbered && numbered->held.digest == newest.digest) return numbered;
  const bool is_own =
      own->held.digest == newest.digest || JCCL_PLANTED("fetched-as-another-number");
  const SnapshotRef held = is_own ? own : store_.find(tag, newest.digest);
  const bool keep = !held || JCCL_PLANTED("held-by-an-old-number");
  return keep ? held : store_.renumber(held, newest.revision);
}

// Not what lies here since a call fetched it and ended before it could hand it out.
std::uint64_t Communicator::Impl::user_has(const base::Tag& tag, const StoredSnapshot& own) {
  std::lock_guard lock(mutex_);
  const Book& book = books_[tag];
  return book.state.known() ? book.state.revision() : own.held.revision;
}

// Brings the own state, held as `own`, to the run's newest revision. Unless it `is_own`, the leaves
// are some other state that a caller took for it.
SyncResult Communicator::Impl::sync(const std::vector<Leaf>& leaves, const SyncOptions& options,
                                    SnapshotRef own, bool is_own) {
  SyncResult result;
  const Descriptor descriptor = describe_state(leaves);
  auto record = std::make_shared<SyncRecord>();
  record->tag = options.tag;
  record->layout = own->layout;
  protocol::SyncCall order;
  order.tag = options.tag;
  order.source = options.source;
  order.restore = options.restore;
  order.user_has = user_has(options.tag, *own);
  order.revision = own->held.revision;
  order.digest = own->held.digest;
  order.descriptor = descriptor.digest;
  order.summary = descriptor.summary;
  const base::Duration deadline = deadline_of(options.deadline);
  order.deadline = control_loop_.now() + deadline;
  forget_lost(options.tag, order.deadline);  // with the state that is replaced
  const std::uint64_t received = store_.received(options.tag);
  control_->sync(order, record);
  {
    std::unique_lock lock(control_->mutex());
    wait_until(lock, control_->changed(), order.deadline + kDeadlineSlack,
               [&] { return record->done; });
    if (!record->done) record->status = {Code::kInternal, "synchronising outlived its deadline"};
    result.status = record->status;
    result.revision = record->held.revision;
    result.digest = record->held.digest;
    result.went_back = record->went_back;
  }
  result.received_bytes = store_.received(options.tag) - received;
  if (!result.status.ok()) return result;
  const SnapshotRef newest = held_as(options.tag, result, own);
  const auto held = newest ? leaves_in(*newest, leaves) : std::nullopt;
  if (!held) {
    result.status = {Code::kInternal, newest ? "the fetched state does not fit its leaves"
                                             : "the run's newest state is not here"};
    control_->state_changed(options.tag, result.status.text);
    return result;
  }
  StateMarks marks = newest->marks.empty() ? marks_of(*held) : newest->marks;
  result.replaced = (result.digest != own->held.digest && !JCCL_PLANTED("replaced-not-told")) ||
                    (!is_own && marks_of(leaves) != marks);
  result.went_back = result.went_back && result.replaced && !JCCL_PLANTED("went-back-untold");
  copy_out(*newest, leaves);
  {
    std::lock_guard lock(mutex_);
    Book& book = books_[options.tag];
    // Another thread may have taken a round's result since, and published what followed.
    book.revision = std::max(book.revision, result.revision);
    if (!book.state.known() || book.state.revision() <= result.revision) {
      book.state.become(result.revision, leaves, std::move(marks));
      book.state.settled();
    }
  }
  control_->published({options.tag, result.revision, result.digest});
  return result;
}

SyncResult Communicator::Impl::sync_state(const std::vector<Leaf>& leaves,
                                          const SyncOptions& options) {
  if (::getpid() != pid_) return {forked_status(), 0, {}, false};  // a lock may be held for ever
  std::uint64_t revision = 0;
  std::optional<std::uint64_t> shared;  // the last that was published or adopted here
  StateMarks marks;                     // of that
  {
    std::lock_guard lock(mutex_);
    const Status open = state_tag(options.tag);
    if (!open.ok()) return {open, 0, {}, false};
    const Book& book = books_[options.tag];
    revision = book.revision;
    if (book.state.known()) shared = book.state.revision();
    marks = book.state.marks();
  }
  SnapshotRef own = store_.newest(options.tag);
  const bool pending = shared != revision && JCCL_PLANTED("unpublished-state-votes");
  const bool has_own = shared && !pending && own && leaves_in(*own, leaves).has_value();
  if (has_own && options.restore != base::Wish::kNone &&
      !JCCL_PLANTED("wish-of-a-current-one-unheard")) {
    // Served under the number that the run gives it, not before.
    SnapshotRef wished = store_.make(options.tag, 0, leaves);
    if (wished->marks != marks) return sync(leaves, options, std::move(wished), true);
  }
  // What was published or adopted stays what this peer holds, whatever is handed in. Of a round
  // that was taken and not published it says nothing: only publish() knows what followed from the
  // result.
  if (has_own) return sync(leaves, options, std::move(own), false);
  own = store_.add(options.tag, pending ? revision : shared.value_or(revision), leaves);
  return sync(leaves, options, std::move(own), true);
}

SyncResult Communicator::Impl::publish(const std::vector<Leaf>& leaves,
                                       const SyncOptions& options) {
  if (::getpid() != pid_) return {forked_status(), 0, {}, false};  // a lock may be held for ever
  SnapshotRef own = store_.newest(options.tag);
  std::uint64_t revision = 0, held = 0;
  {
    std::lock_guard lock(mutex_);
    const Status open = state_tag(options.tag);
    if (!open.ok()) return {open, 0, {}, false};
    Book& book = books_[options.tag];
    if (!book.state.known()) return {book.state.never_synchronised(options.tag), 0, {}, false};
    if (const std::string other = book.state.other_type(leaves); !other.empty()) {
      const std::string text = cat("the state of '", options.tag, "' is not published: ", other);
      return {{Code::kMismatch, text}, 0, {}, false};
    }
    revision = book.revision;
    held = book.state.revision();
  }
  bool edited = false;
  if (options.before || held == revision) {
    const StateMarks handed = options.before ? *options.before : marks_of(leaves);
    std::lock_guard lock(mutex_);
    edited = !books_[options.tag].state.check_before(options.tag, handed).ok();
  }
  if (edited) control_->state_changed(options.tag, "the state was changed before it was published");
  const bool news = !edited && held != revision;
  if (news) {
    own.reset();
    own = store_.add(options.tag, revision, leaves);
    std::lock_guard lock(mutex_);
    books_[options.tag].state.become(revision, leaves, own->marks);
  }
  if (edited || control_->needs_resync(options.tag)) {
    const bool is_own = news || (!edited && own->held.revision == held);
    SyncResult result = sync(leaves, options, std::move(own), is_own);
    result.edited = edited;
    result.replaced = result.replaced || edited;  // who kept a copy of it must take it from `out`
    if (result.status.ok()) {
      result.status = {Code::kResynced, cat("state replaced by revision ", result.revision)};
    }
    return result;
  }
  if (news) control_->published(own->held);
  for (const Leaf& leaf : leaves) {
    const std::size_t bytes = leaf.count * codec::size_of(leaf.dtype);
    if (leaf.out != nullptr && leaf.out != leaf.in && bytes > 0) {
      if (!JCCL_PLANTED("publish-copies-nothing")) std::memcpy(leaf.out, leaf.in, bytes);
    }
  }
  return {{}, own->held.revision, own->held.digest, false};
}

}  // namespace jccl::peer
