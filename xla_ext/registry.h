// Communicators by number, so that a compiled program can name one by an int64 attribute: XLA's own
// per-call state is not portable between versions. Ids are never reused in a process. After a fork
// the child starts with an empty registry (the threads behind the entries exist only in the
// parent), so its calls find nothing and answer kClosed. Never destroyed: a handler may still run
// at exit. Called from any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device_rendezvous.h"
#include "peer/communicator.h"

namespace jccl::xla_ext {

// What a program's done() must match, kept from its start(): size of every leaf.
struct Shape {
  codec::Dtype dtype = codec::Dtype::kF32;
  std::uint64_t count = 0;
  bool operator==(const Shape&) const = default;
};

// What done() is told of a handle that leads nowhere, or to leaves of other sizes.
base::Status unknown_handle(peer::Handle handle);
base::Status other_leaves(const base::Tag& tag);

// A call of a program that did not end with kOk, for a watcher beside the program.
struct Fault {
  std::uint64_t number = 0;  // among this communicator's, from 1
  base::Tag tag;
  base::Status status;
  std::uint32_t row = 0;  // how many calls of the tag have ended with this code in a row

  void follow(base::Code code);  // one more call of the tag has ended so
};

// Who is in the result of a tag's last round that committed here, as every member of the round
// heard it; the wire's order, ascending by id.
struct Counted {
  std::uint64_t n = 0;
  std::vector<base::PeerId> ids;
  std::vector<double> weights;
};

class Entry {
 public:
  Entry(std::shared_ptr<peer::Communicator> communicator, std::int64_t id);

  peer::Communicator& comm() const { return *communicator_; }
  std::int64_t id() const { return id_; }
  bool foreign() const;  // made in another process (fork): must not be touched

  // kLocalSkew if another device of this process has called the same tag in the same execution by
  // an op that speaks for the whole peer: as rounds of their own they would add up different
  // shards.
  base::Status enter(const base::Tag& tag, std::int64_t execution, std::int32_t device);

  // Of the devices of this process that make one call together, the first by ordinal speaks for
  // all: known once all have arrived.
  void arrives(const base::Tag& tag, std::int64_t execution, std::int32_t device);
  bool speaks(const base::Tag& tag, std::int64_t execution, std::int32_t device) const;

  // Of the ops that local devices make together.
  RendezvousTable& rendezvous() { return rendezvous_; }

  // What another platform's route keeps for this communicator, made when first asked for; null
  // once it was let go of, which is when the communicator is closed. That ends open rendezvous too.
  std::shared_ptr<void> attached(const std::function<std::shared_ptr<void>()>& make);
  void let_go();

  // Whether SIGTERM makes this peer leave at once, before its program gets to know.
  void leave_on_term(bool leaves) { leaves_on_term_ = leaves; }
  bool leaves_on_term() const { return leaves_on_term_; }

  // Keeps faults. kOk ends the row of its tag, so only the end of a round may be noted with it.
  void note(const base::Tag& tag, const base::Status& status);
  std::vector<Fault> faults_after(std::uint64_t number) const;  // at most the last 256
  std::vector<Fault> open_faults() const;  // the last of each tag that has not committed since
  std::string last_fault(const base::Tag& tag) const;

  // Keeps who is in a result that this peer has, of each tag the newest.
  void count(const base::Tag& tag, const peer::RoundResult& committed);
  Counted counted(const base::Tag& tag) const;  // n = 0: none has committed here

  void opened(peer::Handle handle, const base::Tag& tag, std::vector<Shape> shapes);
  // Takes an open handle out. kUnknownTag: there is none; kInvalid: its leaves are others.
  base::Status take(peer::Handle handle, const std::vector<Shape>& shapes, base::Tag* tag);

 private:
  struct LocalCall {
    std::int64_t execution = 0;
    std::int32_t device = 0;
  };
  struct Open {
    base::Tag tag;
    std::vector<Shape> shapes;
  };

  const std::shared_ptr<peer::Communicator> communicator_;
  const std::int64_t id_;
  const pid_t pid_;
  mutable std::mutex mutex_;
  std::map<base::Tag, LocalCall> calls_;
  std::map<base::Tag, LocalCall> speakers_;
  std::map<base::Tag, std::string> faults_;
  std::map<base::Tag, Fault> rows_;  // the last fault of each tag that has not committed since
  std::deque<Fault> recent_;
  std::map<base::Tag, Counted> counted_;
  std::uint64_t noted_ = 0;
  std::map<peer::Handle, Open> open_;
  RendezvousTable rendezvous_;
  std::shared_ptr<void> attached_;
  bool let_go_ = false;
  std::atomic<bool> leaves_on_term_{false};
};

class Registry {
 public:
  static Registry& get();
  std::shared_ptr<Entry> add(std::shared_ptr<peer::Communicator> communicator);
  std::shared_ptr<Entry> find(std::int64_t id) const;  // null: closed, unknown, or of the parent
  void remove(std::int64_t id);
  void abort_all();
  void leave_all();  // of those that leave on SIGTERM; does not wait for them

 private:
  explicit Registry(std::int64_t next) : next_(next) {}
  static void after_fork_in_child();
  std::vector<std::shared_ptr<Entry>> all() const;

  mutable std::mutex mutex_;
  std::int64_t next_;
  std::map<std::int64_t, std::shared_ptr<Entry>> entries_;
};

}  // namespace jccl::xla_ext
