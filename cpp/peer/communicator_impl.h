// What a communicator is made of; communicator.h is the façade over it.
//
// Two threads per communicator: control (protocol, heartbeats) and data (links, kernels), so that
// votes and heartbeats never wait behind bulk data. Users' threads only post and wait.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "net/socket/loop.h"
#include "peer/call.h"
#include "peer/communicator.h"
#include "peer/control.h"
#include "peer/data_plane.h"
#include "peer/snapshots/own_state.h"
#include "peer/snapshots/snapshots.h"

namespace jccl::peer {

// How long past its deadline a wait still trusts the control thread to end it.
inline constexpr base::Duration kDeadlineSlack = 5 * base::kSecond;

base::Status forked_status();

class Communicator::Impl {
 public:
  explicit Impl(ConnectOptions options);
  ~Impl() { close(); }

  base::Status open();
  base::Status usable() const;
  base::Status room_for(const base::Tag& tag) const;   // both under mutex_
  base::Status state_tag(const base::Tag& tag) const;  // whether a snapshot of it can be had
  void close();

  // `blocks`: who starts it waits for it in the same call.
  base::Result<Handle> start(const std::vector<Leaf>& leaves, const RoundOptions& options,
                             bool stage, bool blocks = false);
  RoundResult wait(Handle handle, const std::vector<void*>* outs, OnFailure on_failure);
  bool finished(Handle handle);
  bool is_open(Handle handle);
  void abort();
  void leave();
  base::Result<std::string> record(const std::string& why);
  std::vector<RoundTimes> timeline();
  base::Status check_state(const RoundOptions& options);
  std::string new_mistake(const base::Tag& tag);
  SyncResult sync_state(const std::vector<Leaf>& leaves, const SyncOptions& options);
  SyncResult publish(const std::vector<Leaf>& leaves, const SyncOptions& options);

  ConnectOptions options_;
  pid_t pid_;
  net::Loop control_loop_;
  net::Loop data_loop_;
  SnapshotStore store_;
  BufferPool staging_;
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<Control> control_;
  std::string listen_text_;

  std::mutex mutex_;                 // of the tables below; taken before control's
  std::atomic<bool> closed_{false};  // written under mutex_
  std::atomic<bool> closing_{false};
  std::condition_variable closed_changed_;
  Handle next_handle_ = 1;
  std::map<Handle, CallRef> calls_;
  std::map<base::Tag, Handle> open_tags_;
  struct Book {
    std::uint64_t revision = 0;  // rounds of the tag whose result was delivered here
    OwnState state;
  };
  std::map<base::Tag, Book> books_;
  std::deque<RoundTimes> timeline_;

 private:
  SyncResult sync(const std::vector<Leaf>& leaves, const SyncOptions& options, SnapshotRef own,
                  bool is_own);
  std::uint64_t user_has(const base::Tag& tag, const StoredSnapshot& own);
  SnapshotRef held_as(const base::Tag& tag, const SyncResult& newest, const SnapshotRef& own);
  base::Status admit_before_state(const RoundOptions& options);
  base::Status begin_comparison(const CallRef& call, const RoundOptions& options, bool beside);
  void compare_beside(const CallRef& call, const std::vector<Leaf>& state);
  TooLate is_past(base::Time limit);
  // Both under mutex_.
  base::Status admit_state(const base::Tag& tag, bool is_handed);
  base::Status compare_state(const base::Tag& tag, const std::optional<StateMarks>& handed,
                             const std::vector<Leaf>* leaves);
  void note_times(const CallRecord& call, base::Time awaited);  // under mutex_
  void forget_lost(const base::Tag& tag, base::Time limit);
  bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                  base::Time limit, const std::function<bool()>& ready);
  base::Duration deadline_of(base::Duration wished) const {
    // Far beyond any wish, and near enough that the clock can be added to it.
    constexpr base::Duration kYears = 10 * 365 * 86'400 * base::kSecond;
    return std::min(wished > 0 ? wished : options_.deadline, kYears);
  }
};

}  // namespace jccl::peer
